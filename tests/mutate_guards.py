"""Does a test notice when a guard is gone? `python -m tests.mutate_guards [--match WORD] [--list]`

Every `raise Reject(…)` of the package is removed in turn, in a copy of the repository, and the
tests that know its words are run, then those that mirror its file. A guard whose removal no test
notices is printed; the exit status is their number.
"""

import argparse
import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "parallel_fuse"
BROAD = ("tests/test_regressions.py", "tests/test_match.py", "tests/test_rebuild.py",
         "tests/test_api.py", "tests/test_grid.py")  # fmt: skip


@dataclass(frozen=True)
class Guard:
    """One `raise Reject(…)`: where it stands, and the longest run of plain words in its reason."""

    path: Path
    first: int
    last: int
    column: int
    words: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.first} {self.words!r}"


def guards() -> Iterator[Guard]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and _is_reject(node.exc):
                yield Guard(path, node.lineno, node.end_lineno, node.col_offset, _words(node.exc))


def _is_reject(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reject"


def _words(call: ast.Call) -> str:
    texts = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant)]
    return max((t.strip() for t in texts if isinstance(t, str)), key=len, default="")


def without(guard: Guard) -> str:
    """The source of the guard's file with `pass` in its place."""
    lines = guard.path.read_text().splitlines()
    lines[guard.first - 1 : guard.last] = [" " * guard.column + "pass"]
    return "\n".join(lines) + "\n"


def tests_for(guard: Guard) -> list[list[str]]:
    """Files to run, one lot after the other until one fails."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    knowing = [f for f in files if len(guard.words) > 8 and guard.words in f.read_text()]
    stem = guard.path.stem
    mirror = [f for f in files if stem in f.stem and f not in knowing]
    names = [[str(f.relative_to(ROOT)) for f in lot] for lot in (knowing, mirror)]
    return [lot for lot in (*names, list(BROAD)) if lot]


def noticed(guard: Guard) -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*"))
        (copy / guard.path.relative_to(ROOT)).write_text(without(guard))
        return any(_fails(copy, lot) for lot in tests_for(guard))


def _fails(copy: Path, files: list[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    return subprocess.run(command, cwd=copy, capture_output=True, check=False).returncode == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="only guards whose place or words hold this")
    parser.add_argument("--list", action="store_true", help="print the guards, run nothing")
    options = parser.parse_args()
    chosen = [g for g in guards() if options.match in str(g)]
    unnoticed = 0
    for guard in chosen:
        found = options.list or noticed(guard)
        unnoticed += not found
        verdict = "" if options.list else "noticed " if found else "UNNOTICED "
        print(f"{verdict}{guard}", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} guards are noticed when they are gone")
    return unnoticed


if __name__ == "__main__":
    sys.exit(main())
