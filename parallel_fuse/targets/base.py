"""What the machine asks of a file format: write a model, run the file, say what is in it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from parallel_fuse import _keras
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.formats import Format
from parallel_fuse.verification.compare import Result
from parallel_fuse.verification.precision import EPSILON, Precision

# The inputs of one run, in the order of the model's inputs.
Feed = Sequence[np.ndarray]


@dataclass(frozen=True)
class Operation:
    """One operation of a written graph. `name` holds that of the layer it came from."""

    kind: str
    name: str


@dataclass(frozen=True)
class Options:
    """What a writer and a runtime may be told.

    Attributes:
        quantize: None, "float16", "dynamic" or "int8".
        representative: rows of real data, one array of shape (rows, …) for each input.
        custom_objects, safe_mode: as `keras.saving.load_model` takes them.
    """

    quantize: str | None = None
    representative: tuple[np.ndarray, ...] | None = None
    custom_objects: Mapping[str, Any] | None = None
    safe_mode: bool = True


@dataclass(frozen=True)
class Interface:
    """The names under which a written file takes and gives the model's tensors, in their order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @staticmethod
    def of(model: keras.Model) -> "Interface":
        """The names that Keras' exporters use: inputs by their own, outputs by key or by number."""
        functional, outputs = _keras.functional_inside(model), _keras.structures(model)[1]
        numbered = (f"output_{i}" for i in range(len(functional.outputs)))
        keys = sorted(outputs) if isinstance(outputs, dict) else numbered
        return Interface(tuple(t.name for t in functional.inputs), tuple(keys))


@dataclass(frozen=True)
class Target:
    """How a format is written and read.

    Attributes:
        form: its name, suffix and needs.
        write: writes a model to a path.
        run: opens the file once and runs it on every feed; flat outputs in the model's order.
        operations: what the written graph holds.
        precision: what the file computes in, from what the original computes in.
        why: the reason for a looser precision, in words; empty where it is the original's own.
        place: where `run` opens the file, in words, if that must be said.
    """

    form: Format
    write: Callable[[keras.Model, Path, Options], None]
    run: Callable[[keras.Model, Path, Sequence[Feed], Options], list[list[Result]]]
    operations: Callable[[Path], list[Operation]]
    precision: Callable[[Precision, Options], Precision] = lambda precision, options: precision
    why: Callable[[Options], str] = lambda options: ""
    place: Callable[[Path, Options], str] = lambda path, options: ""


def matched(wanted: Sequence[str], found: Sequence[str], path: Path) -> list[str]:
    """The file's own name for each tensor: exporters replace characters that their format lacks."""
    if set(wanted) == set(found):
        return list(wanted)
    names = {_plain(name): name for name in found}
    if len(names) != len(wanted) or not all(_plain(name) in names for name in wanted):
        raise FileError(
            Exit.WRITTEN_DIFFERS,
            f"expected {path.name} to call its tensors {', '.join(wanted)}. "
            f"Received: {', '.join(found)}. Give the model's inputs plain, distinct names.",
        )
    return [names[_plain(name)] for name in wanted]


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", re.sub(r":0$", "", name)).removeprefix("arg_")


def as_result(array: np.ndarray) -> Result:
    """An array that a runtime gave, as comparisons take it."""
    name = array.dtype.name if array.dtype.kind not in "OSU" else "string"
    return Result(array.astype("float64") if name in EPSILON else array, name)
