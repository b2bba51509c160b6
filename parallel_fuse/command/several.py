"""`parallel-fuse fuse` for several files: a progress bar, one table, one exit code."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.formats import BY_NAME, Format, check_installed
from parallel_fuse.command.terminal import Opening, one_line, start_keras
from parallel_fuse.conversion import several
from parallel_fuse.conversion.content import fingerprint
from parallel_fuse.conversion.request import check_request
from parallel_fuse.conversion.several import Outcome, Task

WIDTH = 160  # of the table where there is no terminal to ask


def fuse(models: Sequence[Path], folder: Path, opened: Opening, jobs: int, **options: Any) -> None:
    """Convert all models into the folder, print the table, and exit with 15 if any failed."""
    form = BY_NAME[options["to"] or "keras"]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # the workers inherit it
    _check(form, options)
    del options["weights"]
    targets = several.targets_of(models, folder, form)
    _make(folder)
    del options["report_path"]
    options["to"] = form.name
    tasks = [Task(*pair, options, astuple(opened)) for pair in zip(models, targets)]
    outcomes = _with_a_bar(tasks, folder, jobs)
    _print(outcomes)
    if any(outcome.state == "failed" for outcome in outcomes):
        sys.exit(Exit.SOME_FAILED)


def convert(task: Task) -> Outcome:
    """Convert one file, in a worker process."""
    try:
        start_keras(lambda stage: None)
        from parallel_fuse.conversion import convert as conversion

        source = fingerprint(task.source) if task.source.exists() else ""
        known = Opening(*task.opened)()
        report = conversion.convert(task.source, task.target, **task.options, **known)
        return several.converted(task, report, source)
    except Exception as error:  # noqa: BLE001 - whatever fails becomes a line of the table
        return several.failed(task, error, one_line(error))


def _check(form: Format, options: dict[str, Any]) -> None:
    check_request(form, options["quantize"], options["representative_data"])
    check_installed(form.writing + (form.running if options["verify"] else ()), form.extra)
    if options["weights"] is not None:
        raise FileError(
            Exit.USAGE,
            f"expected no --weights for several files. Received: {options['weights']}. "
            f"Convert an architecture by itself, to a file.",
        )
    if options["report_path"] is not None:
        raise FileError(
            Exit.USAGE,
            f"expected no --report for several files. Received: {options['report_path']}. "
            f"The reports go into {several.manifest.NAME} in the output folder.",
        )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected a folder to write into. Received: {folder}: {error.strerror}. "
            f"Choose another one with -o.",
        ) from error


def _with_a_bar(tasks: Sequence[Task], folder: Path, jobs: int) -> list[Outcome]:
    last = TextColumn("{task.fields[last]}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), last)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("", total=len(tasks), last="")

        def advance(outcome: Outcome) -> None:
            bar.update(shown, advance=1, last=f"{outcome.task.source.name}: {outcome.state}")

        return several.run(tasks, folder, jobs, convert, advance)


def _print(outcomes: Sequence[Outcome]) -> None:
    table = Table("file", "result", "operations", "size", "difference", "")
    for outcome in outcomes:
        table.add_row(outcome.task.source.name, outcome.state, *_figures(outcome))
    width = None if sys.stdout.isatty() else WIDTH
    Console(highlight=False, width=width).print(table)
    counted = Counter(outcome.state for outcome in outcomes)
    click.echo(", ".join(f"{times} {state}" for state, times in counted.items()))


def _figures(outcome: Outcome) -> tuple[str, ...]:
    if outcome.report is None:
        return "", "", "", f"{outcome.error} (exit code {int(outcome.code)})"
    report, file = outcome.report, outcome.report["file"]
    difference = file["difference"]
    return (
        f"{report['before']['operations']:,} → {report['after']['operations']:,}",
        f"{file['source_size']:,} → {file['size']:,}",
        "not proven" if difference is None else f"{difference:.1e}",
        "; ".join(file["undone"]),
    )
