"""LayerNormalization: as groups where lanes lie side by side, along a lane axis elsewhere."""

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.kinds.scaling import stack
from parallel_fuse.kinds.weights import taken_apart
from parallel_fuse.layers.stacked_normalization import StackedLayerNormalization
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_fuses, assert_rejects
from tests.builders import channel_towers, randomise, towers

# name → arguments
EXAMPLES = {
    "plain": {},
    "no scale": {"scale": False, "epsilon": 0.02},
    "no center": {"center": False},
    "neither": {"scale": False, "center": False},
    "regularized": {"gamma_regularizer": "l2", "beta_constraint": "non_neg"},
    "frozen": {"trainable": False},
}


OWN = keras.backend.backend() == "torch"  # there no lane becomes a group if it need not
other_axes = pytest.mark.skipif(OWN, reason="Keras on torch normalizes over the last axes only")
IN_GROUPS = "StackedLayerNormalization" if OWN else "GroupNormalization"


def kinds_of(model) -> set[str]:
    return {type(one).__name__ for one in model.layers if "Normalization" in type(one).__name__}


@pytest.mark.parametrize("name", EXAMPLES)
def test_channel_slices_become_groups(name):
    model = channel_towers(lambda i, x: layers.LayerNormalization(**EXAMPLES[name])(x), (12,), 4)
    fused, _ = assert_fuses(model, layers=(3, 1), control=name != "neither")
    assert fused.count_params() == model.count_params()
    stock = "LayerNormalization" if name == "neither" else IN_GROUPS
    assert kinds_of(fused) == {stock}


def test_nothing_stands_around_the_groups():
    model = channel_towers(lambda i, x: layers.LayerNormalization()(x), (12,), 4)
    assert_fuses(model, operations=["GroupNormalization", "Identity"], portable=True)


@pytest.mark.parametrize("shape", [(3, 7), (5, 3, 7)])
def test_slices_with_an_axis_of_their_own(shape):
    axis = len(shape) - 1
    model = towers(lambda i, x: layers.LayerNormalization()(x), shape, axis)
    fused, _ = assert_fuses(model, layers=(3, 1))
    assert kinds_of(fused) == {IN_GROUPS}


@pytest.mark.parametrize("axis", [-1, [-1, -2], [1, 2, 3]])
def test_axes_of_an_image(axis):
    model = channel_towers(lambda i, x: layers.LayerNormalization(axis=axis)(x), (4, 5, 18), 6)
    assert_fuses(model, layers=(3, 1))


@other_axes
@pytest.mark.parametrize("axis", [1, [1, 2], [-1, 1], [2, -3]])
def test_other_axes_of_an_image(axis):
    model = channel_towers(lambda i, x: layers.LayerNormalization(axis=axis)(x), (4, 5, 18), 6)
    assert_fuses(model, layers=(3, 1))


@pytest.mark.parametrize("name", EXAMPLES)
def test_between_dense_layers_where_they_lie(name):
    def branch(i, x):
        return layers.Dense(3)(layers.LayerNormalization(**EXAMPLES[name])(layers.Dense(4)(x)))

    fused, _ = assert_fuses(towers(branch), layers=(15, 3))
    own = "LayerNormalization" if name == "neither" else "StackedLayerNormalization"
    assert kinds_of(fused) == {own}
    assert not any(type(one).__name__ == "Transpose" for one in fused.operations[5:-3])


@pytest.mark.parametrize("axis", [-1, [-2, -1]])
def test_only_stock_layers(axis):
    def branch(i, x):
        return layers.Dense(3)(layers.LayerNormalization(axis=axis)(layers.Dense(4)(x)))

    fused, _ = assert_fuses(towers(branch, (5, 6, 7)), layers=(15, 3), portable=True)
    assert kinds_of(fused) == {"GroupNormalization"}


@other_axes
def test_no_stock_layer_for_other_axes():
    model = channel_towers(lambda i, x: layers.LayerNormalization(axis=1)(x), (9, 6))
    assert_rejects(model, "axis (1,): not the last ones", portable=True)


def test_unknown_length():
    def branch(i, x):
        return layers.LayerNormalization()(x)

    model = channel_towers(branch, (None, 12), 4)
    fused, _ = assert_fuses(model, layers=(3, 1))
    assert kinds_of(fused) == {"StackedLayerNormalization"}
    assert_rejects(model, "sizes that are unknown beside the batch", portable=True)


@other_axes
def test_without_weights_any_size_may_be_unknown():
    options = {"axis": 1, "scale": False, "center": False}
    x = keras.Input((None, 12))
    pieces = [x[..., s : s + 4] for s in (0, 4, 8)]
    outputs = [layers.LayerNormalization(**options)(piece) for piece in pieces]
    assert_fuses(keras.Model(x, layers.Concatenate()(outputs)), layers=(3, 1), control=False)


def test_one_tensor_normalized_in_three_ways():
    x = keras.Input((9, 4))
    normal = [layers.Dense(5)(layers.LayerNormalization()(x)) for _ in range(3)]
    assert_fuses(keras.Model(x, layers.Concatenate()(normal)), layers=(6, 2))


def test_one_tensor_without_weights_is_normalized_once():
    x = keras.Input((9, 4))
    normal = [layers.LayerNormalization(scale=False, center=False)(x) for _ in range(3)]
    outputs = [layers.Dense(2 + i)(y) for i, y in enumerate(normal)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(outputs)))
    assert sum(type(one) is layers.LayerNormalization for one in fused.layers) == 1


def test_scale_and_center_of_some_lanes():
    options = ({"scale": False}, {}, {"center": False})  # two lanes get a weight more
    model = channel_towers(lambda i, x: layers.LayerNormalization(**options[i])(x), (12,), 4)
    fused, report = assert_fuses(model, layers=(3, 1), gradients=False, control=False)
    assert fused.count_params() == model.count_params() + 2 * 4
    assert [region.padded_parameters for region in report.regions] == [2 * 4]
    assert "2 gammas and betas that were missing are neutral now" in str(report)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float16"])
@pytest.mark.parametrize("between", [False, True])
def test_half_precision(dtype, between):
    def branch(i, x):
        x = layers.Dense(4, dtype=dtype)(x) if between else x
        return layers.LayerNormalization(dtype=dtype)(x)

    model = towers(branch, (5, 7), join=layers.Concatenate(dtype=dtype))
    fused, report = fuse_parallel_branches(randomise(model), policy=EVERYTHING, return_report=True)
    assert report.regions and report.verification.ok  # rounded to half at other places
    (layer,) = (one for one in fused.layers if "Normalization" in type(one).__name__)
    assert layer.compute_dtype == layer.output.dtype == dtype.removeprefix("mixed_")


REJECTED = {
    "epsilon 0.5": lambda i: layers.LayerNormalization(epsilon=0.5 + i / 4),
    "axis 2": lambda i: layers.LayerNormalization(axis=[[1, 2], 2][i]),
    "scale or center False": lambda i: layers.LayerNormalization(scale=i > 0, center=i > 0),
    "scale True": lambda i: layers.LayerNormalization(scale=i > 0, gamma_regularizer="l1"),
    "trainable": lambda i: layers.LayerNormalization(trainable=i > 0),
    "MaxNorm": lambda i: layers.LayerNormalization(gamma_constraint="max_norm"),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    model = channel_towers(lambda i, x: REJECTED[reason](i)(x), (9, 4))
    assert_rejects(model, reason)


@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")
def test_rms_scaling_is_rejected():
    model = channel_towers(lambda i, x: layers.LayerNormalization(rms_scaling=True)(x), (9, 4))
    assert_rejects(model, "rms_scaling: the mean is not subtracted")


def test_unequal_widths_are_rejected():
    x = keras.Input((9, 8))
    halves = [layers.LayerNormalization()(x[..., :3]), layers.LayerNormalization()(x[..., 3:])]
    assert_rejects(keras.Model(x, layers.Concatenate()(halves)), "input shape (None, 9, 5)")


def test_whole_numbers_are_rejected():
    x = keras.Input((7, 4), dtype="int32")
    halves = [layers.LayerNormalization()(x[..., :2]), layers.LayerNormalization()(x[..., 2:])]
    assert_rejects(keras.Model(x, halves), "normalizes int32, expected floats")


def test_weights_are_taken_apart_exactly():
    members = [layers.LayerNormalization(axis=(1, 2)) for _ in range(3)]
    random = np.random.default_rng(0)
    for one in members:
        one.build((None, 9, 4))
        one.set_weights([random.normal(size=(9, 4)) for _ in range(2)])
    for one, lane in zip(members, taken_apart(stack(members), 3), strict=True):
        for mine, theirs in zip(one.get_weights(), lane, strict=True):
            np.testing.assert_array_equal(mine.reshape(-1), theirs)


def test_the_layer_of_the_package_keeps_its_configuration():
    layer = StackedLayerNormalization(
        [2, 3], 1, epsilon=0.5, scale=False, beta_regularizer="l1", beta_constraint="non_neg"
    )
    twin = StackedLayerNormalization.from_config(layer.get_config())
    assert twin.get_config() == layer.get_config()
    assert twin(np.ones((2, 3, 4, 5), "float32")).shape == (2, 3, 4, 5)
    assert [w.shape for w in twin.weights] == [(60,)]
