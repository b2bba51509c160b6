"""New tensors for old values, singly or as lanes. The environment of the replay."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from parallel_fuse.graph import Value
from parallel_fuse.lanes import Lanes, Layout
from parallel_fuse.pieces import cut, to_lanes, varying_axes
from parallel_fuse.plan import Piece

Tensor = Any
SINGLE = ("single",)


@dataclass(frozen=True, eq=False)
class LaneRef:
    """An old value that is now one lane of many."""

    lanes: Lanes
    index: int


class Environment:
    """old value → new tensor, lane, or selection not yet emitted.

    Args:
        pieces: values that are selections; emitted one by one only where somebody needs them so.
        places: what tells one value from another; values with one place are one tensor.
        replay: value index → replays the call that made it (a selection, a chain's inner call).
    """

    def __init__(
        self,
        pieces: dict[int, Piece],
        places: dict[int, Hashable],
        replay: Callable[[int], None],
        portable: bool,
    ):
        self.pieces = pieces
        self.places = places
        self.replay = replay
        self.portable = portable
        self.known: dict[int, Tensor | LaneRef] = {}
        self.joined: dict[int, tuple[Lanes, Layout]] = {}
        self.gathered: dict[tuple, Lanes] = {}

    def bind(self, value: Value, tensor: Tensor) -> None:
        self.known[value.index] = tensor

    def bind_lanes(self, values: Iterable[Value], lanes: Lanes) -> None:
        for i, value in enumerate(values):
            self.known[value.index] = LaneRef(lanes, i)

    def bind_join(self, value: Value, lanes: Lanes, layout: Layout) -> None:
        """A tensor that is lanes laid side by side; cut at the same places it is them again."""
        self.known[value.index] = lanes.to(layout)
        self.joined[value.index] = lanes, layout

    def tensor(self, value: Value) -> Tensor:
        """One value on its own."""
        if value.index not in self.known:
            self.replay(value.index)
        found = self.known[value.index]
        return found.lanes.lane(found.index) if isinstance(found, LaneRef) else found

    def lanes(self, values: Sequence[Value]) -> Lanes:
        """M values as lanes, by the cheapest way there is; what one reader has made serves all."""
        key = tuple(self.places[v.index] for v in values)
        if key not in self.gathered:
            self.gathered[key] = self._gather(values)
        return self.gathered[key]

    def _gather(self, values: Sequence[Value]) -> Lanes:
        if len({self.places[v.index] for v in values}) == 1:
            return Lanes(len(values), same=self._cut(values[0]), portable=self.portable)
        origins = [origin for origin, _ in groupby(values, key=self._origin)]
        repeated = {o for o, times in Counter(origins).items() if times > 1} - {SINGLE}
        if repeated:
            return self._interleaved(values)
        return self._side_by_side(self._segments(values))

    def _side_by_side(self, segments: Sequence[Lanes]) -> Lanes:
        """Segments as one; neighbours that are single tensors are stacked together."""
        merged: list[Lanes] = []
        for single, run in groupby(segments, key=_is_list):
            run = list(run)
            merged += [self._of([t for s in run for t in s.parts])] if single else run
        if len(merged) == 1:
            return merged[0]
        count = sum(part.count for part in merged)
        return Lanes(count, parts=merged, portable=self.portable)

    def _of(self, tensors: Sequence[Tensor]) -> Lanes:
        return Lanes(len(tensors), parts=tensors, portable=self.portable)

    def _ref(self, value: Value) -> LaneRef | None:
        found = self.known.get(value.index)
        return found if isinstance(found, LaneRef) else None

    def _origin(self, value: Value) -> Any:
        """What neighbours must share to be taken together."""
        ref = self._ref(value)
        if ref is not None:
            return ("lanes", id(ref.lanes))
        piece = self.pieces.get(value.index)
        return SINGLE if piece is None else ("piece", piece.source.index, piece.inserts)

    def _segments(self, values: Sequence[Value]) -> list[Lanes]:
        """Runs of neighbours that come from one place, each as lanes."""
        runs = (list(run) for _, run in groupby(values, key=self._origin))
        return [lanes for run in runs for lanes in self._segment(run)]

    def _segment(self, run: list[Value]) -> list[Lanes]:
        refs = [self._ref(v) for v in run]
        if refs[0] is not None:
            return [refs[0].lanes.take([r.index for r in refs])]
        if run[0].index in self.pieces:
            pieces = [self.pieces[v.index] for v in run]
            axes = varying_axes(pieces) or ()
            again = self._joined_again(pieces, *axes) if len(axes) == 1 else None
            if again is not None:
                return [again]
            if axes:
                return [to_lanes(pieces, self.tensor(pieces[0].source), axes, self.portable)]
        return [self._of([self._cut(v) for v in run])]

    def _cut(self, value: Value) -> Tensor:
        """One value for a lane: a selection is made anew, whatever the layer was that made it."""
        piece = self.pieces.get(value.index)
        if piece is not None and value.index not in self.known:
            self.bind(value, cut(self.tensor(piece.source), piece))
        return self.tensor(value)

    def _joined_again(self, pieces: list[Piece], axis: int) -> Lanes | None:
        """The lanes that a join laid side by side, if these pieces are they."""
        lanes, layout = self.joined.get(pieces[0].source.index, (None, None))
        plain = not pieces[0].inserts and sum(p is not None for p in pieces[0].picks) == 1
        if lanes is None or lanes.sizes is not None or layout.axis != axis or not plain:
            return None
        size = pieces[0].source.shape[axis] // lanes.count
        places = {_block(i, size) if layout.folded else i: i for i in range(lanes.count)}
        numbers = [places.get(p.picks[axis]) for p in pieces]
        return None if None in numbers else lanes.take(numbers)

    def _interleaved(self, values: Sequence[Value]) -> Lanes:
        """Values of few origins in a mixed order: gather by origin, then put into order."""
        places: dict = {}
        ranks = [places.setdefault(self._origin(v), len(places)) for v in values]
        refs = [self._ref(v) for v in values]
        keys = [(rank, -1 if ref is None else ref.index) for rank, ref in zip(ranks, refs)]
        order = sorted(range(len(values)), key=keys.__getitem__)
        parts = self._segments([values[i] for i in order])
        back = sorted(range(len(order)), key=order.__getitem__)
        return Lanes(len(values), parts=parts, portable=self.portable, order=back)


def _is_list(lanes: Lanes) -> bool:
    """Whether the lanes are tensors one by one and nothing else."""
    parts = lanes.parts or (lanes,)
    plain = not any(isinstance(part, Lanes) for part in parts)
    return plain and not lanes.views and lanes.order is None


def _block(number: int, size: int) -> tuple[int, ...]:
    return tuple(range(number * size, (number + 1) * size))
