"""Compares two models' interfaces, and their outputs number by number."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.verification.precision import EPSILON
from parallel_fuse.verification.result import OutputCheck
from parallel_fuse.verification.tolerance import Bound


@dataclass(frozen=True)
class Result:
    """One output of one run. Floats of every type are held as float64, other types as they are."""

    array: np.ndarray
    dtype: str

    @staticmethod
    def of(tensor: Any) -> "Result":
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        array = np.asarray(keras.ops.convert_to_numpy(tensor))
        return Result(array.astype("float64") if dtype in EPSILON else array, dtype)


@dataclass(frozen=True)
class Trial:
    """The second model's result beside the reference it must equal, and how it was run."""

    expected: Result
    received: Result
    batch_size: int
    mode: str


@dataclass(frozen=True)
class _Finding:
    """`ratio` is error / tolerance, infinite where something must be equal and is not."""

    ratio: float
    problem: str = ""
    error: float | None = None
    scale: float | None = None
    tolerance: float | None = None


def interface_difference(a: keras.Model, b: keras.Model) -> str:
    """What a caller of `a` would notice first when given `b` instead; empty if nothing.

    Compared are nests, names, types and shapes of inputs and outputs. An output dimension that
    only one model knows beforehand is no difference.
    """
    first, second = (_keras.functional_inside(m) for m in (a, b))
    sides = zip(
        ("input", "output"),
        zip(_keras.structures(a), _keras.structures(b)),
        zip(_keras.names(a), _keras.names(b)),
        ((first.inputs, second.inputs), (first.outputs, second.outputs)),
        (_same_shape, _compatible_shape),
    )
    return next(filter(None, (_side_difference(*side) for side in sides)), "")


def _side_difference(
    side: str, nests: tuple, names: tuple, tensors: tuple, fits: Callable[[Any, Any], bool]
) -> str:
    shown = [tree.map_structure(lambda _: "…", nest) for nest in nests]
    if shown[0] != shown[1]:
        return f"expected {side}s nested as {shown[0]}. Received: {shown[1]}"
    if names[0] != names[1]:
        pairs = [pair for pair in zip(*names) if pair[0] != pair[1]]
        return f"expected {side} '{pairs[0][0]}'. Received: '{pairs[0][1]}'"
    for name, old, new in zip(names[0], *tensors):
        if old.dtype != new.dtype or not fits(old.shape, new.shape):
            return (
                f"expected {side} '{name}' of shape {tuple(old.shape)} and type {old.dtype}. "
                f"Received: {tuple(new.shape)} {new.dtype}"
            )
    return ""


def _same_shape(old: Sequence, new: Sequence) -> bool:
    return tuple(old) == tuple(new)


def _compatible_shape(old: Sequence, new: Sequence) -> bool:
    return len(old) == len(new) and all(None in d or d[0] == d[1] for d in zip(old, new))


def check_output(
    name: str, symbolic: Any, trials: Sequence[Trial], bound: Bound | None
) -> OutputCheck:
    """Judges one output by its worst trial. Without a `bound` the values must be equal."""
    findings = [_finding(trial, bound) for trial in trials]
    worst = max(findings, key=lambda finding: finding.ratio)
    return OutputCheck(
        name=name,
        shape=tuple(symbolic.shape),
        dtype=symbolic.dtype,
        max_abs_error=worst.error,
        scale=worst.scale,
        tolerance=worst.tolerance,
        batch_sizes=tuple(sorted({trial.batch_size for trial in trials})),
        ok=worst.ratio <= 1,
        problem=worst.problem,
    )


def _finding(trial: Trial, bound: Bound | None) -> _Finding:
    old, new = trial.expected, trial.received
    where = f"(batch size {trial.batch_size}, {trial.mode})"
    for what, have, want in (
        ("shape", new.array.shape, old.array.shape),
        ("type", new.dtype, old.dtype),
    ):
        if have != want:
            return _Finding(math.inf, f"expected {what} {want}. Received: {have} {where}")
    unlike = _unlike(old.array, new.array, exact=bound is None)
    if unlike.any():
        index = _index(unlike)
        change = f"expected {old.array[index]}. Received: {new.array[index]}"
        return _Finding(math.inf, f"{change} at index {index} {where}")
    if bound is None or not old.array.size:
        return _Finding(0.0, error=0.0, scale=0.0, tolerance=0.0)
    return _float_finding(old.array, new.array, bound, where)


def _unlike(old: np.ndarray, new: np.ndarray, exact: bool) -> np.ndarray:
    """Where values differ that must be equal: all of them, or those that are NaN or infinite."""
    if exact:
        return np.asarray(old != new)
    both_nan = np.isnan(old) & np.isnan(new)
    special = ~(np.isfinite(old) & np.isfinite(new))
    return np.asarray(special & ~both_nan & (old != new))


def _float_finding(old: np.ndarray, new: np.ndarray, bound: Bound, where: str) -> _Finding:
    error = np.zeros(old.shape)
    np.subtract(new, old, out=error, where=np.isfinite(old))
    error = np.abs(error)
    allowed = np.broadcast_to(bound.tolerance, error.shape)
    index = _index(error / allowed if error.any() else np.broadcast_to(bound.scale, error.shape))
    worst, limit = float(error[index]), float(allowed[index])
    scale = float(np.broadcast_to(bound.scale, error.shape)[index])
    problem = ""
    if worst > limit:
        problem = (
            f"differs by {worst:.3g}, tolerance {limit:.3g}, at index {index} {where}: "
            f"{old[index]:.6g} became {new[index]:.6g}"
        )
    return _Finding(worst / limit, problem, worst, scale, limit)


def _index(values: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(np.argmax(values), values.shape))
