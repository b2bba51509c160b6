"""What is known of activation functions: reach, equality, and that reading one changes nothing."""

import contextlib
import functools
import inspect

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse.activations import ELEMENTWISE, LAST_AXIS, LINEAR, activation_of
from parallel_fuse.errors import Reject

tensorflow_only = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="functions with TensorFlow code inside"
)


def public_functions() -> dict:
    """Every activation of this release, aliases once."""
    names = [n for n in dir(keras.activations) if inspect.isfunction(getattr(keras.activations, n))]
    functions = {getattr(keras.activations, n) for n in names} - {
        keras.activations.get,
        keras.activations.serialize,
        keras.activations.deserialize,
    }
    return {function.__name__: function for function in functions}


ARGUMENTS = {"threshold": (0.4, 0.1)}


@pytest.mark.parametrize("name", sorted(public_functions()))
def test_every_keras_activation_is_what_its_list_says(name):
    """Elementwise: the same on shuffled elements. Last axis: the same on shuffled rows only."""
    function, extra = public_functions()[name], ARGUMENTS.get(name, ())
    x = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    shuffled, rows = x.T.reshape(3, 8), x[[2, 0, 3, 1]]
    whole = ops.convert_to_numpy(function(x, *extra))
    if name in ELEMENTWISE:
        again = ops.convert_to_numpy(function(shuffled, *extra))
        np.testing.assert_allclose(again, whole.T.reshape(3, 8), rtol=1e-5, atol=1e-7)
    elif name in LAST_AXIS:
        again = ops.convert_to_numpy(function(rows, *extra))
        np.testing.assert_allclose(again, whole[[2, 0, 3, 1]], rtol=1e-5)
    else:
        with pytest.raises(Reject, match=f"activation {name}: not known"):
            activation_of(function)


@pytest.mark.parametrize("given", [None, "linear", keras.activations.linear])
def test_linear_in_all_its_spellings(given):
    assert activation_of(keras.activations.get(given)) is LINEAR


SCALES = {"two": 2.0, "three": 3.0}
FACTOR = 1.702


def scaled(by: float):
    return lambda x: x * by


def method_holder():
    class Holder:
        slope = 0.3

        def apply(self, x):
            return ops.where(x > 0, x, self.slope * x)

    return Holder()


def deeplc(x):
    return keras.activations.relu(x, negative_slope=0.1, max_value=20)


READ = {
    "lambda of deeplc": (deeplc, True),
    "closure": (scaled(0.7), True),
    "default argument": (lambda x, by=0.7: ops.tanh(x) * by, True),
    "global": (lambda x: x * ops.sigmoid(FACTOR * x), True),
    "dict of numbers": (lambda x: x * SCALES["two"], True),
    "numpy number": (lambda x: x * np.float32(0.5), True),
    "partial": (functools.partial(keras.activations.relu, max_value=6.0), True),
    "bound method": (method_holder().apply, True),
    "keras operation": (ops.softplus, True),
    "layer made inside": (lambda x: layers.LeakyReLU(0.2)(x), True),
    "layer": (layers.LeakyReLU(0.2), True),
    "the argument itself": (lambda x: x, True),
    "softmax inside": (lambda x: ops.softmax(2.0 * x), False),
    "partial softmax": (functools.partial(keras.activations.softmax, axis=-1), False),
}


@pytest.mark.parametrize("case", READ)
def test_users_functions_are_read(case):
    function, elementwise = READ[case]
    found = activation_of(function)
    assert found.elementwise is elementwise
    assert found == activation_of(function)
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    np.testing.assert_array_equal(found.function(x), function(x))


shared_layer = layers.Dense(5)
outside = keras.Input((5,))

REJECTED = {
    "halves an axis": keras.activations.glu,
    "mean of all": lambda x: x - ops.mean(x),
    "normalized row": lambda x: x / ops.sum(ops.abs(x), axis=-1, keepdims=True),
    "softmax over another axis": lambda x: ops.softmax(x, axis=1),
    "softmax over everything": lambda x: ops.softmax(x, axis=None),
    "turned around": lambda x: ops.flip(x, axis=-1),
    "depends on the shape": lambda x: x / x.shape[-1],
    "depends on the rank": lambda x: x * float(len(x.shape)),
    "an array beside it": lambda x: x * np.arange(5.0, dtype="float32"),
    "random": lambda x: x * np.random.rand(),
    "random inside": lambda x: keras.random.dropout(x, 0.5),
    "numpy code": np.tanh,
    "changes the shape": lambda x: ops.expand_dims(x, -1),
    "a layer of the user's": lambda x: shared_layer(x),
    "a layer with weights": layers.PReLU(),
    "a tensor of the user's": lambda x: x + outside,
    "two results": lambda x: (x, x),
    "branches on values": lambda x: x if ops.sum(x) > 0 else -x,
}


@pytest.mark.parametrize("case", REJECTED)
def test_everything_else_is_rejected(case):
    with pytest.raises(Reject, match="activation"):
        activation_of(REJECTED[case])
    assert not shared_layer.built
    assert not shared_layer._inbound_nodes


def test_a_layer_reached_in_a_roundabout_way_gets_its_calls_back():
    x = keras.Input((3, 5))
    layer = layers.ReLU()
    keras.Model(x, layer(x))

    class Indirect:
        __slots__ = ("layer",)

        def __call__(self, tensor):
            return self.layer(tensor)

    function = Indirect()
    function.layer = layer
    with contextlib.suppress(Reject):
        activation_of(function)
    assert len(layer._inbound_nodes) == 1


PAIRS = {
    "same code, same numbers": (scaled(0.7), scaled(0.7), True),
    "same code, other closure": (scaled(0.7), scaled(0.8), False),
    "other name of the argument": (lambda x: x * 0.7, lambda y: y * 0.7, True),
    "integer and float": (lambda x: x * 2, lambda x: x * 2.0, False),
    "zero and minus zero": (lambda x: x * 0.0, lambda x: x * -0.0, False),
    "other default": (lambda x, a=1.0: x + a, lambda x, a=2.0: x + a, False),
    "other order": (lambda x: x - 1.0, lambda x: 1.0 - x, False),
    "partials of equal arguments": (
        functools.partial(keras.activations.elu, alpha=0.5),
        functools.partial(keras.activations.elu, alpha=0.5),
        True,
    ),
    "partials of other arguments": (
        functools.partial(keras.activations.elu, alpha=0.5),
        functools.partial(keras.activations.elu, alpha=0.6),
        False,
    ),
    "layers of one slope": (layers.LeakyReLU(0.2), layers.LeakyReLU(0.2), True),
    "layers of two slopes": (layers.LeakyReLU(0.2), layers.LeakyReLU(0.3), False),
    "layers of two precisions": (
        layers.LeakyReLU(0.2),
        layers.LeakyReLU(0.2, dtype="float16"),
        False,
    ),
    "two functions of Keras": (keras.activations.relu, keras.activations.relu6, False),
}


@pytest.mark.parametrize("case", PAIRS)
def test_equality(case):
    one, other, equal = PAIRS[case]
    found = activation_of(one), activation_of(other)
    assert (found[0] == found[1]) is equal
    assert len({*found}) == (1 if equal else 2)


def test_a_layer_as_activation_gets_a_twin():
    layer = layers.LeakyReLU(0.2)
    assert activation_of(layer).function is not layer


@tensorflow_only
def test_tensorflow_code():
    import tensorflow as tf

    read = {
        tf.nn.leaky_relu: True,
        tf.nn.swish: True,
        tf.nn.gelu: True,
        tf.nn.softmax: False,
        (lambda x: tf.where(x > 0, x, 0.01 * x)): True,
        (lambda x: tf.minimum(tf.nn.relu(x), 20.0)): True,
    }
    for function, elementwise in read.items():
        assert activation_of(function).elementwise is elementwise
        assert activation_of(function) == activation_of(function)


@tensorflow_only
def test_tensorflow_code_is_compared_by_what_it_computes():
    import tensorflow as tf

    def leaky(slope):
        return lambda x: tf.nn.leaky_relu(x, slope)

    def capped(at):
        return lambda x: tf.minimum(tf.nn.relu(x), at)

    for make in (leaky, capped):
        assert activation_of(make(0.1)) == activation_of(make(0.1))
        assert activation_of(make(0.1)) != activation_of(make(0.2))


@tensorflow_only
def test_tensorflow_code_that_is_not_elementwise():
    import tensorflow as tf

    variable = tf.Variable(2.0)
    own_gradient = tf.custom_gradient(lambda x: (tf.nn.relu(x), lambda g: g * tf.reduce_sum(x)))
    rejected = [
        tf.nn.crelu,
        lambda x: x / tf.reduce_sum(x),
        lambda x: tf.nn.softmax(x, axis=1),
        lambda x: x * tf.cast(tf.shape(x)[-1], x.dtype),
        lambda x: tf.nn.dropout(x, 0.5),
        lambda x: tf.nn.relu(x) * tf.constant([1.0, 2.0, 3.0, 4.0, 5.0]),
        lambda x: tf.nn.relu(x) * variable,
        lambda x: tf.numpy_function(np.tanh, [x], x.dtype),
        lambda x: tf.cumsum(x, axis=-1),
        own_gradient,
    ]
    for function in rejected:
        with pytest.raises(Reject, match="not known to work on each element"):
            activation_of(function)
