"""MultiHeadAttention: what fuses, what does not. Keras needs a query as wide as the value."""

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse.kinds.attention import stack
from parallel_fuse.kinds.weights import unstacked
from tests.asserts import assert_fuses, assert_rejects
from tests.builders import slices

EXAMPLES = {
    "plain": {"num_heads": 2, "key_dim": 5},
    "one head of one": {"num_heads": 1, "key_dim": 1},
    "another value size": {"num_heads": 2, "key_dim": 3, "value_dim": 4},
    "no bias": {"num_heads": 3, "key_dim": 2, "use_bias": False},
    "another output": {"num_heads": 2, "key_dim": 3, "output_shape": 9},
}


def lanes(shape=(3, 4, 7), name="x"):
    x = keras.Input(shape, name=name)
    return x, slices(x, shape[0])


@pytest.mark.parametrize("name", EXAMPLES)
def test_attention_of_a_sequence_to_itself(name):
    x, pieces = lanes()
    attended = [layers.MultiHeadAttention(**EXAMPLES[name])(s, s) for s in pieces]
    model = keras.Model(x, layers.Concatenate()(attended))
    fused, _ = assert_fuses(model, layers=(3, 1))
    assert fused.count_params() == model.count_params()


@pytest.mark.parametrize("call", [
    lambda layer, q, v, k: layer(q, v),
    lambda layer, q, v, k: layer(q, v, k),
    lambda layer, q, v, k: layer(q, value=v, key=k),
    lambda layer, q, v, k: layer(q, v, key=k, use_causal_mask=False),
])  # fmt: skip
def test_query_value_and_key(call):
    (x, queries), (y, values) = lanes((3, 4, 7)), lanes((3, 6, 7), "y")
    z, keys = lanes((3, 6, 5), "z")
    made = [
        call(layers.MultiHeadAttention(2, 3), *parts) for parts in zip(queries, values, keys)
    ]
    inputs = [x, y, z]
    joined = layers.Concatenate()(made)
    used = keras.Model(inputs, [joined, layers.Flatten()(z)])
    assert_fuses(used, layers=(3, 1), xla=False)


def test_unknown_length():
    x, pieces = lanes((3, None, 7))
    attended = [layers.MultiHeadAttention(2, 3)(s, s) for s in pieces]
    assert_fuses(keras.Model(x, layers.Add()(attended)), layers=(3, 1), control=False)


def test_a_block_with_its_residual_and_normalization():
    x, pieces = lanes((3, 4, 6))
    blocks = []
    for s in pieces:
        y = layers.LayerNormalization()(layers.Add()([s, layers.MultiHeadAttention(2, 3)(s, s)]))
        blocks.append(layers.GlobalAveragePooling1D()(layers.Dense(5, "gelu")(y)))
    assert_fuses(keras.Model(x, layers.Concatenate()(blocks)), layers=(15, 5))


REJECTED = {
    "dropout 0.1": lambda i, s: layers.MultiHeadAttention(2, 3, dropout=0.1)(s, s),
    "a causal mask": lambda i, s: layers.MultiHeadAttention(2, 3)(s, s, use_causal_mask=True),
    "2 outputs": lambda i, s: layers.MultiHeadAttention(2, 3)(
        s, s, return_attention_scores=True
    )[0],
    "a regularizer": lambda i, s: layers.MultiHeadAttention(2, 3, kernel_regularizer="l2")(s, s),
    "num_heads 2": lambda i, s: layers.MultiHeadAttention(2 + i, 3)(s, s),
    "receives a mask": lambda i, s: layers.MultiHeadAttention(2, 3)(
        s, s, attention_mask=s[:, :, :4] > 0
    ),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    x, pieces = lanes((2, 4, 7))
    outputs = [REJECTED[reason](i, s) for i, s in enumerate(pieces)]
    assert_rejects(keras.Model(x, outputs), reason)


def test_more_axes_and_frozen_projections_are_rejected():
    x, pieces = lanes((2, 4, 5, 7))
    outputs = [layers.MultiHeadAttention(2, 3)(s, s) for s in pieces]
    assert_rejects(keras.Model(x, outputs), "more than one axis")
    x, pieces = lanes((2, 4, 7))
    attention = [layers.MultiHeadAttention(2, 3) for _ in pieces]
    outputs = [one(s, s) for one, s in zip(attention, pieces)]
    for one in attention:
        one.key_dense.trainable = False
    assert_rejects(keras.Model(x, outputs), "frozen one by one")


def test_weights_are_taken_apart_exactly():
    random, members = np.random.default_rng(0), [layers.MultiHeadAttention(2, 3) for _ in range(3)]
    for one in members:
        one.build((None, 4, 7), (None, 6, 5))
        one.set_weights([random.normal(size=w.shape) for w in one.get_weights()])
    for one, lane in zip(members, unstacked(stack(members), 3), strict=True):
        for mine, theirs in zip(one.get_weights(), lane, strict=True):
            np.testing.assert_array_equal(mine, theirs)
