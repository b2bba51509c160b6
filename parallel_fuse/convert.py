"""A file in, a file out: load, fuse, write, and read back what was written."""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import keras
import numpy as np

from parallel_fuse.api import fuse_parallel_branches
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.files import check_model_file, load
from parallel_fuse.command.writing import check_targets, replacing
from parallel_fuse.report import Report

Stage = Callable[[str], None]

REPORT_FORMATS: Mapping[str, Callable[[Report], str]] = {
    ".txt": lambda report: report.to_text() + "\n",
    ".json": lambda report: json.dumps(report.to_dict(), indent=2) + "\n",
    ".html": lambda report: report.to_html(),
}


def fuse_file(
    source: Path,
    target: Path,
    *,
    report_path: Path | None = None,
    overwrite: bool = False,
    verify: bool = True,
    strict: bool = False,
    portable: bool = False,
    custom_objects: Mapping[str, Any] | None = None,
    unsafe_lambda: bool = False,
    on_stage: Stage = lambda text: None,
) -> Report:
    """Write the fused form of the model in `source` to `target`, a `.keras` file.

    `source` is never written to. The output is written under a temporary name in its folder,
    read back, and only then renamed: on an error nothing is left. `on_stage` is called with a
    line of text as each stage begins.

    Raises:
        FileError: a file could not be read or written, or `strict` and nothing was fused.
        UnsupportedModelError: the model has no graph.
        NotEquivalentError: the fused model computes something else.
    """
    check_model_file(source)
    check_targets(source, target, report_path, overwrite=overwrite)
    on_stage(f"loading {source}")
    opened = {"custom_objects": custom_objects, "unsafe_lambda": unsafe_lambda}
    model = load(source, **opened)
    on_stage("fusing and verifying" if verify else "fusing")
    fused, report = fuse_parallel_branches(
        model, return_report=True, verify=verify, portable=portable
    )
    if strict and not report.changed:
        raise FileError(
            Exit.NOTHING_FUSED,
            f"expected branches that fuse. Received: {source}, where none do. "
            f"`parallel-fuse explain {source}` says why.",
        )
    on_stage(f"writing {target}")
    with ExitStack() as stack:
        written = stack.enter_context(replacing(target))
        _save(fused, written)
        _check_written(fused, written, target, **opened)
        if report_path:
            stack.enter_context(replacing(report_path)).write_text(
                REPORT_FORMATS[report_path.suffix](report), encoding="utf-8"
            )
    return report


def _save(model: keras.Model, path: Path) -> None:
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


def _check_written(model: keras.Model, path: Path, target: Path, **opened: Any) -> None:
    """A file that cannot be read back is not worth leaving behind."""
    try:
        weights = load(path, **opened).get_weights()
    except FileError as error:
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected to read {target} back. Received: {str(error).replace(str(path), 'it')} "
            f"Nothing was left there.",
        ) from error
    expected = model.get_weights()
    if len(weights) == len(expected) and all(map(_identical, weights, expected)):
        return
    raise FileError(
        Exit.WRITE_FAILED,
        f"expected {target} to hold the fused weights. Received: other ones when it was read "
        f"back. Nothing was left there; please report this.",
    )


def _identical(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()
