"""GroupNormalization: M layers of G groups become one of M·G groups.

    x0 ── GroupNormalization(G) ── y0
    x1 ── GroupNormalization(G) ── y1   →   (batch, …, M·C) ── GroupNormalization(M·G) ── the same
    x2 ── GroupNormalization(G) ── y2

Groups are runs of equal length along the layer's axis, so lanes folded into it keep theirs. Lanes
may differ in width if their groups do not. A gamma that some lanes lack is filled with ones, a beta
with zeros.
"""

from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, twin_of
from parallel_fuse.kinds.channels import any_width, widths
from parallel_fuse.kinds.scaling import present, scaled_signature, stack
from parallel_fuse.kinds.weights import taken_apart
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle


def signature(call: Call) -> dict:
    layer, shape = call.operation, call.inputs[0].shape
    axis = layer.axis % len(shape)
    if axis == 0:
        raise Reject("axis 0: normalizes over the batch")
    return {
        **scaled_signature(call, drop=("groups",)),
        "axis": axis,
        "channels in a group": shape[axis] // layer.groups,
        **any_width(call, axis),
    }


def axis_of(bundle: Bundle) -> int:
    return bundle.signature["axis"]


def build(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    members = bundle.layers
    groups = sum(one.groups for one in members)
    return twin_of(members[0], common, axis=layout.axis, groups=groups, **present(members))


FOLDED = Lowering(
    name="folded",
    layouts=lambda bundle: (Layout(axis_of(bundle), folded=True),),
    build=build,
    stack=stack,
    unstack=taken_apart,
    sizes=lambda bundle: widths(bundle, axis_of(bundle)),
)

GROUP_NORMALIZATION = Kind(
    handles=(layers.GroupNormalization,),
    signature=signature,
    lowerings=(FOLDED,),
)
