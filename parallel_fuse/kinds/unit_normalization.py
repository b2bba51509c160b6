"""UnitNormalization: one layer on all lanes, as they lie, with its axes left whole.

    x0 ── UnitNormalization ── y0
    x1 ── UnitNormalization ── y1    →    (M, batch, …, C) ── UnitNormalization ── (M, batch, …, C)
    x2 ── UnitNormalization ── y2

It has no weights. Lanes may differ in width along the last axis if each entry there is alone.
Lanes that read one tensor have one result.
"""

from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import any_last_width, anywhere, clear_of, last_widths, shifted
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.kinds.once import ONCE
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle


def axes_of(call: Call) -> tuple[int, ...]:
    """The axes a layer normalizes over, counted from the front.

    Raises:
        Reject: the batch is one of them.
    """
    axis, rank = call.operation.axis, len(call.inputs[0].shape)
    given = axis if isinstance(axis, (list, tuple)) else (axis,)
    axes = tuple(sorted(one % rank for one in given))
    if 0 in axes:
        raise Reject("axis 0: normalizes over the batch")
    return axes


def signature(call: Call) -> dict:
    axes, rank = axes_of(call), len(call.inputs[0].shape)
    open_width = {} if rank - 1 in axes else any_last_width(call)
    return {**config_signature(call), "axis": axes, **open_width}


def layouts(bundle: Bundle) -> tuple[Layout, ...]:
    return anywhere(bundle) or clear_of(bundle.signature["axis"], len(bundle.in_shape))


def build(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    axes = [shifted(axis, layout) for axis in bundle.signature["axis"]]
    axis = axes[0] if len(axes) == 1 else axes
    return twin_of(bundle.layers[0], common, axis=axis)


ALONG_AXES = Lowering("along-axes", layouts, build, sizes=last_widths)

UNIT_NORMALIZATION = Kind(
    handles=(layers.UnitNormalization,),
    signature=signature,
    lowerings=(ONCE, ALONG_AXES),
    light=True,
)
