"""The size and the fingerprint of what a file, or a folder, holds."""

import hashlib
from collections.abc import Iterator
from pathlib import Path


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    return sum(file.stat().st_size for file in _files(path))


def fingerprint(path: Path) -> str:
    """A SHA-256 of the contents, and of the names where there is more than one file."""
    total = hashlib.sha256()
    for file in _files(path):
        total.update(str(file.relative_to(path)).encode() + b"\0")
        with file.open("rb") as opened:
            total.update(hashlib.file_digest(opened, "sha256").digest())
    return total.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    yield from sorted(file for file in path.rglob("*") if file.is_file())
