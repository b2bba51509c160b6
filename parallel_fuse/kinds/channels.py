"""Where the channels of a lane are, for rules that fold the lanes into them."""

from collections.abc import Hashable
from typing import Any

from parallel_fuse.graph import Call
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle


def channel_axis(layer: Any, rank: int) -> int:
    """1 or the last; a layer without `data_format` has its channels last."""
    first = getattr(layer, "data_format", None) == "channels_first"
    return 1 if first else rank - 1


def folded_channels(bundle: Bundle) -> Layout:
    """The lanes of a bundle's input, folded into its channels."""
    return Layout(channel_axis(bundle.layers[0], len(bundle.in_shape)), folded=True)


def widths(bundle: Bundle, axis: int) -> tuple[int, ...]:
    """How many entries each lane of the result has along an axis."""
    return tuple(shape[axis] for shape in bundle.out_shapes)


def any_width(call: Call, axis: int) -> dict[str, Hashable]:
    """The machine's entry for the input shape, with the channels left open.

    A layer that treats each channel alone may fuse lanes of different widths.
    """
    shape = list(call.inputs[0].shape)
    shape[axis] = "any"
    return {"input shape": (tuple(shape),)}
