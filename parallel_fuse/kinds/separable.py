"""SeparableConv1D and 2D: one depthwise convolution of all lanes, then their 1×1 products.

    x0 ── SeparableConv ── y0
    x1 ── SeparableConv ── y1  →  (batch, …, M·C) ── DepthwiseConv ── GroupedConv(1, groups=M) ──
    x2 ── SeparableConv ── y2

The channels that a depthwise convolution makes of one lane follow one another: they are one group
of the product. A missing bias is filled with zeros.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature
from parallel_fuse.kinds.chain import Chain
from parallel_fuse.kinds.channels import folded_channels
from parallel_fuse.kinds.conv import GROUPED_TWIN, check_positions, on_tensorflow, stock_pays
from parallel_fuse.kinds.weights import bias_option, uses_bias
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle
from parallel_fuse.policy import Policy

Arrays = list[np.ndarray]
DEPTHWISE = {
    layers.SeparableConv1D: (layers.DepthwiseConv1D, layers.Conv1D),
    layers.SeparableConv2D: (layers.DepthwiseConv2D, layers.Conv2D),
}


def signature(call: Call) -> dict:
    return config_signature(call, drop=("use_bias",))


def build(bundle: Bundle, layout: Layout, common: dict, twins: Mapping[type, type]) -> Chain:
    members, first = bundle.layers, bundle.layers[0]
    depthwise, product = DEPTHWISE[type(first)]
    rest = {key: value for key, value in common.items() if key not in ("name", "activation")}
    by_channel = depthwise(
        first.kernel_size,
        strides=first.strides,
        padding=first.padding,
        depth_multiplier=first.depth_multiplier,
        data_format=first.data_format,
        dilation_rate=first.dilation_rate,
        use_bias=False,
        depthwise_regularizer=first.depthwise_regularizer,
        depthwise_constraint=first.depthwise_constraint,
        name=f"{common['name']}_depthwise",
        **rest,
    )
    by_lane = twins.get(product, product)(
        bundle.size * first.filters,
        1,
        groups=bundle.size,
        data_format=first.data_format,
        use_bias=uses_bias(members),
        kernel_regularizer=first.pointwise_regularizer,
        kernel_constraint=first.pointwise_constraint,
        bias_regularizer=bias_option(members, "bias_regularizer"),
        bias_constraint=bias_option(members, "bias_constraint"),
        **common,
    )
    return Chain((by_channel, by_lane))


def stack(members) -> Arrays:
    """Kernels by channel (…, M·C, d), by lane (1, …, C·d, M·F), biases (M·F,)."""
    found = [one.get_weights() for one in members]
    arrays = [
        np.concatenate([weights[0] for weights in found], axis=-2),
        np.concatenate([weights[1] for weights in found], axis=-1),
    ]
    if not uses_bias(members):
        return arrays
    zeros = np.zeros(members[0].filters, arrays[1].dtype)
    return [*arrays, np.concatenate([weights[2] if weights[2:] else zeros for weights in found])]


def unstack(arrays: Arrays, count: int) -> list[Arrays]:
    axes = (-2, -1, -1)
    columns = [np.split(array, count, axis=axis) for array, axis in zip(arrays, axes)]
    return [list(lane) for lane in zip(*columns)]


def grouped_pays(bundle: Bundle, policy: Policy) -> None:
    if policy.mode == "jit":
        raise Reject("under XLA a grouped convolution is no faster than the branches")
    check_positions(bundle, policy)


GROUPED = Lowering(
    name="depthwise-grouped",
    layouts=lambda bundle: (folded_channels(bundle),),
    build=partial(build, twins=GROUPED_TWIN),
    stack=stack,
    unstack=unstack,
    accepts=on_tensorflow,
    pays=grouped_pays,
    kernels=2,
    portable=False,
)

STOCK = Lowering(
    name="depthwise-grouped-stock",
    layouts=lambda bundle: (folded_channels(bundle),),
    build=partial(build, twins={}),
    stack=stack,
    unstack=unstack,
    pays=stock_pays,
    kernels=2,
)

SEPARABLE_CONV = Kind(
    handles=(layers.SeparableConv1D, layers.SeparableConv2D),
    signature=signature,
    lowerings=(GROUPED, STOCK),
    activation=True,
)
