"""How far two honest computations of one model may lie apart, measured on the model itself."""

from collections.abc import Sequence
from dataclasses import dataclass

import keras
import numpy as np

from parallel_fuse import _keras
from parallel_fuse.verification import interpret
from parallel_fuse.verification.precision import Precision
from parallel_fuse.verification.rounding import fan_in, finite_size

SAFETY = 2

# Below the first normal number hardware may round to zero; float16 keeps its subnormal numbers.
SMALLEST = {"float64": 2.0**-1022, "float16": 2.0**-22}


@dataclass(frozen=True)
class Bound:
    """Figures of one output, each one number per position within a sample (or one for all)."""

    scale: np.ndarray
    sensitivity: np.ndarray
    tolerance: np.ndarray


def bound(
    references: Sequence[np.ndarray],
    moved: Sequence[np.ndarray],
    dtype: str,
    precision: Precision,
) -> Bound:
    """How far a float output of an honest twin may lie from the original's.

    Args:
        references: the original's output for each sample, float64.
        moved: the same output of each of `shaken_runs` on the last of these samples.
        dtype: the output's own type.
        precision: of the original.
    """
    scale = _by_position([finite_size(y) for y in references])
    with np.errstate(invalid="ignore"):
        changes = [finite_size(y - references[-1]) for y in moved]
    sensitivity = _by_position(changes)
    if sensitivity.shape != scale.shape:
        sensitivity = sensitivity.max(initial=0)
    smallest = SMALLEST.get(dtype, 2.0**-126)
    return Bound(scale, sensitivity, SAFETY * (precision.epsilon * scale + sensitivity) + smallest)


def _by_position(sizes: Sequence[np.ndarray]) -> np.ndarray:
    """Largest over the batch, for each position in a sample; over all, where shapes differ."""
    if len({y.shape[1:] for y in sizes}) == 1 and sizes[0].ndim:
        return np.concatenate(sizes).max(axis=0, initial=0)
    return np.asarray(max((y.max(initial=0) for y in sizes), default=0.0))


def rule(model: keras.Model, precision: Precision) -> str:
    """The tolerance in words, with the model's own numbers."""
    nodes = interpret.nodes(_keras.functional_inside(model))
    terms = max((fan_in(node.operation) for node in nodes), default=0) or 1
    return (
        f"{SAFETY} x (eps x scale + sensitivity) for each position in a sample; "
        f"eps {precision.epsilon:.3g} ({precision.dtype}); scale: largest value of the original "
        f"there; sensitivity: its largest change there when each layer's result moves by one "
        f"rounding error, up to {precision.unit(terms):.2g} of itself "
        f"(random walk over at most {terms} terms)"
    )
