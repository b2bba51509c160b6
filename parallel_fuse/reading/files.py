"""A look at a file before Keras is started: does it hold a model, and of which form?"""

import os
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.reading.refusing import not_a_model

HDF5_SUFFIXES = (".h5", ".hdf5")
MODEL_SUFFIXES = (".keras", *HDF5_SUFFIXES, ".json")
KINDS = "a .keras, .h5 or .hdf5 file, a .json with its weights, or a SavedModel folder"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Problem:
    """Why a file is no model, and the exit code that stands for it."""

    what: str
    code: Exit = Exit.NOT_A_MODEL


def check_model_file(path: Path, weights: Path | None = None) -> None:
    """Raise FileError if a look at the file, without Keras, shows that it holds no model."""
    _check_readable(path)
    if is_saved_model(path):
        return
    if path.is_dir():
        raise _no_saved_model(path)
    suffix = path.suffix.lower()
    if suffix not in MODEL_SUFFIXES:
        raise FileError(
            Exit.NOT_A_MODEL,
            f"expected {KINDS}. Received: {path}. "
            f"Save the model with model.save('model.keras') first.",
        )
    _check_weights(path, weights)
    problem = {".keras": _archive_problem, ".json": _no_problem}.get(suffix, _hdf5_problem)(path)
    if problem:
        raise not_a_model(path, problem.what, problem.code)


def is_saved_model(path: Path) -> bool:
    return path.is_dir() and (path / "saved_model.pb").is_file()


def _check_readable(path: Path) -> None:
    if not path.exists():
        raise FileError(
            Exit.MISSING_FILE,
            f"expected a model file. Received: {path}, which does not exist. Check the path.",
        )
    if not os.access(path, os.R_OK):
        raise FileError(
            Exit.MISSING_FILE,
            f"expected a file that can be read. Received: {path}. Check its permissions.",
        )


def _no_saved_model(path: Path) -> FileError:
    return FileError(
        Exit.NOT_A_MODEL,
        f"expected {KINDS}. Received: {path}, a folder without a saved_model.pb. "
        f"Save the model with model.save('model.keras') first.",
    )


def _check_weights(path: Path, weights: Path | None) -> None:
    if path.suffix.lower() != ".json":
        if weights is None:
            return
        raise FileError(
            Exit.USAGE,
            f"expected --weights with an architecture (.json) only. Received: {path}, which holds "
            f"weights of its own. Leave out one of the two.",
        )
    if weights is None:
        raise FileError(
            Exit.USAGE,
            f"expected the weights of an architecture. Received: {path} alone. "
            f"Add --weights weights.h5.",
        )
    _check_readable(weights)
    if problem := _hdf5_problem(weights):
        raise FileError(
            Exit.NOT_A_MODEL,
            f"expected weights in an HDF5 file. Received: {weights}, {problem.what}. "
            f"Save them with model.save_weights('model.weights.h5').",
        )


def _archive_problem(path: Path) -> Problem | None:
    if not zipfile.is_zipfile(path):
        if _begins(path, _ZIP):
            return Problem("an archive that is cut short", Exit.DAMAGED)
        return Problem("which is no .keras archive, but another format")
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if strays := [one.filename for one in members if _strays(one)]:
        what = f"an archive with a path outside itself ('{strays[0]}'), which is not opened"
        return Problem(what, Exit.STRAY_PATH)
    if "config.json" in {one.filename for one in members}:
        return None
    return Problem("an archive without a model configuration")


def _strays(member: zipfile.ZipInfo) -> bool:
    """Whether unpacking would write, or read, anywhere else: also by a link."""
    path = PurePosixPath(member.filename.replace("\\", "/"))
    link = stat.S_ISLNK(member.external_attr >> 16)
    return link or path.is_absolute() or ".." in path.parts or ":" in path.parts[0]


def _hdf5_problem(path: Path) -> Problem | None:
    if _begins(path, _HDF5):
        return None
    return Problem("which is no HDF5 file, but another format")


def _begins(path: Path, signature: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(signature)) == signature


def _no_problem(path: Path) -> None:
    return None
