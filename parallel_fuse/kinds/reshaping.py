"""Layers that only give a lane another shape: the lane axis stays, the lane's own axes change.

    x0 ── Flatten ── y0
    x1 ── Flatten ── y1      →      (batch, M, a, b) ── Reshape ── (batch, M, a·b)
    x2 ── Flatten ── y2

Elements keep their order within each lane. With the lanes in front it is one `ops.reshape` of
(M, batch, …), and where neither can be said, sizes unknown until run time among them, the lanes are
folded into the batch and the layer runs as it is. A raw operation must keep the batch axis.
"""

from dataclasses import replace
from math import prod
from typing import Any

from keras import layers

from parallel_fuse import _keras
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import any_last_width as any_width
from parallel_fuse.kinds.axes import anywhere, casts, clear_of, last_widths, shifted
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, operation_signature
from parallel_fuse.kinds.once import ONCE, copy_of
from parallel_fuse.lanes import IN_BATCH, INNER, LEADING, Layout
from parallel_fuse.plan import Bundle

Shape = tuple[int | None, ...]


def identity_signature(call: Call) -> dict:
    return {**config_signature(call), **any_width(call)}


SMALL = 0.25  # of a kernel: what only changes a shape moves no element
SMALL_ONCE = replace(ONCE, kernels=SMALL)

IDENTITY = Kind(
    # An ActivityRegularization is rejected for its regularizer, by the machine, with that reason.
    handles=(layers.Identity, layers.ActivityRegularization),
    signature=identity_signature,
    # It runs no kernel: alone, as the name of an output, nothing would be saved.
    lowerings=(
        replace(ONCE, kernels=0),
        Lowering("as-they-lie", anywhere, copy_of, sizes=last_widths, kernels=0),
    ),
    light=True,
)


def reshape_signature(call: Call) -> dict:
    before, after = call.inputs[0].shape, call.output.shape
    if isinstance(call.operation, layers.Layer):
        return {"target": after[1:], **data_format(call)}
    known = None not in before[1:] and None not in after[1:]
    if not known or before[:1] != after[:1] or prod(before[1:]) != prod(after[1:]):
        raise Reject(f"reshape of {before} to {after}: not known to leave the batch axis alone")
    rest = operation_signature(call)
    del rest["newshape"]
    return {"target": after[1:], **rest}


def data_format(call: Call) -> dict:
    """Flatten moves the channels behind the other axes first, where there are any."""
    first = getattr(call.operation, "data_format", None) == "channels_first"
    return {"data_format": "channels_first"} if first and len(call.inputs[0].shape) > 2 else {}


def reshape_layouts(bundle: Bundle) -> tuple[Layout, ...]:
    layer = isinstance(bundle.layers[0], layers.Layer)
    if "data_format" in bundle.signature:
        return (IN_BATCH,)
    front = () if None in bundle.signature["target"] or casts(bundle) else (LEADING,)
    return (INNER, *front, *([IN_BATCH] if layer else []))


def build_reshape(bundle: Bundle, layout: Layout, common: dict) -> Any:
    if layout == IN_BATCH:
        return copy_of(bundle, layout, common)
    sizes = list(map(inferred, (bundle.in_shape[0], *bundle.signature["target"])))
    sizes.insert(layout.axis, bundle.size)
    if layout == INNER and isinstance(bundle.layers[0], layers.Layer):
        return layers.Reshape(tuple(sizes[1:]), **common)
    return _keras.new_operation(_keras.Reshape, common["name"], newshape=tuple(sizes))


def inferred(size: int | None) -> int:
    return -1 if size is None else size


RESHAPE = Kind(
    handles=(layers.Flatten, layers.Reshape, _keras.Reshape),
    signature=reshape_signature,
    lowerings=(SMALL_ONCE, Lowering("lane-axis", reshape_layouts, build_reshape, kernels=SMALL)),
    light=True,
)


def repeated(bundle: Bundle, layout: Layout) -> Layout:
    return layout if layout == IN_BATCH else Layout(2, folded=True)


REPEAT_VECTOR = Kind(
    handles=(layers.RepeatVector,),
    signature=config_signature,
    lowerings=(
        ONCE,
        Lowering("folded", lambda b: (Layout(1, folded=True), IN_BATCH), copy_of, makes=repeated),
    ),
    light=True,
)


def one_axis(call: Call, rank: int) -> int:
    """The axis of `expand_dims`, counted from the front."""
    given = call.operation.axis
    axes = (given,) if isinstance(given, int) else tuple(given)
    if len(axes) > 1 or axes[0] % rank == 0:
        raise Reject(f"axis {given}: expected one axis behind the batch axis")
    return axes[0] % rank


def expand_signature(call: Call) -> dict:
    return {**operation_signature(call), "axis": one_axis(call, len(call.output.shape))}


def build_expand(bundle: Bundle, layout: Layout, common: dict) -> Any:
    axis = bundle.signature["axis"]
    place = axis + 1 if not layout.folded and axis >= layout.axis else axis
    return _keras.new_operation(_keras.ExpandDims, common["name"], axis=place)


def expanded(bundle: Bundle, layout: Layout) -> Layout:
    """A new axis in front of the lanes moves them up; one at a folded axis stands before it."""
    axis = bundle.signature["axis"]
    moved = axis <= layout.axis if layout.folded else axis < layout.axis
    return Layout(layout.axis + moved, layout.folded)


EXPAND_DIMS = Kind(
    handles=(_keras.ExpandDims,),
    signature=expand_signature,
    lowerings=(
        SMALL_ONCE,
        Lowering("lane-axis", lambda b: None, build_expand, makes=expanded, kernels=SMALL),
    ),
    light=True,
)


def squeeze_signature(call: Call) -> dict:
    shape, given = call.inputs[0].shape, call.operation.axis
    if given is None:
        given = [axis for axis, size in enumerate(shape) if size == 1]
    axes = tuple(sorted(a % len(shape) for a in ([given] if isinstance(given, int) else given)))
    if 0 in axes:
        raise Reject("the batch axis is squeezed")
    return {**operation_signature(call), "axis": axes}


def build_squeeze(bundle: Bundle, layout: Layout, common: dict) -> Any:
    axes = tuple(shifted(axis, layout) for axis in bundle.signature["axis"])
    return _keras.new_operation(_keras.Squeeze, common["name"], axis=axes)


def squeezed(bundle: Bundle, layout: Layout) -> Layout:
    gone = sum(axis < layout.axis for axis in bundle.signature["axis"])
    return Layout(layout.axis - gone, layout.folded)


def squeeze_layouts(bundle: Bundle) -> tuple[Layout, ...]:
    return clear_of(bundle.signature["axis"], len(bundle.in_shape))


SQUEEZE = Kind(
    handles=(_keras.Squeeze,),
    signature=squeeze_signature,
    lowerings=(
        SMALL_ONCE,
        Lowering("lane-axis", squeeze_layouts, build_squeeze, makes=squeezed, kernels=SMALL),
    ),
    light=True,
)
