"""Pooling, padding, upsampling: M equal layers become that layer on more channels.

    x0 ── MaxPooling ── y0
    x1 ── MaxPooling ── y1      →      (batch, …, M·C) ── MaxPooling ── (batch, …, M·C)
    x2 ── MaxPooling ── y2

No channel and no sample knows of another, so lanes may be folded into the channels, which may then
differ in number, or into the batch, where a batched matmul left them. Lanes that read one tensor
have one result.
"""

from keras import layers

from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature
from parallel_fuse.kinds.channels import any_width, channel_axis, folded_channels, widths
from parallel_fuse.kinds.once import ONCE, copy_of
from parallel_fuse.lanes import IN_BATCH, Layout
from parallel_fuse.plan import Bundle

FAMILIES = (
    "MaxPooling",
    "AveragePooling",
    "GlobalMaxPooling",
    "GlobalAveragePooling",
    "AdaptiveMaxPooling",
    "AdaptiveAveragePooling",
    "ZeroPadding",
    "UpSampling",
    "Cropping",
)


def handled() -> tuple[type, ...]:
    """The classes of every family that this release of Keras has."""
    names = [f"{family}{rank}D" for family in FAMILIES for rank in (1, 2, 3)]
    return tuple(getattr(layers, name) for name in names if hasattr(layers, name))


def signature(call: Call) -> dict:
    axis = channel_axis(call.operation, len(call.inputs[0].shape))
    return {**config_signature(call), **any_width(call, axis)}


def layouts(bundle: Bundle) -> tuple[Layout, ...]:
    folded = folded_channels(bundle)
    return (folded, IN_BATCH) if len(set(out_widths(bundle))) == 1 else (folded,)


def makes(bundle: Bundle, layout: Layout) -> Layout:
    """Global pooling takes the spatial axes away; the channels move up."""
    return layout if layout == IN_BATCH else Layout(out_axis(bundle), folded=True)


def out_axis(bundle: Bundle) -> int:
    return channel_axis(bundle.layers[0], len(bundle.out_shapes[0]))


def out_widths(bundle: Bundle) -> tuple[int, ...]:
    return widths(bundle, out_axis(bundle))


FOLDED = Lowering(
    name="folded",
    layouts=layouts,
    build=copy_of,
    makes=makes,
    sizes=out_widths,
)

CHANNELWISE = Kind(
    handles=handled(),
    signature=signature,
    lowerings=(ONCE, FOLDED),
)
