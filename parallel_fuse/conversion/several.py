"""Many files into one folder: what to do, what to skip, and what became of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from parallel_fuse.command.exits import Exit, FileError, code_of
from parallel_fuse.command.formats import Format
from parallel_fuse.conversion import manifest, workers
from parallel_fuse.conversion.content import fingerprint
from parallel_fuse.conversion.manifest import Entries, Entry

# Options that change what comes out.
LASTING = (
    *("to", "quantize", "representative_data", "portable", "policy", "strict", "verify"),
    "opened",
)


@dataclass(frozen=True)
class Task:
    """One file to convert; `options` are those of `convert`, `opened` how files are opened."""

    source: Path
    target: Path
    options: Mapping[str, Any]
    opened: tuple[tuple[str, ...], bool]


@dataclass(frozen=True)
class Outcome:
    """What became of one file: a report (as data), or an error in one line and its code."""

    task: Task
    state: str  # "done", "skipped", "failed"
    report: Mapping[str, Any] | None = None
    error: str = ""
    code: Exit = Exit.OK
    entry: Entry | None = None


def targets_of(sources: Sequence[Path], folder: Path, form: Format) -> list[Path]:
    """Where each file goes.

    Raises:
        FileError: two of them would go to the same place.
    """
    found = [folder / f"{source.stem}{form.suffix}" for source in sources]
    for target in found:
        same = [str(source) for source, one in zip(sources, found) if one == target]
        if len(same) > 1:
            raise FileError(
                Exit.USAGE,
                f"expected inputs whose names differ before the suffix. Received: "
                f"{' and '.join(same)}, which would both become {target}. Rename one.",
            )
    return found


def run(
    tasks: Sequence[Task],
    folder: Path,
    jobs: int,
    convert: Callable[[Task], Outcome],
    on_done: Callable[[Outcome], None],
) -> list[Outcome]:
    """Converts what is not done yet, and records it in the folder file by file.

    `convert` is a function of a module, called in other processes. `on_done` is called for every
    file, those skipped first.
    """
    entries = manifest.read(folder)
    done = {task.target: _skipped(task, entries) for task in tasks}
    outcomes = [outcome for outcome in done.values() if outcome is not None]
    for outcome in outcomes:
        on_done(outcome)

    def finished(task: Task, result: Any) -> None:
        outcome = result if isinstance(result, Outcome) else _dead(task, result)
        if outcome.entry is not None:
            entries[task.target.name] = outcome.entry
            manifest.write(folder, entries)
        outcomes.append(outcome)
        on_done(outcome)

    todo = [_may_replace(task, entries) for task in tasks if done[task.target] is None]
    workers.run(todo, convert, jobs, finished)
    order = {task.target: number for number, task in enumerate(tasks)}
    return sorted(outcomes, key=lambda outcome: order[outcome.task.target])


def lasting_options(task: Task) -> dict[str, Any]:
    """What, beside the input, decides what comes out; plain data."""
    known = {**task.options, "opened": list(map(_plain, task.opened))}
    found = {name: known.get(name) for name in LASTING}
    data = found["representative_data"]
    found["representative_data"] = data and fingerprint(Path(data))
    found["policy"] = found["policy"] and asdict(found["policy"])
    return {**found, "versions": _versions()}


def converted(task: Task, report: Any, source: str) -> Outcome:
    """The outcome of a file that was written; `source` is the fingerprint of what was read."""
    told = report.to_dict()
    entry = Entry(source, lasting_options(task), fingerprint(task.target), told)
    return Outcome(task, "done", told, entry=entry)


def failed(task: Task, error: BaseException, line: str) -> Outcome:
    return Outcome(task, "failed", error=line, code=code_of(error))


def _skipped(task: Task, entries: Entries) -> Outcome | None:
    entry = entries.get(task.target.name)
    if not task.source.exists():
        return None
    if not manifest.is_done(entry, task.source, task.target, lasting_options(task)):
        return None
    return Outcome(task, "skipped", entry.report)


def _may_replace(task: Task, entries: Entries) -> Task:
    """An output that an earlier run wrote, and nobody changed since, may be written again."""
    ours = manifest.is_ours(entries.get(task.target.name), task.target)
    options = {**task.options, "overwrite": task.options["overwrite"] or ours}
    return Task(task.source, task.target, options, task.opened)


def _dead(task: Task, died: Any) -> Outcome:
    return Outcome(task, "failed", error=str(died), code=Exit.FAILED)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _versions() -> dict[str, str]:
    found = {}
    for name in ("parallel-fuse", "keras", "tensorflow", "tf2onnx"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
