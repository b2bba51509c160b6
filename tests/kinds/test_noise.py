"""The Dropout family: inference is exact, training draws noise of the same distribution."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_fuses, assert_rejects, operation_names
from tests.builders import channel_towers, towers


def between_dense(middle, shape=(3, 7)) -> keras.Model:
    return towers(lambda i, x: layers.Dense(2)(middle(i)(layers.Dense(4)(x))), shape=shape)


def between_conv(middle) -> keras.Model:
    return channel_towers(
        lambda i, x: layers.Conv1D(2, 3)(middle(i)(layers.Conv1D(4, 2)(x))), shape=(9, 6)
    )


ANY_LAYOUT = {
    "Dropout": lambda i: layers.Dropout(0.3),
    "Dropout with seeds": lambda i: layers.Dropout(0.3, seed=i),
    "no Dropout": lambda i: layers.Dropout(0.0, seed=4),
    "AlphaDropout": lambda i: layers.AlphaDropout(0.3),
    "GaussianNoise": lambda i: layers.GaussianNoise(0.3),
    "GaussianDropout": lambda i: layers.GaussianDropout(0.3),
    "one seed": lambda i: layers.Dropout(0.3, seed=4),
    "noise shape": lambda i: layers.Dropout(0.3, noise_shape=(None, 1)),
}


@pytest.mark.parametrize("case", ANY_LAYOUT)
def test_between_dense_layers_the_lanes_stay_in_front(case):
    middle = type(ANY_LAYOUT[case](0)).__name__
    assert_fuses(
        between_dense(ANY_LAYOUT[case]),
        layers=(9, 3),
        operations=["Transpose", "EinsumDense", middle, "EinsumDense", "Transpose", "Reshape"],
    )


@pytest.mark.parametrize("case", ["Dropout", "AlphaDropout", "GaussianNoise", "GaussianDropout"])
def test_between_convolutions_the_channels_stay_as_they_lie(case):
    fused, _ = assert_fuses(between_conv(ANY_LAYOUT[case]), layers=(9, 3))
    assert not {"Reshape", "Transpose"} & set(operation_names(fused))


SPATIAL = {
    "own noise": lambda i: layers.SpatialDropout1D(0.4),
    "own noise by seeds": lambda i: layers.SpatialDropout1D(0.4, seed=i),
    "one seed": lambda i: layers.SpatialDropout1D(0.4, seed=4),
}


@pytest.mark.parametrize("case", SPATIAL)
def test_spatial_dropout(case):
    assert_fuses(between_conv(SPATIAL[case]), layers=(9, 3))


def test_spatial_dropout_of_images_in_both_formats():
    assert_fuses(channel_towers(lambda i, x: layers.SpatialDropout2D(0.4)(x)), layers=(3, 1))
    x = keras.Input((6, 5, 4))
    outputs = [layers.SpatialDropout2D(0.4, "channels_first")(x[:, i : i + 2]) for i in (0, 2, 4)]
    assert_fuses(keras.Model(x, layers.Concatenate(axis=1)(outputs)), layers=(3, 1))


def test_spatial_dropout_keeps_a_mixed_policy():
    model = between_conv(lambda i: layers.SpatialDropout1D(0.4, dtype="mixed_float16"))
    # Keras saves this layer without its policy, fused or not.
    fused, _ = assert_fuses(model, layers=(9, 3), reload=False)
    middle = next(one for one in fused.layers if isinstance(one, layers.SpatialDropout1D))
    assert middle.dtype_policy.name == "mixed_float16"


def test_lanes_of_unequal_width():
    x = keras.Input((7,))
    heads = [layers.Dropout(0.3)(layers.Dense(n)(x)) for n in (4, 3, 5)]
    model = keras.Model(x, layers.Concatenate()(heads))
    assert_fuses(model, layers=(6, 2), operations=["Dense", "Dropout", "Identity"])


# Training. A tensor of ones goes in, so that the noise can be read from the result.


def noise(branch, shape=(3, 40), batch=50, **options) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of the original and of the fused model in training: (batch, lanes, …) each."""
    x = keras.Input(shape)
    outputs = [branch(i, x[:, i]) for i in range(shape[0])]
    model = keras.Model(x, keras.ops.stack(outputs, axis=1))
    fused, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    assert report.regions
    ones = np.ones((batch, *shape), "float32")
    return tuple(ops.convert_to_numpy(m(ones, training=True)) for m in (model, fused))


def test_each_lane_and_element_draws_its_own_noise():
    _, after = noise(lambda i, x: layers.Dropout(0.3)(x))
    kept = after > 0
    assert abs(kept.mean() - 0.7) < 0.02  # 6000 draws: standard deviation 0.006
    np.testing.assert_allclose(after[kept], 1 / 0.7, rtol=1e-6)
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs((kept[:, one] & kept[:, other]).mean() - 0.49) < 0.04


@pytest.mark.parametrize("cls", [layers.AlphaDropout, layers.GaussianDropout, layers.GaussianNoise])
def test_mean_and_spread_of_the_noise_stay(cls):
    before, after = noise(lambda i, x: cls(0.3)(x))
    assert abs(before.mean() - after.mean()) < 0.06
    assert abs(before.std() / after.std() - 1) < 0.06
    assert not np.array_equal(after[:, 0], after[:, 1])


def test_a_noise_shape_holds_within_each_lane():
    _, after = noise(lambda i, x: layers.Dropout(0.3, noise_shape=(None, 1))(x))
    kept = after > 0
    assert (kept == kept[..., :1]).all()
    assert not (kept[:, :1] == kept).all()


@pytest.mark.parametrize("cls", [layers.Dropout, layers.AlphaDropout])
def test_layers_of_one_seed_draw_the_very_same_noise_as_before(cls):
    before, after = noise(lambda i, x: cls(0.3, seed=7)(x))
    np.testing.assert_array_equal(before[:, 0], before[:, 1])
    np.testing.assert_array_equal(after, before)


def test_one_seed_and_a_noise_shape():
    before, after = noise(lambda i, x: layers.Dropout(0.3, noise_shape=(None, 1), seed=7)(x))
    np.testing.assert_array_equal(after, before)


def test_a_layer_called_in_every_lane_draws_anew_in_each():
    shared = layers.Dropout(0.3, seed=7)
    _, after = noise(lambda i, x: shared(x))
    assert not np.array_equal(after[:, 0], after[:, 1])


def test_spatial_dropout_drops_whole_channels_of_each_lane():
    _, after = noise(lambda i, x: layers.SpatialDropout1D(0.4)(x), shape=(3, 6, 30))
    kept = after > 0
    assert (kept == kept[:, :, :1]).all()
    assert abs(kept.mean() - 0.6) < 0.05  # 4500 draws
    assert not np.array_equal(kept[:, 0], kept[:, 1])


def test_spatial_dropout_of_one_seed():
    before, after = noise(lambda i, x: layers.SpatialDropout1D(0.4, seed=7)(x), shape=(3, 6, 30))
    np.testing.assert_array_equal(after, before)


def test_one_tensor_and_one_seed_are_one_layer():
    x = keras.Input((7,))
    outputs = [layers.GaussianNoise(0.3, seed=7)(x) for _ in range(3)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(outputs)), layers=(3, 1))
    assert operation_names(fused) == ["GaussianNoise", "Concatenate"]


REJECTED = {
    "rate 0.2, its siblings 0.1": lambda i: layers.Dropout([0.1, 0.2][i]),
    "seed 3: lanes of one seed": lambda i: layers.GaussianNoise(0.1, seed=3),
    "noise_shape": lambda i: layers.Dropout(0.1, noise_shape=[None, (None, 1)][i]),
    "activity regularizer": lambda i: layers.ActivityRegularization(l2=0.1),
    "call arguments": lambda i: lambda x: layers.Dropout(0.1)(x, training=[None, False][i]),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    assert_rejects(towers(lambda i, x: REJECTED[reason](i)(x), shape=(2, 7)), reason)


def test_some_lanes_of_one_seed_are_rejected():
    model = towers(lambda i, x: layers.Dropout(0.1, seed=[1, 1, 2, None][i])(x), shape=(4, 7))
    assert_rejects(model, "seed 1: lanes of one seed draw the same noise")
