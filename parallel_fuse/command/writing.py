"""Write a file or a folder whole or not at all, and only where the user allowed it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parallel_fuse.command import leftovers
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.formats import Format
from parallel_fuse.command.leftovers import remove

REPORT_SUFFIXES = (".txt", ".json", ".html")


def check_targets(
    source: Path, target: Path, form: Format, report_path: Path | None, *, overwrite: bool
) -> None:
    """Raise FileError if the model or the report cannot, or must not, be written there."""
    leftovers.sweep(target)
    _check_target(target, source, overwrite=overwrite, folder=form.name == "savedmodel")
    if report_path is None:
        return
    if report_path.suffix not in REPORT_SUFFIXES:
        raise FileError(
            Exit.USAGE,
            f"expected a report that ends in {', '.join(REPORT_SUFFIXES)}. "
            f"Received: {report_path}. Give it one of these suffixes.",
        )
    _check_target(report_path, source, overwrite=overwrite)


def _check_target(target: Path, source: Path, *, overwrite: bool, folder: bool = False) -> None:
    if target.exists() and _within(source, target):
        raise FileError(
            Exit.USAGE,
            f"expected an output other than the input, which is never changed. Received: {target} "
            f"for both. Give another path.",
        )
    if target.is_dir() and not folder:
        raise FileError(
            Exit.USAGE, f"expected a path of a file. Received: {target}, a folder. Add a file name."
        )
    if target.exists() and not overwrite:
        raise FileError(
            Exit.OUTPUT_EXISTS,
            f"expected an output that does not exist yet. Received: {target}. "
            f"Give another path, or --overwrite to replace it.",
        )
    if folder and target.exists() and not _holds_a_savedmodel(target):
        raise FileError(
            Exit.USAGE,
            f"expected a SavedModel to replace. Received: {target}, which is something else and "
            f"stays as it is. Give another path.",
        )
    check_folder(target)


def _within(source: Path, target: Path) -> bool:
    """Whether replacing `target` would take `source` away."""
    resolved = source.resolve()
    return target.resolve() in (resolved, *resolved.parents)


def _holds_a_savedmodel(folder: Path) -> bool:
    """An empty folder is as good: nothing is lost with either."""
    return folder.is_dir() and ((folder / "saved_model.pb").exists() or not any(folder.iterdir()))


@contextmanager
def replacing(target: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `target`, which it becomes on success; on failure it is gone.

    A file or a folder may be made there. At every moment `target` is the old one, complete, or
    not there (for an instant, where a folder takes the place of another). What a killed run left
    beside it is removed first.

    Raises:
        FileError: the operating system refused, or `target` came to be meanwhile.
    """
    leftovers.sweep(target)
    mark = leftovers.new_mark()
    place = leftovers.temporary(target, mark)
    try:
        place.mkdir()
        temporary = place / target.name
        yield temporary
        if target.exists() and not overwrite:
            raise FileError(
                Exit.OUTPUT_EXISTS,
                f"expected an output that does not exist yet. Received: {target}, which another "
                f"program has just made. Give another path.",
            )
        _put_in_place(temporary, target, mark)
    except OSError as error:
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected to write {target}. Received: {error.strerror or error}. "
            f"Nothing was left there; free space or choose another folder.",
        ) from error
    finally:
        remove(place)


def _put_in_place(temporary: Path, target: Path, mark: str) -> None:
    if not target.is_dir():
        os.replace(temporary, target)
        return
    # No call replaces a folder that holds something: the old one steps aside.
    aside = leftovers.aside(target, mark)
    os.rename(target, aside)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(aside, target)
        raise
    remove(aside)


def check_folder(target: Path) -> None:
    """Raise FileError if the folder of `target` is missing or cannot be written."""
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
