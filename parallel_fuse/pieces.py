"""Selections of tensors: composing them, and turning M of one tensor into lanes.

Slices that tile an axis cost nothing: the tensor already is the lanes, in one layout or another.
"""

from collections.abc import Sequence

from keras import ops

from parallel_fuse.graph import Call, Graph
from parallel_fuse.lanes import Lanes, Layout, pick
from parallel_fuse.plan import Piece
from parallel_fuse.splits.base import Split


def pieces_of(graph: Graph, splits: Sequence[Split]) -> dict[int, Piece]:
    """value index → the piece of its root source, for every value that is a selection."""
    rules = {cls: split for split in reversed(splits) for cls in split.handles}
    found: dict[int, Piece] = {}
    for call in graph.calls:
        rule = rules.get(type(call.operation))
        if rule is not None:
            found.update(_resolved(call, rule, found))
    return found


def _resolved(call: Call, rule: Split, known: dict[int, Piece]) -> dict[int, Piece]:
    found = {}
    for position, piece in rule.pieces(call).items():
        below = known.get(piece.source.index)
        composed = None if below is None else compose(below, piece)
        found[call.outputs[position].index] = composed or piece
    return found


def compose(inner: Piece, outer: Piece) -> Piece | None:
    """`outer` taken of `inner`, as one piece of inner's source; None where it stays two steps."""
    if inner.inserts:
        return None
    picks, position = [], 0
    for picked in inner.picks:
        if isinstance(picked, int):
            picks.append(picked)
            continue
        picks.append(_pick_of(picked, outer.picks[position]))
        position += 1
    return Piece(inner.source, tuple(picks), outer.inserts)


def _pick_of(inner, outer):
    if inner is None or outer is None:
        return inner if outer is None else outer
    if isinstance(outer, int):
        return inner[outer]
    return tuple(inner[i] for i in outer)


def varying_axis(pieces: Sequence[Piece]) -> int | None:
    """The one axis along which pieces of one tensor differ; -1 if they are all equal.

    None if they cannot be lanes of one tensor: different sources, several axes, mixed forms.
    """
    first = pieces[0]
    if any(p.source is not first.source or p.inserts != first.inserts for p in pieces):
        return None
    axes = [a for a, picks in enumerate(zip(*(p.picks for p in pieces))) if len(set(picks)) > 1]
    if not axes:
        return -1
    if len(axes) > 1 or len({_width(p.picks[axes[0]]) for p in pieces}) > 1:
        return None
    return axes[0]


def _width(picked) -> int:
    """0 for an index (the axis goes), -1 for a whole axis, else how many entries are kept."""
    if picked is None:
        return -1
    return 0 if isinstance(picked, int) else len(picked)


def to_lanes(pieces: Sequence[Piece], source, axis: int, portable: bool) -> Lanes:
    """Lanes of a new tensor `source`, for pieces that differ along `axis` only."""
    picks = list(pieces[0].picks)
    picks[axis] = None
    common = select(source, picks)
    at = axis - sum(isinstance(p, int) for p in picks[:axis])
    chosen = [p.picks[axis] for p in pieces]
    keeps = not isinstance(chosen[0], int)
    indices = [i for c in chosen for i in c] if keeps else chosen
    tensor = pick(common, indices, at)
    lanes = Lanes(len(pieces), {Layout(at, folded=keeps): tensor}, portable=portable)
    return _with_new_axes(lanes, at, pieces[0].inserts)


def select(tensor, picks: Sequence) -> object:
    """`tensor[picks]`, by one indexing operation where that can say it."""
    for axis, picked in enumerate(picks):
        if isinstance(picked, tuple):
            tensor = pick(tensor, picked, axis)
    if not any(isinstance(p, int) for p in picks):
        return tensor
    return tensor[tuple(p if isinstance(p, int) else slice(None) for p in picks)]


def _with_new_axes(lanes: Lanes, axis: int, inserts: Sequence[int]) -> Lanes:
    if not inserts:
        return lanes
    tensor = lanes.to(Layout(axis))
    for insert in sorted(inserts):
        before = insert < axis
        tensor = ops.expand_dims(tensor, insert if before else insert + 1)
        axis += before
    return Lanes(lanes.count, {Layout(axis): tensor}, portable=lanes.portable)
