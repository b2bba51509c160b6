"""Folding and unfolding the lane axis where several sizes are unknown until run time.

`keras.ops.reshape` can infer one unknown size. Images of unknown height and width in a batch of
unknown size have three, so these two layers read the sizes when they run.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="parallel_fuse")
class FoldLanes(keras.layers.Layer):
    """Merges axis `axis` into the one after it: `(…, M, C, …)` → `(…, M·C, …)`."""

    def __init__(self, axis: int, **kwargs):
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, inputs):
        shape = ops.shape(inputs)
        merged = shape[self.axis] * shape[self.axis + 1]
        return ops.reshape(inputs, (*shape[: self.axis], merged, *shape[self.axis + 2 :]))

    def compute_output_shape(self, input_shape):
        lanes, size = input_shape[self.axis], input_shape[self.axis + 1]
        merged = None if lanes is None or size is None else lanes * size
        return (*input_shape[: self.axis], merged, *input_shape[self.axis + 2 :])

    def get_config(self):
        return {**super().get_config(), "axis": self.axis}


@keras.saving.register_keras_serializable(package="parallel_fuse")
class UnfoldLanes(keras.layers.Layer):
    """Splits axis `axis` into `count` lanes: `(…, M·C, …)` → `(…, M, C, …)`."""

    def __init__(self, axis: int, count: int, **kwargs):
        super().__init__(**kwargs)
        self.axis = axis
        self.count = count

    def call(self, inputs):
        shape = ops.shape(inputs)
        size = shape[self.axis] // self.count
        rest = shape[self.axis + 1 :]
        return ops.reshape(inputs, (*shape[: self.axis], self.count, size, *rest))

    def compute_output_shape(self, input_shape):
        merged = input_shape[self.axis]
        size = None if merged is None else merged // self.count
        return (*input_shape[: self.axis], self.count, size, *input_shape[self.axis + 1 :])

    def get_config(self):
        return {**super().get_config(), "axis": self.axis, "count": self.count}
