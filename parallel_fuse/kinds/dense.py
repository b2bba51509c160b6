"""Dense: M matrix multiplications become one.

    x0 ── Dense ── y0
    x1 ── Dense ── y1   →   (M, batch, …, n) ── EinsumDense("m…n,mnk->m…k") ── (M, batch, …, k)
    x2 ── Dense ── y2

Lanes that read one tensor need no batched product: one wide Dense makes all their units, which may
then differ in number. Assumes plain float kernels; a missing bias is filled with zeros.
"""

from string import ascii_lowercase

import numpy as np
from keras import layers

from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature
from parallel_fuse.kinds.weights import (
    bias_option,
    kernels_and_biases,
    side_by_side,
    taken_apart,
    uses_bias,
)
from parallel_fuse.lanes import LEADING, Layout
from parallel_fuse.plan import Bundle


def signature(call: Call) -> dict:
    return config_signature(call, drop=("use_bias",))


def build_batched(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    first = bundle.layers[0]
    middle = ascii_lowercase[: len(bundle.in_shape) - 1]
    units = first.units
    return layers.EinsumDense(
        f"m{middle}x,mxy->m{middle}y",
        output_shape=(bundle.in_shape[0], *bundle.in_shape[1:-1], units),
        bias_axes="my" if uses_bias(bundle.layers) else None,
        kernel_regularizer=first.kernel_regularizer,
        bias_regularizer=bias_option(bundle.layers, "bias_regularizer"),
        kernel_constraint=first.kernel_constraint,
        bias_constraint=bias_option(bundle.layers, "bias_constraint"),
        **common,
    )


def build_wide(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    first = bundle.layers[0]
    return layers.Dense(
        sum(widths(bundle)),
        use_bias=uses_bias(bundle.layers),
        kernel_regularizer=first.kernel_regularizer,
        bias_regularizer=bias_option(bundle.layers, "bias_regularizer"),
        kernel_constraint=first.kernel_constraint,
        bias_constraint=bias_option(bundle.layers, "bias_constraint"),
        **common,
    )


def widths(bundle: Bundle) -> tuple[int, ...]:
    return tuple(one.units for one in bundle.layers)


def stack_batched(members) -> list[np.ndarray]:
    """(M, n, k) and, as EinsumDense builds it, (M, 1, …, 1, k): reshaped on assignment."""
    return [np.stack(column) for column in zip(*kernels_and_biases(members))]


def unstack_batched(arrays, count: int) -> list[list[np.ndarray]]:
    kernel, *bias = arrays
    flat = [b.reshape(count, -1) for b in bias]
    return [[kernel[i], *(b[i] for b in flat)] for i in range(count)]


def stack_wide(members) -> list[np.ndarray]:
    return side_by_side(kernels_and_biases(members))


def last_axis(bundle: Bundle) -> Layout:
    return Layout(len(bundle.in_shape) - 1, folded=True)


WIDE = Lowering(
    name="wide",
    layouts=lambda bundle: None,
    build=build_wide,
    stack=stack_wide,
    unstack=taken_apart,
    makes=lambda bundle, layout: last_axis(bundle),
    shared=True,
    sizes=widths,
)

BATCHED = Lowering(
    name="batched-matmul",
    layouts=lambda bundle: (LEADING,),
    build=build_batched,
    stack=stack_batched,
    unstack=unstack_batched,
    kernels=3,  # product, bias, activation: a backend fuses them for single layers only
)

DENSE = Kind(
    handles=(layers.Dense,),
    signature=signature,
    lowerings=(WIDE, BATCHED),
    shared_free=("units",),
    activation=True,
)
