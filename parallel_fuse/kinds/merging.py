"""Layers that merge several tensors of each lane: a residual sum, a gate, two halves put together.

    a0, b0 ── Add ── y0
    a1, b1 ── Add ── y1      →      lanes a, lanes b in one layout ── Add ── lanes y
    a2, b2 ── Add ── y2

Operands are broadcast within their lane as `pointwise` has it, and `Concatenate` needs the axis
whole that it puts them along. A layer whose operands *are* the lanes is a join.
"""

from dataclasses import replace
from typing import Any

from keras import layers

from parallel_fuse import _keras
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import clear_of, shifted
from parallel_fuse.kinds.base import Kind, Lowering, twin_of
from parallel_fuse.kinds.once import ONCE
from parallel_fuse.kinds.pointwise import POINTWISE, own_signature
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle

MERGE = replace(
    POINTWISE,
    handles=(
        layers.Add,
        layers.Subtract,
        layers.Multiply,
        layers.Average,
        layers.Maximum,
        layers.Minimum,
    ),
)


def concatenate_signature(call: Call) -> dict:
    axis = call.operation.axis % len(call.output.shape)
    if axis == 0:
        raise Reject("axis 0: operands are put together along the batch")
    return {**own_signature(call), "axis": axis}


def concatenate_layouts(bundle: Bundle) -> tuple[Layout, ...]:
    return clear_of((bundle.signature["axis"],), len(bundle.in_shape))


def build_concatenate(bundle: Bundle, layout: Layout, common: dict) -> Any:
    axis, first = shifted(bundle.signature["axis"], layout), bundle.layers[0]
    if isinstance(first, layers.Layer):
        return twin_of(first, common, axis=axis)
    return _keras.new_operation(type(first), common["name"], axis=axis)


CONCATENATE = Kind(
    handles=(layers.Concatenate, _keras.Concatenate),
    signature=concatenate_signature,
    lowerings=(ONCE, Lowering("lane-axis", concatenate_layouts, build_concatenate)),
    light=True,
)
