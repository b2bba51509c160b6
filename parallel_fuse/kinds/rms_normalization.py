"""RMSNormalization: M layers become one, the lanes along an axis of their own.

    x0 ── RMSNormalization ── y0
    x1 ── RMSNormalization ── y1    →    (M, batch, …, C) ── StackedRMSNormalization ── the same
    x2 ── RMSNormalization ── y2

The stock layer holds one scale for all lanes, so a layer of the package takes its place.
"""

from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import shifted
from parallel_fuse.kinds.base import Kind, Lowering, config_signature
from parallel_fuse.kinds.unit_normalization import axes_of
from parallel_fuse.kinds.weights import side_by_side, taken_apart
from parallel_fuse.lanes import Layout
from parallel_fuse.layers.stacked_normalization import StackedRMSNormalization
from parallel_fuse.plan import Bundle


def signature(call: Call) -> dict:
    dtype = call.inputs[0].dtype
    if "float" not in dtype:
        raise Reject(f"normalizes {dtype}, expected floats")
    axes, shape = axes_of(call), call.inputs[0].shape
    # The stock layer broadcasts its scale from the last axis on, whatever its `axis`.
    if tuple(call.operation.scale.shape) != shape[axes[0] :]:
        raise Reject(f"axis {axes}: not the last ones")
    return {**config_signature(call), "axis": axes}


def in_front(bundle: Bundle) -> tuple[Layout, ...]:
    """Lanes in front of the axes to normalize over, so that a weight's lanes lie one by one."""
    first = bundle.signature["axis"][0]
    return tuple(Layout(axis) for axis in range(first, -1, -1))


def build(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    axes = [shifted(axis, layout) for axis in bundle.signature["axis"]]
    epsilon = bundle.layers[0].epsilon
    return StackedRMSNormalization(axes, layout.axis, epsilon=epsilon, **common)


def stack(members) -> list:
    return side_by_side([weight.reshape(-1) for weight in one.get_weights()] for one in members)


LANE_AXIS = Lowering(
    name="lane-axis",
    layouts=in_front,
    build=build,
    stack=stack,
    unstack=taken_apart,
    portable=False,
)

RMS_NORMALIZATION = Kind(
    # Older releases of Keras do not have it.
    handles=tuple(getattr(layers, name) for name in ("RMSNormalization",) if hasattr(layers, name)),
    signature=signature,
    lowerings=(LANE_AXIS,),
)
