"""Checks by running them that two models compute the same.

Knows nothing of how the second was made, so that a wrong rewriter cannot vouch for itself.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import keras

from parallel_fuse import _backend, _keras
from parallel_fuse.errors import NotEquivalentError, NotVerifiedError, UnsupportedModelError
from parallel_fuse.verification import reference, tolerance
from parallel_fuse.verification.compare import Trial, check_output, interface_difference
from parallel_fuse.verification.reference import Reference
from parallel_fuse.verification.result import OutputCheck, Verification


def verify_equivalence(
    a: keras.Model,
    b: keras.Model,
    inputs: Any = None,
    *,
    batch_sizes: Sequence[int] = (1, 2, 7),
    seed: int = 0,
    raise_on_failure: bool = True,
) -> Verification:
    """Runs two functional models on the same inputs and compares all they give.

    The original `a` is run eagerly; `b` eagerly and as a compiled graph, both with
    `training=False`. Nests, names, types, shapes, integers, booleans, strings and the positions of
    NaN and infinity must be equal. A float may lie off by

        2 * (eps * scale + sensitivity)

    where `eps` is that of the coarsest float type that `a` computes in, `scale` the largest value
    of `a` at that position over the batch, and `sensitivity` the largest change there when every
    operation of `a` is disturbed by one rounding error. The rounding error of a layer that sums K
    products is taken as eps * sqrt(K), the random-walk model of Higham and Mary (SIAM J. Sci.
    Comput. 41, 2019). Depth and cancellation need no rule of their own: they are measured, and
    measured more often before two models are called different.

    Neither model changes: no variable is written, nothing compiled is kept.

    What it cannot see: branches exchanged that have equal weights, or weights that do not show in
    the values tried (biases still zero, units that no random input wakes up). Pass real `inputs`
    for a sharper check. A comparison inside the model (`argmax`, `x > 0`) may fall to the other
    side of a near tie in an honest twin; that is reported as a difference.

    Args:
        a: the original, the reference.
        b: the model to check.
        inputs: arrays or tensors in the nest that the models take, batch first. All rows make one
            batch; `batch_sizes` below that are tried on the first rows. Random by default: normal
            floats, ids within their Embedding.
        batch_sizes: rows in a batch. An Input with a fixed batch size overrides them.
        seed: for random inputs and for the disturbance.
        raise_on_failure: give the failed `Verification` back instead of raising when False.

    Raises:
        NotEquivalentError: they differ; `.verification` holds all figures.
        NotVerifiedError: there is no answer: `a` does not run on this machine, gives other values
            at each call, or gives values that cannot be compared.
        InvalidInputsError: `inputs` do not fit the model.
        UnsupportedModelError: a model without a graph.
    """
    started = time.perf_counter()
    _check_arguments(a, b, batch_sizes)
    found = _compare(a, b, inputs, batch_sizes, seed)
    result = Verification(
        **found,
        inputs="random" if inputs is None else "given",
        seed=seed,
        seconds=time.perf_counter() - started,
    )
    if raise_on_failure and not result.ok:
        raise NotEquivalentError(f"The models differ: {result.failure()}", result)
    return result


def _check_arguments(a: Any, b: Any, batch_sizes: Sequence[int]) -> None:
    for model in (a, b):
        if not isinstance(model, keras.Model) or _keras.functional_inside(model) is None:
            raise UnsupportedModelError(
                f"Expected a functional or a built Sequential model. Received: {model!r}."
            )
    if not batch_sizes or any(not isinstance(n, int) or n < 1 for n in batch_sizes):
        raise ValueError(f"Expected batch sizes of at least 1. Received: {batch_sizes}.")


def _compare(
    a: keras.Model, b: keras.Model, inputs: Any, batch_sizes: Sequence[int], seed: int
) -> dict[str, Any]:
    """The fields of a `Verification` that say what was found."""
    problem = interface_difference(a, b)
    if problem:
        return _found((), problem, tuple(batch_sizes), (), "")
    original = reference.measure(a, inputs, batch_sizes, seed)
    modes = _modes(b)
    trials, problem = _trials(b, original, modes)
    checks = () if problem else _judge(b, original, trials)
    if not all(check.ok for check in checks):
        original = reference.with_bounds(a, original, seed, reference.MORE_PAIRS)
        checks = _judge(b, original, trials)
    if not all(check.ok for check in checks) and reference.keeps_state(a, original):
        raise NotVerifiedError(
            "The original draws random numbers or keeps state: expected its second call to equal "
            "the first. Received: other outputs. The two models start from different states."
        )
    sizes = tuple(sorted({sample.batch_size for sample in original.samples}))
    rule = tolerance.rule(a, original.precision)
    return _found(checks, problem, sizes, tuple(modes), rule)


def _found(
    checks: tuple[OutputCheck, ...], problem: str, sizes: tuple, modes: tuple, rule: str
) -> dict[str, Any]:
    return {
        "ok": bool(checks) and all(check.ok for check in checks),
        "outputs": checks,
        "batch_sizes": sizes,
        "modes": modes,
        "tolerance_rule": rule,
        "problem": problem,
    }


def _modes(model: keras.Model) -> dict[str, Callable[[Any], Any]]:
    eager = reference.forward(model)
    graph = _backend.compiled(eager)
    return {"eager": eager} if graph is None else {"eager": eager, "compiled": graph}


def _trials(
    model: keras.Model, original: Reference, modes: dict[str, Callable[[Any], Any]]
) -> tuple[list[list[Trial]], str]:
    """Each output's trials, in every mode on every sample; or why the model could not be run."""
    trials: list[list[Trial]] = [[] for _ in original.bounds]
    for mode, call in modes.items():
        for sample, expected in zip(original.samples, original.results):
            try:
                received = reference.run(call, model, sample)
            except Exception as error:  # noqa: BLE001 - backends raise whatever they like
                where = f"(batch size {sample.batch_size}, {mode})"
                return [], f"the second cannot be run {where}: {reference.first_line(error)}"
            for of_output, *pair in zip(trials, expected, received):
                of_output.append(Trial(*pair, sample.batch_size, mode))
    return trials, ""


def _judge(
    model: keras.Model, original: Reference, trials: list[list[Trial]]
) -> tuple[OutputCheck, ...]:
    names, outputs = _keras.names(model)[1], _keras.functional_inside(model).outputs
    columns = zip(names, outputs, trials, original.bounds, strict=True)
    return tuple(check_output(*column) for column in columns)
