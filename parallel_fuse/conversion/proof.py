"""Opens a written file in its own runtime and compares it with the original model."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from parallel_fuse import _keras
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.targets import Options, Target
from parallel_fuse.verification import reference, tolerance
from parallel_fuse.verification.compare import Result, Trial, check_output
from parallel_fuse.verification.precision import precision_of
from parallel_fuse.verification.reference import Reference
from parallel_fuse.verification.result import OutputCheck, Verification
from parallel_fuse.verification.rounding import finite_size

BATCH_SIZES = (1, 8)
SEED = 0


def prove(
    original: keras.Model, path: Path, target: Target, options: Options, inputs: Any = None
) -> tuple[Verification, float]:
    """Runs the file at batch 1 and 8, opened once, and compares its outputs with the original's.

    The tolerance is that of `verify_equivalence`, measured on the original, with the epsilon of
    what the file computes in (`Target.precision`). 8 rows of `inputs` are used, or random ones.

    Returns:
        The comparison, and the largest difference of an output relative to its largest value.

    Raises:
        FileError: the file gives something else, or cannot be run.
        NotVerifiedError: the original cannot be run, or not compared with.
    """
    started = time.perf_counter()
    precision = target.precision(precision_of(original), options)
    measured = reference.measure(original, inputs, BATCH_SIZES, SEED, precision)
    received = _received(original, path, target, options, measured)
    trials = _trials(measured, received, target.form.runtime)
    checks = _judged(original, measured, trials)
    if not all(check.ok for check in checks):
        measured = reference.with_bounds(original, measured, SEED, reference.MORE_PAIRS)
        reference.check_comparable(original, measured)
        checks = _judged(original, measured, trials)
    found = Verification(
        ok=all(check.ok for check in checks),
        outputs=checks,
        batch_sizes=tuple(sorted({sample.batch_size for sample in measured.samples})),
        modes=(" ".join(filter(None, (target.form.runtime, target.place(path, options)))),),
        tolerance_rule=_rule(original, measured, target.why(options)),
        inputs="random" if inputs is None else "given",
        seed=SEED,
        seconds=time.perf_counter() - started,
    )
    if not found.ok:
        raise _differs(path, found)
    return found, max(map(_relative, trials), default=0.0)


def _relative(trials: Sequence[Trial]) -> float:
    """max |new - old| / max |old| of one output, over all samples; 0 for what is no number."""
    pairs = [(t.expected.array, t.received.array) for t in trials]
    if any(old.dtype.kind not in "fiu" for old, _ in pairs):
        return 0.0
    scale = max(finite_size(old).max(initial=0) for old, _ in pairs)
    with np.errstate(invalid="ignore"):
        worst = max(finite_size(new - old).max(initial=0) for old, new in pairs)
    return float(worst / scale) if scale else 0.0


def _received(
    original: keras.Model, path: Path, target: Target, options: Options, measured: Reference
) -> list[list[Result]]:
    feeds = [[keras.ops.convert_to_numpy(x) for x in sample.values] for sample in measured.samples]
    try:
        return target.run(original, path, feeds, options)
    except FileError:
        raise
    except Exception as error:  # runtimes raise whatever they like
        raise FileError(
            Exit.WRITTEN_DIFFERS,
            f"expected {target.form.runtime} to run {path.name} at batch sizes "
            f"{', '.join(str(s.batch_size) for s in measured.samples)}. "
            f"Received: {reference.first_line(error)} Nothing was left; choose another format.",
        ) from error


def _trials(
    measured: Reference, received: Sequence[Sequence[Result]], mode: str
) -> list[list[Trial]]:
    """Each output's trials, one for each sample."""
    runs = zip(measured.samples, measured.results, received, strict=True)
    rows = [
        [Trial(*pair, sample.batch_size, mode) for pair in zip(expected, given, strict=True)]
        for sample, expected, given in runs
    ]
    return [list(column) for column in zip(*rows)]


def _judged(
    original: keras.Model, measured: Reference, trials: Sequence[Sequence[Trial]]
) -> tuple[OutputCheck, ...]:
    names, outputs = _keras.names(original)[1], _keras.functional_inside(original).outputs
    columns = zip(names, outputs, trials, measured.bounds, strict=True)
    return tuple(check_output(*column) for column in columns)


def _rule(original: keras.Model, measured: Reference, why: str) -> str:
    rule = tolerance.rule(original, measured.precision)
    return f"{rule}; eps: {why}" if why else rule


def _differs(path: Path, found: Verification) -> FileError:
    return FileError(
        Exit.WRITTEN_DIFFERS,
        f"expected {found.modes[0]} to give from {path.name} what the original gives. "
        f"Received: {found.failure()}. Nothing was left; choose another format.",
    )
