"""From a flat TensorFlow graph to a functional Keras model, operation by operation."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

from parallel_fuse.translation import (
    dilated,
    elementwise,
    normalizing,
    reducing,
    selecting,
    shaping,
    weighted,
)
from parallel_fuse.translation.biases import Biases
from parallel_fuse.translation.frozen import ELSEWHERE, Frozen, Operation, frozen, value_of
from parallel_fuse.translation.node import Node
from parallel_fuse.translation.values import Sizes, UntranslatedError, tensor

TRANSLATIONS: dict[str, Callable[[Node], Any]] = {
    **dilated.TRANSLATIONS,
    **elementwise.TRANSLATIONS,
    **normalizing.TRANSLATIONS,  # behind elementwise: it looks at Mul and Add first
    **reducing.TRANSLATIONS,
    **selecting.TRANSLATIONS,
    **shaping.TRANSLATIONS,
    **weighted.TRANSLATIONS,
}
INNER = frozenset(("batchnorm", "Tensordot"))  # scopes that Keras opens inside of a layer


def functional_from_saved_model(path: str | Path, signature: str | None = None) -> keras.Model:
    """Rebuild what a SavedModel's signature computes as a functional model with the same weights.

    Args:
        path: the folder.
        signature: its name; `serving_default`, or the only one, by default.

    Returns:
        A functional model in inference form, its inputs and outputs named as in the signature.

    Raises:
        UntranslatedError: an operation has no translation, or does more than compute.
    """
    try:
        graph = frozen(Path(path), signature)
        return _Walk(graph).model(name=re.sub(r"\W+", "_", Path(path).stem) or "model")
    except UntranslatedError as reason:
        raise UntranslatedError(
            f"expected a SavedModel of operations that Keras has. Received: {path} with {reason}. "
            f"{ELSEWHERE}"
        ) from reason


class _Walk:
    """The values of the operations so far, and the layers made for their weights."""

    def __init__(self, graph: Frozen):
        self.graph = graph
        self.values: dict[str, tuple[Any, ...]] = {}
        self.made: dict[tuple, layers.Layer] = {}
        self.names: set[str] = set()
        self.inputs: dict[str, Any] = {}
        self.biases = Biases(graph)

    def model(self, name: str) -> keras.Model:
        for operation in self._needed():
            self.values[operation.name] = self._value(operation)
        outputs = {name: self._output(place) for name, place in self.graph.outputs.items()}
        inputs = self.inputs if len(self.inputs) > 1 else next(iter(self.inputs.values()))
        return keras.Model(inputs, _nest(outputs), name=name)

    def _needed(self) -> Iterator[Operation]:
        """Inputs, and what outputs depend on."""
        known = {op.name: op for op in self.graph.operations}
        waiting = [name for name, _ in self.graph.outputs.values()] + list(self.graph.inputs)
        needed: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting += [source for source, _ in known[name].inputs]
        return (op for op in self.graph.operations if op.name in needed)

    def _value(self, operation: Operation) -> tuple[Any, ...]:
        if operation.kind == "Placeholder":
            return (self._input(operation),)
        if operation.kind == "Const":
            return (value_of(operation),)
        if operation.kind not in TRANSLATIONS:
            raise UntranslatedError(f"the operation {operation.kind} ('{operation.name}')")
        found = self._translated(operation)
        return found if isinstance(found, tuple) else (found,)

    def _translated(self, operation: Operation) -> Any:
        args = tuple(self.values[name][place] for name, place in operation.inputs)
        node = Node(
            kind=operation.kind,
            name=operation.name,
            args=args,
            sources=tuple(self.biases.source(name) for name, _ in operation.inputs),
            attribute=operation.source.get_attr,
            layers=lambda key, make: self._layer(operation, key, make),
            bias=self._bias(operation),
            absorbed=operation.name in self.biases.absorbed,
        )
        try:
            found = TRANSLATIONS[operation.kind](node)
        except UntranslatedError as reason:
            raise UntranslatedError(f"{operation.kind} ('{operation.name}'): {reason}") from reason
        except Exception as error:  # Keras refuses arguments in many ways
            said = " ".join(str(error).split())[:120]
            what = f"{operation.kind} ('{operation.name}'), which Keras does not take: {said}"
            raise UntranslatedError(what) from error
        return _folded(found) if all(isinstance(arg, np.ndarray) for arg in args) else found

    def _bias(self, operation: Operation) -> tuple[Any, str] | None:
        place = self.biases.of.get(operation.name)
        if place is None:
            return None
        return self.biases.constant(place), self.biases.source(place)

    def _layer(self, operation: Operation, key: tuple, make: Callable) -> layers.Layer:
        if key not in self.made:
            layer = make()
            layer.name = self._name(operation.name)
            self.made[key] = layer
        return self.made[key]

    def _name(self, path: str) -> str:
        """That of the layer an operation came from: the last part but one of its path."""
        *scopes, last = [re.sub(r"\W", "_", part) for part in path.split("/")]
        name = next((scope for scope in reversed(scopes) if scope not in INNER), last)
        numbered = (name, *(f"{name}_{number}" for number in range(1, len(self.names) + 2)))
        free = next(one for one in numbered if one not in self.names)
        self.names.add(free)
        return free

    def _input(self, operation: Operation) -> Any:
        (shape,), dtype = operation.shapes, operation.source.get_attr("dtype").name
        if shape is None:
            raise UntranslatedError(f"an input of any shape ('{operation.name}')")
        name = operation.name
        self.inputs[name] = keras.Input(batch_shape=shape, dtype=dtype, name=name)
        return self.inputs[name]

    def _output(self, place: tuple[str, int]) -> Any:
        value = self.values[place[0]][place[1]]
        if isinstance(value, (np.ndarray, Sizes)):
            raise UntranslatedError("an output that does not depend on the inputs' values")
        value = tensor(value)
        given = any(value is one for one in self.inputs.values())
        return layers.Identity()(value) if given else value


def _folded(found: Any) -> Any:
    """What is made of constants is a constant."""
    if isinstance(found, tuple):
        return tuple(map(_folded, found))
    return found if isinstance(found, Sizes) else keras.ops.convert_to_numpy(found)


def _nest(outputs: dict[str, Any]) -> Any:
    """A dict by name; one tensor, or a list, where the names only number them."""
    numbered = [f"output_{i}" for i in range(len(outputs))]
    if set(outputs) != set(numbered):
        return outputs
    found = [outputs[name] for name in numbered]
    return found if len(found) > 1 else found[0]
