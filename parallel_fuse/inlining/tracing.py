"""A custom layer's `call` as a functional model, with the layers inside it as calls.

    class PerFeature(Layer):                        x ── x[:, 0] ── Dense ──┐
        def call(self, inputs):             →       x ── x[:, 1] ── Dense ──┼── Concatenate
            return self.join([d(inputs[:, i])       x ── x[:, 2] ── Dense ──┘
                for i, d in enumerate(self.dense)])

`call` runs on symbolic tensors, of a copy of the layer: the user's own layers get no new calls, and
nothing is shared with them. TensorFlow functions in it are taken for those of `keras.ops` that do
the same. Assumes that `call` makes the same graph in training, and holds no weights of its own.
"""

from collections.abc import Hashable
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from parallel_fuse import _keras
from parallel_fuse.errors import Reject
from parallel_fuse.inlining.dispatch import tensorflow_on_symbols
from parallel_fuse.rebuilding.clone import clone_layer
from parallel_fuse.rebuilding.state import copy_state
from parallel_fuse.wording import first_line

Layer = keras.layers.Layer
Specs = Any  # a nest of KerasTensors
TOLERANCE = 1e-5  # of the largest value: the same operations, in the same order
UNKNOWN = 5  # a size for the comparison where the shape tells none


def trace(layer: Layer, specs: Specs, twins: dict[int, Layer]) -> keras.Model:
    """The layer's call on tensors of these shapes, as a model with new layers and equal weights.

    Args:
        twins: layer id → its copy; all calls of a layer are traced on one.

    Raises:
        Reject: why it cannot be opened.
    """
    _check(layer, specs)
    if id(layer) not in twins:
        twins[id(layer)] = _twin(layer, specs)
    twin = twins[id(layer)]
    found = _traced(twin, layer.name, specs, None)
    if _keras.takes_training(layer):
        others = [_traced(twin, layer.name, specs, training) for training in (True, False)]
        if any(_form(other) != _form(found) for other in others):
            raise Reject("its call does something else in training")
    _compare(layer, found, specs)
    return found


def _check(layer: Layer, specs: Specs) -> None:
    if _keras.own_weights(layer):
        raise Reject("holds weights of its own beside those of the layers inside")
    if type(layer).compute_mask is not Layer.compute_mask or layer.supports_masking:
        raise Reject("handles masks by itself")
    if layer.activity_regularizer is not None or layer.losses:
        raise Reject("adds a loss")
    wanted = {spec.dtype for spec in tree.flatten(specs) if "float" in spec.dtype}
    if wanted - {layer.compute_dtype}:
        raise Reject(f"casts {', '.join(sorted(wanted))} to {layer.compute_dtype}")


def _twin(layer: Layer, specs: Specs) -> Layer:
    """A copy of the layer, built, with the same state."""
    try:
        twin = clone_layer(layer)
        twin(tree.map_structure(lambda s: keras.Input(batch_shape=s.shape, dtype=s.dtype), specs))
        copy_state(layer, twin)
        _name_apart(twin)
    except Exception as error:  # noqa: BLE001 - a custom layer may fail in any way it likes
        raise Reject(f"cannot be cloned: {first_line(error)}") from None
    return twin


def _name_apart(twin: Layer) -> None:
    """Layers inside a layer may have equal names, operations of a model may not."""
    names: set[str] = set()
    for one in _keras.sublayers(twin):
        base, number = one.name, 0
        while one.name in names:
            number += 1
            _keras.rename(one, f"{base}_{number}")
        names.add(one.name)


def _traced(twin: Layer, name: str, specs: Specs, training: bool | None) -> keras.Model:
    inputs = tree.map_structure(lambda s: keras.Input(batch_shape=s.shape, dtype=s.dtype), specs)
    keywords = {"training": training} if _keras.takes_training(twin) else {}
    try:
        with tensorflow_on_symbols():
            outputs = twin.call(inputs, **keywords)
        if twin.losses:
            raise Reject("adds a loss")
        return keras.Model(inputs, outputs, name=name)
    except Reject:
        raise
    except Exception as error:  # noqa: BLE001 - a custom layer may fail in any way it likes
        raise Reject(f"its call does not run on symbolic tensors: {first_line(error)}") from None


def _form(model: keras.Model) -> list[Hashable]:
    """What was called on what, in order; not whether it was told to train."""
    places: dict[int, Any] = {id(t): ("input", i) for i, t in enumerate(tree.flatten(model.inputs))}
    found = []
    for number, node in enumerate(_keras.nodes_in_order(model)):
        places.update((id(t), (number, i)) for i, t in enumerate(node.outputs))
        operation = node.operation
        is_layer = isinstance(operation, Layer)
        what = id(operation) if is_layer else (type(operation), str(_keras.attributes(operation)))
        kwargs = {k: v for k, v in node.arguments.kwargs.items() if k != "training"}
        leaves = tree.flatten((node.arguments.args, kwargs))
        found.append((what, tuple(str(places.get(id(leaf), leaf)) for leaf in leaves)))
    return found


def _compare(layer: Layer, found: keras.Model, specs: Specs) -> None:
    """Raises Reject unless both give the same for random values."""
    random = np.random.default_rng(0)

    def values(spec):
        shape = (2, *(UNKNOWN if size is None else size for size in spec.shape[1:]))
        real = "float" in spec.dtype
        array = random.normal(size=shape) if real else random.integers(0, 2, shape)
        return ops.convert_to_tensor(array, dtype=spec.dtype)

    data = tree.map_structure(values, specs)
    keywords = {"training": False} if _keras.takes_training(layer) else {}
    pairs = zip(tree.flatten(layer(data, **keywords)), tree.flatten(found(data, training=False)))
    for one, other in pairs:
        one, other = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in (one, other))
        scale = max(np.abs(one).max(initial=0.0), 1e-30)
        alike = one.shape == other.shape and np.abs(one - other).max(initial=0) <= TOLERANCE * scale
        if not alike:
            raise Reject("opened, it does not give the same")
