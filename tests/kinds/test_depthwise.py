"""DepthwiseConv and SeparableConv: what fuses, what does not."""

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.kinds import depthwise, separable
from parallel_fuse.policy import EVERYTHING, Policy
from tests.asserts import assert_fuses, assert_rejects
from tests.builders import channel_towers, randomise
from tests.devices import GROUPED_CONV, TENSORFLOW

# name → (shape of the input, channels per branch, rank, arguments)
EXAMPLES = {
    "1d": ((9, 6), 2, 1, {"kernel_size": 3}),
    "1d, two filters, same": ((9, 6), 2, 1, {"kernel_size": 4, "depth_multiplier": 2,
                                             "padding": "same", "activation": "relu"}),
    "1d, strides": ((9, 6), 2, 1, {"kernel_size": 2, "strides": 3}),
    "2d, two filters": ((9, 8, 6), 2, 2, {"kernel_size": (3, 2), "depth_multiplier": 3}),
    "2d, dilated, no bias": ((9, 8, 6), 2, 2, {"kernel_size": 2, "dilation_rate": 2,
                                               "use_bias": False}),
    "2d, unknown sizes": ((None, None, 6), 2, 2, {"kernel_size": 2, "strides": 2}),
    "2d, one channel": ((9, 8, 3), 1, 2, {"kernel_size": 3, "depth_multiplier": 2}),
}  # fmt: skip
BY_CHANNEL = {1: layers.DepthwiseConv1D, 2: layers.DepthwiseConv2D}
SEPARABLE = {1: layers.SeparableConv1D, 2: layers.SeparableConv2D}


@pytest.mark.parametrize("name", EXAMPLES)
def test_depthwise(name):
    shape, width, rank, arguments = EXAMPLES[name]
    model = channel_towers(lambda i, x: BY_CHANNEL[rank](**arguments)(x), shape, width)
    fused, report = assert_fuses(
        model, layers=(3, 1), operations=[f"DepthwiseConv{rank}D", "Identity"]
    )
    assert report.after.parameters == report.before.parameters
    assert fused.count_params() == model.count_params()


@pytest.mark.parametrize("name", EXAMPLES)
def test_separable(name):
    shape, width, rank, arguments = EXAMPLES[name]
    model = channel_towers(lambda i, x: SEPARABLE[rank](5, **arguments)(x), shape, width)
    operations = [f"DepthwiseConv{rank}D", f"{GROUPED_CONV}{rank}D", "Identity"]
    fused, _ = assert_fuses(model, layers=(3, 1), operations=operations)
    assert fused.count_params() == model.count_params()


def test_depthwise_of_unequal_widths():
    x = keras.Input((9, 9))
    pieces = [x[..., :2], x[..., 2:5], x[..., 5:]]
    convolved = [layers.DepthwiseConv1D(3, depth_multiplier=2)(piece) for piece in pieces]
    model = keras.Model(x, layers.Concatenate()(convolved))
    assert_fuses(model, layers=(3, 1))


@pytest.mark.parametrize("layer", [
    lambda i: layers.DepthwiseConv1D(3, use_bias=i != 1),
    lambda i: layers.SeparableConv1D(4, 3, use_bias=i != 1),
])  # fmt: skip
def test_mixed_bias_and_activation(layer):
    def branch(i, x):
        return layers.Activation(["tanh", "relu", "gelu"][i])(layer(i)(x))

    model = channel_towers(branch, (9, 6))
    # the zeros that stand for missing biases have gradients of their own
    fused, report = assert_fuses(model, gradients=False)
    added = 2 if "Depthwise" in type(layer(0)).__name__ else 4
    assert fused.count_params() == model.count_params() + added
    assert report.regions[0].padded_parameters == added


def test_activations_that_differ():
    def branch(i, x):
        y = layers.SeparableConv1D(4, 3, activation=["tanh", None, "softmax"][i])(x)
        return layers.DepthwiseConv1D(2, activation=["relu", "elu", "relu"][i])(y)

    assert_fuses(channel_towers(branch, (9, 6)), layers=(6, 2))


def test_r16_on_one_tensor_with_relus_of_their_own():
    """NASNet: each branch has its own ReLU of the same tensor; kernels differ, so two groups."""
    x = keras.Input((8, 9, 5))
    branches = []
    for size in (3, 5, 3, 5):
        y = layers.Activation("relu")(x)
        y = layers.SeparableConv2D(4, size, padding="same", use_bias=False)(y)
        branches.append(layers.BatchNormalization()(y))
    model = keras.Model(x, layers.Add()(branches))
    _, report = assert_fuses(model, regions=1)
    assert sum(region.layers_before for region in report.regions) >= 8


def test_r14_dilated_depthwise_stay_and_their_products_fuse():
    """DeepLab: dilations differ, the 1×1 convolutions behind them are alike."""
    x = keras.Input((10, 9, 6))
    branches = []
    for rate in (1, 2, 3):
        y = layers.DepthwiseConv2D(3, dilation_rate=rate, padding="same", use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.Conv2D(4, 1, use_bias=False)(y)
        branches.append(layers.ReLU()(layers.BatchNormalization()(y)))
    b4 = layers.Conv2D(4, 1, use_bias=False)(x)
    joined = layers.Concatenate()([b4, *branches])
    fused, report = assert_fuses(keras.Model(x, joined))
    assert sum(isinstance(one, layers.DepthwiseConv2D) for one in fused.layers) == 3
    assert any("dilation_rate" in str(miss) for miss in report.rejections)


def test_regularizers_add_up():
    def branch(i, x):
        options = {"depthwise_regularizer": "l2", "pointwise_regularizer": "l1"}
        return layers.SeparableConv1D(4, 3, bias_regularizer="l2", **options)(x)

    model = channel_towers(branch, (9, 6))
    fused, _ = assert_fuses(model, layers=(3, 1))
    sums = (keras.ops.convert_to_numpy(sum(one.losses)) for one in (fused, model))
    np.testing.assert_allclose(*sums, rtol=1e-5)


REJECTED = {
    "depth_multiplier 1": lambda i: layers.DepthwiseConv1D(3, depth_multiplier=1 + i),
    "kernel_size 2": lambda i: layers.DepthwiseConv1D(2 + i, padding="same"),
    "filters 4": lambda i: layers.SeparableConv1D(4 + i, 3),
    "dilation_rate 1": lambda i: layers.SeparableConv1D(4, 3, dilation_rate=1 + i, padding="same"),
    "MaxNorm": lambda i: layers.SeparableConv1D(4, 3, pointwise_constraint="max_norm"),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    x = keras.Input((9, 4))
    outputs = [REJECTED[reason](i)(x[..., 2 * i : 2 * i + 2]) for i in (0, 1)]
    assert_rejects(keras.Model(x, outputs), reason)


@pytest.mark.skipif(not TENSORFLOW, reason="figures of TensorFlow")
def test_separable_under_xla_is_left_alone():
    model = channel_towers(lambda i, x: layers.SeparableConv1D(4, 3)(x), (9, 6))
    assert_rejects(model, "under XLA", policy=Policy(min_gain=0.0, mode="jit"))


@pytest.mark.parametrize(("rule", "layer", "shape"), [
    (depthwise, lambda: layers.DepthwiseConv2D((3, 2), depth_multiplier=3), (None, 9, 8, 5)),
    (separable, lambda: layers.SeparableConv2D(4, (3, 2), depth_multiplier=3), (None, 9, 8, 5)),
])  # fmt: skip
def test_weights_are_taken_apart_exactly(rule, layer, shape):
    random, members = np.random.default_rng(0), [layer() for _ in range(3)]
    for one in members:
        one.build(shape)
        one.set_weights([random.normal(size=w.shape) for w in one.get_weights()])
    for one, lane in zip(members, rule.unstack(rule.stack(members), 3), strict=True):
        for mine, theirs in zip(one.get_weights(), lane, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_save_under_a_name_that_is_taken():
    """The two layers of a separable bundle: neither may collide with a layer of the user's."""
    x = keras.Input((9, 4))
    lanes = [layers.SeparableConv1D(3, 2, name=f"s{i}")(x[..., 2 * i : 2 * i + 2]) for i in (0, 1)]
    joined = layers.Concatenate()(lanes)
    model = keras.Model(x, layers.Dense(2, name="s0_x2_depthwise")(joined))
    fused = fuse_parallel_branches(randomise(model), policy=EVERYTHING)
    names = [layer.name for layer in fused.layers]
    assert len(names) == len(set(names))
