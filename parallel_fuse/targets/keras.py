"""Keras' own format, opened by a fresh Python process that knows nothing of this one."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.formats import BY_NAME
from parallel_fuse.targets.base import Operation, Options, Target
from parallel_fuse.targets.fresh import place, run

FORM = BY_NAME["keras"]


def write(model: keras.Model, path: Path, options: Options) -> None:
    try:
        model.save(path)
    except OSError:
        raise
    except Exception as error:  # a custom layer's get_config may raise anything
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected a model that Keras can save. Received: {type(error).__name__}: {error} "
            f"Give the custom class a get_config().",
        ) from error


def operations(path: Path) -> list[Operation]:
    """Layers and raw operations, those of nested models too; no inputs."""
    with zipfile.ZipFile(path) as archive:
        return list(_layers(json.loads(archive.read("config.json"))["config"]))


def _layers(config: dict[str, Any]) -> Iterator[Operation]:
    for layer in config["layers"]:
        if layer["config"].get("layers"):
            yield from _layers(layer["config"])
        elif layer["class_name"] != "InputLayer":
            yield Operation(layer["class_name"], layer.get("name") or layer["config"].get("name"))


KERAS = Target(
    form=FORM,
    write=write,
    run=run,
    operations=operations,
    place=place,
)
