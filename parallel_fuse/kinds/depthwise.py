"""DepthwiseConv1D and 2D: M of them become one on the channels of all lanes.

    x0 ── DepthwiseConv ── y0
    x1 ── DepthwiseConv ── y1   →   (batch, …, M·C) ── DepthwiseConv ── (batch, …, M·C·d)
    x2 ── DepthwiseConv ── y2

Each channel has filters of its own, d of them (`depth_multiplier`), and those of one channel follow
one another in the result. So lanes folded into the channels stay side by side, and may differ in
width. A missing bias is filled with zeros.
"""

from typing import Any

import numpy as np
from keras import layers

from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.kinds.channels import any_width, channel_axis, folded_channels, widths
from parallel_fuse.kinds.weights import bias_option, uses_bias
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle

Arrays = list[np.ndarray]


def signature(call: Call) -> dict:
    axis = channel_axis(call.operation, len(call.inputs[0].shape))
    return {**config_signature(call, drop=("use_bias",)), **any_width(call, axis)}


def build(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    members = bundle.layers
    return twin_of(
        members[0],
        common,
        use_bias=uses_bias(members),
        bias_regularizer=bias_option(members, "bias_regularizer"),
        bias_constraint=bias_option(members, "bias_constraint"),
    )


def stack(members) -> Arrays:
    """Kernels (…, M·C, d) and biases (M·C·d,)."""
    lanes = [_weights(one, uses_bias(members)) for one in members]
    kernels, *biases = zip(*lanes)
    return [np.concatenate(kernels, axis=-2), *(np.concatenate(column) for column in biases)]


def _weights(one: Any, bias: bool) -> Arrays:
    kernel, *rest = one.get_weights()
    zeros = np.zeros(kernel.shape[-2] * kernel.shape[-1], kernel.dtype)
    return [kernel, *(rest or [zeros])] if bias else [kernel]


def unstack(arrays: Arrays, count: int) -> list[Arrays]:
    """M lanes of equal width."""
    kernel, *biases = arrays
    kernels = np.split(kernel, count, axis=-2)
    columns = [kernels, *(np.split(bias, count) for bias in biases)]
    return [list(lane) for lane in zip(*columns)]


def sizes(bundle: Bundle) -> tuple[int, ...]:
    return widths(bundle, channel_axis(bundle.layers[0], len(bundle.in_shape)))


FOLDED = Lowering(
    name="folded",
    layouts=lambda bundle: (folded_channels(bundle),),
    build=build,
    stack=stack,
    unstack=unstack,
    sizes=sizes,
)

DEPTHWISE_CONV = Kind(
    handles=(layers.DepthwiseConv1D, layers.DepthwiseConv2D),
    signature=signature,
    lowerings=(FOLDED,),
    activation=True,
)
