"""Words for a plan: which region became what, in the terms of the user's own layers."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import keras
from keras import layers

from parallel_fuse import _keras
from parallel_fuse.deciding.regions import regions_of
from parallel_fuse.graph import Graph
from parallel_fuse.plan import Bundle, Plan
from parallel_fuse.report import Counts, NearMiss, RegionReport

STOCK_SELECTIONS = (layers.Cropping1D, layers.Cropping2D, layers.Cropping3D)
SIZES = ("units", "filters", "kernel_size", "pool_size", "rate", "target_shape")


def region_reports(graph: Graph, plan: Plan) -> tuple[RegionReport, ...]:
    regions = regions_of(graph, list(plan.bundles))
    return tuple(_region(graph, plan, members) for members in regions)


def near_misses(graph: Graph, plan: Plan) -> tuple[NearMiss, ...]:
    closed = (NearMiss((name,), reason) for name, reason in graph.opaque)
    named = (NearMiss(tuple(dict.fromkeys(r.layers)), r.reason) for r in plan.rejections)
    return (*closed, *named)


def counts(model: keras.Model) -> Counts:
    """Sizes of a model, with the layers inside nested models counted, not the nested models."""
    operations = list(_operations(model))
    found = [op for op in operations if isinstance(op, layers.Layer)]
    real = [layer for layer in found if not isinstance(layer, layers.InputLayer)]
    return Counts(len(operations), len(real), model.count_params())


def _operations(model: keras.Model) -> list[Any]:
    found, waiting, seen = [], [model], set()
    while waiting:
        inner = _keras.functional_inside(waiting.pop())
        for operation in inner.operations:
            if id(operation) in seen:
                continue
            seen.add(id(operation))
            nested = _keras.functional_inside(operation) is not None
            (waiting if nested else found).append(operation)
    return found


def _region(graph: Graph, plan: Plan, members: Sequence[Bundle]) -> RegionReport:
    lanes = max(b.size for b in members)
    before = sum(b.size for b in members)
    chain = " → ".join(_levels(_layer(b, lanes) for b in members))
    text = f"{lanes} × ({chain}){_source(graph, plan, members)}{_join(graph, plan, members)}"
    return RegionReport(
        text=f"{text}: {before} {_things(members)} → {len(members)}",
        lowerings=tuple(plan.lowerings[b.index].name for b in members),
        layers=tuple(c.name for b in members for c in b.calls),
        lanes=lanes,
        layers_before=before,
        layers_after=len(members),
        padded_parameters=sum(_padding(b) for b in members),
    )


def _things(members: Sequence[Bundle]) -> str:
    """What the lanes of a region are: layers, unless some is called several times."""
    all_lanes = [one for b in members for one in b.layers]
    if not all(isinstance(one, layers.Layer) for one in all_lanes):
        return "operations"
    return "layers" if len({id(one) for one in all_lanes}) == len(all_lanes) else "calls"


def _levels(layers: Iterable[str]) -> Iterator[str]:
    """One entry for several equal levels in a row."""
    for layer, run in groupby(layers):
        levels = len(list(run))
        yield from [layer] * levels if levels < 4 else [f"{layer}, {levels} levels"]


def _layer(bundle: Bundle, lanes: int) -> str:
    operation = bundle.layers[0]
    words = [_size(bundle, name) for name in SIZES if getattr(operation, name, None) is not None]
    words += _activation_words(bundle)
    name = type(operation).__name__ + (f"({', '.join(words)})" if words else "")
    return name if bundle.size == lanes else f"{bundle.size} × {name}"


def _activation_words(bundle: Bundle) -> list[str]:
    functions = [getattr(layer, "activation", None) for layer in bundle.layers]
    names = [getattr(f, "__name__", type(f).__name__) for f in functions if f is not None]
    names = list(dict.fromkeys(names))
    return [] if names in ([], ["linear"]) else ["/".join(names)]


def _size(bundle: Bundle, name: str) -> str:
    values = list(dict.fromkeys(str(getattr(layer, name)) for layer in bundle.layers))
    if len(values) == 1:
        return values[0]
    return f"{name} {'/'.join(values[:4])}" + ("/…" if len(values) > 4 else "")


def _source(graph: Graph, plan: Plan, members: Sequence[Bundle]) -> str:
    own = {v.index for b in members for v in b.outputs}
    outside = [b for b in members if not any(v.index in own for row in b.inputs for v in row)]
    if not outside:
        return ""
    row = outside[0].inputs[0]
    sources = {plan.pieces[v.index].source.index for v in row if v.index in plan.pieces}
    if len(sources) == 1 and all(v.index in plan.pieces for v in row):
        return f" on slices of '{_name(graph, plan.pieces[row[0].index].source)}'"
    if outside[0].shared:
        return f" on '{_name(graph, row[0])}'"
    return f" on {len({v.index for v in row})} tensors"


def _name(graph: Graph, value: Any) -> str:
    maker = graph.producer(value)
    if maker is not None:
        return maker.name
    tensor = _keras.functional_inside(graph.model).inputs[value.position]
    return _keras.maker_of(tensor).name


def _join(graph: Graph, plan: Plan, members: Sequence[Bundle]) -> str:
    own = {v.index for b in members for v in b.outputs}
    joined = [
        graph.calls[index]
        for index, (_, operands) in plan.joins.items()
        if sum(v.index in own for v in operands) > 1
    ]
    if joined:
        return f" → {type(joined[0].operation).__name__}"
    outputs = sum(v.index in own for v in graph.outputs)
    return f" → {outputs} outputs" if outputs > 1 else ""


def selection_notes(graph: Graph, plan: Plan) -> list[str]:
    """Which layers were taken for selections by what they do: nothing else says what they are."""
    rows = (row for bundle in plan.bundles for row in bundle.inputs)
    waiting = [v for row in rows for v in row if v.index in plan.pieces]
    made = {}
    while waiting:
        call = graph.producer(waiting.pop())
        if call is not None and call.index not in made:
            made[call.index] = call
            waiting += [v for v in call.inputs if v.index in plan.pieces]
    kept = (made[index].operation for index in sorted(made))
    kept = (o for o in kept if isinstance(o, layers.Layer) and not isinstance(o, STOCK_SELECTIONS))
    names = list(dict.fromkeys(o.name for o in kept))
    return _note("recognised by what they do as selections of a tensor", names)


def opening_notes(graph: Graph) -> list[str]:
    """Which custom layers vanished, because their branches fused."""
    return _note("opened, the layers inside are the model's own now", graph.opened)


def _note(what: str, names: Sequence[str]) -> list[str]:
    """One note on the layers of these names; none where there are none."""
    if not names:
        return []
    more = f", … ({len(names)} in all)" if len(names) > 3 else ""
    return [f"{what}: {', '.join(names[:3])}{more}"]


def padding_notes(plan: Plan) -> list[str]:
    """What the zeros and ones that a lowering adds mean for further training."""
    missing = sum(len(_without(b, "use_bias")) for b in plan.bundles)
    scaled = sum(len(_without(b, option)) for b in plan.bundles for option in ("scale", "center"))
    notes = []
    if missing:
        notes.append(_filled(missing, ("bias", "biases"), ("zero", "zeros")))
    if scaled:
        notes.append(_filled(scaled, ("gamma or beta", "gammas and betas"), ("neutral", "neutral")))
    return notes


def _filled(count: int, what: tuple[str, str], value: tuple[str, str]) -> str:
    if count == 1:
        return f"1 {what[0]} that was missing is {value[0]} now; further training would move it"
    return (
        f"{count} {what[1]} that were missing are {value[1]} now; further training would move them"
    )


def _without(bundle: Bundle, option: str) -> list[Any]:
    """The layers that lack what their siblings have."""
    values = [getattr(layer, option, None) for layer in bundle.layers]
    found = any(value is True for value in values)
    return [one for one, value in zip(bundle.layers, values) if found and value is False]


def _padding(bundle: Bundle) -> int:
    """How many parameters stand for a missing bias, gamma or beta."""
    biases = map(_outputs, _without(bundle, "use_bias"))
    lacking = (*_without(bundle, "scale"), *_without(bundle, "center"))
    return sum(biases) + sum(one.get_weights()[0].size for one in lacking)


def _outputs(layer: Any) -> int:
    """How long a layer's bias is. A depthwise convolution has so many filters for each channel."""
    said = getattr(layer, "units", None) or getattr(layer, "filters", None)
    return said or math.prod(layer.get_weights()[0].shape[-2:])
