"""Operations that take a part: slices, splits, lookups."""

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import layers, ops

from parallel_fuse.translation.node import Node
from parallel_fuse.translation.values import (
    Sizes,
    UntranslatedError,
    constant,
    integers,
    is_symbolic,
    number,
    tensor,
)


def _strided_slice(node: Node) -> Any:
    value, begin, end, strides = node.args
    starts, stops = integers(begin, "the start of a slice"), integers(end, "the end of a slice")
    key = _key(node, list(zip(starts, stops, integers(strides, "the step of a slice"))))
    if isinstance(value, Sizes):
        return _of_sizes(value, key)
    return tensor(value)[key]


def _key(node: Node, bounds: list[tuple[int, int, int]]) -> tuple:
    """As Python writes it; bit i of a mask speaks of entry i."""
    masks = {name: node.attribute(f"{name}_mask") for name in
             ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}  # fmt: skip
    found = []
    for bit, (start, stop, step) in enumerate(bounds):
        said = {name for name, mask in masks.items() if mask >> bit & 1}
        if "ellipsis" in said:
            found.append(Ellipsis)
        elif "new_axis" in said:
            found.append(None)
        elif "shrink_axis" in said:
            found.append(start)
        else:
            start, stop = (None if n in said else v for n, v in (("begin", start), ("end", stop)))
            found.append(slice(start, stop, step))
    return tuple(found)


def _of_sizes(value: Sizes, key: tuple) -> Any:
    if len(key) != 1 or not isinstance(key[0], (int, slice)):
        raise UntranslatedError("an unusual selection of sizes")
    taken = value.entries[key[0]]
    scalar = not isinstance(taken, tuple)
    return Sizes((taken,) if scalar else taken, scalar).simple()


def _slice(node: Node) -> Any:
    value, begin, sizes = node.args
    starts, lengths = integers(begin, "the start of a slice"), integers(sizes, "its size")
    key = tuple(slice(s, None if n == -1 else s + n) for s, n in zip(starts, lengths))
    return _of_sizes(value, key) if isinstance(value, Sizes) else tensor(value)[key]


def _split(node: Node) -> Any:
    axis, value = node.args
    parts = node.attribute("num_split")
    return tuple(ops.split(tensor(value), parts, axis=number(axis, "an axis")))


def _split_sizes(node: Node) -> Any:
    value, sizes, axis = node.args
    axis, widths = number(axis, "an axis"), list(integers(sizes, "sizes of a split"))
    if -1 in widths:
        widths[widths.index(-1)] = tensor(value).shape[axis] - sum(widths) - 1
    return tuple(ops.split(tensor(value), [int(n) for n in np.cumsum(widths)[:-1]], axis=axis))


def _unpack(node: Node) -> Any:
    value, axis = tensor(node.args[0]), node.attribute("axis")
    return tuple(ops.unstack(value, node.attribute("num"), axis=axis))


def _gather(node: Node) -> Any:
    """A constant table is one of embeddings."""
    table, ids, axis = node.args
    axis = number(axis, "an axis")
    if node.attribute("batch_dims"):
        raise UntranslatedError("a lookup within each sample (batch_dims)")
    if isinstance(table, Sizes):
        return _of_sizes_at(table, constant(ids, "the place of a size"))
    if isinstance(table, np.ndarray) and table.ndim == 2 and axis == 0 and is_symbolic(ids):
        return _embedding(node, table)(tensor(ids))
    places = ids.tolist() if isinstance(ids, np.ndarray) else tensor(ids)
    return ops.take(tensor(table), places, axis=axis)


def _of_sizes_at(table: Sizes, places: np.ndarray) -> Any:
    taken = tuple(table.entries[int(i)] for i in np.ravel(places))
    return Sizes(taken, scalar=not places.shape).simple()


def _embedding(node: Node, table: np.ndarray) -> layers.Layer:
    def make() -> layers.Layer:
        layer = layers.Embedding(*table.shape, dtype=table.dtype.name)
        layer.build()
        layer.set_weights([table])
        return layer

    return node.layers(("Embedding", node.sources[0]), make)


TRANSLATIONS: dict[str, Callable[[Node], Any]] = {
    "GatherV2": _gather,
    "Slice": _slice,
    "Split": _split,
    "SplitV": _split_sizes,
    "StridedSlice": _strided_slice,
    "Unpack": _unpack,
}
