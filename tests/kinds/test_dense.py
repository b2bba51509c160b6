"""Dense: what fuses, what does not."""

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse.kinds.dense import stack_batched, stack_wide, unstack_batched
from parallel_fuse.kinds.weights import taken_apart
from tests.asserts import assert_fuses, assert_rejects
from tests.builders import towers


def test_three_branches():
    model = towers(lambda i, x: layers.Dense(4, "relu")(x), shape=(3, 7))
    expected = ["Transpose", "EinsumDense", "Transpose", "Reshape"]
    assert_fuses(model, layers=(3, 1), operations=expected)


def test_five_level_tower_has_one_transpose_in_and_one_out():
    def branch(i, x):
        for units in (4, 6, 3, 5, 2):
            x = layers.Dense(units, "tanh")(x)
        return x

    expected = ["Transpose", *["EinsumDense"] * 5, "Transpose", "Reshape"]
    assert_fuses(towers(branch), layers=(25, 5), operations=expected)


@pytest.mark.parametrize("middle", [(3,), (3, 4)])
def test_higher_rank(middle):
    assert_fuses(towers(lambda i, x: layers.Dense(2)(x), shape=(5, *middle, 7)), layers=(5, 1))


def test_mixed_bias_and_activation():
    def branch(i, x):
        return layers.Dense(4, ["relu", "tanh", None][i % 3], use_bias=i % 2 == 0)(x)

    # The zeros that stand for missing biases have gradients of their own.
    _, report = assert_fuses(towers(branch), layers=(5, 1), gradients=False)
    assert any("2 biases" in note for note in report.notes)
    assert report.regions[0].padded_parameters == 2 * 4
    assert report.after.parameters == report.before.parameters + 2 * 4


def test_softmax_is_taken_over_each_lane():
    assert_fuses(towers(lambda i, x: layers.Dense(4, "softmax")(x)), layers=(5, 1))


def test_shared_input_makes_one_wide_layer_of_unequal_units():
    x = keras.Input((7,))
    heads = [layers.Dense(n, "relu")(x) for n in (3, 5, 2)]
    model = keras.Model(x, layers.Concatenate()(heads))
    assert_fuses(model, layers=(3, 1), operations=["Dense", "Identity"])


def test_q21_unequal_heads_softmax_each_r09_output_names():
    x = keras.Input((7,))
    trunk = layers.Dense(6, "relu")(x)
    heads = [layers.Dense(n, "softmax", name=f"c{i}")(trunk) for i, n in enumerate((3, 4, 3, 2))]
    assert_fuses(keras.Model(x, heads), layers=(4, 1))


@pytest.mark.parametrize("shape", [(7, 3), (7, 3, 2)])
def test_one_unit_in_as_many_lanes_as_samples(shape):
    """`keras.ops.add` would take a bias of shape (7, 1, 1) along the 7 samples."""
    assert_fuses(towers(lambda i, x: layers.Dense(1)(x), shape=shape), layers=(7, 1))


REJECTED = {
    "units 4": lambda i: layers.Dense(4 + i),
    "LoRA": lambda i: layers.Dense(4, lora_rank=2),
    "activity regularizer": lambda i: layers.Dense(4, activity_regularizer="l2"),
    "MaxNorm": lambda i: layers.Dense(4, kernel_constraint="max_norm"),
    "Orthogonal": lambda i: layers.Dense(4, kernel_regularizer="orthogonal_regularizer"),
    "not known to work on each element": lambda i: layers.Dense(4, keras.activations.glu),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    model = towers(lambda i, x: REJECTED[reason](i)(x), shape=(2, 7))
    assert_rejects(model, reason)


def test_different_trainable_makes_two_groups():
    model = towers(lambda i, x: layers.Dense(4, trainable=i < 2)(x), shape=(5, 7))
    fused, _ = assert_fuses(model, regions=2, layers=(5, 2))
    assert sum(np.prod(w.shape) for w in fused.trainable_weights) == 2 * (7 * 4 + 4)


def test_weights_unstack_exactly():
    members = [layers.Dense(4) for _ in range(3)]
    for one in members:
        one.build((None, 7))
    for stack, unstack in ((stack_batched, unstack_batched), (stack_wide, taken_apart)):
        for one, lane in zip(members, unstack(stack(members), 3), strict=True):
            for mine, theirs in zip(one.get_weights(), lane, strict=True):
                np.testing.assert_array_equal(mine, theirs)
