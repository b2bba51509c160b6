"""`Permute`, `ops.transpose` and their like: the lane's axes change places, the lane axis does not.

    x0 ── Permute((2, 1)) ── y0
    x1 ── Permute((2, 1)) ── y1      →      (M, batch, a, b) ── transpose ── (M, batch, b, a)
    x2 ── Permute((2, 1)) ── y2

Lanes folded into an axis move with it. The batch axis must stay in front.
"""

from typing import Any

from keras import layers

from parallel_fuse import _keras
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import casts, clear_of, shifted
from parallel_fuse.kinds.base import Kind, Lowering, operation_signature
from parallel_fuse.kinds.once import ONCE
from parallel_fuse.lanes import LEADING, Layout
from parallel_fuse.plan import Bundle

Order = tuple[int, ...]


def signature(call: Call) -> dict:
    order = order_of(call.operation, len(call.inputs[0].shape))
    if order[0] != 0:
        raise Reject(f"axes {order}: the batch axis does not stay in front")
    raw = not isinstance(call.operation, layers.Layer)
    constants = operation_signature(call)["constants"] if raw else ""
    return {"order": order, "constants": constants}


def order_of(operation: Any, rank: int) -> Order:
    """The axes of the input in the order of the output."""
    if isinstance(operation, layers.Permute):
        return (0, *operation.dims)
    if isinstance(operation, _keras.Transpose):
        given = operation.axes or tuple(reversed(range(rank)))
        return tuple(axis % rank for axis in given)
    if isinstance(operation, _keras.Swapaxes):
        return swapped(operation.axis1 % rank, operation.axis2 % rank, rank)
    return moved(operation.source, operation.destination, rank)


def swapped(one: int, other: int, rank: int) -> Order:
    order = list(range(rank))
    order[one], order[other] = other, one
    return tuple(order)


def moved(sources: list[int], targets: list[int], rank: int) -> Order:
    pairs = sorted((t % rank, s % rank) for s, t in zip(sources, targets))
    order = [axis for axis in range(rank) if axis not in {source for _, source in pairs}]
    for target, source in pairs:
        order.insert(target, source)
    return tuple(order)


def layouts(bundle: Bundle) -> tuple[Layout, ...] | None:
    """Any; but a layer that casts must run as one, and `Permute` cannot carry lanes in front."""
    if not casts(bundle):
        return None
    return tuple(layout for layout in clear_of((), len(bundle.in_shape)) if layout != LEADING)


def makes(bundle: Bundle, layout: Layout) -> Layout:
    if not layout.folded:
        return layout
    return Layout(bundle.signature["order"].index(layout.axis), folded=True)


def build(bundle: Bundle, layout: Layout, common: dict) -> Any:
    order = [shifted(axis, layout) for axis in bundle.signature["order"]]
    if not layout.folded:
        order.insert(layout.axis, layout.axis)
    if layout != LEADING and isinstance(bundle.layers[0], layers.Layer):
        return layers.Permute(tuple(order[1:]), **common)
    return _keras.new_operation(_keras.Transpose, common["name"], axes=tuple(order))


PERMUTE = Kind(
    handles=(layers.Permute, _keras.Transpose, _keras.Swapaxes, _keras.Moveaxis),
    signature=signature,
    lowerings=(ONCE, Lowering("lane-axis", layouts, build, makes=makes)),
    light=True,
)
