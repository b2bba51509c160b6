"""Weights of M layers as one, and taken apart again: stacked, or side by side."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Arrays = list[np.ndarray]


def uses_bias(members: Iterable[Any]) -> bool:
    return any(one.use_bias for one in members)


def bias_option(members: Iterable[Any], name: str) -> Any:
    """A bias regularizer or constraint, from a layer that has a bias."""
    return next((getattr(one, name) for one in members if one.use_bias), None)


def kernel_and_bias(one: Any, bias: bool) -> Arrays:
    """Kernel, and the bias or the zeros that stand for it."""
    kernel, *rest = one.get_weights()
    if not bias:
        return [kernel]
    return [kernel, rest[0] if rest else np.zeros(kernel.shape[-1], kernel.dtype)]


def kernels_and_biases(members: Sequence[Any]) -> list[Arrays]:
    bias = uses_bias(members)
    return [kernel_and_bias(one, bias) for one in members]


def stacked(lanes: Iterable[Arrays]) -> Arrays:
    """With the lanes along a new first axis."""
    return [np.stack(column) for column in zip(*lanes)]


def unstacked(arrays: Arrays, count: int) -> list[Arrays]:
    """The inverse of `stacked`."""
    return [[array[i] for array in arrays] for i in range(count)]


def side_by_side(lanes: Iterable[Arrays]) -> Arrays:
    return [np.concatenate(column, axis=-1) for column in zip(*lanes)]


def taken_apart(arrays: Arrays, count: int) -> list[Arrays]:
    """M lanes of equal width."""
    columns = [np.split(array, count, axis=-1) for array in arrays]
    return [list(lane) for lane in zip(*columns)]
