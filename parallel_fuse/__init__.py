"""Fuse the parallel branches of a trained Keras model into batched layers."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parallel_fuse.errors import (
    ConversionError,
    NotEquivalentError,
    ParallelFuseError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from parallel_fuse.api import explain, fuse_parallel_branches
    from parallel_fuse.conversion.convert import convert
    from parallel_fuse.joins import JOINS
    from parallel_fuse.kinds import KINDS
    from parallel_fuse.reading.load import load_model
    from parallel_fuse.splits import SPLITS
    from parallel_fuse.verification.verify import verify_equivalence

__all__ = [
    "JOINS",
    "KINDS",
    "SPLITS",
    "ConversionError",
    "NotEquivalentError",
    "ParallelFuseError",
    "UnsupportedModelError",
    "convert",
    "explain",
    "fuse_parallel_branches",
    "load_model",
    "verify_equivalence",
]

_HOMES = {
    "JOINS": "joins",
    "KINDS": "kinds",
    "SPLITS": "splits",
    "convert": "conversion.convert",
    "explain": "api",
    "fuse_parallel_branches": "api",
    "load_model": "reading.load",
    "verify_equivalence": "verification.verify",
}


def _is_the_command() -> bool:
    program = Path(sys.argv[0]).name if sys.argv else ""
    module = sys.orig_argv[1:3] == ["-m", "parallel_fuse"]
    worker = Path(sys.argv[0]) == Path(__file__).with_name("__main__.py") if sys.argv else False
    return program.startswith("parallel-fuse") or (program == "-m" and module) or worker


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__


# Importing the package registers its layers, so that plain Keras loads a fused file. Keras takes
# seconds to import, aloud: the command does so itself, quietly, and not for its `--help`.
if not _is_the_command():
    import_module(f"{__name__}.api")
