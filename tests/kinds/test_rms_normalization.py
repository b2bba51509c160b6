"""RMSNormalization: lanes along an axis of their own, each with its scale."""

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.kinds.rms_normalization import stack
from parallel_fuse.kinds.weights import taken_apart
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_fuses, assert_rejects
from tests.builders import channel_towers, randomise, towers

pytestmark = pytest.mark.skipif(
    not hasattr(layers, "RMSNormalization"), reason="this release of Keras has none"
)


@pytest.mark.parametrize("axis", [-1, [-1, -2], [3, 2], [1, 2, 3]])
def test_axes_of_an_image(axis):
    model = channel_towers(lambda i, x: layers.RMSNormalization(axis=axis)(x), (4, 5, 18), 6)
    fused, _ = assert_fuses(model, layers=(3, 1))
    assert fused.count_params() == model.count_params()


@pytest.mark.parametrize("shape", [(5, 7), (5, None, 7), (4, 5, 7)])
def test_between_dense_layers_where_they_lie(shape):
    def branch(i, x):
        return layers.Dense(3)(layers.RMSNormalization(epsilon=0.1)(layers.Dense(6)(x)))

    fused, _ = assert_fuses(towers(branch, shape), layers=(3 * shape[0], 3))
    kinds = [type(one).__name__ for one in fused.layers]
    assert kinds.count("StackedRMSNormalization") == 1


def test_separate_inputs():
    inputs = [keras.Input((4, 7)) for _ in range(3)]
    outputs = [layers.RMSNormalization()(x) for x in inputs]
    assert_fuses(keras.Model(inputs, layers.Concatenate()(outputs)), layers=(3, 1))


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_half_precision(dtype):
    def branch(i, x):
        return layers.RMSNormalization(dtype=dtype)(layers.Dense(4, dtype=dtype)(x))

    model = towers(branch, (5, 7), join=layers.Concatenate(dtype=dtype))
    _, report = fuse_parallel_branches(randomise(model), policy=EVERYTHING, return_report=True)
    assert report.regions and report.verification.ok  # rounded to half at other places


REJECTED = {
    "epsilon 0.5": lambda i: layers.RMSNormalization(epsilon=0.5 + i / 4),
    "axis 2": lambda i: layers.RMSNormalization(axis=[[1, 2], 2][i]),
    "axis (1,): not the last ones": lambda i: layers.RMSNormalization(axis=1),
    "trainable": lambda i: layers.RMSNormalization(trainable=i > 0),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    model = channel_towers(lambda i, x: REJECTED[reason](i)(x), (2, 4))  # square: Keras broadcasts
    assert_rejects(model, reason)


def test_only_stock_layers_is_rejected():
    model = channel_towers(lambda i, x: layers.RMSNormalization()(x), (9, 4))
    assert_rejects(model, "not a stock Keras layer, and portable was asked", portable=True)


def test_whole_numbers_are_rejected():
    x = keras.Input((7, 4), dtype="int32")
    halves = [layers.RMSNormalization()(x[..., :2]), layers.RMSNormalization()(x[..., 2:])]
    assert_rejects(keras.Model(x, halves), "normalizes int32, expected floats")


def test_weights_are_taken_apart_exactly():
    members = [layers.RMSNormalization() for _ in range(3)]
    random = np.random.default_rng(0)
    for one in members:
        one.build((None, 9, 4))
        one.set_weights([random.normal(size=4)])
    for one, lane in zip(members, taken_apart(stack(members), 3), strict=True):
        np.testing.assert_array_equal(one.get_weights(), lane)
