"""Dense: M matrix multiplications become one.

    x0 ── Dense ── y0
    x1 ── Dense ── y1   →   (M, batch, …, n) ── EinsumDense("m…n,mnk->m…k") ── (M, batch, …, k)
    x2 ── Dense ── y2

Lanes that read one tensor need no batched product: one wide Dense makes all their units, which may
then differ in number. Assumes plain float kernels; a missing bias is filled with zeros.
"""

import math
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

import numpy as np
from keras import layers, ops

from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature
from parallel_fuse.kinds.product import product_pays
from parallel_fuse.kinds.weights import (
    bias_option,
    kernels_and_biases,
    side_by_side,
    stacked,
    taken_apart,
    uses_bias,
)
from parallel_fuse.lanes import LEADING, Layout
from parallel_fuse.plan import Bundle
from parallel_fuse.policy import Policy


def signature(call: Call) -> dict:
    return config_signature(call, drop=("use_bias",))


@dataclass(frozen=True)
class BesideAxisOfOne:
    """A layer between two reshapes: (M, batch, …) → (M, 1, batch, …) → layer → (M, batch, …).

    `keras.ops.add` on TensorFlow takes a bias of shape (M, 1, …, 1) for that of a convolution with
    its channels first, and adds it along axis 1 where that axis has M entries: there, the batch.
    """

    layer: layers.Layer

    @property
    def weights(self) -> list:
        return self.layer.weights

    def __call__(self, inputs: Any) -> Any:
        return ops.squeeze(self.layer(ops.expand_dims(inputs, 1)), 1)


def build_batched(bundle: Bundle, layout: Layout, common: dict) -> Any:
    first, biased = bundle.layers[0], uses_bias(bundle.layers)
    apart = biased and first.units == 1
    middle = "z" * apart + ascii_lowercase[: len(bundle.in_shape) - 1]
    layer = layers.EinsumDense(
        f"m{middle}x,mxy->m{middle}y",
        output_shape=(*[1] * apart, *bundle.in_shape[:-1], first.units),
        bias_axes="my" if biased else None,
        kernel_regularizer=first.kernel_regularizer,
        bias_regularizer=bias_option(bundle.layers, "bias_regularizer"),
        kernel_constraint=first.kernel_constraint,
        bias_constraint=bias_option(bundle.layers, "bias_constraint"),
        **common,
    )
    return BesideAxisOfOne(layer) if apart else layer


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
    return stacked(kernels_and_biases(members))


def unstack_batched(arrays, count: int) -> list[list[np.ndarray]]:
    kernel, *bias = arrays
    flat = [b.reshape(count, -1) for b in bias]
    return [[kernel[i], *(b[i] for b in flat)] for i in range(count)]


def stack_wide(members) -> list[np.ndarray]:
    return side_by_side(kernels_and_biases(members))


def pays(bundle: Bundle, policy: Policy) -> None:
    product_pays(bundle, policy, math.prod(bundle.layers[0].kernel.shape))


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
    any_shape=True,
)

BATCHED = Lowering(
    name="batched-matmul",
    layouts=lambda bundle: (LEADING,),
    build=build_batched,
    stack=stack_batched,
    unstack=unstack_batched,
    pays=pays,
    kernels=3,  # product, bias, activation: a backend fuses them for single layers only
)

DENSE = Kind(
    handles=(layers.Dense,),
    signature=signature,
    lowerings=(WIDE, BATCHED),
    shared_free=("units",),
    activation=True,
    any_rank=True,
)
