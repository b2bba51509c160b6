"""Temporary folders beside an output: their names, and what becomes of those of a killed run.

Their names begin with a dot and say which process on which machine made them, so that a later run
can tell what nobody will finish any more.
"""

import os
import re
import secrets
import shutil
import socket
from contextlib import suppress
from pathlib import Path

TEMPORARY, ASIDE = "new", "old"


def new_mark() -> str:
    return f"{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"


def temporary(target: Path, mark: str) -> Path:
    """A folder to write the output into first, with all that its writer drops beside it."""
    return target.with_name(f".{target.name}.{mark}.{TEMPORARY}")


def aside(target: Path, mark: str) -> Path:
    """Where an old folder waits while the new one takes its place."""
    return target.with_name(f".{target.name}.{mark}.{ASIDE}")


def sweep(target: Path) -> None:
    """Removes what runs that were killed left beside the target.

    An old folder that had stepped aside comes back where nothing took its place.
    """
    names = re.compile(
        rf"\.{re.escape(target.name)}\.{_machine()}-(\d+)-[0-9a-f]{{8}}\.({TEMPORARY}|{ASIDE})"
    )
    for path in list(target.absolute().parent.glob(".*")):
        found = names.fullmatch(path.name)
        if found is None or _runs(int(found[1])):
            continue
        with suppress(OSError):  # a folder that cannot be written is told of elsewhere
            _put_right(path, target, old=found[2] == ASIDE)


def _put_right(path: Path, target: Path, *, old: bool) -> None:
    if old and not target.exists():
        os.rename(path, target)
    else:
        remove(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _machine() -> str:
    """Folders are shared between machines, process numbers are not."""
    return re.sub(r"\W+", "", socket.gethostname()) or "here"


def _runs(process: int) -> bool:
    """Whether there is such a process. Where that cannot be asked without harm: yes."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
