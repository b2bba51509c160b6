"""Names of operations that stand for a layer of the file: those of the layer.

Keras would number them, from where the process has got to, and may take a name that a layer of the
file has.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import keras
from keras import tree

from parallel_fuse import _keras

Values = Mapping[tuple[str, int], list]


def name_operations(ends: tuple[Any, Any], values: Values, names: Mapping[str, str]) -> None:
    """Names all raw operations between inputs and outputs.

    Args:
        ends: the inputs and the outputs, as nests of tensors.
        values: (layer, call) → its outputs.
        names: name of a layer in the file → its name in the model.
    """
    between = SimpleNamespace(inputs=tree.flatten(ends[0]), outputs=tree.flatten(ends[1]))
    made_by: dict[int, str] = {}
    for (layer, _), made in values.items():
        for tensor in made:
            made_by.setdefault(id(tensor), names[layer])  # some layers hand their input on
    taken = set(names.values())
    claimed: set[str] = {node.operation.name for node in _nodes(between) if _is_layer(node)}
    for node in _nodes(between):
        if _is_layer(node):
            continue
        wanted = made_by.get(id(node.outputs[0]))
        name = wanted if wanted and wanted not in claimed else _free(node.operation.name, taken)
        _keras.rename(node.operation, name)
        claimed.add(name)
        taken.add(name)


def named(tensor: Any, name: str) -> Any:
    """An output, made by something of this name; by a layer that does nothing if need be."""
    if _keras.maker_of(tensor).name == name:
        return tensor
    return keras.layers.Identity(name=name)(tensor)


def _nodes(between: Any) -> list[Any]:
    return list(_keras.nodes_in_order(between))


def _is_layer(node: Any) -> bool:
    return isinstance(node.operation, keras.Layer)


def _free(name: str, taken: set[str]) -> str:
    base, number = name.rstrip("0123456789").rstrip("_") or name, 0
    found = base
    while found in taken:
        number += 1
        found = f"{base}_{number}"
    return found
