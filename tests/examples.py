"""One small branch for each kind, and ways to cut an input into branches and to join them again.

Used by the grid and by the generator of random models; a new kind belongs into `EXAMPLES`.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import keras
from keras import layers, ops

from tests.own_layers import PerEntry, Scaled, first_half

Shape = tuple[int, ...]
Branch = Callable[[Any], Any]

# name → (shape of a branch without the batch, what a branch does)
EXAMPLES: dict[str, tuple[Shape, Branch]] = {
    "Dense": ((5,), lambda x: layers.Dense(4, "tanh")(x)),
    "Dense on a sequence": ((4, 5), lambda x: layers.Dense(3, "relu")(x)),
    "Conv1D": ((7, 3), lambda x: layers.Conv1D(4, 3, strides=2, activation="relu")(x)),
    "Conv1D causal": ((7, 3), lambda x: layers.Conv1D(4, 2, padding="causal", dilation_rate=2)(x)),
    "Conv2D": ((5, 6, 3), lambda x: layers.Conv2D(2, (2, 3), padding="same")(x)),
    "Conv3D": ((3, 4, 5, 2), lambda x: layers.Conv3D(3, 2)(x)),
    "BatchNormalization": ((4, 3), lambda x: layers.BatchNormalization()(x)),
    "MaxPooling1D": ((7, 3), lambda x: layers.MaxPooling1D(2)(x)),
    "AveragePooling2D": ((5, 6, 3), lambda x: layers.AveragePooling2D((2, 3), padding="same")(x)),
    "GlobalMaxPooling1D": ((7, 3), lambda x: layers.GlobalMaxPooling1D()(x)),
    "GlobalAveragePooling2D": ((5, 6, 3), lambda x: layers.GlobalAveragePooling2D()(x)),
    "ZeroPadding1D": ((4, 3), lambda x: layers.ZeroPadding1D((2, 1))(x)),
    "UpSampling2D": ((3, 4, 2), lambda x: layers.UpSampling2D((2, 3))(x)),
    "Activation": ((4, 3), lambda x: layers.Activation("gelu")(x)),
    "LeakyReLU": ((5,), lambda x: layers.LeakyReLU(0.2)(x)),
    "Softmax": ((4, 3), lambda x: layers.Softmax()(x)),
    "PReLU": ((4, 3), lambda x: layers.PReLU()(x)),
    "an operation": ((5,), lambda x: ops.sin(x)),
    "a number beside": ((4, 3), lambda x: x * 2.0 + 0.5),
    "residual": ((5,), lambda x: layers.Add()([x, layers.Dense(5)(x)])),
    "gate": ((4, 5), lambda x: layers.Dense(5)(x) * layers.Dense(5, "sigmoid")(x)),
    "joined within": ((4, 5), lambda x: layers.Concatenate()([layers.Dense(3)(x), x])),
    "Dropout": ((5,), lambda x: layers.Dropout(0.3)(x)),
    "GaussianNoise": ((4, 3), lambda x: layers.GaussianNoise(0.3)(x)),
    "SpatialDropout1D": ((7, 3), lambda x: layers.SpatialDropout1D(0.3)(x)),
    "Flatten": ((4, 3), lambda x: layers.Flatten()(x)),
    "Reshape": ((4, 6), lambda x: layers.Reshape((8, 3))(x)),
    "Permute": ((4, 3), lambda x: layers.Permute((2, 1))(x)),
    "RepeatVector": ((5,), lambda x: layers.RepeatVector(3)(x)),
    "Rescaling": ((4, 3), lambda x: layers.Rescaling(0.5, 1.5)(x)),
    "Identity": ((5,), lambda x: layers.Identity()(x)),
    "a new axis": ((5,), lambda x: ops.expand_dims(x, axis=1)),
    "an axis less": ((1, 5), lambda x: ops.squeeze(x, axis=1)),
    "the last step": ((4, 5), lambda x: layers.Dense(3)(x)[:, -1]),
    "EinsumDense": ((4, 5), lambda x: layers.EinsumDense("abc,cd->adb", (3, 4), bias_axes="d")(x)),
    "LayerNormalization": ((4, 3), lambda x: layers.LayerNormalization()(x)),
    "GroupNormalization": ((4, 6), lambda x: layers.GroupNormalization(3)(x)),
    "RMSNormalization": ((4, 3), lambda x: _rms()(x)),
    "LSTM": ((4, 3), lambda x: layers.LSTM(5)(x)),
    "Bidirectional": ((4, 3), lambda x: layers.Bidirectional(layers.SimpleRNN(2))(x)),
    "Embedding": ((4,), lambda x: layers.Embedding(9, 3)(ops.cast(ops.mod(x, 9.0), "int32"))),
    "UnitNormalization": ((4, 3), lambda x: layers.UnitNormalization()(x)),
    "DepthwiseConv1D": ((7, 3), lambda x: layers.DepthwiseConv1D(2, depth_multiplier=2)(x)),
    "SeparableConv2D": ((5, 6, 3), lambda x: layers.SeparableConv2D(4, (3, 2))(x)),
    "Conv1DTranspose": ((4, 3), lambda x: layers.Conv1DTranspose(5, 3, strides=2)(x)),
    "TimeDistributed": ((4, 3), lambda x: layers.TimeDistributed(layers.Dense(5))(x)),
    "MultiHeadAttention": ((4, 3), lambda x: layers.MultiHeadAttention(2, 5)(x, x)),
    "Attention": ((4, 3), lambda x: layers.Attention(use_scale=True)([x, x])),
    "a layer of one's own": ((4, 3), lambda x: Scaled(5)(x)),
    "a layer that loops": ((4, 3), lambda x: PerEntry(4, 2)(x)),
    "Lambda": ((4, 3), lambda x: layers.Dense(5)(layers.Lambda(first_half)(x))),
}


def _rms():
    """Keras has it from 3.9 on."""
    return getattr(layers, "RMSNormalization", layers.UnitNormalization)()


def _offset(shape: Shape, count: int) -> Shape:
    return (shape[0] * count, *shape[1:])


def _parts(x, count: int, axis: int) -> list:
    width = x.shape[axis] // count
    key = (slice(None),) * axis
    return [x[(*key, slice(i * width, (i + 1) * width))] for i in range(count)]


def _cropped(x, count: int) -> list:
    width, total = x.shape[1] // count, x.shape[1]
    cropping = {3: layers.Cropping1D, 4: layers.Cropping2D, 5: layers.Cropping3D}.get(len(x.shape))
    if cropping is None:
        return _parts(x, count, 1)
    ends = [(i * width, total - (i + 1) * width) for i in range(count)]
    rest = [(0, 0)] * (len(x.shape) - 3)
    return [cropping([e, *rest] if rest else e)(x) for e in ends]


def _gathered(x, count: int) -> list:
    """Every lane its own columns, in an order of its own, some of them in several lanes."""
    width = x.shape[-1] - 2
    columns = [[(2 * i + 3 * j) % x.shape[-1] for j in range(width)] for i in range(count)]
    return [ops.take(x, indices, axis=-1) for indices in columns]


# name → (shapes of the inputs, inputs → lanes), for M branches of a shape
SPLITS: dict[str, Callable[[Shape, int], tuple[list[Shape], Callable[[list], list]]]] = {
    "x[:, i]": lambda s, m: ([(m, *s)], lambda t: [t[0][:, i] for i in range(m)]),
    "x[..., i]": lambda s, m: ([(*s, m)], lambda t: [t[0][..., i] for i in range(m)]),
    "x[:, -i]": lambda s, m: ([(m + 1, *s)], lambda t: [t[0][:, -i - 1] for i in range(m)]),
    "x[..., a:b]": lambda s, m: (
        [(*s[:-1], s[-1] * m)], lambda t: _parts(t[0], m, len(s))),
    "split": lambda s, m: ([_offset(s, m)], lambda t: ops.split(t[0], m, axis=1)),
    "unstack": lambda s, m: ([(*s, m)], lambda t: ops.unstack(t[0], axis=-1)),
    "take": lambda s, m: ([(*s[:-1], s[-1] + 2)], lambda t: _gathered(t[0], m)),
    "Cropping": lambda s, m: ([_offset(s, m)], lambda t: _cropped(t[0], m)),
    "Lambda": lambda s, m: (
        [(m, *s)], lambda t: [layers.Lambda(lambda x, k=i: x[:, k])(t[0]) for i in range(m)]),
    "the same tensor": lambda s, m: ([s], lambda t: [t[0]] * m),
    "inputs": lambda s, m: ([s] * m, list),
    "a slice and inputs": lambda s, m: (
        [(3, *s), *[s] * (m - 2)], lambda t: [t[0][:, 2], *t[1:], t[0][:, 0]]),
    "operations": lambda s, m: ([s], lambda t: [ops.power(t[0], i + 1) for i in range(m)]),
}  # fmt: skip

# name → lanes → outputs
JOINS: dict[str, Callable[[list], Any]] = {
    "Concatenate": lambda b: layers.Concatenate()(b),
    "Concatenate, axis 1": lambda b: layers.Concatenate(axis=1)(b[::-1]),
    "concatenate, repeated": lambda b: ops.concatenate([b[1], *b, b[0]], axis=-1),
    "nested Concatenate": lambda b: layers.Concatenate()([layers.Concatenate()(b[:2]), *b[2:]]),
    "foreign Concatenate": lambda b: layers.Concatenate()([b[-1], ops.cos(b[0]), *b[:-1]]),
    "stack, axis 1": lambda b: ops.stack(b, axis=1),
    "stack, last": lambda b: ops.stack(b, axis=-1),
    "Add": lambda b: layers.Add()(b),
    "Average": lambda b: layers.Average()(b),
    "Maximum": lambda b: layers.Maximum()(b),
    "Multiply": lambda b: layers.Multiply()(b),
    "sum": lambda b: sum(b),
    "minimum": lambda b: reduce(ops.minimum, b),
    "outputs": lambda b: list(b),
    "a dict of outputs": lambda b: {f"y{i}": v for i, v in enumerate(b)},
    "no join": lambda b: [ops.cos(b[0]), *(ops.sum(v, axis=-1) for v in b[1:])],
}


def branched(example: str, split: str, join: str, lanes: int = 3) -> keras.Model:
    """The model of one cell of the grid."""
    shape, branch = EXAMPLES[example]
    shapes, cut = SPLITS[split](shape, lanes)
    inputs = [keras.Input(s, name=f"x{i}") for i, s in enumerate(shapes)]
    outputs = [branch(lane) for lane in cut(inputs)]
    return keras.Model(inputs, JOINS[join](outputs))


