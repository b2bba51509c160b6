"""Lanes that are no slices: the same tensor M times, M inputs, unrelated tensors, and mixtures."""

import keras
import pytest
from keras import layers, ops

from parallel_fuse import NotEquivalentError, verify_equivalence
from tests.asserts import assert_fuses, operation_names
from tests.builders import randomise
from tests.splits.checks import assert_fuses_cheaply


def heads(inputs, lanes, units=4):
    outputs = [layers.Dense(units, "tanh")(lane) for lane in lanes]
    return randomise(keras.Model(inputs, layers.Concatenate(name="joined")(outputs)))


def test_the_same_tensor_each_time():
    x = keras.Input((7,))
    assert_fuses(heads(x, [x] * 3), layers=(3, 1), operations=["Dense", "Identity"])


def test_r01_separate_inputs_are_stacked():
    inputs = [keras.Input((7,), name=f"v{i}") for i in range(4)]
    fused, _ = assert_fuses(heads(inputs, inputs), layers=(4, 1))
    assert operation_names(fused) == ["Stack", "EinsumDense", "Transpose", "Reshape"]
    assert [tensor.name for tensor in fused.inputs] == ["v0", "v1", "v2", "v3"]


def test_separate_inputs_in_a_dict():
    inputs = {name: keras.Input((7,), name=name) for name in ("b", "a", "c")}
    fused, _ = assert_fuses(heads(inputs, inputs.values()), layers=(3, 1))
    names = list(fused.input), list(heads(inputs, inputs.values()).input)
    # Keras on PyTorch gives a rebuilt nest its keys in another order.
    assert names[0] == names[1] or keras.backend.backend() == "torch"
    assert set(names[0]) == set(names[1])


def test_separate_inputs_of_unequal_widths_make_groups():
    inputs = [keras.Input((n,)) for n in (7, 5, 7, 5, 3)]
    assert_fuses_cheaply(heads(inputs, inputs), layers=(4, 2))


def test_unrelated_tensors_are_stacked():
    x, y = keras.Input((7,)), keras.Input((2, 7))
    lanes = [ops.sin(x), layers.Flatten()(layers.Dense(5)(y))[:, 3:], ops.sum(y, axis=1)]
    fused, _ = assert_fuses(heads([x, y], lanes), layers=(3, 1))
    assert operation_names(fused).count("Stack") == 1


def test_slices_of_two_tensors():
    x, y = keras.Input((4, 7)), keras.Input((3, 7))
    lanes = [x[:, 0], x[:, 1], y[:, 2], y[:, 0], x[:, 3]]
    assert_fuses(heads([x, y], lanes), layers=(5, 1))


def test_slices_beside_whole_tensors():
    x, y, z = keras.Input((4, 7)), keras.Input((7,)), keras.Input((7,))
    lanes = [x[:, 0], y, x[:, 1], x[:, 2], z]
    assert_fuses_cheaply(heads([x, y, z], lanes), layers=(5, 1))


def test_slices_of_two_kinds_from_one_tensor():
    x = keras.Input((7, 7))
    lanes = [x[:, 0], x[..., 1], x[:, 3], x[..., 5]]
    assert_fuses_cheaply(heads(x, lanes), layers=(4, 1))


def test_outputs_of_one_layer_that_has_several():
    x = keras.Input((9, 5))
    sequence, hidden, cell = layers.LSTM(4, return_sequences=True, return_state=True)(x)
    model = heads(x, [hidden, cell, sequence[:, -1]], units=6)
    assert_fuses_cheaply(model, layers=(3, 1))


def test_two_tensors_of_slices_exchanged_are_caught():
    def build(swap):
        x, y = keras.Input((2, 7), name="x"), keras.Input((2, 7), name="y")
        first, second = (y, x) if swap else (x, y)
        return heads([x, y], [first[:, 0], first[:, 1], second[:, 0], second[:, 1]])

    fused, _ = assert_fuses_cheaply(build(False), layers=(4, 1))
    verify_equivalence(build(False), fused)
    with pytest.raises(NotEquivalentError):
        verify_equivalence(build(True), fused)
