"""Normalization by frozen statistics: one operation, or x · factor + shift. A stock layer."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

from parallel_fuse.translation import elementwise
from parallel_fuse.translation.node import Node
from parallel_fuse.translation.values import Scaled, UntranslatedError, constant, tensor
from parallel_fuse.translation.weighted import check_last


def _batch_norm(node: Node) -> Any:
    if node.flag("is_training"):
        raise UntranslatedError("statistics of the batch, as in training")
    check_last(node)
    weights = [constant(arg, "a statistic") for arg in node.args[1:]]
    key = (node.sources[1:], node.attribute("epsilon"))
    return (_normalized(node, tensor(node.args[0]), weights, key),)


def _normalized(node: Node, x: Any, weights: list, key: tuple[tuple, float]) -> Any:
    """gamma · (x - mean) / √(variance + epsilon) + beta, in training too: so the graph has it."""

    def make() -> layers.Layer:
        dtype = weights[0].dtype.name
        layer = layers.BatchNormalization(epsilon=key[1], trainable=False, dtype=dtype)
        layer.build((*[None] * (len(x.shape) - 1), len(weights[0])))
        layer.set_weights(weights)
        return layer

    return node.layers(("BatchNormalization", *key, len(x.shape)), make)(x)


def _multiply(node: Node) -> Any:
    """By a constant vector: if another is added next, both are a frozen normalization."""
    for x, factor, source in zip(node.args, node.args[::-1], node.sources[::-1]):
        if _along_last(x, factor):
            return Scaled(x, np.ravel(factor), source)
    return elementwise.TRANSLATIONS["Mul"](node)


def _shift(node: Node) -> Any:
    """Behind a multiplication: x · factor + shift."""
    pairs = zip(node.args, node.args[::-1], node.sources[::-1])
    for scaled, shift, source in list(pairs)[: 1 if node.kind == "Sub" else 2]:
        if isinstance(scaled, Scaled) and _along_last(scaled.tensor, shift):
            return _affine(node, scaled, np.ravel(-shift if node.kind == "Sub" else shift), source)
    return elementwise.TRANSLATIONS[node.kind](node)


def _along_last(x: Any, vector: Any) -> bool:
    if not isinstance(x, keras.KerasTensor) or not isinstance(vector, np.ndarray):
        return False
    return 1 < vector.size == x.shape[-1] == vector.shape[-1] and 1 < len(x.shape) >= vector.ndim


def _affine(node: Node, scaled: Scaled, shift: np.ndarray, source: str) -> Any:
    weights = [scaled.factor, shift, np.zeros_like(shift), np.ones_like(shift)]
    key = ((scaled.source, source, node.kind), 0.0)
    return _normalized(node, scaled.tensor, weights, key)


TRANSLATIONS: dict[str, Callable[[Node], Any]] = {
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _batch_norm),
    **dict.fromkeys(("Add", "AddV2", "Sub"), _shift),
    "Mul": _multiply,
}
