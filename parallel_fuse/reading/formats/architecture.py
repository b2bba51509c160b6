"""An architecture (`model.to_json()`) and the weights in a file of their own."""

import json
from typing import Any

import h5py
import keras

from parallel_fuse.reading.formats.hdf5 import give, is_of_keras3, weights_in
from parallel_fuse.reading.keras2.layers import Making
from parallel_fuse.reading.keras2.replay import model_of
from parallel_fuse.reading.refusing import not_a_model
from parallel_fuse.reading.repairs.keras3 import prepared
from parallel_fuse.reading.request import Read, Request


def read(request: Request) -> Read:
    config = _config(request)
    if is_of_keras3(config):
        return Read(_keras3(config, request))
    making = Making(request.known, request.safe_mode, request.told)
    model = model_of(config, making)
    with h5py.File(request.weights, "r") as file:
        give(making, weights_in(file))
    return Read(model)


def _config(request: Request) -> dict[str, Any]:
    try:
        config = json.loads(request.path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise not_a_model(request.path, f"which is no JSON ({error})") from error
    if not isinstance(config, dict) or "class_name" not in config or "config" not in config:
        raise not_a_model(request.path, "which is no architecture (model.to_json())")
    return config


def _keras3(config: dict[str, Any], request: Request) -> Any:
    config, known = prepared(config, request)
    model = keras.saving.deserialize_keras_object(
        config, custom_objects=known, safe_mode=request.safe_mode
    )
    model.load_weights(request.weights)
    return model
