"""Selections of tensors: composing them, and turning M of one tensor into lanes.

Slices that tile an axis cost nothing: the tensor already is the lanes, in one layout or another.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from keras import ops

from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.lanes import Lanes, Layout, pick
from parallel_fuse.plan import Piece
from parallel_fuse.rulebook import rule_for
from parallel_fuse.splits.base import Split

Pick = None | int | tuple[int, ...]


def pieces_of(graph: Graph, splits: Sequence[Split]) -> dict[int, Piece]:
    """value index → the piece of its root source, for every value that is a selection."""
    rule_of = rule_for(splits)
    found: dict[int, Piece] = {}
    for call in graph.calls:
        rule = rule_of(call)
        if rule is not None:
            found.update(_resolved(call, rule, found))
    return found


def without_steps(
    graph: Graph, pieces: Mapping[int, Piece], knows: Callable[[Call], bool]
) -> dict[int, Piece]:
    """The selections that may cut a tensor into lanes.

    The only part that is taken of what a layer makes is a step of that layer's branch, if the
    rules know both calls.
    """
    taken: dict[int, set] = {}
    for piece in pieces.values():
        taken.setdefault(piece.source.index, set()).add((piece.picks, piece.inserts))

    def is_step(value: Value) -> bool:
        source = pieces[value.index].source
        makers = graph.producer(source), graph.producer(value)
        return len(taken[source.index]) == 1 and all(maker and knows(maker) for maker in makers)

    made = (value for call in graph.calls for value in call.outputs)
    return {v.index: pieces[v.index] for v in made if v.index in pieces and not is_step(v)}


def _resolved(call: Call, rule: Split, known: dict[int, Piece]) -> dict[int, Piece]:
    found = {}
    for position, piece in rule.pieces(call).items():
        value = call.outputs[position]
        if not _selects(value, piece):
            continue
        below = known.get(piece.source.index)
        composed = None if below is None else compose(below, piece)
        found[value.index] = composed or piece
    return found


def _selects(value: Value, piece: Piece) -> bool:
    """Whether a value is a part of each sample, and nothing else has been done to it.

    A lane must begin with the batch axis, and a layer that selects may also cast.
    """
    batch = piece.picks[0] is None and 0 not in piece.inserts
    return batch and () not in piece.picks and value.dtype == piece.source.dtype


def compose(inner: Piece, outer: Piece) -> Piece | None:
    """`outer` taken of `inner`, as one piece of inner's source; None where it stays two steps."""
    if inner.inserts:
        return None
    left = iter(outer.picks)
    picks = tuple(p if isinstance(p, int) else _pick_of(p, next(left)) for p in inner.picks)
    return Piece(inner.source, picks, outer.inserts)


def _pick_of(inner: Pick, outer: Pick) -> Pick:
    if inner is None or outer is None:
        return inner if outer is None else outer
    return inner[outer] if isinstance(outer, int) else tuple(inner[i] for i in outer)


def varying_axes(pieces: Sequence[Piece]) -> tuple[int, ...] | None:
    """The axes along which pieces of one tensor differ: none, one, or those of a whole grid.

    None if they cannot be lanes of one tensor: different sources, mixed forms, gaps in the grid.
    """
    first = pieces[0]
    if any(p.source is not first.source or p.inserts != first.inserts for p in pieces):
        return None
    columns = list(zip(*(p.picks for p in pieces)))
    if any(len({_width(picked) for picked in column}) > 1 for column in columns):
        return None
    axes = tuple(axis for axis, column in enumerate(columns) if len(set(column)) > 1)
    cells = set(zip(*(columns[axis] for axis in axes)))
    full = len(cells) == prod(len(set(columns[axis])) for axis in axes)
    return axes if len(axes) < 2 or full else None


def _width(picked: Pick) -> int:
    """0 for an index (the axis goes), -1 for a whole axis, else how many entries are kept."""
    if picked is None:
        return -1
    return 0 if isinstance(picked, int) else len(picked)


def to_lanes(pieces: Sequence[Piece], source: Any, axes: Sequence[int], portable: bool) -> Lanes:
    """Lanes of a new tensor `source`, for pieces that differ along `axes` only (at least one)."""
    first = pieces[0]
    common = select(source, [None if a in axes else p for a, p in enumerate(first.picks)])
    gone = [a for a, p in enumerate(first.picks) if isinstance(p, int) and a not in axes]
    kept = [axis - sum(a < axis for a in gone) for axis in axes]
    columns = [[p.picks[axis] for p in pieces] for axis in axes]
    if len(axes) == 1:
        lanes = _along(common, kept[0], columns[0], portable)
    else:
        lanes = _grid(common, kept, columns, portable)
    return _with_new_axes(lanes, first.inserts)


def _along(tensor: Any, axis: int, picked: Sequence[Pick], portable: bool) -> Lanes:
    keeps = not isinstance(picked[0], int)
    indices = [i for entries in picked for i in entries] if keeps else picked
    return Lanes(
        len(picked), {Layout(axis, folded=keeps): pick(tensor, indices, axis)}, portable=portable
    )


def _grid(tensor: Any, axes: Sequence[int], columns: Sequence[Sequence[Pick]], portable) -> Lanes:
    """Lanes that differ along several axes; each axis joins the lane axis of those behind it.

    From the last axis to the first, so that the axes in front keep their places.
    """
    rows = [sorted(set(column)) for column in columns]
    at = axes[-1]
    tensor = _along(tensor, at, rows[-1], portable).to(Layout(at))
    for axis, row in reversed(list(zip(axes[:-1], rows))):
        at -= isinstance(row[0], int)
        tensor = _along(tensor, axis, row, portable).to(Layout(at, folded=True))
    place = {cell: i for i, cell in enumerate(product(*rows))}
    lanes = Lanes(len(place), {Layout(at): tensor}, portable=portable)
    return lanes.take([place[cell] for cell in zip(*columns)])


def select(tensor: Any, picks: Sequence[Pick]) -> Any:
    """`tensor[picks]`, by one indexing operation where that can say it."""
    key = [_as_key(p) for p in picks]
    for axis, entry in enumerate(key):
        if entry is None:
            tensor = ops.take(tensor, list(picks[axis]), axis=axis)
            key[axis] = slice(None)
    return tensor if all(entry == slice(None) for entry in key) else tensor[tuple(key)]


def cut(source: Any, piece: Piece) -> Any:
    """The piece of a new tensor `source`."""
    tensor = select(source, piece.picks)
    for insert in sorted(piece.inserts):
        tensor = ops.expand_dims(tensor, insert)
    return tensor


def _as_key(picked: Pick) -> int | slice | None:
    """What stands for a pick in `tensor[…]`; None for a list of indices that is no run."""
    if picked is None:
        return slice(None)
    if isinstance(picked, int):
        return picked
    run = range(picked[0], picked[-1] + 1)
    return slice(picked[0], picked[-1] + 1) if picked == tuple(run) else None


def _with_new_axes(lanes: Lanes, inserts: Sequence[int]) -> Lanes:
    if not inserts:
        return lanes
    layout, tensor = lanes.apart()
    axis = layout.axis
    for insert in sorted(inserts):
        before = insert < axis
        tensor = ops.expand_dims(tensor, insert if before else insert + 1)
        axis += before
    return Lanes(lanes.count, {Layout(axis): tensor}, portable=lanes.portable)
