"""A model with two inputs and two outputs whose branches fuse, and its inputs."""

import keras
from keras import layers

from tests.builders import randomise


def branchy() -> keras.Model:
    """Five Dense towers on slices and three Conv1D branches on channel slices."""
    sensors = keras.Input((5, 7), name="sensors")
    waves = keras.Input((11, 6), name="waves")
    dense = [layers.Dense(4, "relu")(sensors[:, i]) for i in range(5)]
    dense = [layers.Dense(2)(x) for x in dense]
    conv = [layers.Conv1D(3, 4, activation="tanh")(waves[..., 2 * i : 2 * i + 2]) for i in range(3)]
    conv = [layers.Flatten()(x) for x in conv]
    joined = layers.Concatenate()(dense + conv)
    heads = [layers.Dense(2, name="price")(joined), layers.Dense(1, name="risk")(joined)]
    return randomise(keras.Model([sensors, waves], heads, name="branchy"))
