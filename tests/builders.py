"""Small branchy models for tests, and what they need: random weights and inputs.

Every size differs from every other, so that a mixed-up axis cannot pass unseen.
"""

from collections.abc import Callable, Sequence

import keras
import numpy as np
from keras import layers


def randomise(model: keras.Model, seed: int = 0) -> keras.Model:
    """Every weight random, biases and statistics too; variances positive."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        if not weight.dtype.startswith(("float", "bfloat")):
            continue
        values = random.normal(scale=0.6, size=weight.shape)
        positive = "variance" in weight.name
        weight.assign(np.abs(values) + 0.5 if positive else values)
    return model


def inputs_for(model: keras.Model, batch: int, seed: int):
    """Random inputs in the model's structure; unknown sizes become 6, ids stay below 3."""
    random = np.random.default_rng(seed)

    def one(tensor):
        shape = (batch, *(6 if size is None else size for size in tensor.shape[1:]))
        if "int" in tensor.dtype:
            return random.integers(0, 3, shape).astype(tensor.dtype)
        return random.normal(size=shape).astype(tensor.dtype)

    return keras.tree.map_structure(one, model.input)


def slices(x, count: int, axis: int = 1) -> list:
    """`x[:, 0]`, `x[:, 1]`, … along an axis."""
    before = (slice(None),) * axis
    return [x[(*before, i)] for i in range(count)]


def towers(
    branch: Callable, shape: Sequence[int | None] = (5, 7), axis: int = 1, join=None
) -> keras.Model:
    """`branch(i, slice)` on every slice of one input, joined (by Concatenate if not said)."""
    x = keras.Input(tuple(shape), name="x")
    outputs = [branch(i, piece) for i, piece in enumerate(slices(x, shape[axis - 1], axis))]
    return keras.Model(x, (join or layers.Concatenate(name="joined"))(outputs))


def channel_towers(
    branch: Callable, shape: Sequence[int | None] = (9, 8, 6), width: int = 2, join=None
) -> keras.Model:
    """`branch(i, slice)` on channel slices `x[..., i·width:(i+1)·width]` of one input."""
    x = keras.Input(tuple(shape), name="x")
    starts = range(0, shape[-1], width)
    outputs = [branch(i, x[..., s : s + width]) for i, s in enumerate(starts)]
    return keras.Model(x, (join or layers.Concatenate(name="joined"))(outputs))
