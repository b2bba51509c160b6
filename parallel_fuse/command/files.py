"""Open a model file, or say in one sentence why it cannot be opened."""

import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parallel_fuse.command.exits import Exit, FileError

if TYPE_CHECKING:
    import keras

HDF5_SUFFIXES = (".h5", ".hdf5")
MODEL_SUFFIXES = (".keras", *HDF5_SUFFIXES)

_LAMBDA = re.compile(r"Requested the deserialization of a .{0,3}lambda", re.IGNORECASE)
_SAVED_LAMBDA = re.compile(r"Could not interpret (\w+).* identifier: \{'value'")
_UNKNOWN = re.compile(
    r"(?:Could not locate (?:class|function)|Unknown \w+(?: function)?:?) '?([^'\s]+)'?"
    r"|Could not interpret [\w ]+ identifier: '?([^\s'{]+)'?"
)


def load(
    path: Path, *, custom_objects: Mapping[str, Any] | None = None, safe_mode: bool = True
) -> "keras.Model":
    """Open a `.keras`, `.h5` or `.hdf5` file that holds a whole model, uncompiled.

    Raises:
        FileError: the file is missing, no model, needs a class that Keras does not know, or
            holds Python code while `safe_mode` is True. The message names the remedy.
    """
    check_model_file(path)
    import keras

    import parallel_fuse.layers  # noqa: F401 - registered: a fused file may hold some

    known = _operations() | _by_both_names(custom_objects or {})
    try:
        return keras.saving.load_model(
            path, custom_objects=known, compile=False, safe_mode=safe_mode
        )
    except Exception as error:  # what a file makes Keras raise has no common class
        raise _explained(error, path) from error


def check_model_file(path: Path) -> None:
    """Raise FileError if a look at the file, without Keras, shows that it holds no model."""
    _check_readable(path)
    _check_holds_model(path)


def _by_both_names(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Keras writes an object under its own name, whatever name the source file had for it."""
    return {getattr(item, "__name__", name): item for name, item in objects.items()} | dict(objects)


def _operations() -> dict[str, type]:
    """The classes of slices and other raw operations, which Keras writes to HDF5 but does not find.

    A layer of the same name wins: it is by far the more frequent one.
    """
    import keras

    found = [keras.Operation]
    for cls in found:  # grows while it is read: the subclasses of subclasses follow
        found += [sub for sub in cls.__subclasses__() if not issubclass(sub, keras.layers.Layer)]
    known = {cls.__name__: cls for cls in found if cls.__module__.startswith("keras.")}
    return {name: cls for name, cls in known.items() if not hasattr(keras.layers, name)}


def _check_readable(path: Path) -> None:
    if not path.exists():
        raise FileError(
            Exit.MISSING_FILE,
            f"expected a model file. Received: {path}, which does not exist. Check the path.",
        )
    if path.is_dir():
        raise FileError(
            Exit.NOT_A_MODEL,
            f"expected a .keras, .h5 or .hdf5 file. Received: {path}, a folder. "
            f"Save the model with model.save('model.keras') first.",
        )
    if not os.access(path, os.R_OK):
        raise FileError(
            Exit.MISSING_FILE,
            f"expected a file that can be read. Received: {path}. Check its permissions.",
        )


def _check_holds_model(path: Path) -> None:
    suffix = path.suffix.lower()
    if suffix not in MODEL_SUFFIXES:
        raise FileError(
            Exit.NOT_A_MODEL,
            f"expected a .keras, .h5 or .hdf5 file. Received: {path}. "
            f"Save the model with model.save('model.keras') first.",
        )
    problem = _hdf5_problem(path) if suffix in HDF5_SUFFIXES else _keras_problem(path)
    if problem:
        raise _not_a_model(path, problem)


def _keras_problem(path: Path) -> str | None:
    if not zipfile.is_zipfile(path):
        return "which is no .keras archive (cut short, or another format)"
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return None if "config.json" in names else "an archive without a model configuration"


def _hdf5_problem(path: Path) -> str | None:
    with path.open("rb") as file:
        signature = file.read(8)
    if signature != b"\x89HDF\r\n\x1a\n":
        return "which is no HDF5 file (cut short, or another format)"
    return None


def _not_a_model(path: Path, problem: str) -> FileError:
    return FileError(
        Exit.NOT_A_MODEL,
        f"expected a whole Keras model. Received: {path}, {problem}. "
        f"Save the model again with model.save().",
    )


def _explained(error: Exception, path: Path) -> FileError:
    text = str(error)
    if "No model config found" in text:
        return _not_a_model(path, "which holds weights alone, without the model")
    if _LAMBDA.search(text):
        return FileError(
            Exit.UNSAFE_LAMBDA,
            f"expected a file without Python code. Received: {path}, which holds a Lambda layer, "
            f"and loading it runs the code stored in the file. Pass --unsafe-lambda "
            f"(safe_mode=False) if you trust where the file comes from.",
        )
    if saved := _SAVED_LAMBDA.search(text):
        return FileError(
            Exit.UNKNOWN_CLASS,
            f"expected named functions. Received: {path}, whose {saved[1]} was saved from a Python "
            f"lambda, which Keras cannot load. Use a named function and save the model again.",
        )
    if unknown := _UNKNOWN.search(text):
        return FileError(
            Exit.UNKNOWN_CLASS,
            f"expected classes that Keras knows. Received: {path}, which needs "
            f"'{unknown[1] or unknown[2]}'. Name where it is defined: --custom-objects "
            f'"{unknown[1] or unknown[2]}=module:Name".',
        )
    return FileError(
        Exit.NOT_A_MODEL,
        f"expected a model that the installed Keras opens. Received: {path}, which fails "
        f"with {type(error).__name__}: {_innermost(text)} Open it where it was saved, and save "
        f"it again.",
    )


def _innermost(text: str) -> str:
    """Keras nests the message of each level around the one that says what happened."""
    lines = text.rpartition("Exception encountered: ")[2].strip().splitlines()
    first = lines[0].strip() if lines else "no message."
    return first if len(first) <= 200 else f"{first[:200]}…"
