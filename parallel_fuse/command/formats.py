"""The file formats by name and suffix, known before Keras is started."""

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parallel_fuse.command.exits import Exit, FileError

PACKAGES = {"sklearn": "scikit-learn"}  # modules that are not called as their packages
QUANTIZATIONS = ("float16", "dynamic", "int8")


@dataclass(frozen=True)
class Format:
    """One file format.

    Attributes:
        name: what `to=` and `--to` call it.
        suffix: of its files; a SavedModel is a folder, and may have any other or none.
        runtime: what opens it, in words for the report.
        extra: the optional extra of this package that brings what is needed.
        writing, running: the modules needed for either.
        mode: how its runtime runs a model, as a `Policy` calls it.
    """

    name: str
    suffix: str
    runtime: str
    extra: str = "tensorflow"
    writing: tuple[str, ...] = ("tensorflow",)
    running: tuple[str, ...] = ("tensorflow",)
    mode: str = "graph"


FORMATS = (
    Format("keras", ".keras", "Keras", writing=(), running=()),
    Format("savedmodel", ".savedmodel", "TensorFlow"),
    Format("tflite", ".tflite", "LiteRT", "tflite", mode="tflite"),
    Format(
        name="onnx",
        suffix=".onnx",
        runtime="ONNX Runtime",
        extra="onnx",
        writing=("onnx", "tf2onnx"),
        running=("onnx", "onnxruntime"),
        mode="onnx",
    ),
)
BY_NAME = {one.name: one for one in FORMATS}
NAMES = tuple(BY_NAME)


def format_of(target: Path, to: str | None) -> Format:
    """The format asked for, or the one that the suffix of the output says.

    Raises:
        FileError: neither says one, or they contradict each other.
    """
    by_suffix = next((one for one in FORMATS if one.suffix == target.suffix), None)
    chosen = BY_NAME.get(to, by_suffix)
    if to is not None and to not in NAMES:
        raise FileError(
            Exit.USAGE,
            f"expected a format out of {', '.join(NAMES)}. Received: {to}. Choose one of these.",
        )
    if chosen is None:
        endings = ", ".join(one.suffix for one in FORMATS)
        raise FileError(
            Exit.USAGE,
            f"expected an output that ends in {endings}. Received: {target}. Give it one of "
            f"these suffixes; --to savedmodel (to='savedmodel') takes any folder name.",
        )
    wrong = by_suffix is not chosen if by_suffix else chosen.name != "savedmodel"
    if wrong:
        raise FileError(
            Exit.USAGE,
            f"expected an output that ends in {chosen.suffix} for {chosen.name}. "
            f"Received: {target}. Change one of the two.",
        )
    return chosen


def check_installed(modules: Sequence[str], extra: str) -> None:
    """Raise FileError if a package that an extra of this one brings is missing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise FileError(
                Exit.MISSING_PACKAGE,
                f"expected {PACKAGES.get(module, module)} to be installed. Received: no module "
                f'{module}. pip install "parallel-fuse[{extra}]".',
            )


def is_folder(sources: Sequence[Path], target: str, to: str | None) -> bool:
    """Whether an output names a folder to write files into, not the one file to write."""
    if len(sources) > 1 or target.endswith(("/", os.sep)):
        return True
    path = Path(target)
    named_as_file = any(one.suffix == path.suffix for one in FORMATS)
    return path.is_dir() and to != "savedmodel" and not named_as_file
