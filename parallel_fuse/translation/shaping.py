"""Operations that move elements: shapes, axes, joins, padding."""

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from parallel_fuse.translation.dilated import Pending, Spread, expanded, squeezed
from parallel_fuse.translation.node import Node
from parallel_fuse.translation.values import (
    Dim,
    Flat,
    Sizes,
    UntranslatedError,
    constant,
    entries_of,
    integers,
    is_symbolic,
    number,
    plain,
    product_of,
    shape_of,
    sizes_of,
    tensor,
)


def _shape(node: Node) -> Any:
    return shape_of(node.args[0])


def _reshape(node: Node) -> Any:
    value, entries = node.args[0], entries_of(node.args[1])
    if isinstance(value, Sizes):
        return Sizes(value.entries, scalar=not entries)
    if isinstance(value, Flat) and entries == _unflattened(value):
        return value.tensor
    if is_symbolic(value) and _merges_front(value, entries):
        return Flat(value, id(value))
    return ops.reshape(tensor(value), _target(entries))


def _unflattened(value: Flat) -> tuple:
    """The sizes it has when its front axes are taken apart again."""
    return sizes_of(value.tensor.shape, value.of)


def _merges_front(value: Any, entries: tuple) -> bool:
    """(…, channels) → (all, channels), where more than one size of … is unknown."""
    if isinstance(value, Flat) or len(entries) != 2 or len(value.shape) <= 2:
        return False
    merged = isinstance(entries[0], Dim) or entries[0] == -1
    return merged and entries[1] == value.shape[-1] and value.shape[1:-1].count(None) > 0


def _target(entries: tuple) -> tuple[int, ...]:
    unknown = sum(isinstance(entry, Dim) or entry == -1 for entry in entries)
    if unknown > 1:
        raise UntranslatedError("a reshape to two sizes that are known only when the model runs")
    return tuple(-1 if isinstance(entry, Dim) else entry for entry in entries)


def _expand_dims(node: Node) -> Any:
    value, axis = node.args[0], number(node.args[1], "an axis")
    if isinstance(value, Sizes):
        return Sizes(value.entries)
    if isinstance(value, Spread):
        return expanded(value, axis)
    return ops.expand_dims(tensor(value), axis)


def _squeeze(node: Node) -> Any:
    value, axes = node.args[0], tuple(node.attribute("squeeze_dims"))
    if isinstance(value, Sizes):
        return Sizes(value.entries, scalar=True)
    if isinstance(value, Pending):
        return squeezed(value, axes)
    return ops.squeeze(tensor(value), axes or None)


def _transpose(node: Node) -> Any:
    value, order = node.args[0], integers(node.args[1], "an order of axes")
    if order == tuple(range(len(order))):
        return value
    return ops.transpose(tensor(value), order)


def _concat(node: Node) -> Any:
    *values, axis = node.args
    if any(isinstance(value, Sizes) for value in values):
        return Sizes(tuple(e for value in values for e in entries_of(value))).simple()
    return ops.concatenate(list(map(tensor, values)), axis=number(axis, "an axis"))


def _pack(node: Node) -> Any:
    if any(isinstance(value, Sizes) for value in node.args):
        return Sizes(tuple(e for value in node.args for e in entries_of(value))).simple()
    return ops.stack(list(map(tensor, node.args)), axis=node.attribute("axis"))


def _pad(node: Node) -> Any:
    value, widths, *fill = node.args
    pairs = [tuple(map(int, pair)) for pair in constant(widths, "padding")]
    options = {"constant_values": plain(constant(fill[0], "padding"))} if fill else {}
    return ops.pad(tensor(value), pairs, **options)


def _mirror_pad(node: Node) -> Any:
    pairs = [tuple(map(int, pair)) for pair in constant(node.args[1], "padding")]
    return ops.pad(tensor(node.args[0]), pairs, mode=node.text("mode").lower())


def _tile(node: Node) -> Any:
    return ops.tile(tensor(node.args[0]), integers(node.args[1], "repeats"))


def _broadcast(node: Node) -> Any:
    return ops.broadcast_to(tensor(node.args[0]), integers(node.args[1], "a shape"))


def _fill(node: Node) -> Any:
    return np.full(integers(node.args[0], "a shape"), constant(node.args[1], "a value"))


def _range(node: Node) -> Any:
    return np.arange(*(constant(arg, "a range").item() for arg in node.args))


def _rank(node: Node) -> Any:
    return np.array(len(tensor(node.args[0]).shape), "int32")


def _product_of_sizes(node: Node) -> Any:
    return Sizes((product_of(entries_of(node.args[0])),), scalar=True).simple()


TRANSLATIONS: dict[str, Callable[[Node], Any]] = {
    "BroadcastTo": _broadcast,
    "ConcatV2": _concat,
    "ExpandDims": _expand_dims,
    "Fill": _fill,
    "MirrorPad": _mirror_pad,
    "Pack": _pack,
    "Pad": _pad,
    "PadV2": _pad,
    "Range": _range,
    "Rank": _rank,
    "Reshape": _reshape,
    "Shape": _shape,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
}
PRODUCT_OF_SIZES = _product_of_sizes
