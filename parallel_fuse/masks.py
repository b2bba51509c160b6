"""Keras masks that travel unseen: hung on a tensor, not written into a call.

Keras writes most masks into the calls that use them, and those are replayed as they are. The others
are picked up when the model runs: by a layer whose `mask` argument was left open, and by the loss
of an output. Lanes carry no mask, so a value whose mask is picked up later must not become one.
"""

import inspect
from typing import Any

import keras
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.graph import Call, Graph, Value

# They pass over the masked steps of their operands.
LOOKING = (keras.layers.Maximum, keras.layers.Minimum, keras.layers.Multiply)


def mask_readers(graph: Graph) -> dict[int, str]:
    """value index → what picks up its mask, for every masked value where something does."""
    outputs = zip(graph.outputs, _keras.names(graph.model)[1])
    found = {v.index: f"output '{name}'" for v, name in outputs if v.masked}
    for call in reversed(graph.calls):
        reader = _reader(call, found)
        if reader is not None:
            found.update({v.index: reader for v in call.inputs if v.masked})
    return found


def _reader(call: Call, found: dict[int, str]) -> str | None:
    """A layer that takes the mask itself, or what takes it from the layer's own output."""
    if not isinstance(call.operation, keras.layers.Layer):
        return None
    if picks_up_masks(call):
        return f"layer '{call.name}'"
    return next((found[v.index] for v in call.outputs if v.index in found), None)


def picks_up_masks(call: Call) -> bool:
    """Whether a call has a mask argument that Keras fills from the tensors when the model runs, or
    looks at the masks by itself.
    """
    if not any(v.masked for v in call.inputs):
        return False
    if type(call.operation) in LOOKING:
        return True
    parameters = inspect.signature(call.operation.call).parameters
    given = {**dict(zip(parameters, call.args)), **call.kwargs}
    tensors = [name for name, value in given.items() if _holds_values(value)]
    open_to = ["mask"] if len(tensors) == 1 else [f"{name}_mask" for name in tensors]
    return any(name in parameters and given.get(name) is None for name in open_to)


def _holds_values(nest: Any) -> bool:
    return any(map(_is_value, tree.flatten(nest)))


def mask_calls(graph: Graph) -> set[int]:
    """Indices of the calls that only work out masks. Keras makes them; they are no branches."""
    outputs = {v.index for v in graph.outputs}
    found: set[int] = set()
    for call in reversed(graph.calls):
        uses = [(v.index, reader) for v in call.outputs for reader in graph.readers(v)]
        ends = any(v.index in outputs for v in call.outputs) or not uses
        if not ends and all(r.index in found or _only_as_mask(i, r) for i, r in uses):
            found.add(call.index)
    return found


def _only_as_mask(index: int, reader: Call) -> bool:
    """Whether a call reads a value by nothing but its mask arguments."""
    masks = {k for k in reader.kwargs if k == "mask" or k.endswith("_mask")}
    others = [reader.args, *(v for k, v in reader.kwargs.items() if k not in masks)]
    return bool(masks) and index not in {v.index for v in tree.flatten(others) if _is_value(v)}


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, Value)
