"""Keras' own exporters, called alike in every release, and their errors as one line."""

import inspect
from pathlib import Path
from typing import Any

import keras

from parallel_fuse.command.exits import Exit, FileError


def export(model: keras.Model, path: Path, form: str, **options: Any) -> None:
    """`model.export(path, format=form)`, silently.

    Raises:
        FileError: the exporter does not take this model, or this Keras has no such exporter.
        OSError: the file could not be written.
    """
    takes = inspect.signature(model.export).parameters
    quiet = {"verbose": False} if "verbose" in takes else {}
    try:
        model.export(str(path), format=form, **quiet, **options)
    except OSError:
        raise
    except Exception as error:  # exporters raise whatever their libraries do
        raise refused(form, error) from error


def refused(form: str, error: Exception) -> FileError:
    lines = str(error).strip().splitlines() or ["no message"]
    reason = lines[0] if len(lines[0]) <= 300 else f"{lines[0][:300]}…"
    return FileError(
        Exit.WRITE_FAILED,
        f"expected a model that Keras {keras.__version__} can write as {form}. "
        f"Received: {type(error).__name__}: {reason} Nothing was left; choose another format.",
    )
