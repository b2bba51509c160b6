"""`.h5` and `.hdf5` files of Keras 1, 2 and 3."""

import json
from typing import Any

import h5py
import numpy as np

from parallel_fuse import _keras
from parallel_fuse.command.exits import Exit
from parallel_fuse.reading import nests
from parallel_fuse.reading.hdf5_groups import array, listed, text
from parallel_fuse.reading.keras2.layers import Making
from parallel_fuse.reading.keras2.replay import model_of
from parallel_fuse.reading.refusing import Refused, not_a_model
from parallel_fuse.reading.repairs.compiling import compile_as_keras2
from parallel_fuse.reading.repairs.keras3 import prepared
from parallel_fuse.reading.request import Read, Request
from parallel_fuse.reading.weights import by_owner, fill


def read(request: Request) -> Read:
    with h5py.File(request.path, "r") as file:
        if "model_config" not in file.attrs:
            what = "which holds weights alone, without the model"
            raise not_a_model(request.path, what, Exit.WEIGHTS_ALONE)
        config = json.loads(text(file.attrs["model_config"]))
        model = model_from(config, weights_in(file), request)
        training = file.attrs.get("training_config")
    if training is None:
        return Read(model)
    saved = json.loads(text(training))
    return Read(model, lambda: compile_as_keras2(model, saved, request.known, request.told))


def model_from(config: dict[str, Any], weights: Any, request: Request) -> Any:
    """The model of a configuration, with the weights of an HDF5 group."""
    if is_of_keras3(config):
        return _keras3(config, weights, request)
    making = Making(request.known, request.safe_mode, request.told)
    model = model_of(config, making)
    give(making, weights)
    return model


def is_of_keras3(config: dict[str, Any]) -> bool:
    """Keras 3 writes calls as `{"args": …, "kwargs": …}`, layers with their module."""
    calls = (one["inbound_nodes"] for one in nests.dicts(config) if one.get("inbound_nodes"))
    first = next(calls, None)
    if first is not None:
        return isinstance(first[0], dict) and "args" in first[0]
    inputs = [one["config"] for one in nests.objects(config) if one["class_name"] == "InputLayer"]
    return any("batch_shape" in one for one in inputs)


def weights_in(file: Any) -> Any:
    return file.get("model_weights", file)


def give(making: Making, group: Any) -> None:
    """The weights in a group, one group for each layer of the outermost model."""
    found: dict[tuple[str, ...], list[np.ndarray]] = {}
    nested = {path[0] for path, _ in making.leaves if len(path) > 1}
    for name in listed(group, "layer_names"):
        inner = group[name]
        names = listed(inner, "weight_names")
        arrays = [array(inner, weight) for weight in names]
        found |= by_owner(names, arrays, making, name) if name in nested else {(name,): arrays}
    fill(making, found.get)


def _keras3(config: dict[str, Any], group: Any, request: Request) -> Any:
    config, known = prepared(config, request)
    model = _keras.model_from_hdf5_config(config, known, request.safe_mode)
    by_name = {layer.name: layer for layer in model.layers}
    _check_names(by_name, listed(group, "layer_names"))
    model.load_weights(request.path)
    return model


def _check_names(layers: dict[str, Any], names: list[str]) -> None:
    """Keras goes by position, so the order must be the one in the file."""
    expected = [name for name, layer in layers.items() if layer.weights]
    found = [name for name in names if name in layers and layers[name].weights]
    if expected != found:
        raise Refused(
            "whose weights are in another order than its layers", "Save the model as .keras."
        )
