"""Dropout and its family: one draw of noise for all lanes.

    x0 ── Dropout ── y0
    x1 ── Dropout ── y1      →      (lanes in any layout) ── Dropout ── (the same layout)
    x2 ── Dropout ── y2

Inference is exact. In training each element still gets noise of its own, of the same distribution,
though not the same numbers: one layer draws where M layers did. Layers of one and the same integer
seed draw equal noise in every lane; so does the fused layer, by a noise shape of 1 along the lane
axis, where the class has one. A noise shape keeps its meaning: the lane axis is added to it.
"""

from collections.abc import Sequence
from dataclasses import replace

from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import any_last_width, anywhere, last_widths, shifted
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.kinds.channels import any_width, channel_axis, folded_channels, widths
from parallel_fuse.kinds.once import ONCE, copy_of
from parallel_fuse.lanes import IN_BATCH, Layout
from parallel_fuse.plan import Bundle


def signature(call: Call) -> dict:
    shaped = getattr(call.operation, "noise_shape", None) is not None
    return {**config_signature(call), **({} if shaped else any_last_width(call))}


def seeds(bundle: Bundle) -> Sequence[int]:
    """The integer seeds, one per layer: a layer called in several lanes draws anew in each."""
    members = {id(one): one.seed for one in bundle.layers}
    return [seed for seed in members.values() if seed is not None]


def own_noise(bundle: Bundle) -> None:
    found = seeds(bundle)
    twice = next((seed for seed in found if found.count(seed) > 1), None)
    if twice is not None:
        raise Reject(f"seed {twice}: lanes of one seed draw the same noise, one layer would not")


def same_noise(bundle: Bundle) -> None:
    found = seeds(bundle)
    if len(found) < bundle.size or len(set(found)) > 1:
        raise Reject("the lanes draw noise of their own")


def draws_by_shape(bundle: Bundle) -> None:
    same_noise(bundle)
    if len(set(last_widths(bundle))) > 1:
        raise Reject("lanes of different widths cannot share their noise")


def apart(bundle: Bundle) -> tuple[Layout, ...]:
    return tuple(Layout(place) for place in range(len(bundle.in_shape) + 1))


def layouts(bundle: Bundle) -> tuple[Layout, ...] | None:
    return anywhere(bundle) if bundle.layers[0].noise_shape is None else apart(bundle)


def noise_shape(bundle: Bundle, layout: Layout, lanes: int | None) -> tuple[int | None, ...]:
    shape = list(bundle.layers[0].noise_shape or [None] * len(bundle.in_shape))
    shape.insert(layout.axis, lanes)
    return tuple(shape)


def build_own(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    first = bundle.layers[0]
    if first.noise_shape is None:
        return twin_of(first, common)
    return twin_of(first, common, noise_shape=noise_shape(bundle, layout, None))


def build_same(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    return twin_of(bundle.layers[0], common, noise_shape=noise_shape(bundle, layout, 1))


ONE_DRAW = replace(ONCE, accepts=same_noise)

DROPOUT = Kind(
    handles=(layers.Dropout, layers.AlphaDropout),
    signature=signature,
    lowerings=(
        ONE_DRAW,
        Lowering("own-noise", layouts, build_own, accepts=own_noise, sizes=last_widths),
        Lowering("same-noise", apart, build_same, accepts=draws_by_shape),
    ),
    light=True,
)

GAUSSIAN = Kind(
    handles=(layers.GaussianNoise, layers.GaussianDropout),
    signature=signature,
    lowerings=(
        ONE_DRAW,
        Lowering("own-noise", anywhere, copy_of, accepts=own_noise, sizes=last_widths),
    ),
    light=True,
)


def spatial_signature(call: Call) -> dict:
    axis = channel_axis(call.operation, len(call.inputs[0].shape))
    return {**config_signature(call), **any_width(call, axis)}


def channel_widths(bundle: Bundle) -> tuple[int, ...]:
    return widths(bundle, folded_channels(bundle).axis)


def spatial_layouts(bundle: Bundle) -> tuple[Layout, ...]:
    """Whole channels of a sample are dropped: lanes may be more channels, or more samples."""
    folded = folded_channels(bundle)
    return (folded, IN_BATCH) if len(set(channel_widths(bundle))) == 1 else (folded,)


def build_same_channels(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    first, rank = bundle.layers[0], len(bundle.in_shape)
    kept = {shifted(0, layout), shifted(folded_channels(bundle).axis, layout)}
    shape = tuple(None if axis in kept else 1 for axis in range(rank + 1))
    return layers.Dropout(first.rate, noise_shape=shape, seed=first.seed, **common)


def draws_by_channel(bundle: Bundle) -> None:
    same_noise(bundle)
    if len(set(channel_widths(bundle))) > 1:
        raise Reject("lanes of different widths cannot share their noise")


SPATIAL = Kind(
    handles=(layers.SpatialDropout1D, layers.SpatialDropout2D, layers.SpatialDropout3D),
    signature=spatial_signature,
    lowerings=(
        ONE_DRAW,
        Lowering("folded", spatial_layouts, copy_of, accepts=own_noise, sizes=channel_widths),
        Lowering("same-noise", apart, build_same_channels, accepts=draws_by_channel),
    ),
    light=True,
)
