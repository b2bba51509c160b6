"""`parallel-fuse`: explain, fuse, verify, demo."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from parallel_fuse.command.exits import MEANINGS, Exit
from parallel_fuse.command.formats import (
    NAMES,
    QUANTIZATIONS,
    check_installed,
    format_of,
    is_folder,
)
from parallel_fuse.command.terminal import (
    Opening,
    opening,
    progress,
    reporting,
    silenced,
    start_keras,
    tidy_end,
)
from parallel_fuse.command.writing import check_targets
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.reading.files import check_model_file

if TYPE_CHECKING:
    from parallel_fuse.command.demo import Outcome

# Keras and its backend take seconds to import, so the commands import what needs them:
# --help and a misspelt path answer at once.

_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(f"  {code:>2}  {MEANINGS[code]}" for code in Exit)

MODEL = click.Path(path_type=Path)
WEIGHTS = click.option(
    "--weights", type=MODEL, metavar="FILE.h5", help="The weights, where MODEL is a .json."
)


@click.group(
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="parallel-fuse", prog_name="parallel-fuse")
def main() -> None:
    """Fuse the parallel branches of a trained Keras model into one layer per level.

    MODEL is a .keras, .h5 or .hdf5 file that holds a whole model, also one of Keras 1 or 2, the
    folder of a SavedModel, or the .json of an architecture, whose weights --weights names.
    """


@main.command()
@click.argument("model", type=MODEL)
@WEIGHTS
@click.option("--portable", is_flag=True, help="As fuse --portable would have it.")
@reporting
@opening
def explain(model: Path, weights: Path | None, portable: bool, opened: Opening) -> None:
    """Say what would fuse in MODEL, what not, and why. Nothing is written."""
    check_model_file(model, weights)
    with progress() as stage:
        start_keras(stage)
        from parallel_fuse import api
        from parallel_fuse.reading.load import read

        stage(f"loading {model}")
        found = read(model, weights=weights, **opened())
        stage("looking for parallel branches")
        report = api.explain(found.model, portable=portable)
    report = replace(report, notes=(*found.repairs, *report.notes))
    click.echo(report.to_text())


@main.command()
@click.argument("models", type=MODEL, nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="Output file (.keras, .tflite, .onnx, a .savedmodel folder), or a folder for several.",
)
@click.option("--to", type=click.Choice(NAMES), help="The format, if not said by OUT's suffix.")
@click.option("--quantize", type=click.Choice(QUANTIZATIONS), help="Smaller numbers, in .tflite.")
@click.option(
    "--representative",
    "representative_data",
    type=MODEL,
    metavar="DATA.npz",
    help="Real inputs by name, rows first: int8 needs them, and the proof runs on them.",
)
@WEIGHTS
@click.option("--jobs", type=click.IntRange(1), default=1, metavar="N", help="N files at a time.")
@click.option(
    "--report",
    "report_path",
    type=MODEL,
    metavar="FILE",
    help="Also write the report, as .txt, .json or .html.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--portable", is_flag=True, help="Stock Keras layers only in the output.")
@click.option(
    "--everything",
    "policy",
    flag_value=EVERYTHING,
    type=click.UNPROCESSED,
    help="Fuse what can be fused, also where that is known to be no faster.",
)
@click.option("--strict", is_flag=True, help="Fail if nothing fuses.")
@click.option("--no-verify", is_flag=True, help="Do not compare the result with MODEL.")
@reporting
@opening
def fuse(models: tuple[Path, ...], output: str, opened: Opening, **options: Any) -> None:
    """Write the fused form of MODEL, proven, to OUT. MODEL is never changed.

    Several MODELs go into the folder OUT, each on its own; what was done before and is unchanged
    is skipped.
    """
    options["verify"] = not options.pop("no_verify")
    with tidy_end():
        if is_folder(models, output, options["to"]):
            from parallel_fuse.command import several

            several.fuse(models, Path(output), opened, **options)
            return
        del options["jobs"]
        _fuse_one(models[0], Path(output), opened, options)


def _fuse_one(model: Path, output: Path, opened: Opening, options: dict[str, Any]) -> None:
    form = format_of(output, options["to"])
    check_model_file(model, options["weights"])
    check_targets(model, output, form, options["report_path"], overwrite=options["overwrite"])
    with progress() as stage:
        start_keras(stage)
        from parallel_fuse.conversion.convert import convert

        with silenced():
            report = convert(model, output, on_stage=stage, **options, **opened())
    click.echo(report.to_text())
    if options["report_path"]:
        click.echo(f"report: {options['report_path']}")


@main.command()
@click.argument("a", type=MODEL)
@click.argument("b", type=MODEL)
@reporting
@opening
def verify(a: Path, b: Path, opened: Opening) -> None:
    """Say whether two models compute the same thing, on random inputs."""
    for path in (a, b):
        check_model_file(path)
    with progress() as stage:
        start_keras(stage)
        from parallel_fuse.reading.load import read
        from parallel_fuse.verification.verify import verify_equivalence

        known, models = opened(), []
        for path in (a, b):
            stage(f"loading {path}")
            models.append(read(path, **known).model)
        stage("comparing")
        verification = verify_equivalence(*models)
    click.echo(str(verification))


@main.command()
@click.option(
    "--output",
    type=MODEL,
    metavar="FOLDER",
    help="Where the files go; a new parallel-fuse-demo folder here by default.",
)
@click.option("--overwrite", is_flag=True, help="Replace the demo's files in FOLDER.")
@reporting
def demo(output: Path | None, overwrite: bool) -> None:
    """Train a branchy model on real digits, fuse its file, compare both."""
    with progress() as stage:
        start_keras(stage)
        check_installed(("sklearn",), "demo")
        from parallel_fuse.command import demo as digits

        folder = digits.fresh_folder(output, overwrite=overwrite)
        outcome = digits.run(folder, on_stage=stage)
    click.echo(outcome.report.to_text())
    click.echo()
    _print_outcome(outcome)


def _print_outcome(outcome: "Outcome") -> None:
    table = Table("", *outcome.loads)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in _rows(outcome):
        table.add_row(*row)
    Console(highlight=False).print(table)
    click.echo(
        f"identical predictions: {outcome.identical} of {outcome.held_out} held-out digits\n"
        f"files: {', '.join(str(path) for path in outcome.files)}"
    )


def _rows(outcome: "Outcome") -> Iterator[tuple[str, ...]]:
    report, correct = outcome.report, outcome.correct.values()
    for count in ("operations", "layers", "parameters"):
        yield count, *(f"{getattr(side, count):,}" for side in (report.before, report.after))
    yield "accuracy", *(f"{count / outcome.held_out:.2%}" for count in correct)
    yield "load, ms", *_milliseconds(outcome.loads)
    yield "first call, ms", *_milliseconds(outcome.first_calls)
    for batch, timings in outcome.calls.items():
        yield f"call, batch {batch}, ms", *_milliseconds(timings)


def _milliseconds(timings: dict[str, Any]) -> tuple[str, ...]:
    figures = [1000 * timing.median for timing in timings.values()]
    return tuple(f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}" for figure in figures)
