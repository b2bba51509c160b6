"""BatchNormalization: what fuses, what does not, and its statistics in training."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.kinds.normalization import stack
from parallel_fuse.kinds.weights import taken_apart
from parallel_fuse.policy import Policy
from tests.asserts import TOLERANCE, assert_fuses, assert_rejects
from tests.builders import channel_towers, inputs_for, randomise, towers
from tests.devices import GROUPED_CONV, TENSORFLOW, channels_first

# name → arguments; the last axis is the channels, 1 the steps of a (9, 2) branch
EXAMPLES = {
    "plain": {},
    "no scale": {"scale": False, "epsilon": 0.01},
    "no center": {"center": False, "momentum": 0.7},
    "neither": {"scale": False, "center": False},
    "frozen": {"trainable": False},
    "steps": {"axis": 1, "momentum": 0.7},
    "steps, from the end": {"axis": -2, "momentum": 0.7},
    "renorm": {"renorm": True, "renorm_clipping": {"rmax": 3.0, "dmax": 5.0}},
}
if TENSORFLOW:  # Keras has it nowhere else
    EXAMPLES["synchronized"] = {"synchronized": True, "momentum": 0.7}


def branches(arguments) -> keras.Model:
    return channel_towers(lambda i, x: layers.BatchNormalization(**arguments)(x), (9, 6))


@pytest.mark.parametrize("name", ["plain", "no scale", "no center", "neither", "steps"])
def test_channel_slices(name):
    model = branches(EXAMPLES[name])
    operations = ["BatchNormalization", "Identity"] if name != "steps" else None
    fused, _ = assert_fuses(model, layers=(3, 1), operations=operations)
    assert fused.count_params() == model.count_params()


def normalizations(model) -> list:
    return [one for one in model.layers if type(one) is layers.BatchNormalization]


@pytest.mark.parametrize("name", EXAMPLES)
def test_training_moves_the_statistics_alike(name):
    model = randomise(branches(EXAMPLES[name]))
    fused = fuse_parallel_branches(model)
    before = [ops.convert_to_numpy(w) for w in model.non_trainable_weights]
    for seed in (1, 2):
        x = inputs_for(model, 7, seed)
        expected, found = (
            ops.convert_to_numpy(one(x, training=True)) for one in (model, fused)
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=20 * TOLERANCE)
    (together,) = normalizations(fused)
    lanes = taken_apart(together.get_weights(), 3)
    for one, lane in zip(normalizations(model), lanes, strict=True):
        for theirs, mine in zip(lane, one.get_weights(), strict=True):
            np.testing.assert_allclose(theirs, mine, rtol=1e-5, atol=1e-6)
    after = map(ops.convert_to_numpy, model.non_trainable_weights)
    moved = [np.abs(new - old).max() for new, old in zip(after, before)]
    assert max(moved) == 0 if name == "frozen" else min(moved) > 0


@pytest.mark.parametrize("axis", [pytest.param(1, marks=channels_first), 2])
def test_whole_tower_with_batch_normalization_stays_folded(axis):
    data_format = "channels_first" if axis == 1 else "channels_last"

    def branch(x):
        x = layers.Conv1D(4, 3, use_bias=False, data_format=data_format)(x)
        return layers.Conv1D(3, 2, data_format=data_format)(layers.BatchNormalization(axis)(x))

    x = keras.Input((6, 9) if axis == 1 else (9, 6))
    pieces = [x[:, s : s + 2] if axis == 1 else x[..., s : s + 2] for s in (0, 2, 4)]
    model = keras.Model(x, layers.Concatenate(axis=axis)([branch(piece) for piece in pieces]))
    operations = [f"{GROUPED_CONV}1D", "BatchNormalization", f"{GROUPED_CONV}1D", "Identity"]
    assert_fuses(model, layers=(9, 3), operations=operations)


def test_after_dense():
    def branch(i, x):
        return layers.Dense(3)(layers.BatchNormalization()(layers.Dense(4)(x)))

    assert_fuses(towers(branch), layers=(15, 3))


def test_unequal_widths_after_a_wide_layer():
    x = keras.Input((9, 4))
    wide = [layers.BatchNormalization(scale=False)(layers.Conv1D(n, 3)(x)) for n in (3, 5, 2)]
    model = keras.Model(x, layers.Concatenate()(wide))
    assert_fuses(model, layers=(6, 2), operations=["Conv1D", "BatchNormalization", "Identity"])


def test_one_tensor_normalized_in_three_ways():
    x = keras.Input((9, 4))
    model = keras.Model(x, layers.Concatenate()([layers.BatchNormalization()(x) for _ in range(3)]))
    assert_fuses(model, layers=(3, 1))


REJECTED = {
    "scale True": lambda i: layers.BatchNormalization(scale=i > 0),
    "center False": lambda i: layers.BatchNormalization(center=i > 0),
    "momentum 0.5": lambda i: layers.BatchNormalization(momentum=0.5 + i / 4),
    "axis 2": lambda i: layers.BatchNormalization(axis=1 + i),
    "trainable": lambda i: layers.BatchNormalization(trainable=i > 0),
    "MaxNorm": lambda i: layers.BatchNormalization(gamma_constraint="max_norm"),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    model = channel_towers(lambda i, x: REJECTED[reason](i)(x), (9, 4))
    assert_rejects(model, reason)


def test_alone_behind_unlike_layers_it_does_not_pay():
    x = keras.Input((9, 4))
    convolved = [layers.Conv1D(3, 2 + i, padding="same")(x) for i in (0, 1)]
    model = keras.Model(x, [layers.BatchNormalization()(one) for one in convolved])
    assert_rejects(model, "fewer kernels", policy=Policy())


def test_weights_are_taken_apart_exactly():
    members = [layers.BatchNormalization() for _ in range(3)]
    random = np.random.default_rng(0)
    for one in members:
        one.build((None, 9, 4))
        one.set_weights([random.normal(size=4) for _ in range(4)])
    for one, lane in zip(members, taken_apart(stack(members), 3), strict=True):
        for mine, theirs in zip(one.get_weights(), lane, strict=True):
            np.testing.assert_array_equal(mine, theirs)
