"""Models that once went wrong, each as small as it could be made."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_close
from tests.builders import randomise, slices
from tests.splits.checks import assert_fuses_cheaply


def test_single_tensors_of_mixed_origin_stay_in_order():
    """Two results of operations around a slice: the slice was gathered last."""
    x = keras.Input((2, 7))
    lanes = [ops.sin(x[:, 0]), x[:, 1], ops.cos(x[:, 0])]
    outputs = [layers.Dense(4)(lane) for lane in lanes]
    model = randomise(keras.Model(x, layers.Concatenate()(outputs)))
    assert_fuses_cheaply(model, layers=(3, 1))


def test_the_layout_wanted_of_a_result_with_more_axes():
    """The join is along an axis that the inputs of `expand_dims` do not have."""
    inputs = [keras.Input((5,)) for _ in range(3)]
    lanes = [ops.expand_dims(x, axis=1) for x in inputs]
    model = keras.Model(inputs, layers.Concatenate(axis=-1)(lanes))
    assert_fuses_cheaply(model)


@pytest.mark.parametrize("number", [0.0, 1.5])
def test_a_number_in_a_chain_is_not_lost(number):
    x = keras.Input((3, 7))
    a, b, c = (layers.Dense(4)(piece) for piece in slices(x, 3))
    total = ((a + number) + b) + c
    product = ((a * number) * b) * c
    highest = ops.maximum(ops.maximum(a, number), ops.maximum(b, c))
    model = randomise(keras.Model(x, [total, product, highest]))
    assert_fuses_cheaply(model)


def test_a_join_that_casts_keeps_its_type():
    x = keras.Input((3, 7))
    lanes = [layers.Dense(4)(piece) for piece in slices(x, 3)]
    model = keras.Model(x, [layers.Add(dtype="float16")(lanes), layers.Concatenate()(lanes)])
    fused, _ = assert_fuses_cheaply(randomise(model))
    assert [np.dtype(v.dtype) for v in fused.outputs] == [np.float16, np.float32]


def test_sums_of_lanes_of_unequal_widths():
    """Lanes that are no view of one tensor had no axis to sum over."""
    x = keras.Input((7,))
    heads = [layers.Dense(n, "softmax")(x) for n in (3, 5, 3)]
    model = keras.Model(x, [layers.Add()([heads[0], heads[2]]), heads[1]])
    assert_fuses_cheaply(randomise(model))


@pytest.mark.parametrize("join", [layers.Maximum, layers.Minimum, layers.Multiply, layers.Add])
@pytest.mark.parametrize("foreign", [False, True])
def test_joins_that_pass_over_masked_steps(join, foreign):
    """They look at the masks of their operands by themselves, without an argument for them."""
    x = keras.Input((6, 4))
    masked = layers.Masking()(x)
    lanes = [layers.Dense(4)(masked if not foreign else x) for _ in range(2)]
    if foreign:
        lanes.append(masked)
    model = randomise(keras.Model(x, ops.reshape(join()(lanes), (-1, 24))))
    fused = fuse_parallel_branches(model, verify=False, policy=EVERYTHING)
    array = np.random.default_rng(0).normal(size=(3, 6, 4)).astype("float32")
    array[:, 2:4] = 0
    assert_close(fused(array), model(array))
