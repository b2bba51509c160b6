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
from parallel_fuse.command.formats import Format, check_installed, format_of
from parallel_fuse.command.writing import check_targets, replacing
from parallel_fuse.conversion import representative
from parallel_fuse.conversion.content import size_of
from parallel_fuse.conversion.proof import BATCH_SIZES, prove
from parallel_fuse.conversion.request import check_request
from parallel_fuse.conversion.undone import undone
from parallel_fuse.conversion.written import Written
from parallel_fuse.policy import Policy
from parallel_fuse.reading.files import check_model_file
from parallel_fuse.reading.load import Opened, read
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
    weights: PathLike | None = None,
    on_stage: Stage = lambda text: None,
) -> Report:
    """Write the fused form of the model in `source` to `target`, proven against the original.

    `source` is never written to. The output is written under a temporary name in its folder,
    opened there by its own runtime, compared with the original model at batch 1 and 8, and only
    then renamed: on an error nothing is left, and a file that stood there before still does.

    Args:
        source: a saved model, whatever `load_model` opens.
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
        custom_objects, safe_mode, weights: as `load_model` takes them.
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
        weights=_path(weights),
        data=_path(representative_data),
        report_path=_path(report_path),
        quantize=quantize,
        portable=portable,
        policy=policy,
        strict=strict,
        verify=verify,
        overwrite=overwrite,
        custom_objects=custom_objects,
        safe_mode=safe_mode,
        on_stage=on_stage,
    )
    _check(job)
    opened = _opened(job)
    rows = representative.read(job.data, opened.model) if job.data else None
    fused, report = _fused(job, opened, rows)
    options = Options(quantize, rows, custom_objects, safe_mode)
    return _write(job, opened.model, fused, report, options)


@dataclass(frozen=True)
class _Job:
    """What goes where and how: the arguments of `convert`."""

    source: Path
    target: Path
    form: Format
    weights: Path | None
    data: Path | None
    report_path: Path | None
    quantize: str | None
    portable: bool
    policy: Policy | None
    strict: bool
    verify: bool
    overwrite: bool
    custom_objects: Mapping[str, Any] | None
    safe_mode: bool
    on_stage: Stage


def _path(place: PathLike | None) -> Path | None:
    return None if place is None else Path(place)


def _check(job: _Job) -> None:
    """What can be known before anything is loaded."""
    check_request(job.form, job.quantize, job.data)
    check_model_file(job.source, job.weights)
    check_targets(job.source, job.target, job.form, job.report_path, overwrite=job.overwrite)
    needed = job.form.writing + (job.form.running if job.verify else ())
    check_installed(needed, job.form.extra)


def _opened(job: _Job) -> Opened:
    job.on_stage(f"loading {job.source}")
    return read(job.source, job.custom_objects, job.safe_mode, weights=job.weights)


def _fused(job: _Job, opened: Opened, rows: tuple | None) -> tuple[keras.Model, Report]:
    job.on_stage("fusing and verifying" if job.verify else "fusing")
    fused, report = fuse_parallel_branches(
        opened.model,
        return_report=True,
        verify=job.verify,
        verify_inputs=_inputs(opened.model, rows),
        portable=job.portable,
        policy=job.policy or Policy(mode=job.form.mode),
    )
    if job.strict and not report.changed:
        raise FileError(
            Exit.NOTHING_FUSED,
            f"expected branches that fuse. Received: {job.source}, where none do. "
            f"`parallel-fuse explain {job.source}` says why.",
        )
    return fused, replace(report, notes=(*opened.repairs, *report.notes))


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
        text = str(error).replace(str(path), path.name).replace(path.name, str(job.target))
        raise FileError(error.code, text) from error


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
        source_size=size_of(job.source) + (size_of(job.weights) if job.weights else 0),
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
