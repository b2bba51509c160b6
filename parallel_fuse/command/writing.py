"""Write a file whole or not at all, and only where the user allowed it."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parallel_fuse.command.exits import Exit, FileError

REPORT_SUFFIXES = (".txt", ".json", ".html")


def check_targets(
    source: Path, target: Path, report_path: Path | None, *, overwrite: bool
) -> None:
    """Raise FileError if the model or the report cannot, or must not, be written there."""
    if target.suffix != ".keras":
        raise FileError(
            Exit.USAGE,
            f"expected an output that ends in .keras. Received: {target}. Give it that suffix.",
        )
    _check_target(target, source, overwrite=overwrite)
    if report_path is None:
        return
    if report_path.suffix not in REPORT_SUFFIXES:
        raise FileError(
            Exit.USAGE,
            f"expected a report that ends in {', '.join(REPORT_SUFFIXES)}. "
            f"Received: {report_path}. Give it one of these suffixes.",
        )
    _check_target(report_path, source, overwrite=overwrite)


def _check_target(target: Path, source: Path, *, overwrite: bool) -> None:
    if target.exists() and target.samefile(source):
        raise FileError(
            Exit.USAGE,
            f"expected an output other than the input, which is never changed. Received: {target} "
            f"for both. Give another path.",
        )
    if target.is_dir():
        raise FileError(
            Exit.USAGE, f"expected a path of a file. Received: {target}, a folder. Add a file name."
        )
    if target.exists() and not overwrite:
        raise FileError(
            Exit.OUTPUT_EXISTS,
            f"expected an output that does not exist yet. Received: {target}. "
            f"Give another path, or --overwrite to replace it.",
        )
    _check_folder(target)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`, which it becomes on success; on failure it is gone.

    Raises:
        FileError: the operating system refused the file.
    """
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(4)}{target.suffix}")
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected to write {target}. Received: {error.strerror or error}. "
            f"Nothing was left there; free space or choose another folder.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _check_folder(target: Path) -> None:
    folder = target.absolute().parent
    if not folder.is_dir():
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected a folder to write {target.name} into. Received: {folder}, which does not "
            f"exist. Make it first.",
        )
    if not os.access(folder, os.W_OK):
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected a folder that can be written. Received: {folder}. Choose another one.",
        )
