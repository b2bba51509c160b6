"""What is to be read and how, and what comes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parallel_fuse.reading.told import Told


@dataclass(frozen=True)
class Request:
    """A file to read.

    Attributes:
        path, weights: the file, and that of the weights where it holds an architecture alone.
        known: custom classes and functions by the names that the file may have for them.
        safe_mode: refuse Python code.
        told: collects the repairs.
    """

    path: Path
    weights: Path | None
    known: Mapping[str, Any]
    safe_mode: bool
    told: Told = field(default_factory=Told)


@dataclass(frozen=True)
class Read:
    """A model, not compiled; `compile` does it, or raises whatever it likes."""

    model: Any
    compile: Callable[[], None] | None = None
