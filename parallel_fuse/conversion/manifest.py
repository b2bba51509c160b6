"""What was done in an output folder, kept beside the outputs, so that a second run can skip it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.writing import replacing
from parallel_fuse.conversion.content import fingerprint

NAME = "parallel-fuse.json"
FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """One file that was converted: what came in, under which options, and what came out."""

    source: str
    options: Mapping[str, Any]
    target: str
    report: Mapping[str, Any] = field(repr=False)


Entries = dict[str, Entry]


def read(folder: Path) -> Entries:
    """The entries by name of the output; none where the folder is new.

    Raises:
        FileError: a file of this name holds something else.
    """
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: Entry(**entry) for name, entry in found["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(
            Exit.USAGE,
            f"expected {path} to be the record of an earlier run. Received: "
            f"{type(error).__name__}: {error} Move it away, or choose another folder.",
        ) from error


def write(folder: Path, entries: Entries) -> None:
    """Replaces the record, whole or not at all."""
    found = {
        "format": FORMAT,
        "files": {name: asdict(entry) for name, entry in sorted(entries.items())},
    }
    with replacing(folder / NAME) as path:
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def is_ours(entry: Entry | None, target: Path) -> bool:
    """Whether the output is the one that was written for this entry, unchanged."""
    return entry is not None and target.exists() and fingerprint(target) == entry.target


def is_done(entry: Entry | None, source: Path, target: Path, options: Mapping[str, Any]) -> bool:
    """Whether the output is there and would come out the same."""
    return (
        entry is not None
        and dict(entry.options) == dict(options)
        and fingerprint(source) == entry.source
        and is_ours(entry, target)
    )
