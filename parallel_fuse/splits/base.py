"""The protocol of a split: an operation whose outputs are selections of its input."""

from collections.abc import Callable
from dataclasses import dataclass

from parallel_fuse.graph import Call
from parallel_fuse.plan import Piece


@dataclass(frozen=True)
class Split:
    """The rule for one family of selecting operations.

    Attributes:
        handles: exact classes.
        takes: further calls, told by something else than their class; asked last.
        pieces: call → for each output position the `Piece` of the call's input that it is.
            An empty dict, or a position left out, says that this output is no plain selection
            along known indices (a tensor in the key, an unknown size, the batch axis …).
    """

    handles: tuple[type, ...]
    pieces: Callable[[Call], dict[int, Piece]]
    takes: Callable[[Call], bool] | None = None


def whole(rank: int) -> list:
    """Picks that select everything."""
    return [None] * rank


def one_axis(call: Call, axis: int, picked) -> Piece:
    """The piece that picks along one axis and keeps the others."""
    source = call.inputs[0]
    picks = whole(len(source.shape))
    picks[axis] = picked
    return Piece(source, tuple(picks))


def entries_of(call: Call) -> tuple | None:
    """The key of `x[key]`, an entry for each axis and new axis; None if a tensor stands in it."""
    if len(call.inputs) != 1 or len(call.args) != 2:
        return None
    key = call.args[1]
    key = tuple(key) if isinstance(key, (tuple, list)) else (key,)
    return _expanded(key, len(call.inputs[0].shape))


def _expanded(key: tuple, rank: int) -> tuple | None:
    """The key with its ellipsis and its missing tail written out; None where it is too long."""
    dots = [i for i, entry in enumerate(key) if entry is Ellipsis]
    missing = rank + sum(entry is None for entry in key) + len(dots) - len(key)
    if missing < 0 or len(dots) > 1:
        return None
    at = dots[0] if dots else len(key)
    return (*key[:at], *[slice(None)] * missing, *key[at + 1 :])
