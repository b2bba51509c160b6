"""Raw operations on each element: what fuses, what does not."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from tests.asserts import assert_fuses, assert_rejects, operation_names
from tests.builders import channel_towers, towers

OPERATIONS = {
    "relu": (lambda x: ops.relu(x), "Relu"),
    "sigmoid": (lambda x: ops.sigmoid(x), "Sigmoid"),
    "tanh": (lambda x: ops.tanh(x), "Tanh"),
    "gelu": (lambda x: ops.gelu(x, approximate=False), "Gelu"),
    "leaky_relu": (lambda x: ops.leaky_relu(x, negative_slope=0.3), "LeakyRelu"),
    "clip": (lambda x: ops.clip(x, -0.5, 0.5), "Clip"),
    "cast": (lambda x: ops.cast(x, "float64"), "Cast"),
    "times a number": (lambda x: x * 2.0, "Multiply"),
    "a number minus": (lambda x: 1.0 - x, "Subtract"),
    "a number over": (lambda x: 3 / (x * x + 1), "TrueDivide"),
    "power": (lambda x: x**2, "Power"),
    "maximum": (lambda x: ops.maximum(x, 0.1), "Maximum"),
    "activation function": (lambda x: keras.activations.relu(x, max_value=6), "ReLU"),
}


@pytest.mark.parametrize("case", OPERATIONS)
def test_between_dense_layers(case):
    function, operation = OPERATIONS[case]
    model = towers(lambda i, x: layers.Dense(2)(function(layers.Dense(4)(x))), shape=(3, 7))
    fused, _ = assert_fuses(model)
    assert operation_names(fused).count(operation) == 1


def test_between_convolutions_the_channels_stay_as_they_lie():
    model = channel_towers(
        lambda i, x: layers.Conv1D(2, 3)(0.1 * ops.relu(layers.Conv1D(4, 2)(x))), shape=(9, 6)
    )
    fused, _ = assert_fuses(model)
    assert operation_names(fused)[:4] == ["GroupedConv1D", "Relu", "Multiply", "GroupedConv1D"]


@pytest.mark.parametrize("function", [ops.softmax, ops.log_softmax])
def test_softmax_operations(function):
    model = towers(lambda i, x: function(layers.Dense(4)(x)), shape=(3, 7))
    name = type(function(keras.KerasTensor((2, 3)))._keras_history.operation).__name__
    fused, _ = assert_fuses(
        model, operations=["Transpose", "EinsumDense", name, "Transpose", "Reshape"]
    )
    assert fused.operations[3].axis == 2
    model = channel_towers(lambda i, x: function(layers.Conv1D(4, 2)(x), axis=1), shape=(9, 6))
    assert_fuses(model, operations=["GroupedConv1D", name])


def test_heads_of_unequal_width():
    x = keras.Input((7,))
    heads = [ops.relu(layers.Dense(n)(x)) for n in (4, 3, 5)]
    model = keras.Model(x, layers.Concatenate()(heads))
    assert_fuses(model, operations=["Dense", "Relu"])


def test_equal_operations_on_one_tensor_become_one():
    x = keras.Input((7,))
    outputs = [ops.tanh(x) for _ in range(3)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(outputs)))
    assert operation_names(fused) == ["Tanh", "Concatenate"]


def test_a_number_and_the_joins_of_the_same_class_keep_apart():
    """`Add` is an operation of a lane in `x + 1`, and the join of two lanes in `x + y`."""
    x = keras.Input((4, 7), name="x")
    lanes = [layers.Dense(3)(x[:, i]) + 1.0 for i in range(4)]
    total = (lanes[0] + 2.0) + lanes[1] + lanes[2] + lanes[3]
    fused, _ = assert_fuses(keras.Model(x, total))
    assert "Sum" in operation_names(fused)


REJECTED = {
    "constants [2.0], its siblings [1.0]": lambda i: lambda x: x * (1.0 + i),
    "constants [2.0], its siblings [2]": lambda i: lambda x: x * [2, 2.0][i],
    "negative_slope 0.2, its siblings 0.1": lambda i: lambda x: ops.leaky_relu(x, [0.1, 0.2][i]),
    "holds a ndarray": lambda i: lambda x: x - np.ones(7, "float32"),
    "axis None": lambda i: lambda x: ops.softmax(x, axis=None),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    model = towers(lambda i, x: REJECTED[reason](i)(x), shape=(2, 7))
    assert_rejects(model, reason)
