"""BatchNormalization: M sets of statistics become one longer set.

    x0 ── BatchNormalization ── y0
    x1 ── BatchNormalization ── y1   →   (batch, …, M·C) ── BatchNormalization ── (batch, …, M·C)
    x2 ── BatchNormalization ── y2

Each entry along the layer's axis has its own scale, offset and statistics, in training too, also
with renormalization and across synchronized replicas. So lanes folded into that axis keep theirs,
and may differ in width.
"""

from keras import layers

from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.kinds.channels import any_width, widths
from parallel_fuse.kinds.weights import side_by_side, taken_apart
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle


def signature(call: Call) -> dict:
    axis = call.operation.axis % len(call.inputs[0].shape)
    return {**config_signature(call), "axis": axis, **any_width(call, axis)}


def axis_of(bundle: Bundle) -> int:
    return bundle.layers[0].axis % len(bundle.in_shape)


def build(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    return twin_of(bundle.layers[0], common, axis=layout.axis)


def stack(members) -> list:
    """Gamma and beta where the layers have them, then the statistics: (M·C,) each."""
    return side_by_side(one.get_weights() for one in members)


FOLDED = Lowering(
    name="folded",
    layouts=lambda bundle: (Layout(axis_of(bundle), folded=True),),
    build=build,
    stack=stack,
    unstack=taken_apart,
    sizes=lambda bundle: widths(bundle, axis_of(bundle)),
)

BATCH_NORMALIZATION = Kind(
    handles=(layers.BatchNormalization,),
    signature=signature,
    lowerings=(FOLDED,),
    by_sample=False,
)
