"""Where the axes of a lane are once the lanes are one tensor."""

from collections.abc import Collection, Hashable

from parallel_fuse.graph import Call
from parallel_fuse.kinds.channels import widths
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle


def shifted(axis: int, layout: Layout) -> int:
    """The place of a lane's axis, counted from the front, in the lanes' tensor."""
    return axis if layout.folded or axis < layout.axis else axis + 1


def clear_of(axes: Collection[int], rank: int) -> tuple[Layout, ...]:
    """The layouts in which these axes of a lane stay whole."""
    apart = tuple(Layout(place) for place in range(rank + 1))
    folded = (Layout(axis, folded=True) for axis in range(rank) if axis not in axes)
    return (*apart, *folded)


def any_last_width(call: Call) -> dict[str, Hashable]:
    """The machine's entry for the input shapes, with the last axis left open.

    A layer that treats each element alone may fuse lanes of different widths.
    """
    return {"input shape": tuple(_open(value.shape) for value in call.inputs)}


def _open(shape: tuple[int | None, ...]) -> tuple:
    return shape if len(shape) < 2 or shape[-1] is None else (*shape[:-1], "any")


def last_widths(bundle: Bundle) -> tuple[int, ...]:
    return widths(bundle, -1)


def anywhere(bundle: Bundle) -> tuple[Layout, ...] | None:
    """Any layout; only side by side along the last axis where the widths differ there."""
    if len(set(last_widths(bundle))) == 1:
        return None
    return (Layout(len(bundle.in_shape) - 1, folded=True),)


def casts(bundle: Bundle) -> bool:
    """Whether the layer also changes the type: a raw operation would not."""
    return bundle.calls[0].output.dtype != bundle.inputs[0][0].dtype
