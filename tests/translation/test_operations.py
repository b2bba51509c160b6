"""Each family of operations against TensorFlow itself; no two sizes are equal."""

import numpy as np
import pytest
import tensorflow as tf

from tests.translation.checks import assert_refused, assert_translates, spec

RANDOM = np.random.default_rng(0)


def weights(*shape):
    return tf.constant(RANDOM.normal(size=shape), "float32")


ONE = {
    name: getattr(tf, name, None) or getattr(tf.nn, name, None) or getattr(tf.math, name)
    for name in """abs atan ceil cos cosh elu erf exp expm1 floor leaky_relu log_softmax negative
    reciprocal relu relu6 round selu sigmoid sign sin sinh softmax softplus softsign sqrt square tan
    tanh log1p asinh identity stop_gradient zeros_like ones_like gelu silu erfc""".split()
}
POSITIVE = ("sqrt", "log1p", "reciprocal")


@pytest.mark.parametrize("name", ONE)
def test_one_operand(name, tmp_path):
    def function(x):
        return ONE[name](tf.abs(x) + 0.5 if name in POSITIVE else x)

    assert_translates(tmp_path, function, {"x": spec(4, 7)})


TWO = {
    "add": lambda x, z: x + z,
    "subtract": lambda x, z: x - z,
    "multiply": lambda x, z: x * z,
    "divide": lambda x, z: x / (z * z + 1.0),
    "divide_no_nan": lambda x, z: tf.math.divide_no_nan(x, tf.nn.relu(z)),
    "maximum": lambda x, z: tf.maximum(x, z),
    "minimum": lambda x, z: tf.minimum(x, z),
    "power": lambda x, z: tf.abs(x) ** z,
    "squared difference": lambda x, z: tf.math.squared_difference(x, z),
    "floor division": lambda x, z: x // (z * z + 1.0),
    "remainder": lambda x, z: tf.math.floormod(x, z * z + 1.0),
    "atan2": lambda x, z: tf.atan2(x, z),
    "where": lambda x, z: tf.where(x > z, x, z - 1.0),
    "logic": lambda x, z: tf.cast((x > 0.0) & ~(z < 0.5) | (x <= z), "float32"),
    "not equal": lambda x, z: tf.cast((x != z) & (x >= 0.0), "int32"),
    "several": lambda x, z: tf.add_n([x, z, x * 2.0]),
    "clip": lambda x, z: tf.clip_by_value(x + z, -0.5, 1.0),
    "product": lambda x, z: tf.matmul(x, z, transpose_b=True),
    "product turned": lambda x, z: tf.matmul(x, z, transpose_a=True),
    "einsum": lambda x, z: tf.einsum("bTc,bSc->bST", x, z),
    "join": lambda x, z: tf.concat([x, z, x], axis=-1),
    "stack": lambda x, z: tf.stack([x, z], axis=2),
}


@pytest.mark.parametrize("name", TWO)
def test_two_operands(name, tmp_path):
    specs = {"x": spec(4, 7), "z": spec(4, 7, name="z")}
    assert_translates(tmp_path, TWO[name], specs)


MOVES = {
    "reshape": lambda x: tf.reshape(x, (-1, 5, 2, 6)),
    "reshape by shape": lambda x: tf.reshape(x, (tf.shape(x)[0], 10, 6)),
    "reshape to a part": lambda x: tf.reshape(x, tf.concat([tf.shape(x)[:1], [60]], 0)),
    "expand": lambda x: x[:, None, ..., None],
    "squeeze": lambda x: tf.squeeze(x[:, :1], axis=1),
    "transpose": lambda x: tf.transpose(x, (0, 3, 1, 2)),
    "pad": lambda x: tf.pad(x, ((0, 0), (1, 2), (0, 0), (3, 0)), constant_values=0.5),
    "mirror": lambda x: tf.pad(x, ((0, 0), (0, 0), (1, 2), (0, 1)), "REFLECT"),
    "tile": lambda x: tf.tile(x, (1, 2, 1, 3)),
    "slice": lambda x: x[:, 1:4:2, ::-1, -2:],
    "slice one": lambda x: x[:, 1, ..., 2],
    "tf.slice": lambda x: tf.slice(x, (0, 1, 0, 2), (-1, 2, -1, 3)),
    "split": lambda x: tf.concat(tf.split(x, 2, axis=1)[::-1], 1),
    "split by sizes": lambda x: tf.concat(tf.split(x, (1, -1, 2), axis=3)[::-1], 3),
    "unstack": lambda x: tf.add_n(tf.unstack(x, axis=2)),
    "gather": lambda x: tf.gather(x, (3, 0, 0), axis=1),
    "fill": lambda x: x + tf.fill((5, 1), 2.0) * tf.cast(tf.range(3, 9), "float32"),
    "cast": lambda x: tf.cast(tf.cast(x * 9.0, "int32"), "float16"),
}


@pytest.mark.parametrize("name", MOVES)
def test_elements_move(name, tmp_path):
    shape = (4, 5, 6) if name == "fill" else (4, 3, 5)
    assert_translates(tmp_path, MOVES[name], {"x": spec(*shape)})


REDUCTIONS = {
    "mean": lambda x: tf.reduce_mean(x, (1, 2)),
    "sum": lambda x: tf.reduce_sum(x, 2, keepdims=True),
    "max": lambda x: tf.reduce_max(x, -1),
    "min": lambda x: tf.reduce_min(x, 1),
    "product": lambda x: tf.reduce_prod(x, 3),
    "any": lambda x: tf.cast(tf.reduce_any(x > 1.0, 1), "float32"),
    "all": lambda x: tf.cast(tf.reduce_all(x > -1.0, 1), "float32"),
    "argmax": lambda x: tf.argmax(x, 2),
    "argmin": lambda x: tf.argmin(x, 1, output_type="int32"),
    "max pool": lambda x: tf.nn.max_pool2d(x, (2, 3), (1, 2), "VALID"),
    "average pool": lambda x: tf.nn.avg_pool2d(x, (3, 2), (2, 1), "SAME"),
    "pool of one axis": lambda x: tf.nn.max_pool1d(x[:, 0], 2, 3, "SAME"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_fewer_numbers(name, tmp_path):
    assert_translates(tmp_path, REDUCTIONS[name], {"x": spec(6, 8, 5)})


REFUSED = {
    "Conv2DBackpropInput": lambda x: tf.nn.conv2d_transpose(
        x[:, None], weights(1, 2, 3, 7), (2, 1, 4, 3), 1
    ),
    "TopKV2": lambda x: tf.math.top_k(x, 2).values,
    "a lookup within each sample": lambda x: tf.gather(
        x, tf.cast(x[:, :, 0] * 0.0, "int32"), axis=1, batch_dims=1
    ),
    "an axis that is computed": lambda x: tf.reduce_sum(
        x, tf.cast(tf.reduce_sum(x) * 0.0, "int32") + 1
    ),
    "arithmetic with a size": lambda x: x * tf.cast(tf.shape(x)[0], "float32"),
    "RandomStandardNormal": lambda x: x + tf.random.normal((4, 7)),
    "While": lambda x: tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: (y + 1.0,), (x,))[
        0
    ],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused_by_name(reason, tmp_path):
    words = {"an axis that is computed": "that is computed"}.get(reason, reason)
    assert_refused(tmp_path, REFUSED[reason], {"x": spec(4, 7)}, words)


def test_what_changes_a_variable_is_refused(tmp_path):
    calls = tf.Variable(0.0)

    def counting(x):
        calls.assign_add(1.0)
        return x * 2.0

    assert_refused(tmp_path, counting, {"x": spec(3)}, "AssignAddVariableOp", calls=calls)
