"""`.keras` archives of Keras 3, and those that Keras 2 wrote."""

import io
import json
import warnings
import zipfile
from typing import Any

import keras

from parallel_fuse import _keras
from parallel_fuse.reading.formats.hdf5 import is_of_keras3
from parallel_fuse.reading.keras2.archived import arrays_of
from parallel_fuse.reading.keras2.layers import Making
from parallel_fuse.reading.keras2.replay import model_of
from parallel_fuse.reading.refusing import not_a_model
from parallel_fuse.reading.repairs.compiling import compile_as_keras2
from parallel_fuse.reading.repairs.keras3 import prepared
from parallel_fuse.reading.request import Read, Request
from parallel_fuse.reading.weights import fill

CONFIG, WEIGHTS, METADATA = "config.json", "model.weights.h5", "metadata.json"


def read(request: Request) -> Read:
    with zipfile.ZipFile(request.path) as archive:
        config = json.loads(archive.read(CONFIG))
        if WEIGHTS not in archive.namelist() and "model.weights.npz" not in archive.namelist():
            raise not_a_model(request.path, f"which lacks {WEIGHTS}")
        old = _is_of_keras2(archive, config)
        model = _keras2(archive, config, request) if old else _keras3(config, request)
    compiled = config.get("compile_config")
    if not compiled:
        return Read(model)
    if old:
        return Read(model, lambda: compile_as_keras2(model, compiled, request.known, request.told))
    return Read(model, lambda: _compile(model, compiled, request))


def _is_of_keras2(archive: zipfile.ZipFile, config: dict[str, Any]) -> bool:
    if METADATA in archive.namelist():
        version = json.loads(archive.read(METADATA)).get("keras_version", "3")
        return version.startswith(("1.", "2."))
    return not is_of_keras3(config)


def _keras2(archive: zipfile.ZipFile, config: dict[str, Any], request: Request) -> Any:
    making = Making(request.known, request.safe_mode, request.told)
    model = model_of(config, making)
    with archive.open(WEIGHTS) as weights:
        fill(making, arrays_of(config, io.BytesIO(weights.read())))
    return model


def _keras3(config: dict[str, Any], request: Request) -> Any:
    changed, known = prepared(config, request)
    if changed == config:
        return keras.saving.load_model(
            request.path, custom_objects=known, compile=False, safe_mode=request.safe_mode
        )
    archive = _with_config(request, changed)
    return _keras.load_archive(archive, known, request.safe_mode)


def _with_config(request: Request, config: dict[str, Any]) -> io.BytesIO:
    """The archive in memory, with another configuration."""
    found = io.BytesIO()
    with zipfile.ZipFile(request.path) as old, zipfile.ZipFile(found, "w") as new:
        for member in old.infolist():
            text = json.dumps(config) if member.filename == CONFIG else old.read(member)
            new.writestr(member.filename, text)
    found.name = str(request.path)
    found.seek(0)
    return found


def _compile(model: Any, config: dict[str, Any], request: Request) -> None:
    with keras.saving.custom_object_scope(dict(request.known)):
        model.compile_from_config(config)
    if model.optimizer is None:
        return
    with warnings.catch_warnings():  # an optimizer that was saved before its first step
        warnings.filterwarnings("ignore", message="Skipping variable loading for optimizer")
        model.load_weights(request.path)  # the optimizer's among them
