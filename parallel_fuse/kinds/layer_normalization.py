"""LayerNormalization: M layers become one group each, or lie along an axis of their own.

    x0 ── LayerNormalization ── y0
    x1 ── LayerNormalization ── y1   →   (batch, M·C) ── GroupNormalization(groups=M) ── the same
    x2 ── LayerNormalization ── y2

A group is normalized over all axes but the batch. So axes that are not normalized over are merged
into the batch first: (batch, T, M·C) → (batch·T, M·C). That takes lanes that lie in front of the
axes to normalize over, which must be the last ones. Lanes that a batched matmul left elsewhere, and
other axes, are normalized where they are by a layer of the package.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import keras
from keras import layers, ops

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import clear_of, shifted
from parallel_fuse.kinds.base import Kind, Lowering, twin_of
from parallel_fuse.kinds.once import ONCE
from parallel_fuse.kinds.scaling import present, scaled_signature, stack
from parallel_fuse.kinds.unit_normalization import axes_of
from parallel_fuse.kinds.weights import taken_apart
from parallel_fuse.lanes import Layout
from parallel_fuse.layers.stacked_normalization import StackedLayerNormalization
from parallel_fuse.plan import Bundle

ON_TORCH = keras.backend.backend() == "torch"


def signature(call: Call) -> dict:
    axes = axes_of(call)
    if call.operation.rms_scaling:
        raise Reject("rms_scaling: the mean is not subtracted")
    if ON_TORCH and axes[-1] != len(call.inputs[0].shape) - 1:
        raise Reject(f"axis {axes}: Keras on torch normalizes over the last axes")
    return {**scaled_signature(call), "axis": axes}


@dataclass(frozen=True)
class InRows:
    """A layer on (rows, M·C), between two reshapes: `(batch, …, M·C)` → rows → the same.

    Args:
        axis: the first of the axes that are merged into M·C, the lanes' own.
    """

    layer: layers.Layer
    axis: int

    @property
    def weights(self) -> list:
        return self.layer.weights

    def __call__(self, inputs: Any) -> Any:
        shape = inputs.shape
        rows = ops.reshape(inputs, (-1, prod(shape[self.axis :])))
        return ops.reshape(self.layer(rows), (-1, *shape[1:]))


def without_weights(bundle: Bundle) -> None:
    if bundle.layers[0].weights:
        raise Reject("the lanes have weights of their own")


def clear(bundle: Bundle) -> tuple[Layout, ...]:
    return clear_of(bundle.signature["axis"], len(bundle.in_shape))


def build_clear(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    axes = [shifted(axis, layout) for axis in bundle.signature["axis"]]
    return twin_of(bundle.layers[0], common, axis=axes)


def in_front(bundle: Bundle) -> tuple[Layout, ...]:
    """Lanes beside the axes to normalize over, with an axis of their own or folded into one."""
    first = bundle.signature["axis"][0]
    folded = (Layout(first, folded=True),) if first == len(bundle.in_shape) - 1 else ()
    return (*folded, Layout(first))


def last_axes(bundle: Bundle) -> None:
    axes, shape = bundle.signature["axis"], bundle.in_shape
    if axes != tuple(range(axes[0], len(shape))):
        raise Reject(f"axis {axes}: not the last ones")
    if None in shape[1 : axes[0]]:
        raise Reject(f"shape {shape}: sizes that are unknown beside the batch")


def build_groups(bundle: Bundle, layout: Layout, common: dict) -> Any:
    layer = layers.GroupNormalization(
        groups=bundle.size, axis=1, **_kept(bundle), **present(bundle.layers), **common
    )
    return layer if layout.folded and len(bundle.in_shape) == 2 else InRows(layer, layout.axis)


def _kept(bundle: Bundle) -> dict[str, Any]:
    """What gamma and beta are made with; equal in all lanes."""
    first = bundle.layers[0]
    names = ("gamma_regularizer", "gamma_constraint", "beta_regularizer", "beta_constraint")
    return {"epsilon": first.epsilon, **{name: getattr(first, name) for name in names}}


def grouped(bundle: Bundle) -> tuple[Layout, ...]:
    """Where a stock layer does as well; PyTorch has a kernel of its own for the other one."""
    try:
        last_axes(bundle)
    except Reject:
        return ()
    return () if ON_TORCH else in_front(bundle)


def anywhere_in_front(bundle: Bundle) -> tuple[Layout, ...]:
    stock, first = grouped(bundle), bundle.signature["axis"][0]
    return (*stock, *(Layout(axis) for axis in range(first, -1, -1) if Layout(axis) not in stock))


def build_anywhere(bundle: Bundle, layout: Layout, common: dict) -> Any:
    if layout in grouped(bundle):
        return build_groups(bundle, layout, common)
    axes = [shifted(axis, layout) for axis in bundle.signature["axis"]]
    return StackedLayerNormalization(
        axes, layout.axis, **_kept(bundle), **present(bundle.layers), **common
    )


ALONG_AXES = Lowering("along-axes", clear, build_clear, accepts=without_weights)

ANYWHERE = Lowering(
    name="lane-axis",
    layouts=anywhere_in_front,
    build=build_anywhere,
    stack=stack,
    unstack=taken_apart,
    portable=False,
)

GROUPS = Lowering(
    name="groups",
    layouts=in_front,
    build=build_groups,
    stack=stack,
    unstack=taken_apart,
    accepts=last_axes,
)

LAYER_NORMALIZATION = Kind(
    handles=(layers.LayerNormalization,),
    signature=signature,
    lowerings=(replace(ONCE, accepts=without_weights), ALONG_AXES, ANYWHERE, GROUPS),
)
