"""Operations that make fewer numbers of many: pooling, sums, means, extremes."""

from collections.abc import Callable
from functools import partial
from typing import Any

from keras import ops

from parallel_fuse.translation.node import Node
from parallel_fuse.translation.shaping import PRODUCT_OF_SIZES
from parallel_fuse.translation.values import Sizes, integers, number, tensor
from parallel_fuse.translation.weighted import padding_of, window_of

REDUCTIONS = {
    "All": ops.all, "Any": ops.any, "Max": ops.max, "Mean": ops.mean, "Min": ops.min,
    "Prod": ops.prod, "Sum": ops.sum,
}  # fmt: skip
POOLS = {"AvgPool": ops.average_pool, "MaxPool": ops.max_pool}


def _reduce(node: Node) -> Any:
    if isinstance(node.args[0], Sizes) and node.kind == "Prod":
        return PRODUCT_OF_SIZES(node)
    value, axes = tensor(node.args[0]), integers(node.args[1], "the axes of a reduction")
    if not axes and node.args[1].shape == (0,):
        return value
    return REDUCTIONS[node.kind](value, axis=axes, keepdims=node.flag("keep_dims"))


def _pool(node: Node) -> Any:
    pool = POOLS[node.kind.removesuffix("3D")]
    size, strides = window_of(node, "ksize"), window_of(node, "strides")
    return pool(tensor(node.args[0]), size, strides, padding_of(node))


def _place(node: Node, find: Callable) -> Any:
    found = find(tensor(node.args[0]), axis=number(node.args[1], "an axis"))
    return ops.cast(found, node.attribute("output_type").name)


TRANSLATIONS: dict[str, Callable[[Node], Any]] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("AvgPool", "MaxPool", "AvgPool3D", "MaxPool3D"), _pool),
    "ArgMax": partial(_place, find=ops.argmax),
    "ArgMin": partial(_place, find=ops.argmin),
}
