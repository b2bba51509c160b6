"""Layer and RMS normalization of M lanes that each have a scale of their own.

The stock layers hold one scale for all entries of the axes they do not normalize over, the lane
axis among them; `GroupNormalization`, which holds one for each group, needs the lanes side by side
along its last axis.
"""

from math import prod
from typing import Any

import keras
from keras import ops

_PACKAGE = "parallel_fuse"


@keras.saving.register_keras_serializable(package=_PACKAGE)
class StackedLayerNormalization(keras.layers.Layer):
    """`keras.layers.LayerNormalization` of M lanes, each with its own gamma and beta.

    Input shape: any, M entries along `lane_axis`. Output shape: the same.
    Weights: gamma (M·n,) and beta (M·n,), lane after lane, for n entries to normalize over.
    Computes in float32 at least, as the stock layer does.

    Args:
        axis: the axes to normalize over, counted from the front, all behind `lane_axis`.
        lane_axis: the axis of the lanes.
    """

    def __init__(
        self,
        axis: list[int],
        lane_axis: int,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        gamma_regularizer: Any = None,
        beta_regularizer: Any = None,
        gamma_constraint: Any = None,
        beta_constraint: Any = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.axis = list(axis)
        self.lane_axis = lane_axis
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self.gamma_regularizer = keras.regularizers.get(gamma_regularizer)
        self.beta_regularizer = keras.regularizers.get(beta_regularizer)
        self.gamma_constraint = keras.constraints.get(gamma_constraint)
        self.beta_constraint = keras.constraints.get(beta_constraint)
        self.autocast = False

    def build(self, input_shape):
        self.gamma = self._vector("gamma", "ones", input_shape) if self.scale else None
        self.beta = self._vector("beta", "zeros", input_shape) if self.center else None

    def _vector(self, name: str, initializer: str, input_shape: Any) -> Any:
        return self.add_weight(
            name=name,
            shape=(prod(_broadcast(input_shape, self.axis, self.lane_axis)),),
            initializer=initializer,
            regularizer=getattr(self, f"{name}_regularizer"),
            constraint=getattr(self, f"{name}_constraint"),
            autocast=False,
        )

    def call(self, inputs):
        x = _precise(inputs)
        shape = _broadcast(inputs.shape, self.axis, self.lane_axis)
        gamma, beta = (_reshaped(w, shape, x.dtype) for w in (self.gamma, self.beta))
        normalize = _by_kernel if keras.backend.backend() == "torch" else _by_moments
        return ops.cast(normalize(x, self.axis, self.epsilon, gamma, beta), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        names = "axis lane_axis epsilon center scale".split()
        kept = {name: getattr(self, name) for name in names}
        for weight in ("gamma", "beta"):
            regularizer = getattr(self, f"{weight}_regularizer")
            constraint = getattr(self, f"{weight}_constraint")
            kept[f"{weight}_regularizer"] = keras.regularizers.serialize(regularizer)
            kept[f"{weight}_constraint"] = keras.constraints.serialize(constraint)
        return {**super().get_config(), **kept}


@keras.saving.register_keras_serializable(package=_PACKAGE)
class StackedRMSNormalization(keras.layers.Layer):
    """`keras.layers.RMSNormalization` of M lanes, each with its own scale.

    Shapes and arguments are those of `StackedLayerNormalization`; the weight is `scale`, (M·n,).
    """

    def __init__(self, axis: list[int], lane_axis: int, epsilon: float = 1e-6, **kwargs):
        super().__init__(**kwargs)
        self.axis = list(axis)
        self.lane_axis = lane_axis
        self.epsilon = epsilon

    def build(self, input_shape):
        size = prod(_broadcast(input_shape, self.axis, self.lane_axis))
        self.scale = self.add_weight(name="scale", shape=(size,), initializer="ones")

    def call(self, inputs):
        x = _precise(inputs)
        shape = _broadcast(inputs.shape, self.axis, self.lane_axis)
        mean = ops.mean(ops.square(x), axis=self.axis, keepdims=True)
        scaled = x * ops.rsqrt(mean + self.epsilon) * _reshaped(self.scale, shape, x.dtype)
        return ops.cast(scaled, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        kept = {"axis": self.axis, "lane_axis": self.lane_axis, "epsilon": self.epsilon}
        return {**super().get_config(), **kept}


def _by_moments(x: Any, axis: list[int], epsilon: float, gamma: Any, beta: Any) -> Any:
    """In the order in which the stock layer computes it."""
    mean, variance = ops.moments(x, axes=axis, keepdims=True)
    factor = ops.rsqrt(variance + epsilon)
    factor = factor if gamma is None else factor * gamma
    shift = -mean * factor
    return x * factor + (shift if beta is None else shift + beta)


def _by_kernel(x: Any, axis: list[int], epsilon: float, gamma: Any, beta: Any) -> Any:
    """With PyTorch's own kernel, as the stock layer, for it rounds otherwise."""
    x = ops.layer_normalization(x, axis=axis, epsilon=epsilon)
    x = x if gamma is None else x * gamma
    return x if beta is None else x + beta


def _precise(inputs: Any) -> Any:
    return ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))


def _broadcast(shape: Any, axes: list[int], lane_axis: int) -> list[int]:
    """The shape of a weight that has an entry for each lane and each entry of the axes."""
    whole = {lane_axis, *axes}
    return [size if axis in whole else 1 for axis, size in enumerate(shape)]


def _reshaped(weight: Any, shape: list[int], dtype: str) -> Any:
    return None if weight is None else ops.cast(ops.reshape(weight, shape), dtype)
