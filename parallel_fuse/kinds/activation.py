"""Activation layers: one layer on all lanes, as they lie or with an axis left whole.

    x0 ── ReLU ── y0
    x1 ── ReLU ── y1         →      (lanes in any layout) ── ReLU ── (the same layout)
    x2 ── ReLU ── y2

    x0 ── Softmax ── y0
    x1 ── Softmax ── y1      →      (M, batch, …, C) ── Softmax ── (M, batch, …, C)

A function must be proven to work on each element, or be a softmax; see `activations`. A softmax
needs the axis it sums over for each lane alone. `PReLU` has weights: its slopes are laid side by
side along the last axis, or, where that axis shares one slope, along a lane axis in front of the
others. Lanes that read one tensor have one result.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from keras import layers

from parallel_fuse import _keras
from parallel_fuse.activations import activation_of
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import any_last_width, anywhere, casts, clear_of, last_widths, shifted
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, operation_signature, twin_of
from parallel_fuse.kinds.once import ONCE, copy_of
from parallel_fuse.kinds.weights import side_by_side, taken_apart
from parallel_fuse.lanes import INNER, Layout
from parallel_fuse.plan import Bundle


def elementwise_signature(call: Call) -> dict:
    return {**config_signature(call), **any_last_width(call)}


ELEMENTWISE = Kind(
    handles=(layers.ReLU, layers.LeakyReLU, layers.ELU),
    signature=elementwise_signature,
    lowerings=(
        ONCE,
        Lowering("as-they-lie", anywhere, copy_of, sizes=last_widths),
    ),
    light=True,
)


def activation_signature(call: Call) -> dict:
    """Functions that work on each element may differ between the lanes."""
    found = activation_of(call.operation.activation)
    if found.elementwise:
        return {**elementwise_signature(call), "activation": "elementwise"}
    return {**config_signature(call), "activation": found}


def activation_layouts(bundle: Bundle) -> tuple[Layout, ...] | None:
    if bundle.signature["activation"] == "elementwise":
        return anywhere(bundle)
    last = len(bundle.in_shape) - 1
    return tuple(layout for layout in clear_of((last,), last + 1) if layout != Layout(last + 1))


def some_alike(bundle: Bundle) -> None:
    functions = {activation_of(layer.activation) for layer in bundle.layers}
    if len(functions) == bundle.size:
        raise Reject("every lane has a function of its own")
    if len(functions) > 1 and anywhere(bundle) is not None:
        raise Reject("lanes of different widths have functions of their own")


def build_activation(bundle: Bundle, layout: Layout, common: dict) -> Any:
    """Functions that differ are applied by the machine: nothing is left for a common layer."""
    if common["activation"] is None and not casts(bundle):
        return unchanged
    return layers.Activation(**common)


def unchanged(tensor: Any) -> Any:
    return tensor


ACTIVATION = Kind(
    handles=(layers.Activation,),
    signature=activation_signature,
    lowerings=(
        replace(ONCE, build=build_activation, accepts=some_alike),
        Lowering(
            "as-they-lie",
            activation_layouts,
            build_activation,
            accepts=some_alike,
            sizes=last_widths,
        ),
    ),
    light=True,
    activation=True,
)


def softmax_signature(call: Call) -> dict:
    operation, rank = call.operation, len(call.inputs[0].shape)
    if operation.axis is None:
        raise Reject("axis None: a sum over the batch too")
    given = operation.axis if isinstance(operation.axis, (list, tuple)) else (operation.axis,)
    layer = isinstance(operation, layers.Layer)
    rest = config_signature(call) if layer else operation_signature(call)
    return {**rest, "axis": tuple(sorted(axis % rank for axis in given))}


def softmax_layouts(bundle: Bundle) -> tuple[Layout, ...]:
    return clear_of(bundle.signature["axis"], len(bundle.in_shape))


def build_softmax(bundle: Bundle, layout: Layout, common: dict) -> Any:
    axes = [shifted(axis, layout) for axis in bundle.signature["axis"]]
    axis = axes[0] if len(axes) == 1 else axes
    first = bundle.layers[0]
    if isinstance(first, layers.Layer):
        return twin_of(first, common, axis=axis)
    return _keras.new_operation(type(first), common["name"], axis=axis)


SOFTMAX = Kind(
    handles=(layers.Softmax, *_keras.SOFTMAX),
    signature=softmax_signature,
    lowerings=(
        ONCE,
        Lowering("along-an-axis", softmax_layouts, build_softmax),
    ),
    light=True,
)


def prelu_signature(call: Call) -> dict:
    layer = call.operation
    if any(axis < 1 for axis in layer.shared_axes or ()):
        raise Reject(f"shared_axes {layer.shared_axes}: counted from the end")
    open_width = {} if shares_last(layer, len(call.inputs[0].shape)) else any_last_width(call)
    return {**config_signature(call), **open_width}


def shares_last(layer: layers.PReLU, rank: int) -> bool:
    return rank - 1 in (layer.shared_axes or ())


def last_is_free(bundle: Bundle) -> None:
    if shares_last(bundle.layers[0], len(bundle.in_shape)):
        raise Reject("the last axis shares one slope")


def build_inner(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    shared = [axis + 1 for axis in bundle.layers[0].shared_axes]
    return twin_of(bundle.layers[0], common, shared_axes=shared)


def slopes(members) -> list[list[np.ndarray]]:
    return [one.get_weights() for one in members]


SIDE_BY_SIDE = Lowering(
    name="side-by-side",
    layouts=lambda bundle: (Layout(len(bundle.in_shape) - 1, folded=True),),
    build=copy_of,
    stack=lambda members: side_by_side(slopes(members)),
    unstack=taken_apart,
    accepts=last_is_free,
    sizes=last_widths,
    kernels=5,
)

LANE_AXIS = Lowering(
    name="lane-axis",
    layouts=lambda bundle: (INNER,),
    build=build_inner,
    stack=lambda members: [np.stack([alpha for (alpha,) in slopes(members)])],
    unstack=lambda arrays, count: [[arrays[0][i]] for i in range(count)],
    kernels=5,
)

PRELU = Kind(
    handles=(layers.PReLU,),
    signature=prelu_signature,
    lowerings=(SIDE_BY_SIDE, LANE_AXIS),
)
