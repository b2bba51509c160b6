"""`x[…]` of each lane: the same entries of every lane, by one indexing operation.

    a0[:, -1] ── y0
    a1[:, -1] ── y1      →      (M, batch, t, …)[:, :, -1] ── (M, batch, …)
    a2[:, -1] ── y2

Slices that cut one tensor into lanes are a split, and never come here. The key must be made of
numbers, slices and new axes, and leave the batch axis alone.
"""

from collections.abc import Sequence
from typing import Any

from parallel_fuse import _keras
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import clear_of
from parallel_fuse.kinds.base import Kind, Lowering
from parallel_fuse.kinds.once import ONCE
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle

WHOLE = slice(None)
Key = tuple


def signature(call: Call) -> dict:
    if len(call.inputs) != 1 or len(call.args) != 2:
        raise Reject("the key holds a tensor")
    key = written_out(call.args[1], len(call.inputs[0].shape))
    if key[0] != WHOLE:
        raise Reject("the key selects from the batch")
    return {"call arguments": (), "key": tuple(map(repr, key))}


def written_out(key: Any, rank: int) -> Key:
    """The key with one entry per axis; new axes stand between them."""
    entries = list(key) if isinstance(key, (tuple, list)) else [key]
    plain = (int, slice, type(None), type(Ellipsis))
    if any(isinstance(entry, bool) or not isinstance(entry, plain) for entry in inside(entries)):
        raise Reject("the key holds more than numbers, slices and new axes")
    if Ellipsis not in entries:
        entries.append(Ellipsis)
    at = entries.index(Ellipsis)
    missing = rank - sum(entry is not None for entry in entries) + 1
    return (*entries[:at], *[WHOLE] * missing, *entries[at + 1 :])


def inside(entries: Sequence) -> Sequence:
    """The entries and the bounds of those that are slices."""
    slices = [entry for entry in entries if isinstance(entry, slice)]
    return [*entries, *(bound for s in slices for bound in (s.start, s.stop, s.step))]


def key_of(bundle: Bundle) -> Key:
    return written_out(bundle.calls[0].args[1], len(bundle.in_shape))


def place_of(axis: int, key: Sequence) -> int:
    """Where the entry for an axis of the input stands in a key with new axes."""
    places = [place for place, entry in enumerate(key) if entry is not None]
    return places[axis] if axis < len(places) else len(key)


def layouts(bundle: Bundle) -> tuple[Layout, ...]:
    entries = [entry for entry in key_of(bundle) if entry is not None]
    picked = {axis for axis, entry in enumerate(entries) if entry != WHOLE}
    return clear_of(picked, len(entries))


def makes(bundle: Bundle, layout: Layout) -> Layout:
    """Axes that go in front of the lanes bring them forward, new ones move them back."""
    key = key_of(bundle)
    before = key[: place_of(layout.axis, key)]
    gone = sum(isinstance(entry, int) for entry in before)
    return Layout(len(before) - gone, layout.folded)


def build(bundle: Bundle, layout: Layout, common: dict) -> Any:
    key = list(key_of(bundle))
    if not layout.folded:
        key.insert(place_of(layout.axis, key), WHOLE)
    select = _keras.new_operation(_keras.GetItem, common["name"])
    return lambda tensor, _: select(tensor, tuple(key))


SELECT = Kind(
    handles=(_keras.GetItem,),
    signature=signature,
    lowerings=(ONCE, Lowering("as-they-lie", layouts, build, makes=makes)),
    light=True,
)
