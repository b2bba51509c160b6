"""What will be fused, as data. `explain` stops here; `rebuild` carries it out."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from parallel_fuse.graph import Call, Value


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor that is a selection of another: `source[picks]`, then axes of size 1 inserted.

    `picks` holds one entry per axis of the source: None for the whole axis, an int for one index
    (the axis disappears), a tuple of ints for several. `inserts` are the positions, in the result,
    of new axes.
    """

    source: Value
    picks: tuple[int | tuple[int, ...] | None, ...]
    inserts: tuple[int, ...] = ()

    @property
    def whole(self) -> bool:
        return not self.inserts and all(pick is None for pick in self.picks)


@dataclass(frozen=True, eq=False)
class Bundle:
    """M calls, one per lane, that become one layer.

    `inputs[k][m]` is the k-th tensor that lane m reads, `rows[k][m]` the k-th that it makes.
    `shared` says that all lanes read the very same tensors.
    """

    index: int
    kind: Any
    calls: tuple[Call, ...]
    inputs: tuple[tuple[Value, ...], ...]
    shared: bool
    signature: dict = field(repr=False)

    @property
    def layers(self) -> tuple[Any, ...]:
        return tuple(call.operation for call in self.calls)

    @property
    def size(self) -> int:
        return len(self.calls)

    @property
    def rows(self) -> tuple[tuple[Value, ...], ...]:
        return tuple(zip(*(call.outputs for call in self.calls)))

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Everything the lanes make."""
        return tuple(value for row in self.rows for value in row)

    @property
    def one_layer(self) -> bool:
        """Whether the lanes are calls of one and the same layer with weights."""
        weights = getattr(self.layers[0], "weights", ())
        return bool(weights) and len({id(layer) for layer in self.layers}) == 1 < self.size

    @property
    def in_shape(self) -> tuple[int | None, ...]:
        return self.inputs[0][0].shape

    @property
    def out_shapes(self) -> tuple[tuple[int | None, ...], ...]:
        return tuple(call.output.shape for call in self.calls)


@dataclass(frozen=True)
class Rejection:
    """A near miss: who, and why, in words a user understands."""

    layers: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        names = ", ".join(self.layers[:3]) + (", …" if len(self.layers) > 3 else "")
        return f"{names}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Plan:
    """What to do: bundles with the lowering chosen for each, in an order that can be emitted.

    `joins` (call index → rule and operands), `pieces` (value index → selection) and `places` (value
    index → what tells it from others) are what the graph offers; `rebuild` uses those that touch a
    bundle. `order` holds every call, with the calls
    of a bundle contracted to it.
    """

    bundles: tuple[Bundle, ...]
    lowerings: dict[int, Any]
    joins: dict[int, tuple[Any, tuple[Value, ...]]]
    pieces: dict[int, Piece]
    places: dict[int, Hashable]
    order: tuple["Bundle | Call", ...]
    rejections: tuple[Rejection, ...]
