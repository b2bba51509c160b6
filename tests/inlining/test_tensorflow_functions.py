"""Each TensorFlow function against its translation: the same numbers."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("calls TensorFlow functions", allow_module_level=True)

import tensorflow as tf

from parallel_fuse.errors import Reject
from parallel_fuse.inlining.dispatch import tensorflow_on_symbols
from parallel_fuse.inlining.tensorflow_functions import FUNCTIONS

X = keras.ops.convert_to_tensor(np.random.default_rng(0).uniform(0.1, 0.9, (2, 3, 4)), "float32")

CALLS = {
    "concat": lambda x: tf.concat([x, x * 2.0], axis=1),
    "stack": lambda x: tf.stack([x, x * 2.0], 1),
    "stack, axis 0": lambda x: tf.stack([x, x]),
    "reshape": lambda x: tf.reshape(x, (-1, 6, 2)),
    "reshape to a read shape": lambda x: tf.reshape(x, [tf.shape(x)[0], 12]),
    "transpose": lambda x: tf.transpose(x, [0, 2, 1]),
    "transpose, all axes": lambda x: tf.transpose(x),
    "gather": lambda x: tf.gather(x, [2, 0], axis=1),
    "gather, axis 0": lambda x: tf.gather(x, [1, 0, 1]),
    "expand_dims": lambda x: tf.expand_dims(x, 2),
    "squeeze": lambda x: tf.squeeze(x[:, :1], axis=1),
    "split": lambda x: tf.split(x, 2, axis=2)[1],
    "split by sizes": lambda x: tf.split(x, [1, 3], axis=-1)[1],
    "unstack": lambda x: tf.unstack(x, axis=1)[2],
    "slice": lambda x: tf.slice(x, [0, 1, 0], [-1, 2, 3]),
    "tile": lambda x: tf.tile(x, [1, 2, 1]),
    "repeat": lambda x: tf.repeat(x, 3, axis=2),
    "roll": lambda x: tf.roll(x, 1, axis=1),
    "reverse": lambda x: tf.reverse(x, axis=[1]),
    "pad": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1]]),
    "pad by reflection": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1]], mode="REFLECT"),
    "cast": lambda x: tf.cast(x, tf.int32),
    "one_hot": lambda x: tf.one_hot(tf.cast(x * 4, "int32"), 5),
    "where": lambda x: tf.where(x > 0.5, x, -x),
    "zeros_like": lambda x: tf.zeros_like(x) + x,
    "ones_like": lambda x: tf.ones_like(x) * x,
    "identity": lambda x: tf.identity(x),
    "add_n": lambda x: tf.add_n([x, x, x]),
    "matmul": lambda x: tf.matmul(x, x, transpose_b=True),
    "tensordot": lambda x: tf.tensordot(x, np.ones((4, 5), "float32"), 1),
    "einsum": lambda x: tf.einsum("abc,adc->abd", x, x),
    "softmax": lambda x: tf.nn.softmax(x),
    "softmax, axis": lambda x: tf.nn.softmax(x, axis=1),
    "log_softmax": lambda x: tf.nn.log_softmax(x),
    "leaky_relu": lambda x: tf.nn.leaky_relu(x - 0.5),
    "gelu": lambda x: tf.nn.gelu(x - 0.5),
    "silu": lambda x: tf.nn.silu(x),
    "swish": lambda x: tf.nn.swish(x, beta=2.0),
    "relu6": lambda x: tf.nn.relu6(x * 9.0),
    "constant first": lambda x: tf.constant(2.0) - x,
    "convert_to_tensor": lambda x: tf.convert_to_tensor(x) * 2.0,
    "clip": lambda x: tf.minimum(tf.maximum(x, 0.3), 0.6),
    "reduce_sum": lambda x: tf.reduce_sum(x, axis=1),
    "reduce_mean": lambda x: tf.reduce_mean(x, 1, True),
    "reduce_max": lambda x: tf.reduce_max(x, axis=[1, 2]),
    "reduce_min": lambda x: tf.reduce_min(x, axis=-1, keepdims=True),
    "reduce_prod": lambda x: tf.reduce_prod(x, axis=-1),
}
UNARY = """abs exp log log1p sqrt rsqrt square sign sin cos tan tanh sigmoid softplus softsign
negative floor ceil round reciprocal erf""".split()
BINARY = "add subtract multiply divide maximum minimum floordiv pow squared_difference".split()


def check(function):
    x = keras.Input(batch_shape=(2, 3, 4))
    with tensorflow_on_symbols():
        symbolic = function(x)
    found = keras.Model(x, symbolic)(X)
    expected = function(X)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    check(CALLS[name])


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name):
    check(lambda x: getattr(tf.math, name)(x) if hasattr(tf.math, name) else getattr(tf, name)(x))


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name):
    function = getattr(tf.math, name, None) or getattr(tf, name)
    check(lambda x: function(x, x + 0.25))
    check(lambda x: function(x, 2.0))


def test_comparisons():
    for function in (tf.greater, tf.greater_equal, tf.less, tf.less_equal, tf.equal, tf.not_equal):
        check(lambda x, f=function: tf.cast(f(x, 0.5), "float32"))


def test_an_argument_without_a_translation():
    x = keras.Input(batch_shape=(2, 3, 4))
    with tensorflow_on_symbols(), pytest.raises(Reject, match="gather"):
        tf.gather(x, [[0], [1]], axis=1, batch_dims=1)


def test_outside_of_a_trace_tensorflow_refuses_as_before():
    with tensorflow_on_symbols():
        pass
    with pytest.raises((ValueError, TypeError)):
        tf.concat([keras.Input((3,)), keras.Input((3,))], axis=1)


def test_the_table_is_covered():
    """Every function of the table stands in a test above, by its name."""
    tested = {name.split(",")[0].split(" ")[0] for name in CALLS} | {*UNARY, *BINARY}
    tested |= {"greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "shape"}
    synonyms = set("neg floor_div truediv sub mul div relu elu selu logical_and logical_or".split())
    assert set(FUNCTIONS) - tested - synonyms - {"reduce_any", "reduce_all"} == set()
