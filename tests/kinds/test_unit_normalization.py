"""UnitNormalization: along the axes of each lane alone."""

import keras
import pytest
from keras import layers

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_fuses, assert_rejects
from tests.builders import channel_towers, randomise, towers


@pytest.mark.parametrize("axis", [-1, 1, (1, -1), [2]])
def test_between_dense_layers(axis):
    def branch(i, x):
        x = layers.Dense(4)(x)
        return layers.Dense(3)(layers.UnitNormalization(axis=axis)(x))

    model = towers(branch, (5, 6, 7))
    assert_fuses(model, layers=(15, 3))


def test_channel_slices_along_the_steps():
    def branch(i, x):
        return layers.UnitNormalization(axis=1)(layers.BatchNormalization()(x))

    operations = ["BatchNormalization", "UnitNormalization", "Identity"]
    assert_fuses(channel_towers(branch, (9, 6)), layers=(6, 2), operations=operations)


def test_unequal_widths_along_the_steps():
    x = keras.Input((9, 4))
    wide = [layers.UnitNormalization(axis=1)(layers.Conv1D(n, 3)(x)) for n in (3, 5, 2)]
    model = keras.Model(x, layers.Concatenate()(wide))
    assert_fuses(model, operations=["Conv1D", "UnitNormalization", "Identity"])


def test_unequal_widths_that_are_normalized_over_stay():
    x = keras.Input((9, 4))
    wide = [layers.UnitNormalization()(layers.Conv1D(n, 3)(x)) for n in (3, 5, 2)]
    model = keras.Model(x, layers.Concatenate()(wide))
    _, report = assert_fuses(model, layers=(3, 1))
    assert any("input shape" in str(miss) for miss in report.rejections)


def test_one_tensor_is_normalized_once():
    x = keras.Input((9, 4))
    normal = [layers.UnitNormalization()(x) for _ in range(3)]
    outputs = [layers.Dense(2 + i)(y) for i, y in enumerate(normal)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(outputs)))
    assert sum(type(one) is layers.UnitNormalization for one in fused.layers) == 1


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16"])  # 1e12 is no float16
def test_half_precision(dtype):
    def branch(i, x):
        return layers.UnitNormalization(dtype=dtype)(layers.Dense(4, dtype=dtype)(x))

    model = towers(branch, (5, 7), join=layers.Concatenate(dtype=dtype))
    _, report = fuse_parallel_branches(randomise(model), policy=EVERYTHING, return_report=True)
    assert report.regions and report.verification.ok  # rounded to half at other places


def test_over_the_batch_is_rejected():
    model = towers(lambda i, x: layers.UnitNormalization(axis=(0, 1))(layers.Dense(4)(x)))
    _, report = assert_fuses(model, layers=(5, 1))
    assert any("axis 0: normalizes over the batch" in str(m) for m in report.rejections)


def test_other_axes_are_rejected():
    model = channel_towers(lambda i, x: layers.UnitNormalization(axis=1 + i)(x), (9, 4))
    assert_rejects(model, "axis 2")
