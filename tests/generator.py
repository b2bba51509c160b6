"""Random models with branches, drawn by Hypothesis: small, odd, and all of them legal."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import keras
from hypothesis import strategies as st
from keras import layers, ops

from tests.builders import randomise
from tests.examples import SPLITS
from tests.own_layers import PerEntry, Scaled, first_half

ACTIVATIONS = ("relu", "tanh", "softmax", None)
JOINS = ("Concatenate", "stack", "Add", "Average", "Multiply", "sum", "max")
SHAPES = ((5,), (4, 5), (3, 4, 5), (None, 5))  # of a branch, without the batch
ODD = ("none", "none", "number", "step", "left out", "shared", "nested", "one")
# What an axis of unknown length allows.
OPEN_SPLITS = (
    "x[:, i]", "x[..., i]", "x[..., a:b]", "unstack", "take", "the same tensor", "inputs"
)  # fmt: skip
CLOSED_STEPS = ("PReLU", "Flatten", "Permute", "loop")

# name → (ranks with the batch it takes, (tensor, a small number) → tensor)
STEPS: dict[str, tuple[range, Callable[[Any, int], Any]]] = {
    "Dense": (range(2, 6), lambda x, n: layers.Dense(2 + n, ACTIVATIONS[n % 4])(x)),
    "Dense, no bias": (range(2, 6), lambda x, n: layers.Dense(4, "tanh", use_bias=n > 1)(x)),
    "frozen Dense": (range(2, 4), lambda x, n: layers.Dense(3, trainable=n > 1)(x)),
    "Conv1D": (range(3, 4), lambda x, n: layers.Conv1D(2 + n, 2, padding="same")(x)),
    "Conv1D, strides": (range(3, 4), lambda x, n: layers.Conv1D(3, 1 + n % 2, 2, "same")(x)),
    "Conv2D": (range(4, 5), lambda x, n: layers.Conv2D(3, (2, 1 + n % 2), padding="same")(x)),
    "BatchNormalization": (range(2, 5), lambda x, n: layers.BatchNormalization(scale=n > 0)(x)),
    "LayerNormalization": (range(2, 5), lambda x, n: layers.LayerNormalization()(x)),
    "Activation": (range(2, 6), lambda x, n: layers.Activation(ACTIVATIONS[n % 3])(x)),
    "PReLU": (range(2, 5), lambda x, n: layers.PReLU()(x)),
    "sin": (range(2, 6), lambda x, n: ops.sin(x)),
    "a number": (range(2, 6), lambda x, n: x * (0.5 + n // 2)),
    "Dropout": (range(2, 5), lambda x, n: layers.Dropout(0.25)(x)),
    "MaxPooling1D": (range(3, 4), lambda x, n: layers.MaxPooling1D(2, padding="same")(x)),
    "AveragePooling2D": (range(4, 5), lambda x, n: layers.AveragePooling2D((1, 2), 1, "same")(x)),
    "GlobalMaxPooling1D": (range(3, 4), lambda x, n: layers.GlobalMaxPooling1D()(x)),
    "ZeroPadding1D": (range(3, 4), lambda x, n: layers.ZeroPadding1D((n % 2, 1))(x)),
    "Flatten": (range(3, 5), lambda x, n: layers.Flatten()(x)),
    "Permute": (range(3, 4), lambda x, n: layers.Permute((2, 1))(x)),
    "residual": (range(2, 5), lambda x, n: x + layers.Dense(x.shape[-1], "tanh")(x)),
    "gate": (range(2, 4), lambda x, n: layers.Multiply()([x, layers.Dense(x.shape[-1])(x)])),
    "joined within": (range(2, 4), lambda x, n: layers.Concatenate()([layers.Dense(2 + n)(x), x])),
    "a new axis": (range(2, 4), lambda x, n: ops.expand_dims(x, axis=1 + n % 2)),
    "the last step": (range(3, 5), lambda x, n: x[:, -1 if n else 0]),
    "a part": (range(3, 4), lambda x, n: x[:, -2:] if n else x[:, :1]),
    "EinsumDense": (range(3, 4), lambda x, n: layers.EinsumDense("abc,cd->abd", (None, 2 + n))(x)),
    "GroupNormalization": (range(3, 4), lambda x, n: layers.GroupNormalization(1)(x)),
    "DepthwiseConv1D": (range(3, 4), lambda x, n: layers.DepthwiseConv1D(2, padding="same")(x)),
    "SeparableConv1D": (range(3, 4), lambda x, n: layers.SeparableConv1D(3, 2, padding="same")(x)),
    "Conv1DTranspose": (range(3, 4), lambda x, n: layers.Conv1DTranspose(3, 2, 1 + n % 2)(x)),
    "recurrent": (range(3, 4), lambda x, n: _recurrent(n)(x)),
    "states": (range(3, 4), lambda x, n: layers.LSTM(2, return_state=True)(x)[n % 3]),
    "Bidirectional": (range(3, 4), lambda x, n: layers.Bidirectional(layers.GRU(2))(x)),
    "TimeDistributed": (
        range(3, 4), lambda x, n: layers.TimeDistributed(layers.Dense(2 + n))(x)),
    "attention": (range(3, 4), lambda x, n: layers.MultiHeadAttention(2, 3)(x, x)),
    "own": (range(2, 5), lambda x, n: Scaled(2 + n)(x)),
    "loop": (range(2, 4), lambda x, n: PerEntry(min(n + 2, x.shape[1]), 2)(x)),
    "Lambda": (range(2, 5), lambda x, n: layers.Lambda(first_half)(x)),
}  # fmt: skip


def _recurrent(number: int):
    make = (layers.LSTM, layers.GRU, layers.SimpleRNN)[number % 3]
    return make(3, return_sequences=number > 1, go_backwards=number == 3)


def random_model(draw: Callable) -> keras.Model:
    """Inputs → lanes → towers → joins, once or twice, with taps and heads; weights random."""
    shape = draw(st.sampled_from(SHAPES))
    count = draw(st.integers(2, 6))
    splits = OPEN_SPLITS if None in shape else sorted(SPLITS)
    shapes, cut = SPLITS[draw(st.sampled_from(splits))](shape, count)
    inputs = [keras.Input(s, name=f"x{i}") for i, s in enumerate(shapes)]
    taps: list = []
    lanes = _tower(draw, list(cut(inputs)), taps)
    outputs = _joined(draw, lanes)
    if draw(st.booleans()):
        outputs = [*outputs[1:], *_second_stage(draw, outputs[0], taps)]
    outputs += draw(st.permutations(taps))[: draw(st.integers(0, 2))]
    model = keras.Model(inputs, _structured(draw, outputs))
    if draw(st.integers(0, 5)) == 0:
        model = _twice(model)
    return randomise(model, seed=draw(st.integers(0, 9)))


def _twice(model: keras.Model) -> keras.Model:
    """The whole model on two sets of inputs: every layer is called twice as often."""
    sets = [[keras.Input(t.shape[1:], name=f"{t.name}_{i}") for t in model.inputs] for i in "ab"]
    return keras.Model([x for one in sets for x in one], [model(one) for one in sets])


def _tower(draw, lanes: list, taps: list) -> list:
    """One to four levels on all lanes; a lane may differ, stay behind or be left out."""
    for _ in range(draw(st.integers(1, 4))):
        lanes = _level(draw, lanes)
        if draw(st.integers(0, 3)) == 0:
            taps.append(draw(st.sampled_from(lanes)))
    return lanes


def _level(draw, lanes: list) -> list:
    names = [n for n in STEPS if all(n in _fitting(x) for x in lanes)]
    name, number = draw(st.sampled_from(names)), draw(st.integers(0, 3))
    odd = draw(st.sampled_from(ODD))
    which = draw(st.integers(0, len(lanes) - 1))
    shared, one, results = layers.Dense(3, "tanh"), None, []
    for i, lane in enumerate(lanes):
        step, option = STEPS[name][1], number
        if odd == "number" and i == which:
            option = (number + 1) % 4
        if odd == "step" and i == which:
            step = STEPS[draw(st.sampled_from(_fitting(lane)))][1]
        if odd == "left out" and i == which:
            step = _unchanged
        if odd == "shared" and len({x.shape for x in lanes}) == 1:
            step = _call(shared)
        if odd == "one" and len({x.shape for x in lanes}) == 1:
            step = one = one or _model(step, lane, option)
        results.append(_nested(step, lane, option) if odd == "nested" else step(lane, option))
    return results


def _fitting(lane) -> list[str]:
    closed = CLOSED_STEPS if None in lane.shape[1:] else ()
    fitting = (name for name, (ranks, _) in STEPS.items() if len(lane.shape) in ranks)
    return [name for name in fitting if name not in closed]


def _unchanged(lane, option):
    return lane


def _call(layer):
    return lambda lane, option: layer(lane)


def _nested(step, lane, option):
    """The step inside a model of its own."""
    return _model(step, lane, option)(lane, option)


def _model(step, lane, option):
    """The step as a model, to be called on one lane or on all."""
    x = keras.Input(lane.shape[1:])
    y = step(x, option)
    return _unchanged if y is x else _call(keras.Model(x, y))


def _joined(draw, lanes: list) -> list:
    """One or two joins over lanes of equal rank and shape, in any order; the rest as outputs."""
    lanes = draw(st.permutations(lanes))
    if draw(st.booleans()):
        lanes = [*lanes, ops.cos(draw(st.sampled_from(lanes)))]
    same = [lane for lane in lanes if lane.shape == lanes[0].shape]
    rest = [lane for lane in lanes if lane.shape != lanes[0].shape]
    found = [_join(draw, same) for _ in range(draw(st.integers(1, 2)))]
    if rest and draw(st.booleans()) and not any(None in lane.shape[1:] for lane in lanes):
        flat = [layers.Flatten()(lane) if len(lane.shape) > 2 else lane for lane in lanes]
        return [layers.Concatenate()(flat), *found]
    return [*found, *rest]


def _join(draw, lanes: list):
    rank = len(lanes[0].shape)
    lanes = lanes[: draw(st.integers(1, len(lanes)))]
    if len(lanes) == 1:
        return ops.square(lanes[0])
    name = draw(st.sampled_from(JOINS))
    if name == "Concatenate":
        return layers.Concatenate(axis=draw(st.integers(1, rank - 1)))(lanes)
    if name == "stack":
        return ops.stack(lanes, axis=draw(st.integers(1, rank)))
    if name == "sum":
        return reduce(lambda a, b: a + b, lanes)
    if name == "max":
        return reduce(ops.maximum, lanes)
    return getattr(layers, name)()(lanes)


def _second_stage(draw, joined, taps: list) -> list:
    """Heads on one tensor, or slices of it with towers of their own."""
    if None in joined.shape[1:]:
        joined = ops.max(joined, axis=1)
    if None in joined.shape[1:]:
        return [joined]
    if draw(st.booleans()) and joined.shape[1] > 1:
        lanes = [joined[:, i : i + 1] for i in range(min(joined.shape[1], 4))]
        return _joined(draw, _tower(draw, lanes, taps))
    trunk = layers.Flatten()(joined) if len(joined.shape) > 2 else joined
    units = draw(st.lists(st.integers(2, 4), min_size=2, max_size=4))
    return [layers.Dense(n, ACTIVATIONS[draw(st.integers(0, 3))])(trunk) for n in units]


def _structured(draw, outputs: list):
    if len(outputs) == 1 and draw(st.booleans()):
        return outputs[0]
    if draw(st.booleans()):
        return {f"y{i}": y for i, y in enumerate(outputs)}
    return outputs
