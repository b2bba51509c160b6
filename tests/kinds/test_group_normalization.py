"""GroupNormalization: groups of all lanes side by side, equal or not in number."""

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.kinds.scaling import stack
from parallel_fuse.kinds.weights import taken_apart
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_fuses, assert_rejects
from tests.builders import channel_towers, randomise, towers

# name → arguments; a branch is (5, 7, 6)
EXAMPLES = {
    "plain": {"groups": 2},
    "each channel alone": {"groups": -1, "epsilon": 0.02},
    "one group": {"groups": 1, "scale": False},
    "no center": {"groups": 3, "center": False},
    "neither": {"groups": 3, "center": False, "scale": False},
    "rows": {"groups": 5, "axis": 1},
    "columns, from the end": {"groups": 7, "axis": -2},
    "regularized": {"groups": 2, "gamma_regularizer": "l2", "beta_constraint": "non_neg"},
    "frozen": {"groups": 2, "trainable": False},
}


def branches(make) -> keras.Model:
    return channel_towers(lambda i, x: make(i)(x), (5, 7, 18), width=6)


@pytest.mark.parametrize("name", EXAMPLES)
def test_channel_slices(name):
    model = branches(lambda i: layers.GroupNormalization(**EXAMPLES[name]))
    fused, _ = assert_fuses(model, layers=(3, 1), control=name != "neither")
    assert fused.count_params() == model.count_params()
    assert any(type(one) is layers.GroupNormalization for one in fused.layers)


def test_channel_slices_need_nothing_around_it():
    model = branches(lambda i: layers.GroupNormalization(groups=2))
    assert_fuses(model, operations=["GroupNormalization", "Identity"])


def test_after_dense():
    def branch(i, x):
        return layers.Dense(3)(layers.GroupNormalization(groups=2)(layers.Dense(4)(x)))

    assert_fuses(towers(branch), layers=(15, 3))


@pytest.mark.parametrize("groups", [-1, None], ids=["each alone", "pairs"])
def test_unequal_widths_with_groups_of_one_length(groups):
    x = keras.Input((9, 4))
    wide = [layers.Conv1D(n, 3, padding="same")(x) for n in (4, 6, 2)]
    normal = [layers.GroupNormalization(groups=groups or y.shape[-1] // 2)(y) for y in wide]
    model = keras.Model(x, layers.Concatenate()(normal))
    assert_fuses(model, layers=(6, 2), operations=["Conv1D", "GroupNormalization", "Identity"])


def test_scale_and_center_of_some_lanes():
    options = ({"scale": False}, {}, {"center": False})
    model = branches(lambda i: layers.GroupNormalization(groups=2, **options[i]))
    assert_fuses(model, layers=(3, 1), gradients=False, control=False)  # new weights


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_half_precision(dtype):
    model = branches(lambda i: layers.GroupNormalization(groups=2, dtype=dtype))
    fused, report = fuse_parallel_branches(randomise(model), policy=EVERYTHING, return_report=True)
    assert report.regions and report.verification.ok  # rounded to half at other places
    assert dtype in {layer.dtype_policy.name for layer in fused.layers}


def test_image_of_unknown_size():
    x = keras.Input((None, None, 6))
    pieces = [x[..., s : s + 2] for s in (0, 2, 4)]
    outputs = [layers.GroupNormalization(groups=2)(piece) for piece in pieces]
    assert_fuses(keras.Model(x, layers.Concatenate()(outputs)), layers=(3, 1))


REJECTED = {
    "channels in a group 3": lambda i: layers.GroupNormalization(groups=2 + i),
    "epsilon 0.5": lambda i: layers.GroupNormalization(groups=2, epsilon=0.5 + i / 4),
    "axis 3": lambda i: layers.GroupNormalization(groups=1, axis=2 + i),
    "scale or center False": lambda i: layers.GroupNormalization(2, scale=i > 0, center=i > 0),
    "scale True": lambda i: layers.GroupNormalization(2, scale=i > 0, gamma_regularizer="l1"),
    "trainable": lambda i: layers.GroupNormalization(2, trainable=i > 0),
    "MaxNorm": lambda i: layers.GroupNormalization(2, gamma_constraint="max_norm"),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    model = channel_towers(lambda i, x: REJECTED[reason](i)(x), (5, 7, 12), width=6)
    assert_rejects(model, reason)


def test_weights_are_taken_apart_exactly():
    members = [layers.GroupNormalization(2) for _ in range(3)]
    random = np.random.default_rng(0)
    for one in members:
        one.build((None, 9, 4))
        one.set_weights([random.normal(size=4) for _ in range(2)])
    for one, lane in zip(members, taken_apart(stack(members), 3), strict=True):
        for mine, theirs in zip(one.get_weights(), lane, strict=True):
            np.testing.assert_array_equal(mine, theirs)
