"""A file in, a file out: load, fuse, write in a format, prove what was written."""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras

from parallel_fuse import _keras
from parallel_fuse.api import fuse_parallel_branches
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.files import check_model_file, load
from parallel_fuse.command.formats import Format, check_installed, format_of
from parallel_fuse.command.writing import check_targets, replacing
from parallel_fuse.conversion import representative
from parallel_fuse.conversion.content import size_of
from parallel_fuse.conversion.proof import BATCH_SIZES, prove
from parallel_fuse.conversion.request import check_request
from parallel_fuse.conversion.undone import undone
from parallel_fuse.conversion.written import Written
from parallel_fuse.policy import Policy
from parallel_fuse.report import Report
from parallel_fuse.targets import TARGETS, Operation, Options, Target
from parallel_fuse.targets.base import Interface
from parallel_fuse.targets.fresh import own_layers
from parallel_fuse.verification.reference import first_line
from parallel_fuse.verification.result import Verification

Stage = Callable[[str], None]
PathLike = str | os.PathLike[str]

REPORT_FORMATS: Mapping[str, Callable[[Report], str]] = {
    ".txt": lambda report: report.to_text() + "\n",
    ".json": lambda report: json.dumps(report.to_dict(), indent=2) + "\n",
    ".html": lambda report: report.to_html(),
}


def convert(
    source: PathLike,
    target: PathLike,
    to: str | None = None,
    *,
    quantize: str | None = None,
    representative_data: PathLike | None = None,
    portable: bool = False,
    policy: Policy | None = None,
    strict: bool = False,
    verify: bool = True,
    overwrite: bool = False,
    report_path: PathLike | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    on_stage: Stage = lambda text: None,
) -> Report:
    """Write the fused form of the model in `source` to `target`, proven against the original.

    `source` is never written to. The output is written under a temporary name in its folder,
    opened there by its own runtime, compared with the original model at batch 1 and 8, and only
    then renamed: on an error nothing is left, and a file that stood there before still does.

    Args:
        source: a saved model.
        target: a `.keras`, `.tflite` or `.onnx` file, or the folder of a SavedModel.
        to: "keras", "savedmodel", "tflite" or "onnx"; what the suffix of `target` says if None.
        quantize: for TFLite: "float16" or "dynamic" (8 bits) for weights, "int8" for all
            arithmetic, which takes `representative_data`.
        representative_data: real inputs, `.npz` by input name, rows first, or `.npy` for a single
            input. The proof runs on their first rows, too.
        portable: stock Keras layers only.
        policy: what may fuse, as for `fuse_parallel_branches`.
        strict: fail if nothing fuses.
        verify: False leaves out the comparisons, of the fused model and of the written file.
        overwrite: replace a target or a report that exists.
        report_path: also write the report, as `.txt`, `.json` or `.html`.
        custom_objects, safe_mode: as `keras.saving.load_model` takes them.
        on_stage: called with a line of text as each stage begins.

    Returns:
        The report; its `file` tells what was written and how it was proven.

    Raises:
        ConversionError: a file could not be read, written or proven, or `strict` and nothing fused.
        UnsupportedModelError: the model has no graph.
        NotEquivalentError: the fused model computes something else.
        NotVerifiedError: the original cannot be compared with.
    """
    job = _Job(
        source=Path(source),
        target=Path(target),
        form=format_of(Path(target), to),
        report_path=report_path and Path(report_path),
        overwrite=overwrite,
        verify=verify,
        on_stage=on_stage,
    )
    data = representative_data and Path(representative_data)
    check_request(job.form, quantize, data)
    check_model_file(job.source)
    check_targets(job.source, job.target, job.form, job.report_path, overwrite=overwrite)
    check_installed(job.form.writing + (job.form.running if verify else ()), job.form.extra)
    on_stage(f"loading {job.source}")
    original = load(job.source, custom_objects=custom_objects, safe_mode=safe_mode)
    rows = representative.read(data, original) if data else None
    on_stage("fusing and verifying" if verify else "fusing")
    fused, report = fuse_parallel_branches(
        original,
        return_report=True,
        verify=verify,
        verify_inputs=_inputs(original, rows),
        portable=portable,
        policy=policy or Policy(mode=job.form.mode),
    )
    if strict and not report.changed:
        raise FileError(
            Exit.NOTHING_FUSED,
            f"expected branches that fuse. Received: {source}, where none do. "
            f"`parallel-fuse explain {source}` says why.",
        )
    return _write(job, original, fused, report, Options(quantize, rows, custom_objects, safe_mode))


@dataclass(frozen=True)
class _Job:
    """What goes where."""

    source: Path
    target: Path
    form: Format
    report_path: Path | None
    overwrite: bool
    verify: bool
    on_stage: Stage


def _write(
    job: _Job, original: keras.Model, fused: keras.Model, report: Report, options: Options
) -> Report:
    target = next(one for one in TARGETS if one.form is job.form)
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(job.target, overwrite=job.overwrite))
        job.on_stage(f"writing {job.target}")
        target.write(fused, temporary, options)
        proof = difference = None
        if job.verify:
            job.on_stage(f"opening it in {job.form.runtime}")
            proof, difference = _proven(job, original, temporary, target, options)
        written = _described(job, fused, report, temporary, target, options)
        report = replace(report, file=replace(written, proof=proof, difference=difference))
        if job.report_path:
            place = stack.enter_context(replacing(job.report_path, overwrite=job.overwrite))
            text = REPORT_FORMATS[job.report_path.suffix](report)
            place.write_text(text, encoding="utf-8")
    return report


def _proven(
    job: _Job, original: keras.Model, path: Path, target: Target, options: Options
) -> tuple[Verification, float]:
    try:
        return prove(original, path, target, options, _inputs(original, options.representative))
    except FileError as error:  # the user knows the file by its final name only
        raise FileError(error.code, str(error).replace(path.name, str(job.target))) from error


def _inputs(model: keras.Model, rows: tuple | None) -> Any:
    if rows is None:
        return None
    nest = _keras.structures(model)[0]
    return keras.tree.pack_sequence_as(nest, list(representative.first_rows(rows, BATCH_SIZES[-1])))


def _described(
    job: _Job, fused: keras.Model, report: Report, path: Path, target: Target, options: Options
) -> Written:
    interface, names = Interface.of(fused), _keras.names(fused)
    operations = _counted(job, path, target)
    is_keras = job.form.name == "keras"
    layers = [layer.name for layer in _keras.sublayers(fused)]
    return Written(
        path=str(job.target),
        form=job.form.name,
        quantize=options.quantize,
        size=size_of(path),
        source_size=size_of(job.source),
        operations=Counter(operation.kind for operation in operations),
        inputs=dict(zip(names[0], names[0] if is_keras else interface.inputs)),
        outputs=dict(zip(names[1], names[1] if is_keras else interface.outputs)),
        own_layers=tuple(own_layers(path)) if is_keras else (),
        undone=() if is_keras else undone(report.regions, layers, operations),
    )


def _counted(job: _Job, path: Path, target: Target) -> list[Operation]:
    try:
        return target.operations(path)
    except Exception as error:  # parsers raise whatever they like
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected to read {job.target} back. Received: {first_line(error)} "
            f"Nothing was left there; please report this.",
        ) from error
