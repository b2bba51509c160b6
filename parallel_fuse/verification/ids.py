"""Which elements of a model's inputs are ids, and how many ids are valid there."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from parallel_fuse import _keras
from parallel_fuse.verification import interpret

# Every number type holds these digits exactly, int8 and bfloat16 too.
BASE = 100

UNKNOWN = object()


def id_limits(model: keras.Model, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Number of valid ids for each element of each input, 0 where the element is no id.

    Finds them by experiment: every element gets a number, the operations before the first weights
    are run, and the numbers that arrive at an Embedding tell which elements it reads. That works
    through casts, slices, reshapes, nested models and Lambdas alike. Where the numbers arrive
    changed (`ids + 1`), nothing is claimed.

    Args:
        shapes: shape of each of `model.inputs`, batch included, without None.

    Returns:
        For each input an integer array of the shape of one sample.
    """
    sizes = [math.prod(shape[1:]) for shape in shapes]
    limits = np.zeros(sum(sizes), dtype="int64")
    functional = _keras.functional_inside(model)
    if vocabularies(functional):
        for vocabulary, elements in _lookups(functional, shapes, sum(sizes)):
            _lower(limits, elements, vocabulary)
    parts = np.split(limits, np.cumsum(sizes)[:-1])
    return [part.reshape(shape[1:]) for part, shape in zip(parts, shapes)]


def vocabularies(layer: Any) -> list[int]:
    """Number of valid ids of every layer inside that looks ids up."""
    found = []
    for inside in _keras.sublayers(layer):
        if isinstance(inside, keras.layers.Embedding):
            found.append(inside.input_dim)
        elif isinstance(inside, keras.layers.CategoryEncoding):
            found.append(inside.num_tokens)
        else:  # what many tables became
            found += getattr(inside, "vocabularies", ())
    return [int(n) for n in found if n]


def _lower(limits: np.ndarray, elements: np.ndarray, vocabulary: int) -> None:
    known = limits[elements]
    limits[elements] = np.where(known, np.minimum(known, vocabulary), vocabulary)


def _lookups(functional: Any, shapes: Sequence[tuple], total: int) -> list[tuple]:
    """(vocabulary, numbers of the elements looked up) for each lookup that reads inputs as is."""
    digits = 1
    while BASE**digits < total:
        digits += 1
    labels = np.arange(total)
    codes = [labels // BASE**k % BASE for k in range(digits)]
    runs = [_visit(functional, shapes, code) for code in (*codes, BASE - 1 - codes[0])]
    found = []
    for visits in zip(*runs):
        vocabulary, arrays = visits[0][0], [array for _, array in visits]
        if all(array is not None for array in arrays):
            found.append((vocabulary, _decode(arrays, total)))
    return found


def _decode(arrays: list[np.ndarray], total: int) -> np.ndarray:
    """Numbers of the elements, without those that were changed on their way."""
    *digits, mirrored = arrays
    elements = sum(digit * BASE**k for k, digit in enumerate(digits))
    intact = (digits[0] + mirrored == BASE - 1) & (elements < total) & (elements >= 0)
    return elements[intact].astype("int64")


def _visit(functional: Any, shapes: Sequence[tuple], code: np.ndarray) -> list[tuple]:
    """(vocabulary, ids it gets or None) for each lookup, with `code` as the inputs' elements."""
    visits: list[tuple] = []

    def apply(node, args, kwargs, tensors):
        known = all(t is not UNKNOWN for t in tensors)
        vocabulary = min(vocabularies(node.operation), default=0)
        if vocabulary:
            visits.extend((vocabulary, _numbers(t) if known else None) for t in tensors)
        if vocabulary or not known or getattr(node.operation, "weights", None):
            return itertools.repeat(UNKNOWN, len(node.outputs))
        try:
            return interpret.infer(node.operation, args, kwargs)
        except Exception:  # noqa: BLE001 - whatever an operation dislikes about these values
            return itertools.repeat(UNKNOWN, len(node.outputs))

    with keras.StatelessScope():
        interpret.run(functional, _spread(functional, shapes, code), apply)
    return visits


def _spread(functional: Any, shapes: Sequence[tuple], code: np.ndarray) -> list[Any]:
    sizes = [math.prod(shape[1:]) for shape in shapes]
    parts = np.split(code, np.cumsum(sizes)[:-1])
    values = []
    for tensor, shape, part in zip(functional.inputs, shapes, parts):
        whole = np.broadcast_to(part.reshape(shape[1:]), shape)
        number = tensor.dtype not in ("bool", "string")
        values.append(keras.ops.convert_to_tensor(whole, tensor.dtype) if number else UNKNOWN)
    return values


def _numbers(tensor: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(tensor)).astype("float64")
