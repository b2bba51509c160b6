"""The pipeline: read top to bottom."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import keras

from parallel_fuse.deciding.decide import decide
from parallel_fuse.describe import (
    counts,
    near_misses,
    opening_notes,
    padding_notes,
    region_reports,
    selection_notes,
)
from parallel_fuse.errors import UnsupportedModelError
from parallel_fuse.graph import Graph
from parallel_fuse.inlining.opening import Opener
from parallel_fuse.joins import JOINS, Join
from parallel_fuse.kinds import KINDS, Kind
from parallel_fuse.matching.search import match
from parallel_fuse.plan import Plan
from parallel_fuse.policy import Policy
from parallel_fuse.rebuilding.rebuild import rebuild
from parallel_fuse.rebuilding.shell import recompile
from parallel_fuse.report import Report
from parallel_fuse.splits import SPLITS, Split
from parallel_fuse.verification.verify import verify_equivalence

logger = logging.getLogger("parallel_fuse")
MORE_PASSES = 3


@overload
def fuse_parallel_branches(
    model: keras.Model, *, return_report: Literal[False] = False, **options: Any
) -> keras.Model: ...
@overload
def fuse_parallel_branches(
    model: keras.Model, *, return_report: Literal[True], **options: Any
) -> tuple[keras.Model, Report]: ...
def fuse_parallel_branches(
    model: keras.Model,
    *,
    return_report: bool = False,
    verify: bool = True,
    verify_inputs: Any = None,
    strict: bool = False,
    portable: bool = False,
    policy: Policy | None = None,
    kinds: Sequence[Kind] = KINDS,
    joins: Sequence[Join] = JOINS,
    splits: Sequence[Split] = SPLITS,
) -> keras.Model | tuple[keras.Model, Report]:
    """Rebuilds a trained functional model with its parallel branches fused into batched layers.

    Args:
        model: a functional or built Sequential Keras 3 model. It is not changed.
        return_report: also return the `Report`.
        verify: compare the new model with the old one before returning it.
        verify_inputs: inputs to compare on, in the model's structure; random valid ones if None.
        strict: raise if nothing fuses.
        portable: use stock Keras layers only, so that the result loads without this package.
        policy: what may fuse without measuring; the default is conservative, and follows the
            model's `jit_compile` where it is compiled.
        kinds, joins, splits: the rules; `(MINE, *KINDS)` adds one.

    Returns:
        A new model with the same inputs, outputs, output names, weights and compile configuration;
        with `return_report`, the pair (model, report). Where nothing fuses it is an equal copy.

    Raises:
        UnsupportedModelError: the model has no graph of layers; or, with `strict`, nothing fuses.
        NotEquivalentError: the new model does not compute the same. It is not returned.
        NotVerifiedError: the models could not be compared (the original does not run here, differs
            from call to call, or needs inputs that cannot be guessed: give `verify_inputs`).
    """
    policy = _policy(model, policy, portable)
    graph, plan = _plan(model, policy, kinds, joins, splits)
    if strict and not plan.bundles:
        raise UnsupportedModelError(f"Nothing fuses in '{model.name}'. {_why(plan)}")
    fused, notes = rebuild(graph, plan, policy.portable)
    fused, regions = _to_the_end(fused, region_reports(graph, plan), policy, (kinds, joins, splits))
    notes += opening_notes(graph) + selection_notes(graph, plan) + padding_notes(plan)
    notes += recompile(model, fused)
    checked = verify_equivalence(model, fused, verify_inputs) if verify else None
    report = replace(_report(graph, plan, fused, checked, notes), regions=regions)
    logger.info("%s", report)
    return (fused, report) if return_report else fused


def explain(
    model: keras.Model,
    *,
    portable: bool = False,
    policy: Policy | None = None,
    kinds: Sequence[Kind] = KINDS,
    joins: Sequence[Join] = JOINS,
    splits: Sequence[Split] = SPLITS,
) -> Report:
    """Says what would fuse, what not, and why. Builds nothing, changes nothing.

    Raises:
        UnsupportedModelError: the model has no graph of layers.
    """
    policy = _policy(model, policy, portable)
    graph, plan = _plan(model, policy, kinds, joins, splits)
    return _report(graph, plan, None, None, [])


def _policy(model: Any, policy: Policy | None, portable: bool) -> Policy:
    """The caller's, or the default for the way a compiled model says it will be run."""
    if policy is None:
        jit = bool(getattr(model, "compiled", False) and model.jit_compile)
        policy = Policy(mode="jit" if jit else "graph")
    return replace(policy, portable=portable or policy.portable)


def _plan(model, policy, kinds, joins, splits) -> tuple[Graph, Plan]:
    """Layers that hold branches are opened; those in which nothing fuses are closed again."""

    def planned(opener: Opener) -> tuple[Graph, Plan]:
        graph = Graph.of(model, opener)
        return graph, decide(graph, match(graph, kinds, joins, splits), policy)

    opener = Opener()
    graph, plan = planned(opener)
    useful = {name for b in plan.bundles for call in b.calls for name in call.scope}
    if set(graph.opened) <= useful:
        return graph, plan
    return planned(opener.keep(useful))


def _to_the_end(fused: keras.Model, regions: tuple, policy: Policy, rules: tuple) -> tuple:
    """What did not pay beside the branches may pay without them: until nothing more does.

    By the static rule, so that fusing the result once more changes nothing.
    """
    gain = max(policy.min_gain, Policy.min_gain)
    policy = replace(policy, min_gain=gain, profitable_only=True)
    for _ in range(MORE_PASSES if regions else 0):
        graph, plan = _plan(fused, policy, *rules)
        if not plan.bundles:
            break
        fused, _ = rebuild(graph, plan, policy.portable)
        regions = (*regions, *region_reports(graph, plan))
    return fused, regions


def _report(graph: Graph, plan: Plan, fused, verification, notes) -> Report:
    return Report(
        model=graph.model.name,
        regions=region_reports(graph, plan),
        rejections=near_misses(graph, plan),
        before=counts(graph.model),
        after=None if fused is None else counts(fused),
        verification=verification,
        notes=tuple(notes),
    )


def _why(plan: Plan) -> str:
    reasons = "; ".join(str(r) for r in plan.rejections[:3])
    return reasons or "No layers of one class stand side by side."
