"""M attention layers as one: every projection, and the attention itself, for all lanes at once."""

import math
from typing import Any

import keras
from keras import ops

from parallel_fuse.layers._template import OfTemplate

Tensor = Any


@keras.saving.register_keras_serializable(package="parallel_fuse")
class StackedMultiHeadAttention(OfTemplate):
    """M `MultiHeadAttention` layers with weights of their own, over sequences.

    Input shapes: query (M, batch, target, d), value (M, batch, source, e), key (M, batch, source,
    f), the value where none is given. Output shape: (M, batch, target, o).
    Weights: for query, key and value a kernel (M, d, heads, size) and a bias (M, heads, size), then
    (M, heads, size, o) and (M, o), in the order of the template's.

    Args:
        template: a MultiHeadAttention, or its serialised form, that says what a lane is.
        count: M.
    """

    def build(self, query_shape, value_shape, key_shape=None):
        one, key_shape = self.template, key_shape or value_shape
        heads, size, of_value = one.num_heads, one.key_dim, one.value_dim
        width = _width(one, query_shape)
        self.query = self._projection("query", (query_shape[-1],), (heads, size))
        self.key = self._projection("key", (key_shape[-1],), (heads, size))
        self.value = self._projection("value", (value_shape[-1],), (heads, of_value))
        self.out = self._projection("output", (heads, of_value), (width,))

    def _projection(self, name: str, taken: tuple, made: tuple) -> list[Any]:
        kernel = self.add_weight(name=f"{name}_kernel", shape=(self.count, *taken, *made))
        if not self.template.use_bias:
            return [kernel]
        return [kernel, self.add_weight(name=f"{name}_bias", shape=(self.count, *made))]

    def call(
        self,
        query,
        value,
        key=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        queries = _projected("mbtd,mdhk->mbthk", query, self.query)
        keys = _projected("mbsd,mdhk->mbshk", value if key is None else key, self.key)
        values = _projected("mbsd,mdhv->mbshv", value, self.value)
        scaled = queries * ops.cast(1 / math.sqrt(self.template.key_dim), queries.dtype)
        weights = ops.softmax(ops.einsum("mbthk,mbshk->mbhts", scaled, keys), axis=-1)
        mixed = ops.einsum("mbhts,mbshv->mbthv", weights, values)
        return _projected("mbthv,mhvo->mbto", mixed, self.out)

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        return (*query_shape[:-1], _width(self.template, query_shape))

    def compute_mask(self, inputs, previous_mask):
        """Lanes carry none."""
        return


def _width(template: Any, query_shape: tuple) -> int:
    """Of the output: as said, or that of the query."""
    said = template.get_config()["output_shape"]
    return int(said[-1] if isinstance(said, (list, tuple)) else said or query_shape[-1])


def _projected(equation: str, x: Tensor, weights: list[Any]) -> Tensor:
    kernel, *bias = map(ops.convert_to_tensor, weights)
    made = ops.einsum(equation, x, kernel)
    for one in bias:
        made = made + ops.expand_dims(one, (1, 2))
    return made
