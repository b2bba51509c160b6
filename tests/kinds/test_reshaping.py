"""Layers and operations that only change the shape: what fuses, and that no element moves."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_fuses, assert_rejects, assert_same_outputs, operation_names
from tests.builders import channel_towers, inputs_for, randomise, towers


def between_dense(middle, shape=(3, 5, 7)) -> keras.Model:
    """Dense → middle(i) → Dense on slices: the lanes are in front."""
    return towers(lambda i, x: layers.Dense(2)(middle(i)(layers.Dense(4)(x))), shape=shape)


def after_conv(middle, size=9) -> keras.Model:
    """Conv → middle(i) → Dense on channel slices: the lanes come folded into the channels."""
    return channel_towers(
        lambda i, x: layers.Dense(2)(middle(i)(layers.Conv1D(4, 2)(x))), shape=(size, 6)
    )


IN_FRONT = {
    "Flatten": (lambda i: layers.Flatten(), "Reshape"),
    "Reshape": (lambda i: layers.Reshape((10, 2)), "Reshape"),
    "Reshape with -1": (lambda i: layers.Reshape((2, -1)), "Reshape"),
    "reshape": (lambda i: lambda x: ops.reshape(x, (-1, 2, 10)), "Reshape"),
    "Permute": (lambda i: layers.Permute((2, 1)), "Transpose"),
    "transpose": (lambda i: lambda x: ops.transpose(x, (0, 2, 1)), "Transpose"),
    "swapaxes": (lambda i: lambda x: ops.swapaxes(x, -1, 1), "Transpose"),
    "moveaxis": (lambda i: lambda x: ops.moveaxis(x, -1, 1), "Transpose"),
    "expand_dims": (lambda i: lambda x: ops.expand_dims(x, 2), "ExpandDims"),
    "expand_dims in front": (lambda i: lambda x: ops.expand_dims(x, 1), "ExpandDims"),
    "Identity": (lambda i: layers.Identity(), "Identity"),
    "Rescaling": (lambda i: layers.Rescaling(0.5, offset=2), "Rescaling"),
    "Rescaling, numbers of its own": (lambda i: layers.Rescaling(0.3 * i, i), "Rescaling"),
    "Rescaling of channels": (
        lambda i: layers.Rescaling([0.5, 1.0, 2.0, 3.0], np.arange(4)),
        "Rescaling",
    ),
}


@pytest.mark.parametrize("case", IN_FRONT)
def test_between_dense_layers_the_lanes_stay_in_front(case):
    middle, operation = IN_FRONT[case]
    fused, _ = assert_fuses(between_dense(middle), regions=1)
    names = operation_names(fused)
    assert names[:4] == ["Transpose", "EinsumDense", operation, "EinsumDense"]


AFTER_CONVOLUTION = {
    "Flatten": lambda i: layers.Flatten(),
    "Flatten, channels first": lambda i: layers.Flatten("channels_first"),
    "Reshape": lambda i: layers.Reshape((2, 16)),
    "Permute": lambda i: layers.Permute((2, 1)),
    "expand_dims behind": lambda i: lambda x: ops.expand_dims(x, -1),
    "expand_dims before": lambda i: lambda x: ops.expand_dims(x, -2),
    "expand_dims in front": lambda i: lambda x: ops.expand_dims(x, 1),
    "Rescaling": lambda i: layers.Rescaling(0.3 * i, i),
    "Identity": lambda i: layers.Identity(),
}


@pytest.mark.parametrize("case", AFTER_CONVOLUTION)
def test_after_a_convolution(case):
    _, report = assert_fuses(after_conv(AFTER_CONVOLUTION[case]))
    assert report.regions[0].layers_after == 3 or "expand" in case


@pytest.mark.parametrize("axis", [1, -2])
def test_squeeze(axis):
    model = after_conv(lambda i: lambda x: ops.squeeze(x, axis), size=2)
    fused, _ = assert_fuses(model)
    assert operation_names(fused)[:2] == ["GroupedConv1D", "Squeeze"]


def test_squeeze_of_the_axis_that_the_lanes_are_folded_into():
    model = channel_towers(
        lambda i, x: layers.Dense(2)(ops.squeeze(layers.Conv1D(1, 2)(x), -1)), shape=(9, 6)
    )
    fused, _ = assert_fuses(model)
    assert "Squeeze" in operation_names(fused)


def test_repeat_vector():
    model = between_dense(lambda i: layers.RepeatVector(5), shape=(3, 7))
    fused, _ = assert_fuses(model, layers=(9, 3))
    assert operation_names(fused).count("Transpose") == 2
    x = keras.Input((9, 6))
    outputs = [
        layers.Conv1D(2, 3)(layers.RepeatVector(5)(layers.GlobalMaxPooling1D()(x[..., i : i + 2])))
        for i in (0, 2, 4)
    ]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(outputs)), layers=(9, 3))
    assert not {"Reshape", "Transpose"} & set(operation_names(fused))


def test_permute_carries_folded_lanes_along():
    model = channel_towers(
        lambda i, x: layers.Permute((2, 1))(layers.Conv1D(4, 2)(x)),
        shape=(9, 6),
        join=layers.Concatenate(axis=1),
    )
    assert_fuses(model, operations=["GroupedConv1D", "Permute", "Identity"])


ALONE = {
    "Flatten": (lambda i: layers.Flatten(), ["Reshape", "Reshape"]),
    "Reshape": (lambda i: layers.Reshape((7, 5)), ["Reshape", "Transpose", "Reshape"]),
    "Permute": (lambda i: layers.Permute((2, 1)), ["Permute", "Transpose", "Reshape"]),
}


@pytest.mark.parametrize("case", ALONE)
def test_alone_on_slices(case):
    layer, expected = ALONE[case]
    model = towers(lambda i, x: layer(i)(x), shape=(3, 5, 7))
    assert_fuses(model, layers=(3, 1), operations=expected)


def test_r01_towers_on_separate_inputs_end_in_flatten():
    inputs = [keras.Input((9, 1)) for _ in range(3)]
    outputs = [
        layers.Flatten()(layers.MaxPooling1D(2)(layers.Conv1D(4, 2, activation="relu")(x)))
        for x in inputs
    ]
    model = keras.Model(inputs, layers.Dense(2)(layers.Concatenate()(outputs)))
    assert_fuses(model, layers=(9, 3))


def test_sizes_unknown_until_run_time():
    """Flatten and Reshape with one unknown size; the inputs get 6."""

    def branch(i, x):
        x = layers.Conv1D(4, 2)(x)
        return layers.Conv1D(3, 2)(layers.Reshape((-1, 2))(x))

    assert_fuses(channel_towers(branch, shape=(None, 6)), layers=(9, 3))
    flat = channel_towers(lambda i, x: layers.Flatten()(layers.Conv1D(4, 2)(x)), shape=(None, 6))
    assert_fuses(flat, layers=(6, 2))


def test_r04_two_unknown_image_sizes():
    def branch(i, x):
        return layers.Reshape((-1, 2))(layers.Conv2D(4, 3, padding="same")(x))

    model = channel_towers(branch, shape=(None, None, 6), join=layers.Concatenate(axis=1))
    assert_fuses(model, layers=(6, 2))


def test_a_cast_is_kept():
    for layer in (layers.Flatten, lambda **k: layers.Permute((2, 1), **k)):
        model = between_dense(lambda i, make=layer: make(dtype="float64"))
        fused, _ = assert_fuses(model, layers=(9, 3))
        middle = [one for one in fused.layers if one.compute_dtype == "float64"]
        assert len(middle) == 1


def test_a_batch_of_known_size():
    x = keras.Input(batch_shape=(7, 3, 10), name="x")
    outputs = [ops.reshape(layers.Dense(4)(x[:, i]), (7, 2, 2)) for i in range(3)]
    model = keras.Model(x, layers.Concatenate()(outputs))
    fused, report = fuse_parallel_branches(
        randomise(model), return_report=True, policy=EVERYTHING
    )
    assert (report.regions[0].layers_before, report.regions[0].layers_after) == (6, 2)
    assert_same_outputs(model, fused, inputs_for(model, 7, seed=0))


def test_equal_layers_on_one_tensor_become_one():
    x = keras.Input((5, 7))
    outputs = [layers.Dense(2)(layers.Flatten()(x)) for _ in range(3)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(outputs)), layers=(6, 2))
    assert operation_names(fused)[0] == "Flatten"


REJECTED = {
    "target (35, 1), its siblings (7, 5)": lambda i: layers.Reshape([(7, 5), (35, 1)][i]),
    "data_format": lambda i: layers.Flatten(["channels_first", "channels_last"][i]),
    "order (0, 1, 2), its siblings (0, 2, 1)": lambda i: layers.Permute([(2, 1), (1, 2)][i]),
    "scale": lambda i: layers.Rescaling([[1.0] * 7, [2.0] * 7][i]),
    "scale or offset with 3 axes": lambda i: layers.Rescaling(np.ones((1, 1, 1))),
    "not known to leave the batch axis alone": lambda i: lambda x: ops.reshape(x, (-1, 7)),
    "the batch axis does not stay in front": lambda i: lambda x: ops.transpose(x),
    "expected one axis behind the batch axis": lambda i: lambda x: ops.expand_dims(x, 0),
    "n 3, its siblings 2": lambda i: lambda x: layers.RepeatVector(2 + i)(x[:, 0]),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    # A join would need equal shapes, and two of these give the batch away.
    x = keras.Input((2, 5, 7), name="x")
    outputs = [REJECTED[reason](i)(x[:, i]) for i in range(2)]
    assert_rejects(keras.Model(x, outputs), reason, verify="batch" not in reason)
