"""One bundle → one layer, called on lanes, with the trained weights inside."""

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import Any

import keras
from keras import layers, tree

from parallel_fuse import _keras
from parallel_fuse.activations import LINEAR, Activation, activation_of
from parallel_fuse.graph import Call, Value
from parallel_fuse.kinds.base import Lowering
from parallel_fuse.lanes import IN_BATCH, LEADING, Lanes, Layout
from parallel_fuse.plan import Bundle

Tensor = Any


class Emitter:
    """Emits bundles; the layer made for one bundle of a family serves the others too."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, ...], tuple[Any, Layout]] = {}

    def emit(
        self,
        bundle: Bundle,
        lowering: Lowering,
        inputs: Sequence[Lanes],
        wanted: Layout | None,
        name: str,
    ) -> list[Lanes]:
        """The bundle's rows of results as lanes, in the bundle's order."""
        activations = _activations(bundle)
        key = tuple(id(layer) for layer in bundle.layers)
        layer, layout = self.made.get(key) or (None, None)
        if layer is None:
            layout = choose_layout(inputs[0], lowering.layouts(bundle), wanted)
        made = lowering.makes(bundle, layout)
        inline = _inline(activations, lowering, made)
        if layer is None:
            common = _common(bundle, name, activations[0] if inline else LINEAR)
            layer = lowering.build(bundle, layout, common)
        outputs = _call(layer, bundle.calls[0], [_input(x, lowering, layout) for x in inputs])
        if key not in self.made:
            assign(layer, lowering.stack(bundle.layers))
        if getattr(layer, "weights", ()):
            self.made[key] = layer, layout
        portable = inputs[0].portable
        lanes = [_as_lanes(bundle, lowering, made, output, portable) for output in outputs]
        return lanes if inline else [_activated(lanes[0], activations, bundle, name)]


def emit_one_layer(bundle: Bundle, inputs: Sequence[Lanes], run: Callable) -> list[Lanes]:
    """Lanes that are calls of one layer: one call on the samples of all.

    Args:
        run: (tensors, how many axes they have more than a lane) → the outputs of the layer's twin.
    """
    portable = inputs[0].portable
    if bundle.shared:
        outputs = run([_unmasked(x.same) for x in inputs], 0)
        return [Lanes(bundle.size, same=y, portable=portable) for y in outputs]
    layout = IN_BATCH
    if bundle.kind.any_rank:
        have, _ = inputs[0].apart()
        layout = have if have.axis < inputs[0].rank else LEADING
    outputs = run([_unmasked(x.to(layout)) for x in inputs], int(not layout.folded))
    return [Lanes(bundle.size, {layout: output}, portable=portable) for output in outputs]


def choose_layout(
    lanes: Lanes, accepted: tuple[Layout, ...] | None, wanted: Layout | None
) -> Layout:
    """The layout a layer eats: where the lanes are if it may, else where they are wanted next."""
    have = lanes.layouts
    if accepted is None:
        have = [layout for layout in have if layout != IN_BATCH]  # each sample must stay one
        # What is wanted next is said of the result, which may have more axes.
        fits = wanted is not None and wanted.axis + wanted.folded <= lanes.rank
        preferred = wanted if fits else LEADING
        return have[0] if have else preferred
    for layout in accepted:
        if layout in have:
            return layout
    for layout in accepted:
        if any(layout.axis == h.axis for h in have):
            return layout
    return wanted if wanted in accepted else accepted[0]


def _input(lanes: Lanes, lowering: Lowering, layout: Layout) -> Tensor:
    return _unmasked(lanes.same if lowering.shared else lanes.to(layout))


def _unmasked(tensor: Tensor) -> Tensor:
    """Keras hands a tensor's mask to the next layer by itself; the single lanes had none."""
    return tensor[..., :] if _keras.has_mask(tensor) else tensor


def _call(layer: Any, template: Call, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Calls the layer as lane 0 was called, with the lanes in the place of its tensors."""
    args, kwargs = arguments(template, tensors)
    return tree.flatten(layer(*args, **kwargs))


def arguments(template: Call, tensors: Sequence[Tensor]) -> tuple[tuple, dict]:
    """The arguments of a call, with other tensors in the place of its own."""
    new = iter(tensors)
    swap = lambda x: next(new) if isinstance(x, Value) else x  # noqa: E731
    return tree.map_structure(swap, (template.args, template.kwargs))


def _common(bundle: Bundle, name: str, activation: Activation) -> dict:
    first = bundle.layers[0]
    if not isinstance(first, layers.Layer):
        return {"name": name}
    common = {"name": name, "dtype": first.dtype_policy, "trainable": first.trainable}
    if bundle.kind.activation:
        common["activation"] = activation.function
    return common


def assign(layer: Any, arrays: Sequence[Any]) -> None:
    """Writes stacked weights; shapes may differ by axes of size 1 only."""
    weights = getattr(layer, "weights", [])
    if len(weights) != len(arrays):
        raise ValueError(f"{layer.name}: {len(weights)} weights, {len(arrays)} stacked arrays")
    for variable, array in zip(weights, arrays):
        if _squeezed(variable.shape) != _squeezed(array.shape):
            raise ValueError(
                f"{layer.name}: expected shape {variable.shape} for {variable.name}. "
                f"Received: {array.shape}"
            )
        variable.assign(keras.ops.reshape(array, variable.shape))


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _as_lanes(bundle: Bundle, lowering: Lowering, made: Layout, output: Tensor, portable) -> Lanes:
    if lowering.once:
        return Lanes(bundle.size, same=output, portable=portable)
    sizes = None if lowering.sizes is None else lowering.sizes(bundle)
    ragged = sizes if sizes is not None and len(set(sizes)) > 1 else None
    return Lanes(bundle.size, {made: output}, sizes=ragged, portable=portable)


def _activations(bundle: Bundle) -> list[Activation]:
    if not bundle.kind.activation:
        return [LINEAR]
    return [activation_of(layer.activation) for layer in bundle.layers]


def _inline(activations: list[Activation], lowering: Lowering, made: Layout) -> bool:
    """Whether the fused layer can apply the activation itself.

    A softmax works along the last axis; there, folded lanes would mix.
    """
    first = activations[0]
    return all(a == first for a in activations) and (first.elementwise or not made.folded)


def _activated(
    lanes: Lanes, activations: list[Activation], bundle: Bundle, name: str
) -> Lanes:
    """Applies the activations after the common layer, one operation per group of equal lanes."""
    groups: dict[Activation, list[int]] = {}
    for i, activation in enumerate(activations):
        groups.setdefault(activation, []).append(i)
    if lanes.same is not None:
        return _activated_once(lanes, groups, bundle, name)
    uneven = lanes.sizes is not None and not activations[0].elementwise
    if uneven or (len(groups) > 1 and _cut_costs_least(lanes, activations)):
        return _activated_in_runs(lanes, activations, bundle, name)
    if sum(a is not LINEAR for a in activations) + 1 < 2 * len(groups):
        return _activated_singly(lanes, activations, bundle, name)
    parts = [
        _apply(lanes.take(indices), activation, bundle, f"{name}_{number}")
        for number, (activation, indices) in enumerate(groups.items())
    ]
    return parts[0] if len(parts) == 1 else in_order(parts, list(groups.values()))


def _activated_once(lanes: Lanes, groups: dict, bundle: Bundle, name: str) -> Lanes:
    """Lanes that are one tensor: each function once."""
    outputs: list[Tensor] = [lanes.same] * lanes.count
    for number, (activation, indices) in enumerate(groups.items()):
        if activation is not LINEAR:
            layer = _activation_layer(activation, bundle, f"{name}_{number}")
            result = layer(lanes.same)
            outputs = [result if i in indices else one for i, one in enumerate(outputs)]
    if len(groups) == 1:
        return Lanes(lanes.count, same=outputs[0], portable=lanes.portable)
    return Lanes(lanes.count, parts=outputs, portable=lanes.portable)


def _activation_layer(activation: Activation, bundle: Bundle, name: str) -> layers.Layer:
    policy = bundle.layers[0].dtype_policy
    return layers.Activation(activation.function, name=name, dtype=policy)


def in_order(parts: Sequence[Lanes], indices: Sequence[Sequence[int]]) -> Lanes:
    """Lanes from parts whose lanes have these places in the whole."""
    flat = [i for part in indices for i in part]
    back = sorted(range(len(flat)), key=flat.__getitem__)
    return Lanes(len(flat), parts=parts, portable=parts[0].portable, order=back)


def _cut_costs_least(lanes: Lanes, activations: list[Activation]) -> bool:
    """Lanes of different widths cannot be picked; others need not be where one cut suffices."""
    layout = next(iter(lanes.views))
    if lanes.sizes is not None or not layout.folded:
        return lanes.sizes is not None
    runs = sum(1 for _ in groupby(activations))
    return runs == len(set(activations)) and None not in lanes.widths(layout.axis)


def _activated_in_runs(
    lanes: Lanes, activations: list[Activation], bundle: Bundle, name: str
) -> Lanes:
    """Neighbours that go through one function stay together, if it allows their widths."""
    widths = lanes.widths(next(iter(lanes.views)).axis)
    runs = [list(run) for _, run in groupby(range(lanes.count), key=activations.__getitem__)]
    runs = [part for run in runs for part in _whole(run, widths, activations[run[0]])]
    parts = [
        _apply(part, activations[run[0]], bundle, f"{name}_{number}")
        for number, (run, part) in enumerate(zip(runs, _cut(lanes, runs)))
    ]
    alone = (part.lane(0) if part.count == 1 else part for part in parts)
    return Lanes(lanes.count, parts=alone, portable=lanes.portable)


def _activated_singly(
    lanes: Lanes, activations: list[Activation], bundle: Bundle, name: str
) -> Lanes:
    """Few lanes go through the same function: apart by one operation, together by another."""
    outputs = [
        one if activation is LINEAR else _activation_layer(activation, bundle, f"{name}_{i}")(one)
        for i, (one, activation) in enumerate(zip(lanes.all(), activations))
    ]
    return Lanes(lanes.count, parts=outputs, portable=lanes.portable)


def _cut(lanes: Lanes, runs: Sequence[Sequence[int]]) -> list[Lanes]:
    """Runs of neighbours, each as lanes, from the one view at hand."""
    (layout, tensor), *_ = lanes.views.items()
    widths = lanes.widths(layout.axis)
    sizes = [tuple(widths[i] for i in run) for run in runs]
    ends = list(accumulate(map(sum, sizes)))
    pieces = keras.ops.split(tensor, ends[:-1], axis=layout.axis) if len(runs) > 1 else [tensor]
    return [_run(lanes, layout, piece, part) for piece, part in zip(pieces, sizes)]


def _run(lanes: Lanes, layout: Layout, tensor: Tensor, sizes: tuple[int, ...]) -> Lanes:
    if len(sizes) == 1:
        return Lanes(1, parts=[tensor], portable=lanes.portable)
    uneven = sizes if len(set(sizes)) > 1 else None
    return Lanes(len(sizes), {layout: tensor}, sizes=uneven, portable=lanes.portable)


def _whole(run: list[int], widths: Sequence[int], activation: Activation) -> list[list[int]]:
    """The run, cut where the widths change if the function looks along the last axis."""
    if activation.elementwise:
        return [run]
    return [list(part) for _, part in groupby(run, key=widths.__getitem__)]


def _apply(lanes: Lanes, activation: Activation, bundle: Bundle, name: str) -> Lanes:
    if activation is LINEAR:
        return lanes
    layer = _activation_layer(activation, bundle, name)
    if lanes.count == 1 and not lanes.views:
        return Lanes(1, parts=[layer(lanes.lane(0))], portable=lanes.portable)
    layout, tensor = _where(lanes, activation)
    return Lanes(lanes.count, {layout: layer(tensor)}, sizes=lanes.sizes, portable=lanes.portable)


def _where(lanes: Lanes, activation: Activation) -> tuple[Layout, Tensor]:
    """Anywhere for an elementwise function; else the last axis must be the lane's own."""
    if activation.elementwise and lanes.layouts:
        return lanes.layouts[0], lanes.to(lanes.layouts[0])
    layout, tensor = lanes.apart()
    if layout.axis == lanes.rank:
        return LEADING, lanes.to(LEADING)
    return layout, tensor
