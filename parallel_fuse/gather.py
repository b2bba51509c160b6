"""New tensors for old values, singly or as lanes. The environment of the replay."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from parallel_fuse.graph import Value
from parallel_fuse.lanes import Lanes, pick
from parallel_fuse.pieces import to_lanes, varying_axis
from parallel_fuse.plan import Piece

Tensor = Any


@dataclass(frozen=True, eq=False)
class LaneRef:
    """An old value that is now one lane of many."""

    lanes: Lanes
    index: int


class Environment:
    """old value → new tensor, lane, or selection not yet emitted.

    Args:
        pieces: values that are selections; emitted one by one only where somebody needs them so.
        replay: value index → replays the call that made it (a selection, a chain's inner call).
    """

    def __init__(self, pieces: dict[int, Piece], replay: Callable[[int], None], portable: bool):
        self.pieces = pieces
        self.replay = replay
        self.portable = portable
        self.known: dict[int, Tensor | LaneRef] = {}

    def bind(self, value: Value, tensor: Tensor) -> None:
        self.known[value.index] = tensor

    def bind_lanes(self, values: Iterable[Value], lanes: Lanes) -> None:
        for i, value in enumerate(values):
            self.known[value.index] = LaneRef(lanes, i)

    def tensor(self, value: Value) -> Tensor:
        """One value on its own."""
        if value.index not in self.known:
            self.replay(value.index)
        found = self.known[value.index]
        return found.lanes.lane(found.index) if isinstance(found, LaneRef) else found

    def lanes(self, values: Sequence[Value]) -> Lanes:
        """M values as lanes, by the cheapest way there is."""
        if len({v.index for v in values}) == 1:
            return Lanes(len(values), same=self.tensor(values[0]), portable=self.portable)
        segments = self._segments(values)
        if len(segments) == 1:
            return segments[0]
        owners = {id(r.lanes) for r in map(self._ref, values) if r is not None}
        if len(owners) < len(segments) and len({v.shape for v in values}) == 1:
            return self._interleaved(values)
        return Lanes(len(values), parts=segments, portable=self.portable)

    def _ref(self, value: Value) -> LaneRef | None:
        found = self.known.get(value.index)
        return found if isinstance(found, LaneRef) else None

    def _origin(self, value: Value) -> Any:
        """What neighbours must share to be taken together."""
        ref = self._ref(value)
        if ref is not None:
            return ("lanes", id(ref.lanes))
        piece = self.pieces.get(value.index)
        return ("single",) if piece is None else ("piece", piece.source.index, piece.inserts)

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
            axis = varying_axis(pieces)
            if axis is not None and axis >= 0:
                return [to_lanes(pieces, self.tensor(pieces[0].source), axis, self.portable)]
        tensors = [self.tensor(v) for v in run]
        return [Lanes(len(tensors), parts=tensors, portable=self.portable)]

    def _interleaved(self, values: Sequence[Value]) -> Lanes:
        """Values of few origins in a mixed order: gather by origin, then put into order."""
        order = sorted(range(len(values)), key=lambda i: str(self._origin(values[i])))
        parts = self._segments([values[i] for i in order])
        joined = Lanes(len(values), parts=parts, portable=self.portable)
        layout = next((v.apart for p in parts for v in p.layouts), None)
        if layout is None:
            return joined
        back = sorted(range(len(order)), key=order.__getitem__)
        tensor = pick(joined.to(layout), back, layout.axis)
        return Lanes(len(values), {layout: tensor}, portable=self.portable)
