"""The original's side of a comparison: what it computes, and how firmly."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.errors import NotVerifiedError
from parallel_fuse.verification import given, sampling, tolerance
from parallel_fuse.verification.compare import Result
from parallel_fuse.verification.precision import EPSILON, Precision, precision_of
from parallel_fuse.verification.rounding import finite_size, shaken_runs
from parallel_fuse.verification.sampling import Sample
from parallel_fuse.verification.tolerance import Bound

# Runs to measure rounding with: at first, and again before two models are called different.
PAIRS, MORE_PAIRS = 1, 5
# A tolerance of half of the values themselves tells little apart.
USELESS = 0.5


@dataclass(frozen=True)
class Reference:
    """The original's outputs: `results[i][k]` is output k for `samples[i]`; the last is largest.

    `bounds[k]` is None for an output that is no float.
    """

    samples: tuple[Sample, ...]
    results: list[list[Result]]
    precision: Precision
    bounds: tuple[Bound | None, ...] = ()


def measure(
    model: keras.Model,
    inputs: Any,
    batch_sizes: Sequence[int],
    seed: int,
    precision: Precision | None = None,
) -> Reference:
    """Runs the original on every sample and measures how rounding moves its outputs.

    Args:
        precision: what the twin computes in, where that is coarser than the original's.

    Raises:
        NotVerifiedError: it does not run, does not repeat itself, or gives nothing to compare.
        InvalidInputsError: `inputs` do not fit.
    """
    samples, results = _first_that_runs(model, inputs, batch_sizes, seed)
    reference = Reference(samples, results, precision or precision_of(model))
    _check_repeats(model, reference)
    reference = with_bounds(model, reference, seed, PAIRS)
    check_comparable(model, reference)
    return reference


def with_bounds(model: keras.Model, reference: Reference, seed: int, pairs: int) -> Reference:
    """The reference with tolerances from `2 * pairs` disturbed runs; more runs, firmer ones."""
    precision, values = reference.precision, reference.samples[-1].values
    runs = shaken_runs(model, values, precision, seed, pairs)
    moved = [list(map(Result.of, outputs)) for outputs in runs]
    bounds = (
        _bound(of_output, [outputs[k] for outputs in moved], precision)
        for k, of_output in enumerate(zip(*reference.results, strict=True))
    )
    return dataclasses.replace(reference, bounds=tuple(bounds))


def _bound(
    references: Sequence[Result], moved: Sequence[Result], precision: Precision
) -> Bound | None:
    dtype = references[0].dtype
    if dtype not in EPSILON:
        return None
    arrays = ([result.array for result in results] for results in (references, moved))
    return tolerance.bound(*arrays, dtype, precision)


def _first_that_runs(
    model: keras.Model, inputs: Any, batch_sizes: Sequence[int], seed: int
) -> tuple[tuple[Sample, ...], list[list[Result]]]:
    if inputs is None:
        tries = sampling.candidates(model, batch_sizes, seed)
    else:
        tries = iter([given.samples(model, inputs, batch_sizes)])
    reason = ""
    for samples in tries:
        try:
            return samples, [run(forward(model), model, sample) for sample in samples]
        except Exception as error:  # noqa: BLE001 - backends raise whatever they like
            reason = first_line(error)
    raise NotVerifiedError(f"The original cannot be run on this machine: {reason}")


def forward(model: keras.Model) -> Callable[[Any], Any]:
    """The model as a function that leaves its variables alone (random seeds, RNN states …)."""

    def call(nest):
        with keras.StatelessScope():
            return model(nest, training=False)

    return call


def run(call: Callable[[Any], Any], model: keras.Model, sample: Sample) -> list[Result]:
    """The flat outputs of `call`, a function on the nest of inputs that the model takes."""
    nest = tree.pack_sequence_as(_keras.structures(model)[0], list(sample.values))
    return [Result.of(y) for y in tree.flatten(call(nest))]


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _check_repeats(model: keras.Model, reference: Reference) -> None:
    """Accelerators sum in changing order, so a repetition may be off by a few roundings."""
    again = run(forward(model), model, reference.samples[0])
    allowed = tolerance.SAFETY * reference.precision.unit(1024)
    for name, old, new in zip(_keras.names(model)[1], reference.results[0], again):
        if not _alike(old, new, allowed):
            raise NotVerifiedError(
                "The original is not deterministic: expected equal outputs from equal inputs. "
                f"Received: two values of output '{name}'."
            )


def _alike(old: Result, new: Result, relative: float) -> bool:
    if old.array.shape != new.array.shape:
        return False
    if old.dtype not in EPSILON:
        return np.array_equal(old.array, new.array)
    scale = finite_size(old.array).max(initial=0)
    return np.allclose(old.array, new.array, rtol=0, atol=relative * scale, equal_nan=True)


def check_comparable(model: keras.Model, reference: Reference) -> None:
    """Raises NotVerifiedError where the tolerances are as large as the values."""
    outputs = zip(*reference.results)
    for name, bound, results in zip(_keras.names(model)[1], reference.bounds, outputs):
        if bound is None or not results[-1].array.size:
            continue
        if not any(np.isfinite(result.array).any() for result in results):
            raise NotVerifiedError(
                f"Expected numbers in output '{name}'. Received: NaN or infinity everywhere. "
                "Pass `inputs=` for which the original gives numbers."
            )
        live = bound.scale > 0
        useless = live & (bound.tolerance > USELESS * bound.scale)
        if 2 * useless.sum() > live.sum():
            raise NotVerifiedError(
                f"Output '{name}' is too sensitive to rounding: expected a tolerance below "
                f"{USELESS:.0%} of its values. Received: {np.median(bound.tolerance[live]):.2g} "
                f"where they reach {np.median(bound.scale[live]):.2g}."
            )


def keeps_state(model: keras.Model, reference: Reference) -> bool:
    """Whether a second call gives other outputs than the first: random draws, RNN states."""
    call = functools.partial(model, training=False)
    with keras.StatelessScope():
        first, second = (run(call, model, reference.samples[0]) for _ in range(2))
    return not all(_alike(*pair, relative=0.0) for pair in zip(first, second))
