"""M embeddings as one table and one lookup.

An id outside its own table must not read a row of the next one. What it does instead differs: an
error on a CPU, zeros on a GPU, the nearest row under XLA, NaN with JAX. So a tiny lookup goes ahead
that is out of range where the stock layer's would be, and the backend answers it in its own way.
"""

from typing import Any

import keras
import numpy as np
from keras import ops


def rows_of(ids: Any, vocabularies: Any, axis: int) -> Any:
    """Ids of M tables → rows of the one table that has them one below the other.

    Args:
        ids: a tensor with M entries along `axis`, of any number type.
        vocabularies: how many rows each table has.
    """
    if keras.backend.standardize_dtype(ids.dtype) not in ("int32", "int64"):
        ids = ops.cast(ids, "int32")
    sizes = np.asarray(vocabularies)
    size, first = (_along(x, ids, axis) for x in (sizes, np.cumsum(sizes) - sizes))
    # A negative id counts from the end of its own table.
    own = ops.where(ops.less(ids, 0), ops.add(ids, size), ids)
    nearest = ops.minimum(ops.maximum(own, 0), size - 1)
    outside = ops.cast(ops.not_equal(own, nearest), ids.dtype)
    answered = ops.take(np.ones(1, "int32"), outside, axis=0)
    nowhere = np.array(sizes.sum(), first.dtype)
    return ops.where(ops.equal(answered, 1), ops.add(nearest, first), nowhere)


def _along(numbers: np.ndarray, ids: Any, axis: int) -> np.ndarray:
    shape = [1] * len(ids.shape)
    shape[axis] = len(numbers)
    return numbers.astype(keras.backend.standardize_dtype(ids.dtype)).reshape(shape)


@keras.saving.register_keras_serializable(package="parallel_fuse")
class StackedEmbedding(keras.layers.Layer):
    """`keras.layers.Embedding` for M lanes of ids, each with a table of its own.

    Input shape: any, M entries along `axis`; floats are truncated, as by the stock layer.
    Output shape: the input's, and `output_dim`.
    Weights: embeddings (sum of the vocabularies, output_dim), table below table.

    An id outside its own table does what the stock layer makes of it on this backend, and -1 reads
    the last row of its own table.

    Args:
        vocabularies: how many rows each table has.
        axis: the axis of the lanes, counted from the front.
    """

    def __init__(
        self,
        vocabularies: list[int],
        output_dim: int,
        axis: int,
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabularies = list(vocabularies)
        self.output_dim = output_dim
        self.axis = axis
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = keras.constraints.get(embeddings_constraint)
        self.autocast = False  # half floats cannot tell large ids apart

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(sum(self.vocabularies), self.output_dim),
            initializer="uniform",
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
        )

    def call(self, inputs):
        rows = rows_of(inputs, self.vocabularies, self.axis)
        return ops.cast(ops.take(self.embeddings, rows, axis=0), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), self.compute_dtype)

    def get_config(self):
        kept = {name: getattr(self, name) for name in ("vocabularies", "output_dim", "axis")}
        kept["embeddings_regularizer"] = keras.regularizers.serialize(self.embeddings_regularizer)
        kept["embeddings_constraint"] = keras.constraints.serialize(self.embeddings_constraint)
        return {**super().get_config(), **kept}
