"""Layers as users write them, for examples and random models."""

import keras
from keras import layers, ops


@keras.saving.register_keras_serializable(package="tests")
class Scaled(layers.Layer):
    """A contraction, an offset, a gate that is not trained."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")
        self.gate = self.add_weight(shape=(self.units,), name="gate", trainable=False)
        self.offset = self.add_weight(shape=(self.units,), name="offset")

    def call(self, inputs):
        return ops.tanh(ops.matmul(inputs, self.kernel) + self.offset) * self.gate

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="tests")
class PerEntry(layers.Layer):
    """A Dense for each entry of the last axis but one or, without it, of the last."""

    def __init__(self, count, units, **kwargs):
        super().__init__(**kwargs)
        self.count, self.units = count, units
        self.dense = [layers.Dense(units, "tanh") for _ in range(count)]

    def call(self, inputs):
        cut = (lambda i: inputs[..., i : i + 1]) if len(inputs.shape) < 3 else self._row(inputs)
        return ops.concatenate([d(cut(i)) for i, d in enumerate(self.dense)], axis=-1)

    def _row(self, inputs):
        return lambda i: inputs[..., i, :]

    def get_config(self):
        return {**super().get_config(), "count": self.count, "units": self.units}


@keras.saving.register_keras_serializable(package="tests")
def first_half(x):
    return x[..., : (x.shape[-1] + 1) // 2]
