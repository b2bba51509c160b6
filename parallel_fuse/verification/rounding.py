"""Runs a model with a rounding error added to every operation, to see what that does to it."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from parallel_fuse import _keras
from parallel_fuse.verification import interpret
from parallel_fuse.verification.precision import EPSILON, Precision


def shaken_runs(
    model: keras.Model, values: Sequence[Any], precision: Precision, seed: int, pairs: int
) -> list[list[Any]]:
    """Runs the model with every operation's result changed by one rounding.

    No variable is touched. A layer's result moves by `precision.unit(fan-in)` of the largest term
    in it, for terms may cancel; that of anything without weights by one epsilon of itself.
    Whole numbers are taken for ids or counts and left exact.

    The runs come in pairs, moved up and down by the same amounts: whatever stands just below the
    edge of a relu crosses it in one of them.

    Args:
        values: the flat inputs.
        seed: for the random signs.

    Returns:
        The flat output tensors of each of the `2 * pairs` runs.
    """
    return [
        _shaken_run(model, values, _mover(precision, sign, (seed, pair)))
        for pair in range(pairs)
        for sign in (1, -1)
    ]


def _mover(precision: Precision, sign: int, seed: tuple[int, int]) -> Callable:
    """A function that moves values by one rounding, with the same random signs for each seed.

    It leaves the whole numbers alone that the values' own type, of this `epsilon`, can tell apart.
    """
    random = np.random.default_rng(seed)

    def move(y, size, terms, epsilon):
        noise = sign * precision.unit(terms) * size * random.choice([-1.0, 1.0], size=y.shape)
        exact = (y == np.round(y)) & (finite_size(y) < 1 / epsilon)
        return np.where(exact, y, y + noise)

    return move


def _shaken_run(model: keras.Model, values: Sequence[Any], move: Callable) -> list[Any]:
    def apply(node, args, kwargs, tensors):
        results = interpret.infer(node.operation, args, kwargs)
        return [_shake(y, node.operation, move) for y in results]

    functional = _keras.functional_inside(model)
    values = [_shake(x, None, move) for x in values]
    with keras.StatelessScope():
        return interpret.run(functional, values, apply)


def fan_in(operation: Any) -> int:
    """Products summed in one element of a layer's result, over all its kernels; 0 if weightless.

    An upper bound: the lanes of a batched kernel and the channels of a depthwise one count too.
    An Embedding's table is looked up, not summed.
    """
    layers = _keras.sublayers(operation)
    weights = [w for layer in layers for w in _keras.own_weights(layer) if not is_table(layer)]
    if not weights:
        return 0
    return max(1, sum(math.prod(w.shape[:-1]) for w in weights if len(w.shape) > 1))


def is_table(layer: Any) -> bool:
    return isinstance(layer, keras.layers.Embedding) or hasattr(layer, "vocabularies")


def _shake(tensor: Any, operation: Any, move: Callable) -> Any:
    dtype = None if tensor is None else keras.backend.standardize_dtype(tensor.dtype)
    if dtype not in EPSILON:
        return tensor
    y, terms = to_float64(tensor), fan_in(operation)
    size = _largest_term(operation, y) if terms else finite_size(y)
    moved = keras.ops.convert_to_tensor(move(y, size, max(terms, 1), EPSILON[dtype]), dtype=dtype)
    return _keras.copy_mask(tensor, moved)


def _largest_term(layer: Any, y: np.ndarray) -> np.ndarray:
    """What a layer added up to get `y`, at least: a small result may be a large sum's remainder.

    Seen from the largest result at each position over the batch and from the biases.
    """
    size = np.broadcast_to(finite_size(y).max(axis=0, initial=0), y.shape)
    for inside in _keras.sublayers(layer):
        for name in ("bias", "beta"):
            offset = getattr(inside, name, None)
            if isinstance(offset, keras.Variable):
                size = size + _along(to_float64(keras.ops.abs(offset)), y.shape)
    return size


def _along(offset: np.ndarray, shape: tuple[int, ...]) -> Any:
    """The offset as it is added to the last axes, or its largest value for any other layout."""
    fits = offset.ndim < len(shape) and all(
        n in (1, m) for n, m in zip(offset.shape[::-1], shape[::-1])
    )
    return offset if fits else offset.max(initial=0)


def to_float64(tensor: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(tensor)).astype("float64")


def finite_size(y: np.ndarray) -> np.ndarray:
    """Absolute values, 0 where there is none."""
    return np.abs(np.nan_to_num(y, nan=0.0, posinf=0.0, neginf=0.0))
