"""`load_model`: opens what is out there, old files too, and says what was repaired."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

import parallel_fuse.layers  # noqa: F401 - registered: a fused file may hold some
from parallel_fuse.reading.files import check_model_file
from parallel_fuse.reading.formats import architecture, archive, hdf5, saved_model
from parallel_fuse.reading.refusing import explained
from parallel_fuse.reading.request import Read, Request

PathLike = str | os.PathLike[str]
logger = logging.getLogger("parallel_fuse")

READERS: Mapping[str, Callable[[Request], Read]] = {
    ".keras": archive.read,
    ".h5": hdf5.read,
    ".hdf5": hdf5.read,
    ".json": architecture.read,
}


@dataclass(frozen=True)
class Opened:
    """A model and what had to be repaired to open it, a line for each kind of repair."""

    model: keras.Model
    repairs: tuple[str, ...]


def load_model(
    path: PathLike,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    *,
    weights: PathLike | None = None,
) -> keras.Model:
    """Opens a saved model, also one of Keras 1 or 2. The file is only read.

    What keeps such a file from opening and has one meaning is repaired in memory: each repair is
    logged (`logging.getLogger("parallel_fuse")`), and stands in the report of `convert`.

    Args:
        path: a `.keras`, `.h5` or `.hdf5` file, the folder of a SavedModel (what its serving
            signature computes), or the `.json` of an architecture, which takes `weights`.
        custom_objects: classes and functions by the name that the file has for them, also
            `"<lambda>"` for an activation that had no name, or a Lambda layer's name for its
            function.
        safe_mode: refuse files that hold Python code; with False the code in the file is run.
        weights: the HDF5 file of the weights of an architecture.

    Returns:
        The model, compiled as it was saved where that can be done here.

    Raises:
        ConversionError: the file is missing, no model, damaged, needs a class that is unknown, or
            holds Python code while `safe_mode` is True. The message names the remedy.
    """
    opened = read(path, custom_objects, safe_mode, weights=weights, compiled=True)
    for repair in opened.repairs:
        logger.info("%s: %s", path, repair)
    return opened.model


def read(
    path: PathLike,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    *,
    weights: PathLike | None = None,
    compiled: bool = False,
) -> Opened:
    """As `load_model`, with the repairs; not compiled unless asked for."""
    place, aside = Path(path), weights and Path(weights)
    check_model_file(place, aside)
    known = _operations() | _by_both_names(custom_objects or {})
    request = Request(place, aside, known, safe_mode)
    try:
        found = _reader(place)(request)
    except Exception as error:  # what a file makes Keras raise has no common class
        raise explained(error, place) from error
    if compiled and found.compile:
        _compile(found, request)
    return Opened(found.model, request.told.lines)


def _reader(path: Path) -> Callable[[Request], Read]:
    return saved_model.read if path.is_dir() else READERS[path.suffix.lower()]


def _compile(found: Read, request: Request) -> None:
    try:
        found.compile()
    except Exception as error:  # noqa: BLE001 - a model that is not compiled computes the same
        line = " ".join(str(error).split())[:120]
        request.told(f"compile arguments left out, Keras cannot read them ({line})")


def _by_both_names(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Keras writes an object under its own name, whatever name the source file had for it."""
    return {getattr(item, "__name__", name): item for name, item in objects.items()} | dict(objects)


def _operations() -> dict[str, type]:
    """The classes of slices and other raw operations, which Keras writes to HDF5 but does not find.

    A layer of the same name wins: it is by far the more frequent one.
    """
    found = [keras.Operation]
    for cls in found:  # grows while it is read: the subclasses of subclasses follow
        found += [sub for sub in cls.__subclasses__() if not issubclass(sub, keras.layers.Layer)]
    known = {cls.__name__: cls for cls in found if cls.__module__.startswith("keras.")}
    return {name: cls for name, cls in known.items() if not hasattr(keras.layers, name)}
