"""`x[…]` and `ops.take`: indices, slices, ellipsis, new axes and lists of indices.

    x[:, 3]      Piece(x, (None, 3))
    x[:, 2:4]    Piece(x, (None, (2, 3)))
"""

from operator import index

from parallel_fuse import _keras
from parallel_fuse.graph import Call
from parallel_fuse.plan import Piece
from parallel_fuse.splits.base import Split, one_axis


def getitem_pieces(call: Call) -> dict[int, Piece]:
    source = call.inputs[0]
    key = call.args[1] if len(call.args) > 1 else call.kwargs.get("key")
    entries = _expanded(key if isinstance(key, tuple) else (key,), len(source.shape))
    if entries is None or len(call.inputs) != 1:
        return {}
    picks, inserts, kept = [], [], 0
    for entry in entries:
        if entry is None:
            inserts.append(kept + len(inserts))
            continue
        picked = _pick(entry, source.shape[len(picks)])
        if picked is NotImplemented:
            return {}
        picks.append(picked)
        kept += not isinstance(picked, int)
    if picks[0] is not None:
        return {}
    return {0: Piece(source, tuple(picks), tuple(inserts))}


def _expanded(key: tuple, rank: int) -> tuple | None:
    """The key with its ellipsis and its missing tail written out; None where it is too long."""
    dots = sum(entry is Ellipsis for entry in key)
    missing = rank - sum(entry is not None and entry is not Ellipsis for entry in key)
    if missing < 0 or dots > 1:
        return None
    if not dots:
        return (*key, *[slice(None)] * missing)
    at = next(i for i, entry in enumerate(key) if entry is Ellipsis)
    return (*key[:at], *[slice(None)] * missing, *key[at + 1 :])


def _pick(entry, size: int | None):
    """None for everything, an int, a tuple of ints; NotImplemented for what is not constant."""
    if isinstance(entry, bool):
        return NotImplemented
    if isinstance(entry, slice):
        return _pick_slice(entry, size)
    try:
        position = index(entry)
    except TypeError:
        return NotImplemented
    if size is None:
        return NotImplemented
    return position % size if -size <= position < size else NotImplemented


def _pick_slice(entry: slice, size: int | None):
    if entry == slice(None) or entry == slice(None, None, 1):
        return None
    try:
        bounds = [None if b is None else index(b) for b in (entry.start, entry.stop, entry.step)]
    except TypeError:
        return NotImplemented
    if size is None:
        return NotImplemented
    picked = tuple(range(size)[slice(*bounds)])
    return None if picked == tuple(range(size)) else picked


GETITEM = Split(handles=(_keras.GetItem,), pieces=getitem_pieces)
