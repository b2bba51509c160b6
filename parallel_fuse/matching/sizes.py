"""Sizes that are unknown until the model runs, and which of them are provably equal.

Two tensors of the shape (None, None, 3) become lanes only if their lengths are equal in every run:
cut from one tensor, or made of one by the same steps. Each unknown size gets a name; equal names
are equal sizes.
"""

from collections.abc import Hashable, Mapping

from keras import layers

from parallel_fuse import _keras
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.kinds.base import config_signature, operation_signature
from parallel_fuse.matching.kept_axes import kept_axes
from parallel_fuse.plan import Piece
from parallel_fuse.splits.base import entries_of

Size = int | str
BATCH = "batch"  # every input has the same number of rows
# What a layer may have of its own without making another length.
OTHERWISE = ("units", "filters", "use_bias", "depth_multiplier", "groups")


class Sizes:
    """The size of every axis of every value: a number, or the name of an unknown one."""

    def __init__(self, graph: Graph, pieces: Mapping[int, Piece]):
        self.names: dict[Hashable, str] = {}
        self.known: dict[int, tuple[Size, ...]] = {}
        for value in graph.inputs:
            self.known[value.index] = self._filled(value, {0: BATCH}, ("input", value.position))
        for call in graph.calls:
            for value in call.outputs:
                self.known[value.index] = self._of(call, value, pieces.get(value.index))

    def unknown(self, value: Value) -> tuple[Size, ...]:
        """The names of the sizes that a value's shape does not tell."""
        return tuple(n for n in self.known[value.index] if isinstance(n, str))

    def _of(self, call: Call, value: Value, piece: Piece | None) -> tuple[Size, ...]:
        if None not in value.shape:
            return value.shape
        if piece is not None:
            return self._cut(piece)
        if type(call.operation) is _keras.GetItem:
            return self._filled(value, self._indexed(call), ("index", call.index))
        kept = self._kept(call, value)
        if all(size is not None or axis in kept for axis, size in enumerate(value.shape)):
            return self._filled(value, kept, ())
        above = tuple(self.known[v.index] for v in call.inputs)
        number = 0 if _is_even_split(call) else value.position
        return self._filled(value, kept, (_what(call), above, number))

    def _filled(self, value: Value, kept: Mapping[int, Size], origin: tuple) -> tuple[Size, ...]:
        """The known sizes, those kept from above, and a name of their own for the others."""
        return tuple(
            size if size is not None else kept.get(axis) or self._name((*origin, axis))
            for axis, size in enumerate(value.shape)
        )

    def _name(self, key: Hashable) -> str:
        return self.names.setdefault(key, f"n{len(self.names) + 1}")

    def _cut(self, piece: Piece) -> tuple[Size, ...]:
        sizes = [
            size if picked is None else len(picked)
            for size, picked in zip(self.known[piece.source.index], piece.picks)
            if not isinstance(picked, int)
        ]
        for insert in sorted(piece.inserts):
            sizes.insert(insert, 1)
        return tuple(sizes)

    def _indexed(self, call: Call) -> dict[int, Size]:
        """Axis of the result → the size of the axis above, or the name of that part of it."""
        above, entries = iter(self.known[call.inputs[0].index]), entries_of(call)
        sizes: list[Size] = []
        for entry in entries or ():
            size = 1 if entry is None else next(above)
            if entry is None or entry == slice(None):
                sizes.append(size)
            elif isinstance(entry, slice):
                sizes.append(self._name(("part", size, entry.start, entry.stop, entry.step)))
        return dict(enumerate(sizes))

    def _kept(self, call: Call, value: Value) -> dict[int, Size]:
        """Axis of the result → the size of an axis above that it keeps."""
        if not call.inputs:
            return {}
        if type(call.operation) in _keras.POINTWISE:
            return self._broadcast(call, value)
        above = self.known[call.inputs[0].index]
        return {
            axis: above[source]
            for axis, source in kept_axes(call, len(above), len(value.shape))
            if source < len(above) and isinstance(above[source], str)
        }

    def _broadcast(self, call: Call, value: Value) -> dict[int, Size]:
        """An axis on which all operands agree; one of them may not reach that far, or be 1."""
        kept = {}
        for axis in range(len(value.shape)):
            back = axis - len(value.shape)
            rows = (self.known[v.index] for v in call.inputs)
            found = {row[back] for row in rows if len(row) >= -back} - {1}
            if len(found) == 1:
                kept[axis] = found.pop()
        return kept


def _is_even_split(call: Call) -> bool:
    even = type(call.operation) is _keras.Split
    return even and isinstance(call.operation.indices_or_sections, int)


def _what(call: Call) -> Hashable:
    """Equal for two calls that make equal shapes of equal ones."""
    operation = call.operation
    if not type(operation).__module__.startswith("keras."):
        return id(operation)
    try:
        if isinstance(operation, layers.Layer):
            config = config_signature(call, drop=OTHERWISE)
            config = {k: v for k, v in config.items() if not k.endswith(("izer", "constraint"))}
        else:
            config = operation_signature(call)
        return type(operation), tuple(sorted(config.items(), key=lambda item: item[0]))
    except (Reject, NotImplementedError, TypeError):
        return id(operation)
