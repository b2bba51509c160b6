"""Rescaling: one scale and offset, or one of each lane.

    x0 ── Rescaling(a) ── y0
    x1 ── Rescaling(b) ── y1      →      (M, batch, …) ── Rescaling([a, b, c]) ── (M, batch, …)
    x2 ── Rescaling(c) ── y2

Lanes of one number each run in any layout. A scale with axes of its own (one per channel) must be
the same in every lane, and keeps the last axes of a lane whole.
"""

import numpy as np
from keras import config, layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature
from parallel_fuse.kinds.once import ONCE, copy_of
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle

NUMBERS = ("scale", "offset")


def signature(call: Call) -> dict:
    axes = own_axes(call.operation)
    rank = len(call.inputs[0].shape)
    if axes >= rank:
        raise Reject(f"scale or offset with {axes} axes, the input has {rank}")
    return config_signature(call, drop=() if axes else NUMBERS)


def own_axes(layer: layers.Rescaling) -> int:
    """How many last axes of the input the scale and the offset tell apart."""
    axes = max(np.ndim(getattr(layer, name)) for name in NUMBERS)
    images_first = config.image_data_format() == "channels_first"
    return max(axes, 3) if axes and images_first else axes


def values(bundle: Bundle, name: str) -> list:
    return [getattr(layer, name) for layer in bundle.layers]


def alike(bundle: Bundle) -> bool:
    return own_axes(bundle.layers[0]) > 0 or all(
        len({repr(float(value)) for value in values(bundle, name)}) == 1 for name in NUMBERS
    )


def all_alike(bundle: Bundle) -> None:
    if not alike(bundle):
        raise Reject("the lanes have numbers of their own")


def layouts(bundle: Bundle) -> tuple[Layout, ...] | None:
    axes, rank = own_axes(bundle.layers[0]), len(bundle.in_shape)
    if alike(bundle) and not axes:
        return None
    apart = tuple(Layout(place) for place in range(rank - axes + 1))
    folded = tuple(Layout(axis, folded=True) for axis in range(rank - axes))
    return apart + folded if alike(bundle) else apart


def build(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    if alike(bundle):
        return copy_of(bundle, layout, common)
    shape = np.ones(len(bundle.in_shape) + 1, int)
    shape[layout.axis] = bundle.size
    numbers = {name: np.reshape(values(bundle, name), shape) for name in NUMBERS}
    return layers.Rescaling(**numbers, **common)


RESCALING = Kind(
    handles=(layers.Rescaling,),
    signature=signature,
    lowerings=(
        Lowering("once", ONCE.layouts, copy_of, accepts=all_alike, shared=True, once=True),
        Lowering("as-they-lie", layouts, build),
    ),
    light=True,
)
