"""`x[…]` and `ops.take`: indices, slices, ellipsis, new axes and lists of indices.

    x[:, 3]                        Piece(x, (None, 3))
    x[:, 2:4]                      Piece(x, (None, (2, 3)))
    x[..., None, 1]                Piece(x, (None, …, 1), inserts=(rank - 1,))
    take(x, [4, 0, 4], axis=1)     Piece(x, (None, (4, 0, 4)))
"""

from operator import index
from typing import Any

import numpy as np
from keras import ops

from parallel_fuse import _keras
from parallel_fuse.graph import Call, Value
from parallel_fuse.plan import Piece
from parallel_fuse.splits.base import Split, entries_of, one_axis

UNKNOWN = NotImplemented  # an entry that selects nothing that is known beforehand


def getitem_pieces(call: Call) -> dict[int, Piece]:
    source, entries = call.inputs[0], entries_of(call)
    if entries is None:
        return {}
    picks, inserts, kept = [], [], 0
    for entry in entries:
        if entry is None:
            inserts.append(kept + len(inserts))
            continue
        picked = _pick(entry, source.shape[len(picks)])
        if picked is UNKNOWN:
            return {}
        picks.append(picked)
        kept += not isinstance(picked, int)
    return {0: Piece(source, tuple(picks), tuple(inserts))}


def _pick(entry: Any, size: int | None) -> Any:
    """None for everything, an int, a tuple of ints, or UNKNOWN."""
    if isinstance(entry, slice):
        return _pick_slice(entry, size)
    if isinstance(entry, bool) or size is None:
        return UNKNOWN
    try:
        position = index(entry)
    except TypeError:  # a boolean or an array: fancy indexing
        return UNKNOWN
    return position % size if -size <= position < size else UNKNOWN


def _pick_slice(entry: slice, size: int | None) -> Any:
    try:
        bounds = [None if b is None else index(b) for b in (entry.start, entry.stop, entry.step)]
    except TypeError:  # a tensor
        return UNKNOWN
    if bounds in ([None, None, None], [0, None, None], [None, None, 1], [0, None, 1]):
        return None
    if size is None:
        return UNKNOWN
    picked = tuple(range(size)[slice(*bounds)])
    return None if picked == tuple(range(size)) else picked


def take_pieces(call: Call) -> dict[int, Piece]:
    axis = call.operation.axis
    if axis is None or len(call.inputs) != 1 or len(call.args) != 2:
        return {}
    if not isinstance(call.args[0], Value):
        return {}
    axis %= len(call.inputs[0].shape)
    picked = _indices(call.args[1], call.inputs[0].shape[axis])
    return {} if picked is None else {0: one_axis(call, axis, picked)}


def _indices(given: Any, size: int | None) -> int | tuple[int, ...] | None:
    """The indices counted from the front; None if they are no list of known, valid indices."""
    array = ops.convert_to_numpy(given) if ops.is_tensor(given) else np.asarray(given)
    if size is None or array.ndim > 1 or not np.issubdtype(array.dtype, np.integer):
        return None
    if array.size == 0 or array.min() < -size or array.max() >= size:
        return None
    found = (array.astype("int64") % size).tolist()
    return found if isinstance(found, int) else tuple(found)


GETITEM = Split(handles=(_keras.GetItem,), pieces=getitem_pieces)
TAKE = Split(handles=(_keras.Take,), pieces=take_pieces)
