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
        pieces: call → for each output position the `Piece` of the call's input that it is.
            An empty dict, or a position left out, says that this output is no plain selection
            along known indices (a tensor in the key, an unknown size, the batch axis …).
    """

    handles: tuple[type, ...]
    pieces: Callable[[Call], dict[int, Piece]]


def whole(rank: int) -> list:
    """Picks that select everything."""
    return [None] * rank


def one_axis(call: Call, axis: int, picked) -> Piece:
    """The piece that picks along one axis and keeps the others."""
    source = call.inputs[0]
    picks = whole(len(source.shape))
    picks[axis] = picked
    return Piece(source, tuple(picks))
