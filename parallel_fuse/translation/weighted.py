"""Operations with weights: products and convolutions. Stock layers, with their bias."""

from collections.abc import Callable
from functools import partial
from string import ascii_lowercase
from typing import Any

import numpy as np
from keras import layers, ops

from parallel_fuse.translation import elementwise
from parallel_fuse.translation.dilated import Pending, Spread
from parallel_fuse.translation.node import Node
from parallel_fuse.translation.values import (
    Flat,
    UntranslatedError,
    constant,
    is_symbolic,
    tensor,
)

CONVOLUTIONS = {"Conv2D": layers.Conv2D, "Conv3D": layers.Conv3D}


def with_weights(
    node: Node, cls: type, channels: int, weights: list, *args: Any, **options: Any
) -> Any:
    """The layer with these weights, the bias last; one layer for all nodes that share them."""
    source = None
    if node.bias is not None:
        bias, source = node.bias
        weights = [*weights, np.ravel(bias)]

    def make() -> layers.Layer:
        dtype = weights[0].dtype.name
        layer = cls(*args, use_bias=node.bias is not None, dtype=dtype, **options)
        layer.build((None,) * (weights[0].ndim - 1) + (channels,))
        layer.set_weights(weights)
        return layer

    key = (cls, *kernel_of(node), source, str(args), str(options))
    return node.layers(key, make)


def kernel_of(node: Node) -> tuple[str, bool]:
    """What tells the weights of two layers apart: a kernel, and whether it is turned."""
    return node.sources[1], node.kind == "MatMul" and node.flag("transpose_b")


def _matmul(node: Node) -> Any:
    value, kernel = node.args
    turned = node.flag("transpose_a"), node.flag("transpose_b")
    if not isinstance(kernel, np.ndarray) or turned[0] or not is_symbolic(value):
        return _product(node, turned)
    kernel = kernel.T if turned[1] else kernel
    layer = with_weights(node, layers.Dense, kernel.shape[0], [kernel], kernel.shape[1])
    return Flat(layer(value.tensor), value.of) if isinstance(value, Flat) else layer(value)


def _product(node: Node, turned: tuple[bool, bool]) -> Any:
    both = zip(map(tensor, node.args), turned)
    return ops.matmul(*(ops.swapaxes(x, -1, -2) if turn else x for x, turn in both))


def _batch_matmul(node: Node) -> Any:
    return _product(node, (node.flag("adj_x"), node.flag("adj_y")))


def _einsum(node: Node) -> Any:
    return ops.einsum(_in_lowercase(node.text("equation")), *map(tensor, node.args))


def _in_lowercase(equation: str) -> str:
    """Keras finds the shape of a result by a parser that knows no other letters."""
    letters = dict.fromkeys(filter(str.isalpha, equation))
    return equation.translate(str.maketrans(dict(zip(letters, ascii_lowercase))))


def _bias_add(node: Node) -> Any:
    value, bias = node.args
    if node.absorbed:
        return value
    value = tensor(value)
    if node.text("data_format") == "NCHW":
        bias = ops.reshape(bias, (-1, *[1] * (len(value.shape) - 2)))
    return elementwise.added(value, bias)


def window_of(node: Node, name: str) -> tuple[int, ...]:
    """Along the inner axes."""
    check_last(node)
    first, *inner, last = node.attribute(name)
    if (first, last) != (1, 1):
        raise UntranslatedError(f"{name} along the batch or the channels")
    return tuple(inner)


def check_last(node: Node) -> None:
    layout = node.text("data_format")
    if layout not in ("NHWC", "NDHWC"):
        raise UntranslatedError(f"the layout {layout}")


def padding_of(node: Node) -> str:
    padding = node.text("padding")
    if padding not in ("SAME", "VALID"):
        raise UntranslatedError(f"{padding} padding")
    return padding.lower()


def _convolution(node: Node) -> Any:
    value, kernel = node.args[0], tensor(node.args[1])
    strides, dilation = window_of(node, "strides"), window_of(node, "dilations")
    if isinstance(value, Spread):
        make = partial(_convolved, node, kernel, strides)
        return Pending(value, tuple(kernel.shape[:-2]), make)
    return _convolved(node, kernel, strides, tensor(value), dilation, padding_of(node))


def _convolved(node: Node, kernel: Any, strides: tuple, x: Any, dilation: tuple, padding: str):
    options = {"strides": strides, "padding": padding, "dilation_rate": dilation}
    if not isinstance(kernel, np.ndarray):
        return ops.conv(x, kernel, **options)
    *size, channels, filters = kernel.shape
    groups, cls = x.shape[-1] // channels, CONVOLUTIONS[node.kind]
    options["groups"] = groups
    return with_weights(node, cls, x.shape[-1], [kernel], filters, tuple(size), **options)(x)


def _depthwise(node: Node) -> Any:
    value, kernel = node.args[0], constant(node.args[1], "a depthwise kernel")
    dilation = window_of(node, "dilations")
    if isinstance(value, Spread):
        return Pending(value, kernel.shape[:2], partial(_by_channel, node, kernel))
    return _by_channel(node, kernel, tensor(value), dilation, padding_of(node))


def _by_channel(node: Node, kernel: np.ndarray, x: Any, dilation: tuple, padding: str) -> Any:
    *size, channels, multiplier = kernel.shape
    layer = with_weights(
        node, layers.DepthwiseConv2D, channels, [kernel], tuple(size), padding=padding,
        strides=window_of(node, "strides"), depth_multiplier=multiplier, dilation_rate=dilation,
    )  # fmt: skip
    return layer(x)


TRANSLATIONS: dict[str, Callable[[Node], Any]] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _batch_matmul),
    "BiasAdd": _bias_add,
    "DepthwiseConv2dNative": _depthwise,
    "Einsum": _einsum,
    "MatMul": _matmul,
}
