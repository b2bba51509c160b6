"""Conv1D, Conv2D, Conv3D: what fuses, what does not."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse.kinds.conv import DENSE_CHANNELS, DENSE_GROUPS, GROUPED_TWIN, stack
from parallel_fuse.kinds.weights import taken_apart
from parallel_fuse.policy import EVERYTHING, Policy
from tests.asserts import assert_fuses, assert_rejects
from tests.builders import channel_towers
from tests.devices import GROUPED_CONV, TENSORFLOW, channels_first

# name → (shape of the input, channels per branch, layer class, its arguments)
EXAMPLES = {
    "1d": ((9, 6), 2, layers.Conv1D, {"filters": 4, "kernel_size": 3}),
    "1d, causal, dilated": (
        (9, 6),
        2,
        layers.Conv1D,
        {"filters": 5, "kernel_size": 3, "padding": "causal", "dilation_rate": 2},
    ),
    "2d, strides, activation": (
        (9, 8, 6),
        2,
        layers.Conv2D,
        {"filters": 5, "kernel_size": (3, 2), "strides": (2, 1), "activation": "relu"},
    ),
    "2d, one channel, same": (
        (9, 8, 3),
        1,
        layers.Conv2D,
        {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"},
    ),
    "2d, dilated, no bias": (
        (9, 8, 6),
        2,
        layers.Conv2D,
        {"filters": 4, "kernel_size": 2, "dilation_rate": 3, "use_bias": False},
    ),
    "2d, unknown sizes": ((None, None, 6), 2, layers.Conv2D, {"filters": 4, "kernel_size": 3}),
    "3d": (
        (5, 6, 7, 6),
        2,
        layers.Conv3D,
        {"filters": 4, "kernel_size": (2, 3, 1), "strides": (1, 2, 1)},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_channel_slices(name):
    shape, width, layer, arguments = EXAMPLES[name]
    model = channel_towers(lambda i, x: layer(**arguments)(x), shape, width)
    operations = [f"{GROUPED_CONV}{len(shape) - 1}D", "Identity"]
    assert_fuses(model, layers=(3, 1), operations=operations)


@channels_first
def test_channels_first():
    def branch(i, x):
        return layers.Conv2D(4, (3, 2), data_format="channels_first")(x)

    x = keras.Input((6, 9, 8))
    outputs = [branch(i, x[:, s : s + 2]) for i, s in enumerate((0, 2, 4))]
    model = keras.Model(x, layers.Concatenate(axis=1)(outputs))
    assert_fuses(model, layers=(3, 1), operations=[f"{GROUPED_CONV}2D", "Identity"])


def test_two_levels_need_nothing_between():
    def branch(i, x):
        return layers.Conv1D(3, 2, activation="relu")(layers.Conv1D(5, 3, activation="tanh")(x))

    operations = [f"{GROUPED_CONV}1D", f"{GROUPED_CONV}1D", "Identity"]
    assert_fuses(channel_towers(branch, (9, 6)), layers=(6, 2), operations=operations)


def test_groups_of_their_own():
    model = channel_towers(lambda i, x: layers.Conv1D(6, 3, groups=2)(x), (9, 12), width=4)
    fused, _ = assert_fuses(model, layers=(3, 1), operations=[f"{GROUPED_CONV}1D", "Identity"])
    assert convolution(fused).groups == 3 * 2


def test_mixed_bias_and_activation():
    def branch(i, x):
        activation = [None, "relu", "softmax"][i % 3]
        return layers.Conv1D(4, 3, activation=activation, use_bias=i != 1)(x)

    # the zeros that stand for missing biases have gradients of their own
    model = channel_towers(branch, (9, 10))
    fused, report = assert_fuses(model, layers=(5, 1), gradients=False)
    assert report.regions[0].padded_parameters == 4
    assert fused.count_params() == model.count_params() + 4


def test_softmax_is_taken_over_each_lane():
    model = channel_towers(lambda i, x: layers.Conv1D(4, 3, activation="softmax")(x), (9, 6))
    assert_fuses(model, layers=(3, 1))


def test_regularizers_add_up():
    def branch(i, x):
        options = {"kernel_regularizer": "l2", "bias_regularizer": "l1"}
        return layers.Conv1D(4, 3, use_bias=i > 0, **options)(x)

    model = channel_towers(branch, (9, 6))
    fused, _ = assert_fuses(model, layers=(3, 1), gradients=False)  # as above
    sums = (keras.ops.convert_to_numpy(sum(one.losses)) for one in (fused, model))
    np.testing.assert_allclose(*sums, rtol=1e-5)


def shared(*heads, shape=(9, 8, 4)) -> keras.Model:
    x = keras.Input(shape, name="x")
    return keras.Model(x, layers.Concatenate(name="joined")([head(x) for head in heads]))


def test_shared_input_makes_one_wide_layer_of_unequal_filters():
    heads = [layers.Conv2D(n, 3, activation="relu") for n in (3, 5, 2)]
    fused, _ = assert_fuses(shared(*heads), layers=(3, 1), operations=["Conv2D", "Identity"])
    assert convolution(fused).filters == 3 + 5 + 2


def convolution(model):
    return next(one for one in model.layers if isinstance(one, tuple(GROUPED_TWIN)))


def test_shared_input_softmax_each():
    heads = [layers.Conv1D(n, 2, activation="softmax") for n in (3, 5)]
    assert_fuses(shared(*heads, shape=(9, 4)), layers=(2, 1))


def test_shared_input_with_groups_is_repeated():
    heads = [layers.Conv1D(6, 3, groups=2) for _ in range(3)]
    operations = ["Concatenate", f"{GROUPED_CONV}1D", "Identity"]
    assert_fuses(shared(*heads, shape=(9, 4)), layers=(3, 1), operations=operations)


def test_unequal_filters_of_grouped_branches_stay_apart():
    heads = [layers.Conv1D(n, 3, groups=2) for n in (4, 6)]
    assert_rejects(shared(*heads, shape=(9, 4)), "filters of a grouped branch 4")


REJECTED = {
    "filters 4": lambda i: layers.Conv1D(4 + i, 3),
    "kernel_size 2": lambda i: layers.Conv1D(4, 2 + i, padding="same"),
    "strides 1": lambda i: layers.Conv1D(4, 3, strides=1 + i, padding="same"),
    "dilation_rate 1": lambda i: layers.Conv1D(4, 3, dilation_rate=1 + i, padding="same"),
    "MaxNorm": lambda i: layers.Conv1D(4, 3, kernel_constraint="max_norm"),
    "not known to work on each element": lambda i: layers.Conv1D(4, 3, activation=keras.ops.glu),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    x = keras.Input((9, 4))
    outputs = [REJECTED[reason](i)(x[..., 2 * i : 2 * i + 2]) for i in (0, 1)]
    assert_rejects(keras.Model(x, outputs), reason)


@pytest.mark.skipif(not TENSORFLOW, reason="fast elsewhere")
def test_portable_on_tensorflow_leaves_the_branches():
    model = channel_towers(lambda i, x: layers.Conv1D(4, 3)(x), (9, 6))
    assert_rejects(model, "slower than the branches", policy=Policy(portable=True))


def test_stock_groups_compute_the_same():
    model = channel_towers(lambda i, x: layers.Conv1D(4, 3)(x), (9, 6))
    policy = replace(EVERYTHING, portable=True)
    fused, _ = assert_fuses(model, layers=(3, 1), operations=["Conv1D", "Identity"], policy=policy)
    assert convolution(fused).groups == 3


SLOWER = {
    "under XLA": (layers.Conv1D, (9, 3), {}, Policy(min_gain=0.0, mode="jit")),
    "no grouped 3D kernel": (layers.Conv3D, (5, 6, 7, 2), {}, Policy(min_gain=0.0)),
    "no grouped float64 kernel": (
        layers.Conv1D,
        (9, 2),
        {"dtype": "float64"},
        Policy(min_gain=0.0),
    ),
}


@pytest.mark.skipif(not TENSORFLOW, reason="figures of TensorFlow")
@pytest.mark.parametrize("reason", SLOWER)
def test_known_to_be_slower(reason):
    layer, (*sizes, channels), options, policy = SLOWER[reason]
    model = channel_towers(lambda i, x: layer(4, 2, **options)(x), (*sizes, 3 * channels), channels)
    assert_rejects(model, reason, policy=policy)


@pytest.mark.skipif(not TENSORFLOW, reason="figures of TensorFlow")
def test_few_channels_pay_under_xla():
    from parallel_fuse.layers import _grouped_conv_tensorflow as grouped

    assert (DENSE_CHANNELS, DENSE_GROUPS) == (grouped._DENSE_CHANNELS, grouped._DENSE_GROUPS)
    model = channel_towers(lambda i, x: layers.Conv1D(4, 3)(x), (9, 6))
    assert_fuses(model, layers=(3, 1), policy=Policy(min_gain=0.0, mode="jit"))


def test_weights_are_taken_apart_exactly():
    members = [layers.Conv2D(4, (3, 2)) for _ in range(3)]
    for one in members:
        one.build((None, 9, 8, 5))
        one.bias.assign(np.random.default_rng(0).normal(size=4))
    for one, lane in zip(members, taken_apart(stack(members), 3), strict=True):
        for mine, theirs in zip(one.get_weights(), lane, strict=True):
            np.testing.assert_array_equal(mine, theirs)
