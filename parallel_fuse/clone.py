"""Twins of layers that stay as they are. The user's own layer objects are never called again:
a call would grow their list of nodes, that is, change the user's model.
"""

import logging
from typing import Any

import keras

from parallel_fuse import _keras

logger = logging.getLogger("parallel_fuse")


class Cloner:
    """Makes one twin per operation, so that shared layers stay shared.

    `reused` lists the names of layers that could not be cloned and now belong to both models.
    """

    def __init__(self) -> None:
        self.twins: dict[int, Any] = {}
        self.reused: list[str] = []

    def twin(self, operation: Any, name: str) -> tuple[Any, bool]:
        """(the twin, whether it is new and still waits for its weights)."""
        known = self.twins.get(id(operation))
        if known is not None:
            return known, False
        twin = self.twins[id(operation)] = self._make(operation, name)
        return twin, twin is not operation and isinstance(operation, keras.layers.Layer)

    def _make(self, operation: Any, name: str) -> Any:
        if not isinstance(operation, keras.layers.Layer):
            return _keras.fresh_operation(operation, name)
        try:
            return _clone_layer(operation, name)
        except Exception as error:  # a custom layer may fail in any way it likes
            logger.debug("cannot clone %s: %s", operation.name, error)
            return self._reuse(operation)

    def _reuse(self, operation: Any) -> Any:
        self.reused.append(operation.name)
        return operation

    def replace_by_original(self, operation: Any) -> Any:
        """Gives up on a twin whose variables do not match."""
        self.twins[id(operation)] = operation
        return self._reuse(operation)


def _clone_layer(layer: keras.layers.Layer, name: str) -> keras.layers.Layer:
    if type(layer) is keras.layers.Lambda:
        return _clone_lambda(layer, name)
    if isinstance(layer, keras.Model):
        return keras.models.clone_model(layer)
    if _has_assets(layer):
        raise ValueError("holds state outside its variables (a vocabulary)")
    return type(layer).from_config({**layer.get_config(), "name": name})


def _clone_lambda(layer: keras.layers.Lambda, name: str) -> keras.layers.Lambda:
    """From the live function: serialising it would lose closures and default arguments."""
    config = keras.layers.Layer.get_config(layer)
    options = {"dtype": layer.dtype_policy, "trainable": config["trainable"]}
    return keras.layers.Lambda(
        layer.function, arguments=layer.arguments, name=name, **_keras.lambda_options(layer),
        **options,
    )  # fmt: skip


def _has_assets(layer: keras.layers.Layer) -> bool:
    return hasattr(type(layer), "save_assets")


def copy_variables(source: keras.layers.Layer, target: keras.layers.Layer) -> bool:
    """Copies every variable of a layer to its twin; False, with nothing copied, if they differ."""
    pairs = list(zip(source.variables, target.variables))
    same_count = len(source.variables) == len(target.variables)
    if not same_count or any(tuple(a.shape) != tuple(b.shape) for a, b in pairs):
        return False
    for mine, theirs in pairs:
        theirs.assign(mine)
    if type(source).load_own_variables is not keras.layers.Layer.load_own_variables:
        _through_store(source, target)
    return True


def _through_store(source: keras.layers.Layer, target: keras.layers.Layer) -> None:
    """Layers with a loader of their own (Normalization) derive more from it than variables."""
    store: dict = {}
    source.save_own_variables(store)
    target.load_own_variables(store)
