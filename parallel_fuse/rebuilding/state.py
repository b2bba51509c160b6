"""What a layer holds beside its configuration: variables, vocabularies, flags."""

import tempfile
from collections.abc import Sequence
from typing import Any

import keras
from keras.backend import standardize_dtype

from parallel_fuse import _keras

Layer = keras.layers.Layer


class NotATwinError(ValueError):
    """Two layers that should be alike are not; says where."""


def copy_state(source: Layer, target: Layer) -> None:
    """Copies the variables and `trainable` flags of a layer, and of those inside it, to a twin.

    Raises:
        NotATwinError: the two do not have the same layers and variables. Nothing is copied then.
    """
    _check_alike(source, target)
    for mine, theirs in _pairs(source, target):
        _through_store(mine, theirs)
        theirs.trainable = mine.trainable
    for mine, theirs in zip(source.variables, target.variables):
        theirs.assign(mine)
        theirs.trainable = mine.trainable


def copy_assets(source: Layer, target: Layer) -> None:
    """Copies vocabularies, which decide the output shape: to be done before the twin is called."""
    for mine, theirs in _pairs(source, target):
        if not hasattr(type(mine), "save_assets"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            mine.save_assets(folder)
            theirs.load_assets(folder)


def check_outputs(
    twin: Any, outputs: Sequence[Any], expected: Sequence[Any], more: int = 0
) -> None:
    """Raises NotATwinError if a layer's outputs, that have `more` axes, cannot be those of its
    original.
    """
    if not isinstance(twin, Layer):
        return
    ranks = [len(t.shape) - more for t in outputs], [len(t.shape) for t in expected]
    dtypes = ([standardize_dtype(t.dtype) for t in ts] for ts in (outputs, expected))
    forms = [list(zip(*pair, strict=True)) for pair in zip(ranks, dtypes)]
    if forms[0] != forms[1]:
        raise NotATwinError(f"expected outputs (rank, dtype) {forms[1]}. Received: {forms[0]}")


def _pairs(source: Layer, target: Layer) -> list[tuple[Any, Any]]:
    return list(zip(_keras.sublayers(source), _keras.sublayers(target)))


def _check_alike(source: Layer, target: Layer) -> None:
    kinds = [[type(x) for x in _keras.sublayers(layer)] for layer in (source, target)]
    if kinds[0] != kinds[1]:
        raise NotATwinError(f"expected {len(kinds[0])} layers inside. Received: {len(kinds[1])}")
    if source.dtype_policy != target.dtype_policy:
        raise NotATwinError(f"expected {source.dtype_policy}. Received: {target.dtype_policy}")
    mine, theirs = ([_form(v) for v in layer.variables] for layer in (source, target))
    if mine != theirs:
        raise NotATwinError(f"expected variables {mine}. Received: {theirs}")
    if {id(v) for v in source.variables} & {id(v) for v in target.variables}:
        raise NotATwinError("its configuration holds weights, not a description of them")


def _form(variable: Any) -> tuple[tuple[int, ...], str]:
    return tuple(variable.shape), variable.dtype


def _through_store(source: Layer, target: Layer) -> None:
    """Layers with a loader of their own (Normalization) derive more from it than variables."""
    if type(source).load_own_variables is Layer.load_own_variables:
        return
    store: dict = {}
    source.save_own_variables(store)
    target.load_own_variables(store)
