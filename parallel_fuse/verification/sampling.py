"""Inputs to compare two models on: random ones that the model accepts, or the caller's own."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from parallel_fuse import _keras
from parallel_fuse.errors import NotVerifiedError
from parallel_fuse.verification.ids import id_limits, vocabularies

# Sizes for unknown dimensions, (first, step from axis to axis), in the order they are tried.
# Unequal sizes find swapped axes; a U-Net wants powers of two, a position table short sequences.
UNKNOWN_SIZES = ((8, 1), *((n, 0) for n in (8, 16, 32, 64, 128, 256, 4, 2, 1)))
# How many different values an integer gets that is not known to be an id.
INTEGER_VALUES = (10, 2)


@dataclass(frozen=True)
class Sample:
    """One batch: a tensor for each of the model's inputs in order, None for a left-out one."""

    batch_size: int
    values: tuple[Any, ...]


def candidates(
    model: keras.Model, batch_sizes: Sequence[int], seed: int
) -> Iterator[tuple[Sample, ...]]:
    """Sets of random samples, each to be used if the model cannot run on the one before.

    Floats are normal, ids cover their whole range, 0 and the last one included. Smaller batches
    are the first rows of the largest one. A model whose Input fixes the batch size gets that one
    only. With optional inputs a further sample leaves them out.

    Raises:
        NotVerifiedError: no valid random value is known for an input (strings, ragged tensors).
    """
    _check_drawable(model)
    optional = [_keras.input_layer_of(t).optional for t in _inputs(model)]
    for omit, values, sizes in itertools.product(
        (True, False) if any(optional) else (False,),
        INTEGER_VALUES if any("int" in t.dtype for t in _inputs(model)) else INTEGER_VALUES[:1],
        UNKNOWN_SIZES if any(None in t.shape[1:] for t in _inputs(model)) else UNKNOWN_SIZES[:1],
    ):
        rows = fixed_batch_size(model) or max(batch_sizes)
        whole = Sample(rows, _draw(model, rows, sizes, values, np.random.default_rng(seed)))
        samples = cut(model, whole, batch_sizes)
        if omit:
            kept = tuple(None if o else x for o, x in zip(optional, whole.values))
            samples = (Sample(rows, kept), *samples)
        yield samples


def cut(model: keras.Model, whole: Sample, batch_sizes: Sequence[int]) -> tuple[Sample, ...]:
    """The smaller batches as first rows of `whole`, then `whole` itself."""
    if fixed_batch_size(model):
        return (whole,)
    small = sorted({n for n in batch_sizes if n < whole.batch_size})
    heads = [tuple(None if x is None else x[:n] for x in whole.values) for n in small]
    return (*map(Sample, small, heads), whole)


def fixed_batch_size(model: keras.Model) -> int | None:
    return next((t.shape[0] for t in _inputs(model) if t.shape and t.shape[0]), None)


def _inputs(model: keras.Model) -> list[Any]:
    return _keras.functional_inside(model).inputs


def _check_drawable(model: keras.Model) -> None:
    for tensor in _inputs(model):
        layer = _keras.input_layer_of(tensor)
        ragged = getattr(layer, "ragged", False)
        if tensor.dtype == "string" or ragged or not tensor.shape:
            kind = "ragged" if ragged else f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            raise NotVerifiedError(
                f"Random values cannot stand for input '{layer.name}': expected numbers. "
                f"Received: {kind}. Give real values: `inputs=` here, `verify_inputs=` when fusing."
            )


def _draw(model: keras.Model, rows: int, sizes: tuple, values: int, rng: Any) -> tuple[Any, ...]:
    first, step = sizes
    shapes = [
        tuple((first + step * i if i else rows) if d is None else d for i, d in enumerate(t.shape))
        for t in _inputs(model)
    ]
    values = min([values, *(n - 1 for n in vocabularies(model) if n > 1)])
    limits = id_limits(model, shapes)
    return tuple(
        keras.ops.convert_to_tensor(_fill(t.dtype, shape, limit, values, rng), dtype=t.dtype)
        for t, shape, limit in zip(_inputs(model), shapes, limits)
    )


def _fill(dtype: str, shape: tuple, limits: np.ndarray, values: int, rng: Any) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    floating = keras.backend.is_float_dtype(dtype)
    numbers = rng.normal(size=shape) if floating else rng.integers(0, values, size=shape)
    return np.where(limits > 0, _ids(shape, np.maximum(limits, 1), rng), numbers)


def _ids(shape: tuple, limits: np.ndarray, rng: Any) -> np.ndarray:
    """Random ids; the first row has the last id everywhere, the next two each half zeros.

    Half, because 0 often means padding, and a sample of nothing but padding says little.
    """
    ids = rng.integers(0, limits, size=shape)
    first_half = (np.arange(limits.size) < limits.size // 2).reshape(limits.shape)
    ids[:1] = limits - 1
    ids[1:2] *= first_half
    ids[2:3] *= ~first_half
    return ids
