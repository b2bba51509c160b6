"""How far two honest computations of one model may lie apart, measured on the model itself."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from parallel_fuse import _keras, interpret

DRAWS = 3
SAFETY = 2

# Distance from 1 to the next number.
EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
# Below the first normal number hardware may round to zero; float16 keeps its subnormal numbers.
SMALLEST = {"float64": 2.0**-1022, "float16": 2.0**-22}
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


@dataclass(frozen=True)
class Bound:
    """Figures of one output, each one number per position within a sample (or one for all)."""

    scale: np.ndarray
    sensitivity: np.ndarray
    tolerance: np.ndarray


def precision_of(model: keras.Model) -> Precision:
    """The coarsest float type that any operation of the model computes in."""
    dtypes: set[str] = set()
    _collect_dtypes(_keras.functional_inside(model), dtypes)
    coarsest = max(dtypes & EPSILON.keys(), key=EPSILON.get, default="float32")
    if coarsest != "float32":
        return Precision(coarsest, EPSILON[coarsest])
    epsilon = _float32_epsilon(keras.backend.backend())
    return Precision("float32" if epsilon == EPSILON["float32"] else "float32 (reduced)", epsilon)


def _collect_dtypes(functional: Any, dtypes: set[str]) -> None:
    for node in _keras.nodes_in_order(functional):
        inner = _keras.functional_inside(node.operation)
        if inner is not None:
            _collect_dtypes(inner, dtypes)
        dtypes.update(t.dtype for t in node.outputs)
        layers = _keras.sublayers(node.operation)
        dtypes.update(layer.compute_dtype for layer in layers if _keras.own_weights(layer))


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


def rule(model: keras.Model, precision: Precision) -> str:
    """The tolerance in words, with the model's own numbers."""
    nodes = _keras.nodes_in_order(_keras.functional_inside(model))
    terms = max(fan_in(node.operation) for node in nodes)
    return (
        f"{SAFETY} x (eps x scale + sensitivity) for each position in a sample; "
        f"eps {precision.epsilon:.3g} ({precision.dtype}); scale: largest value of the original "
        f"there; sensitivity: its largest change there in {DRAWS} runs with each layer's result "
        f"moved by one rounding error, up to {precision.unit(terms):.2g} of itself "
        f"(random walk over at most {terms} terms)"
    )


def shaken_runs(
    model: keras.Model, values: Sequence[Any], precision: Precision, seed: int
) -> list[list[Any]]:
    """`DRAWS` runs of the model with every operation's result changed by one rounding.

    No variable is touched. A layer's result moves by `precision.unit(fan-in)` of the largest term
    in it, for terms may cancel; that of anything without weights by one epsilon of itself.
    Whole numbers are taken for ids or counts and left exact.

    Args:
        values: the flat inputs.

    Returns:
        The flat output tensors of each run.
    """
    rng = np.random.default_rng(seed)
    return [_shaken_run(model, values, precision, rng) for _ in range(DRAWS)]


def _shaken_run(
    model: keras.Model, values: Sequence[Any], precision: Precision, rng: np.random.Generator
) -> list[Any]:
    def apply(node, args, kwargs, tensors):
        results = interpret.infer(node.operation, args, kwargs)
        return [_shake(y, node.operation, precision, rng) for y in results]

    functional = _keras.functional_inside(model)
    values = [_shake(x, None, precision, rng) for x in values]
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
    return isinstance(layer, keras.layers.Embedding)


def _shake(tensor: Any, operation: Any, precision: Precision, rng: np.random.Generator) -> Any:
    dtype = None if tensor is None else keras.backend.standardize_dtype(tensor.dtype)
    if dtype not in EPSILON:
        return tensor
    y, terms = to_float64(tensor), fan_in(operation)
    size = _largest_term(operation, y) if terms else finite_size(y)
    exact = (y == np.round(y)) & (finite_size(y) < 1 / precision.epsilon)
    noise = precision.unit(max(terms, 1)) * size * rng.choice([-1.0, 1.0], size=y.shape)
    moved = keras.ops.convert_to_tensor(np.where(exact, y, y + noise), dtype=dtype)
    return _keras.copy_mask(tensor, moved)


def _largest_term(layer: Any, y: np.ndarray) -> np.ndarray:
    """What a layer added up to get `y`, at least: a small result may be a large sum's remainder.

    Seen from the largest result at each position over the batch and from the biases.
    """
    size = np.broadcast_to(finite_size(y).max(axis=0, initial=0), y.shape)
    for inside in _keras.sublayers(layer):
        for name in ("bias", "beta"):
            if (offset := getattr(inside, name, None)) is not None:
                size = size + _along(np.abs(to_float64(offset)), y.shape)
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
