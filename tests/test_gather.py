"""Old values as lanes: cut again where they were joined, mixed orders, single lanes."""

import keras
import pytest
from keras import layers, ops

from tests.asserts import assert_fuses
from tests.builders import slices

PLAIN = ["Transpose", "EinsumDense", "EinsumDense", "Transpose", "Reshape"]


def test_lanes_joined_and_cut_again_stay_lanes():
    x = keras.Input((5, 7))
    joined = layers.Concatenate()([layers.Dense(3, "relu")(y) for y in slices(x, 5)])
    again = [layers.Dense(2)(joined[:, 3 * i : 3 * i + 3]) for i in range(5)]
    model = keras.Model(x, layers.Concatenate(name="out")(again))
    assert_fuses(model, regions=2, layers=(10, 2), operations=PLAIN)


def test_lanes_stacked_and_cut_again_stay_lanes():
    x = keras.Input((5, 7))
    stacked = ops.stack([layers.Dense(3, "relu")(y) for y in slices(x, 5)], axis=1)
    again = [layers.Dense(2)(stacked[:, i]) for i in range(5)]
    model = keras.Model(x, layers.Concatenate(name="out")(again))
    assert_fuses(model, regions=2, layers=(10, 2), operations=PLAIN)


@pytest.mark.parametrize("cut", [(0, 3, 6), (1, 4, 7)])
def test_lanes_cut_elsewhere_are_cut_as_said(cut):
    """Boundaries that are not those of the join must not be taken for them."""
    x = keras.Input((5, 7))
    joined = layers.Concatenate()([layers.Dense(3, "relu")(y) for y in slices(x, 5)])
    again = [layers.Dense(2)(joined[:, c : c + 2]) for c in cut]
    assert_fuses(keras.Model(x, layers.Concatenate()(again)), layers=(8, 2), regions=2)


def test_lanes_of_two_groups_in_turn():
    x, z = keras.Input((3, 7)), keras.Input((3, 4))
    ones = [layers.Dense(2, "relu")(y) for y in slices(x, 3)]
    others = [layers.Dense(2, "tanh")(y) for y in slices(z, 3)]
    mixed = [y for pair in zip(ones, others) for y in pair]
    upper = [layers.Dense(5)(y) for y in mixed]
    model = keras.Model([x, z], layers.Concatenate()(upper))
    assert_fuses(model, regions=2, layers=(12, 4))
