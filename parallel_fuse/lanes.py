"""M tensors carried as one value. The only file that stacks, folds, transposes or slices lanes.

    Layout(p)                lane axis at position p:      (batch, …, M, …, C)
    Layout(a, folded=True)   lane axis merged into axis a: (batch, …, M·C, …)

`Layout(0)` is the leading form (M, batch, …), made for batched matmul. `x[:, i]` of a tensor `x`
makes `x` itself `Layout(1)`; the slices `x[..., i:j]` make it folded into the last axis, and so
does a Concatenate. Folding a lane axis at p gives `Layout(p, folded=True)` by a reshape that moves
no data; only a change of position costs a transpose. Views are made on demand and kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

from keras import ops

from parallel_fuse.layers.reshaping import FoldLanes, UnfoldLanes

Tensor = Any


@dataclass(frozen=True)
class Layout:
    """Where the lanes are. See the module docstring."""

    axis: int
    folded: bool = False

    @property
    def merged(self) -> "Layout":
        return Layout(self.axis, True)

    @property
    def apart(self) -> "Layout":
        return Layout(self.axis)


LEADING = Layout(0)
INNER = Layout(1)
IN_BATCH = Layout(0, folded=True)


class Lanes:
    """M tensors of one rank.

    Args:
        count: M.
        views: the forms at hand, layout → tensor.
        parts: the tensors one by one, or other Lanes to be joined in order.
        same: the one tensor that all lanes are.
        sizes: widths along the folded axis, only where they differ between lanes.
        order: lane i is the order[i]-th of the parts' lanes; as they come if None.
    """

    def __init__(
        self, count, views=None, parts=None, same=None, sizes=None, portable=False, order=None
    ):
        self.count = count
        self.views: dict[Layout, Tensor] = dict(views or {})
        self.parts: tuple | None = None if parts is None else tuple(parts)
        self.order: tuple[int, ...] | None = None if order is None else tuple(order)
        self.same = same
        self.sizes: tuple[int, ...] | None = sizes
        self.portable = portable
        self.scattered = False  # many lanes are read on their own: take them apart at once
        self._unstacked: list[Tensor] | None = None

    @property
    def rank(self) -> int:
        """The rank of one lane."""
        if self.same is not None:
            return len(self.same.shape)
        if self.parts is not None:
            part = self.parts[0]
            return part.rank if isinstance(part, Lanes) else len(part.shape)
        layout, tensor = next(iter(self.views.items()))
        return len(tensor.shape) - (not layout.folded)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The layouts that cost no transpose: those at hand, each folded and unfolded."""
        below = (p.layouts for p in self.parts or () if isinstance(p, Lanes))
        return tuple(self.views) or next((found for found in below if found), ())

    def to(self, layout: Layout) -> Tensor:
        """The lanes as one tensor in this layout."""
        if layout not in self.views:
            self.views[layout] = self._make(layout)
        return self.views[layout]

    def _make(self, layout: Layout) -> Tensor:
        if self.same is not None:
            return self._repeat(layout)
        if self.parts is not None:
            return self._join(layout)
        return self._convert(layout)

    def _repeat(self, layout: Layout) -> Tensor:
        if layout.folded:
            return ops.concatenate([self.same] * self.count, axis=layout.axis)
        return ops.repeat(ops.expand_dims(self.same, layout.axis), self.count, axis=layout.axis)

    def _join(self, layout: Layout) -> Tensor:
        meeting = self._meeting(layout)
        if meeting is not None:
            tensor = self._reordered(self._join_in_turn(meeting), meeting)
            return Lanes(self.count, {meeting: tensor}, portable=self.portable).to(layout)
        if self.order is not None and layout.folded and None in self._widths_in_turn(layout.axis):
            return ops.concatenate(self.all(), axis=layout.axis)
        return self._reordered(self._join_in_turn(layout), layout)

    def _meeting(self, layout: Layout) -> Layout | None:
        """Where the parts already are: joined there, they are moved together."""
        known = [set(p.views) for p in self.parts if isinstance(p, Lanes) and p.views]
        shared = [v for v in set.intersection(*known) if not v.folded] if len(known) > 1 else []
        widths = set(self._widths_in_turn(layout.axis)) if layout.folded else {0}
        return shared[0] if shared and len(widths) == 1 and None not in widths else None

    def _reordered(self, tensor: Tensor, layout: Layout) -> Tensor:
        if self.order is None or not layout.folded:
            return tensor if self.order is None else pick(tensor, self.order, layout.axis)
        widths = self._widths_in_turn(layout.axis)
        ends = list(accumulate(widths))
        columns = [c for i in self.order for c in range(ends[i] - widths[i], ends[i])]
        return pick(tensor, columns, layout.axis)

    def _join_in_turn(self, layout: Layout) -> Tensor:
        if not any(isinstance(part, Lanes) for part in self.parts):
            join = ops.concatenate if layout.folded else ops.stack
            return join(list(self.parts), axis=layout.axis)
        runs = groupby(self.parts, key=lambda part: isinstance(part, Lanes))
        lanes = (part for many, run in runs for part in (run if many else [_as_lanes([*run])]))
        whole = [part.to(layout) for part in lanes]
        return whole[0] if len(whole) == 1 else ops.concatenate(whole, axis=layout.axis)

    def widths(self, axis: int) -> list[int | None]:
        """The size of each lane along an axis, None where it is unknown."""
        if self.same is not None:
            return [self.same.shape[axis]] * self.count
        if self.parts is not None:
            found = self._widths_in_turn(axis)
            return found if self.order is None else [found[i] for i in self.order]
        layout, tensor = next(iter(self.views.items()))
        if layout.axis == axis and self.sizes is not None:
            return list(self.sizes)
        return [self._size(layout, tensor, axis)] * self.count

    def _widths_in_turn(self, axis: int) -> list[int | None]:
        parts = (p.widths(axis) if isinstance(p, Lanes) else [p.shape[axis]]
                 for p in self.parts)  # fmt: skip
        return [width for part in parts for width in part]

    def _size(self, layout: Layout, tensor: Tensor, axis: int) -> int | None:
        if not layout.folded:
            return tensor.shape[axis + (axis >= layout.axis)]
        size = tensor.shape[axis]
        return size if size is None or axis != layout.axis else size // self.count

    def _convert(self, layout: Layout) -> Tensor:
        """Reshape where the position is right, else unfold, transpose, fold."""
        have = next((v for v in self.views if v.axis == layout.axis), next(iter(self.views)))
        tensor = self.views[have]
        if self.sizes is not None:
            return _as_lanes(tuple(self.all())).to(layout)
        if have.folded:
            tensor = self._unfold(tensor, have.axis)
            self.views[have.apart] = tensor
        tensor = move_axis(tensor, have.axis, layout.axis)
        self.views[layout.apart] = tensor
        return self._fold(tensor, layout.axis) if layout.folded else tensor

    def _unfold(self, tensor: Tensor, axis: int) -> Tensor:
        shape = tensor.shape
        size = None if shape[axis] is None else shape[axis] // self.count
        target = (*shape[:axis], self.count, size, *shape[axis + 1 :])
        if _can_reshape(target):
            return _reshape(tensor, target)
        if self.portable:
            return ops.stack(ops.split(tensor, self.count, axis=axis), axis=axis)
        return UnfoldLanes(axis, self.count)(tensor)

    def _fold(self, tensor: Tensor, axis: int) -> Tensor:
        shape = tensor.shape
        size = shape[axis + 1]
        merged = None if size is None else size * self.count
        target = (*shape[:axis], merged, *shape[axis + 2 :])
        if _can_reshape(target):
            return _reshape(tensor, target)
        if self.portable:
            return ops.concatenate(ops.unstack(tensor, axis=axis), axis=axis)
        return FoldLanes(axis)(tensor)

    def take(self, indices: Sequence[int]) -> "Lanes":
        """These lanes, in this order. A run is a slice, anything else a gather."""
        indices = tuple(indices)
        if indices == tuple(range(self.count)):
            return self
        if self.same is not None:
            return Lanes(len(indices), same=self.same, portable=self.portable)
        part, places = self._within(indices)
        if part is not None and part.views:
            return part.take(places)
        if self.parts is not None or self.sizes is not None:
            return _as_lanes([self.lane(i) for i in indices], self.portable)
        layout, tensor = self.apart()
        picked = pick(tensor, indices, layout.axis)
        return Lanes(len(indices), {layout: picked}, portable=self.portable)

    def _within(self, indices: Sequence[int]) -> "tuple[Lanes | None, list[int]]":
        """The part that holds all of these lanes, if one does, and their places in it."""
        start = 0
        for part in map(_as_lanes, self.parts or () if self.order is None else ()):
            if start <= min(indices) and max(indices) < start + part.count:
                return part, [i - start for i in indices]
            start += part.count
        return None, []

    def apart(self) -> tuple[Layout, Tensor]:
        """The lanes with an axis of their own, wherever that costs least."""
        found = next((v for v in self.views if not v.folded), None)
        layout = found or next(iter(self.views), LEADING).apart
        return layout, self.to(layout)

    def lane(self, index: int) -> Tensor:
        """One lane on its own."""
        if self._unstacked is not None:
            return self._unstacked[index]
        if self.same is not None:
            return self.same
        if self.parts is not None and not any(isinstance(p, Lanes) for p in self.parts):
            return self.parts[index if self.order is None else self.order[index]]
        part, places = self._within([index])
        if part is not None:
            return part.all()[places[0]]
        if self.scattered or self.parts is not None or self.sizes is not None:
            return self.all()[index]
        layout, tensor = self.apart()
        return tensor[(slice(None),) * layout.axis + (index,)]

    def all(self) -> list[Tensor]:
        """Every lane on its own, by one operation."""
        if self._unstacked is None:
            self._unstacked = self._scatter()
        return self._unstacked

    def _scatter(self) -> list[Tensor]:
        if self.same is not None:
            return [self.same] * self.count
        if self.parts is not None:
            single = (part.all() if isinstance(part, Lanes) else [part] for part in self.parts)
            flat = [tensor for part in single for tensor in part]
            return flat if self.order is None else [flat[i] for i in self.order]
        if self.sizes is not None:
            (layout, tensor), *_ = self.views.items()
            return list(ops.split(tensor, list(accumulate(self.sizes))[:-1], axis=layout.axis))
        layout = next(iter(self.views))
        known = layout.folded and self.views[layout].shape[layout.axis] is not None
        if known and layout.apart not in self.views:
            return list(ops.split(self.views[layout], self.count, axis=layout.axis))
        layout, tensor = self.apart()
        return list(ops.unstack(tensor, axis=layout.axis))


def _as_lanes(part: Any, portable: bool = False) -> Lanes:
    if isinstance(part, Lanes):
        return part
    tensors = part if isinstance(part, (list, tuple)) else [part]
    return Lanes(len(tensors), parts=tensors, portable=portable)


def move_axis(tensor: Tensor, source: int, target: int) -> Tensor:
    """Moves one axis, the others keep their order."""
    if source == target:
        return tensor
    order = [axis for axis in range(len(tensor.shape)) if axis != source]
    order.insert(target, source)
    return ops.transpose(tensor, order)


def pick(tensor: Tensor, indices: Sequence[int], axis: int) -> Tensor:
    """Entries of one axis: the tensor itself, a slice, or a gather."""
    indices = tuple(indices)
    if indices == tuple(range(tensor.shape[axis] or 0)):
        return tensor
    first, last = indices[0], indices[-1]
    if indices == tuple(range(first, last + 1)):
        return tensor[(slice(None),) * axis + (slice(first, last + 1),)]
    return ops.take(tensor, list(indices), axis=axis)


def _can_reshape(target: Sequence[int | None]) -> bool:
    """One size at most may be unknown."""
    return sum(size is None for size in target) <= 1


def _reshape(tensor: Tensor, target: Sequence[int | None]) -> Tensor:
    return ops.reshape(tensor, [-1 if size is None else size for size in target])
