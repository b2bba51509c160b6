"""Lambda layers as the Keras operations they come to, so that no Python code is left in the model.

What is written then loads without the code, without `tf` or `K`, and without `safe_mode=False`.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from parallel_fuse import _keras
from parallel_fuse.inlining.dispatch import tensorflow_on_symbols

UNKNOWN = 5  # a size for the comparison where the shape tells none
TOLERANCE = 1e-5  # of the largest value: the same operations, in the same order
PLAIN = (int, float, str, bool, type(None), type(Ellipsis), slice, keras.KerasTensor)


def operations_of(layer: keras.layers.Lambda, inputs: Any) -> Any:
    """The outputs of the layer's function on these tensors, made by Keras operations.

    Returns:
        None where that cannot be done, or gives something else: the function draws random
        numbers, holds arrays, knows training, or calls what has no translation.
    """
    function, arguments = layer.function, layer.arguments or {}
    if {"training", "mask"} & set(inspect.signature(function).parameters):
        return None
    try:
        twins = tree.map_structure(
            lambda t: keras.Input(batch_shape=t.shape, dtype=t.dtype), inputs
        )
        with tensorflow_on_symbols():
            model = keras.Model(twins, function(twins, **arguments))
            alike = _is_plain(model) and _gives_the_same(layer, model, inputs)
            return function(inputs, **arguments) if alike else None
    except Exception:  # noqa: BLE001 - a function may fail on symbols in any way it likes
        return None


def _is_plain(model: keras.Model) -> bool:
    """Whether nothing in it was computed, or drawn, while it was made."""
    return all(
        isinstance(leaf, PLAIN)
        for node in _keras.nodes_in_order(model)
        for leaf in tree.flatten((node.arguments.args, node.arguments.kwargs))
    )


def _gives_the_same(layer: keras.layers.Lambda, model: keras.Model, inputs: Any) -> bool:
    random = np.random.default_rng(0)
    for rows in (2, 3):
        data = tree.map_structure(lambda t, rows=rows: _values(t, rows, random), inputs)
        pairs = zip(_numbers(layer(data)), _numbers(model(data)), strict=True)
        if not all(_alike(*pair) for pair in pairs):
            return False
    return True


def _values(tensor: Any, rows: int, random: np.random.Generator) -> Any:
    sizes = [UNKNOWN if size is None else size for size in tensor.shape[1:]]
    shape = (tensor.shape[0] or rows, *sizes)
    real = "float" in tensor.dtype
    array = random.normal(size=shape) if real else random.integers(0, 2, shape)
    return ops.convert_to_tensor(array, dtype=tensor.dtype)


def _numbers(nest: Any) -> Iterator[np.ndarray]:
    for one in tree.flatten(nest):
        yield ops.convert_to_numpy(ops.cast(one, "float64"))


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    finite = np.isfinite(one)
    scale = np.abs(one[finite]).max(initial=1e-30)
    same = np.array_equal(finite, np.isfinite(other))
    return same and bool(np.abs(one - other)[finite].max(initial=0) <= TOLERANCE * scale)
