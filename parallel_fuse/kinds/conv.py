"""Conv1D, Conv2D, Conv3D: M convolutions become one with M times the groups.

    x0 ── Conv ── y0
    x1 ── Conv ── y1      →      (batch, …, M·C) ── GroupedConv(groups=M) ── (batch, …, M·F)
    x2 ── Conv ── y2

Lanes that read one tensor need no groups: one wide Conv makes all their filters, which may then
differ in number. Branches that have groups of their own, g each, become M·g groups. `GroupedConv`
is for TensorFlow; elsewhere a stock Conv with groups does as well. Assumes plain float kernels; a
missing bias is filled with zeros.
"""

import math

import keras
from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.kinds.channels import folded_channels
from parallel_fuse.kinds.weights import (
    bias_option,
    kernels_and_biases,
    side_by_side,
    taken_apart,
    uses_bias,
)
from parallel_fuse.lanes import Layout
from parallel_fuse.layers import GroupedConv1D, GroupedConv2D, GroupedConv3D
from parallel_fuse.plan import Bundle
from parallel_fuse.policy import Policy

GROUPED_TWIN = {
    layers.Conv1D: GroupedConv1D,
    layers.Conv2D: GroupedConv2D,
    layers.Conv3D: GroupedConv3D,
}

# Up to these `GroupedConv` has a faster form under XLA, see `layers/_grouped_conv_tensorflow.py`.
DENSE_CHANNELS, DENSE_GROUPS = 2, 64
# Of fewer in all lanes of one sample, starting the grouped kernel costs more than it saves.
FEW_POSITIONS = 256


def signature(call: Call) -> dict:
    """Filters may differ on a shared input, unless groups of their own forbid one wide Conv."""
    attributes = config_signature(call, drop=("use_bias",))
    if call.operation.groups > 1:
        attributes["filters of a grouped branch"] = attributes.pop("filters")
    return attributes


def build_wide(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    return _build(bundle, common, filters=sum(filters(bundle)))


def build_grouped(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    twin = GROUPED_TWIN[type(bundle.layers[0])]
    return _build(bundle, common, twin, filters=sum(filters(bundle)), groups=_groups(bundle))


def build_stock(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    return _build(bundle, common, filters=sum(filters(bundle)), groups=_groups(bundle))


def _build(bundle: Bundle, common: dict, cls: type | None = None, **changes) -> layers.Layer:
    members = bundle.layers
    return twin_of(
        members[0],
        common,
        cls,
        use_bias=uses_bias(members),
        bias_regularizer=bias_option(members, "bias_regularizer"),
        bias_constraint=bias_option(members, "bias_constraint"),
        **changes,
    )


def _groups(bundle: Bundle) -> int:
    return bundle.size * bundle.layers[0].groups


def filters(bundle: Bundle) -> tuple[int, ...]:
    return tuple(one.filters for one in bundle.layers)


def stack(members) -> list:
    """Kernels (…, C/g, F) and biases (F,), along the filters: lane by lane, group by group."""
    return side_by_side(kernels_and_biases(members))


def one_group(bundle: Bundle) -> None:
    groups = bundle.layers[0].groups
    if groups > 1:
        raise Reject(f"groups {groups}: each filter reads a part of the shared input only")


def on_tensorflow(bundle: Bundle) -> None:
    if keras.config.backend() != "tensorflow":
        raise Reject("a stock grouped convolution does as well on this backend")


def grouped_pays(bundle: Bundle, policy: Policy) -> None:
    """Where `GroupedConv` finds no kernel, it runs the lanes one by one."""
    first = bundle.layers[0]
    if policy.mode == "jit" and not _dense_under_xla(bundle):
        raise Reject("under XLA a grouped convolution is no faster than the branches")
    if policy.mode == "jit":
        return
    check_positions(bundle, policy)
    if isinstance(first, layers.Conv3D) or first.compute_dtype == "float64":
        what = "3D" if isinstance(first, layers.Conv3D) else "float64"
        raise Reject(f"TensorFlow has no grouped {what} kernel on a CPU, lanes run one by one")


def check_positions(bundle: Bundle, policy: Policy) -> None:
    """Raise Reject where too little is computed to pay for starting a grouped convolution."""
    positions = _positions(bundle)
    if policy.mode == "graph" and bundle.size * positions < FEW_POSITIONS:
        lanes = f"{bundle.size} lanes of {positions} positions"
        raise Reject(f"{lanes}: a grouped convolution of so few may be slower, measure")


def _positions(bundle: Bundle) -> int:
    """Of the kernel in one sample; unknown sizes are taken for large ones."""
    shape = bundle.out_shapes[0]
    sizes = shape[1:] if bundle.layers[0].data_format == "channels_first" else shape[:-1]
    return math.prod(size or FEW_POSITIONS for size in sizes)


def _dense_under_xla(bundle: Bundle) -> bool:
    channels = bundle.layers[0].kernel.shape[-2]
    return channels <= DENSE_CHANNELS and _groups(bundle) <= DENSE_GROUPS


def stock_pays(bundle: Bundle, policy: Policy) -> None:
    """On TensorFlow Keras hands it to XLA: 2 to 5 times slower than the branches on a CPU."""
    if keras.config.backend() == "tensorflow":
        raise Reject("on TensorFlow a stock grouped convolution is slower than the branches")


WIDE = Lowering(
    name="wide",
    layouts=lambda bundle: None,
    build=build_wide,
    stack=stack,
    unstack=taken_apart,
    makes=lambda bundle, layout: folded_channels(bundle),
    accepts=one_group,
    shared=True,
    sizes=filters,
    any_shape=True,
)

GROUPED = Lowering(
    name="grouped-conv",
    layouts=lambda bundle: (folded_channels(bundle),),
    build=build_grouped,
    stack=stack,
    unstack=taken_apart,
    accepts=on_tensorflow,
    pays=grouped_pays,
    portable=False,
    any_shape=True,
)

STOCK = Lowering(
    name="grouped-conv-stock",
    layouts=lambda bundle: (folded_channels(bundle),),
    build=build_stock,
    stack=stack,
    unstack=taken_apart,
    pays=stock_pays,
    any_shape=True,
)

CONV = Kind(
    handles=(layers.Conv1D, layers.Conv2D, layers.Conv3D),
    signature=signature,
    lowerings=(WIDE, GROUPED, STOCK),
    shared_free=("filters",),
    activation=True,
)
