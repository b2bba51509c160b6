"""What stands for a TensorFlow tensor while a graph is translated.

One of these: a `keras.KerasTensor` where the graph computes, a NumPy array where it is constant,
`Sizes` where it is a shape or part of one, `Flat` where it is a tensor with its front axes merged
(TensorFlow does so around a product of more than two axes), `Scaled` where a shift may follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from parallel_fuse.errors import ConversionError


class UntranslatedError(ConversionError):
    """Something in a graph that has no translation; the message names it."""


@dataclass(frozen=True)
class Dim:
    """The size of one axis of a tensor, known only when the model runs. `axis` None: a product."""

    of: int
    axis: int | None = None


@dataclass(frozen=True)
class Sizes:
    """A vector of sizes, or a single one (`scalar`)."""

    entries: tuple[int | Dim, ...]
    scalar: bool = False

    def simple(self) -> "Sizes | np.ndarray":
        """As an array, if all are known."""
        if any(isinstance(entry, Dim) for entry in self.entries):
            return self
        return np.array(self.entries[0] if self.scalar else self.entries, "int32")


@dataclass(frozen=True)
class Flat:
    """`tensor` (…, channels) as (all of …, channels); its front axes have the sizes of `of`'s."""

    tensor: Any
    of: int

    def made(self) -> Any:
        return ops.reshape(self.tensor, (-1, self.tensor.shape[-1]))


@dataclass(frozen=True)
class Scaled:
    """`tensor` times `factor`, a vector along the last axis; half of a frozen normalization."""

    tensor: Any
    factor: np.ndarray
    source: str

    def made(self) -> Any:
        return ops.multiply(self.tensor, self.factor)


Value = Any


def tensor(value: Value) -> Any:
    """A tensor or an array.

    Raises:
        UntranslatedError: sizes that are known only when the model runs are computed with.
    """
    if isinstance(value, (Flat, Scaled)):
        return value.made()
    if isinstance(value, Sizes):
        raise UntranslatedError("arithmetic with a size that is known only when the model runs")
    if not isinstance(value, (keras.KerasTensor, np.ndarray)):
        raise UntranslatedError("a part of a dilated convolution")
    return value


def constant(value: Value, what: str) -> np.ndarray:
    """An array.

    Raises:
        UntranslatedError: it is computed.
    """
    if not isinstance(value, np.ndarray):
        raise UntranslatedError(f"{what} that is computed")
    return value


def integers(value: Value, what: str) -> tuple[int, ...]:
    return tuple(int(n) for n in np.ravel(constant(value, what)))


def number(value: Value, what: str) -> int:
    (found,) = integers(value, what)
    return found


def shape_of(value: Value) -> Sizes | np.ndarray:
    if isinstance(value, np.ndarray):
        return np.array(value.shape, "int32")
    if isinstance(value, Flat):
        *front, last = sizes_of(value.tensor.shape, value.of)
        return Sizes((product_of(front), last)).simple()
    known = value.tensor if isinstance(value, Scaled) else value
    return Sizes(sizes_of(known.shape, id(known))).simple()


def sizes_of(shape: Sequence[int | None], of: int) -> tuple[int | Dim, ...]:
    return tuple(Dim(of, axis) if n is None else n for axis, n in enumerate(shape))


def product_of(entries: Sequence[int | Dim]) -> int | Dim:
    unknown = [entry for entry in entries if isinstance(entry, Dim)]
    if not unknown:
        return int(np.prod(entries, dtype="int64"))
    alone = len(unknown) == 1 and all(e == 1 for e in entries if not isinstance(e, Dim))
    return unknown[0] if alone else Dim(unknown[0].of)


def entries_of(value: Value) -> tuple[int | Dim, ...]:
    if isinstance(value, Sizes):
        return value.entries
    return integers(value, "a shape")


def plain(value: Any) -> Any:
    """A constant of one number as that number, so that it takes the type of what it meets."""
    if isinstance(value, np.ndarray) and not value.shape:
        return value.item()
    return value


def is_symbolic(value: Value) -> bool:
    return isinstance(value, (keras.KerasTensor, Flat, Scaled))
