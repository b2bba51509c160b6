"""`ops.split` and `ops.unstack`: one operation, an output for each lane.

    split(x, 3, axis=1)         output m: Piece(x, (None, (w·m, …, w·m + w - 1)))
    split(x, [2, 5], axis=1)    output 1: Piece(x, (None, (2, 3, 4)))
    unstack(x, axis=1)          output m: Piece(x, (None, m))
"""

from collections.abc import Sequence
from itertools import pairwise

from parallel_fuse import _keras
from parallel_fuse.graph import Call
from parallel_fuse.plan import Piece
from parallel_fuse.splits.base import Split, one_axis


def split_pieces(call: Call) -> dict[int, Piece]:
    axis, size = _axis(call)
    bounds = None if size is None else _bounds(call.operation.indices_or_sections, size)
    if bounds is None:
        return {}
    runs = [tuple(range(*pair)) for pair in pairwise(bounds)]
    return {i: one_axis(call, axis, run) for i, run in enumerate(runs)}


def unstack_pieces(call: Call) -> dict[int, Piece]:
    axis, size = _axis(call)
    if len(call.outputs) != size:
        return {}
    return {i: one_axis(call, axis, i) for i in range(size)}


def _axis(call: Call) -> tuple[int, int | None]:
    shape = call.inputs[0].shape
    axis = call.operation.axis % len(shape)
    return axis, shape[axis]


def _bounds(sections: int | Sequence[int], size: int) -> list[int] | None:
    """Where the parts begin and end; None where the backends read the indices differently."""
    if isinstance(sections, int):
        width, rest = divmod(size, sections)
        return None if rest else list(range(0, size + 1, width))
    bounds = [0, *(int(i) for i in sections), size]
    return bounds if bounds == sorted(bounds) else None


SPLIT = Split(handles=(_keras.Split,), pieces=split_pieces)
UNSTACK = Split(handles=(_keras.Unstack,), pieces=unstack_pieces)
