"""The numbers a model computes in: its coarsest float type and what rounding does to a sum."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from parallel_fuse import _keras
from parallel_fuse.verification import interpret

# Distance from 1 to the next number.
EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
TF32_EPSILON = 2.0**-10


@dataclass(frozen=True)
class Precision:
    """What the original computes in: its coarsest float type, and the epsilon of its sums."""

    dtype: str
    epsilon: float

    def unit(self, terms: int) -> float:
        """Relative rounding of a sum of `terms` products.

        Roundings of a sum behave as a random walk: they grow with the square root of its length
        (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). Types
        coarser than float32 are summed in float32 and rounded once.
        """
        return max(self.epsilon, min(self.epsilon, EPSILON["float32"]) * math.sqrt(terms))


def precision_of(model: keras.Model) -> Precision:
    """The coarsest float type that any operation of the model computes in."""
    nodes = list(interpret.nodes(_keras.functional_inside(model)))
    dtypes = {t.dtype for node in nodes for t in node.outputs}
    dtypes |= {layer.compute_dtype for node in nodes for layer in _weighted(node.operation)}
    coarsest = max(dtypes & EPSILON.keys(), key=EPSILON.get, default="float32")
    if coarsest != "float32":
        return Precision(coarsest, EPSILON[coarsest])
    epsilon = _float32_epsilon(keras.backend.backend())
    return Precision("float32" if epsilon == EPSILON["float32"] else "float32 (reduced)", epsilon)


def _weighted(operation: Any) -> list[Any]:
    return [layer for layer in _keras.sublayers(operation) if _keras.own_weights(layer)]


@functools.cache
def _float32_epsilon(backend: str) -> float:
    """The epsilon of a float32 product here: accelerators may round its factors (TF32, bfloat16).

    Measured, because each backend and device has its own switches for it.
    """
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(64, 256)), rng.normal(size=(256, 32))
    a, b = a.astype("float32"), b.astype("float32")
    product = keras.ops.convert_to_numpy(keras.ops.matmul(a, b)).astype("float64")
    exact = a.astype("float64") @ b.astype("float64")
    error = np.abs(product - exact).max() / np.abs(exact).max()
    if error < 2.0**-16:
        return EPSILON["float32"]
    return TF32_EPSILON if error < TF32_EPSILON else EPSILON["bfloat16"]
