"""`Cropping1D/2D/3D` as slices."""

import keras
import pytest
from keras import layers, ops

from tests.asserts import assert_fuses
from tests.splits.checks import (
    assert_fuses_cheaply,
    assert_left_alone,
    assert_selects,
    assert_shift_is_caught,
    dense_towers,
)

SELECTIONS = {
    "1D": ((7, 3), lambda: layers.Cropping1D((2, 1))),
    "1D, one side": ((7, 3), lambda: layers.Cropping1D((0, 4))),
    "1D, nothing": ((7, 3), lambda: layers.Cropping1D((0, 0))),
    "2D": ((7, 6, 3), lambda: layers.Cropping2D(((2, 1), (0, 4)))),
    "2D, symmetric": ((7, 6, 3), lambda: layers.Cropping2D((2, 1))),
    "2D, channels first": ((3, 7, 6), lambda: layers.Cropping2D(
        ((2, 1), (0, 4)), data_format="channels_first")),
    "3D": ((7, 6, 5, 2), lambda: layers.Cropping3D(((2, 1), (0, 4), (3, 0)))),
    "3D, channels first": ((2, 7, 6, 5), lambda: layers.Cropping3D(
        ((2, 1), (0, 4), (3, 0)), data_format="channels_first")),
}  # fmt: skip


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection(name):
    shape, layer = SELECTIONS[name]
    assert_selects(shape, lambda x: layer()(x))


def test_cropping_of_a_cropping():
    (piece,) = assert_selects(
        (9, 3), lambda x: layers.Cropping1D((1, 1))(layers.Cropping1D((2, 1))(x))
    )
    assert piece.source.call is None


def test_unknown_length_is_left_alone_unless_nothing_goes():
    assert_left_alone((None, 3), lambda x: layers.Cropping1D((2, 1))(x))
    assert_left_alone((None, None, 3), lambda x: layers.Cropping2D(((2, 1), (0, 0)))(x))


def test_an_unknown_size_beside_a_known_one():
    def cuts(x):
        return [layers.Cropping2D(((i, 3 - i), (0, 0)))(x) for i in range(4)]

    assert_fuses_cheaply(dense_towers((5, None, 3), cuts), layers=(4, 1))


def test_a_cropping_that_casts_is_left_alone():
    assert_left_alone((7, 3), lambda x: layers.Cropping1D((2, 1), dtype="float16")(x))


TOWERS = {
    "1D": ((9, 4), lambda x: [layers.Cropping1D((i, 6 - i))(x) for i in (0, 3, 6)], (3, 1)),
    "2D, one axis": ((6, 5, 3), lambda x: [
        layers.Cropping2D(((i, 4 - i), (1, 2)))(x) for i in (0, 2, 4)], (3, 1)),
    "2D, quarters": ((6, 8, 3), lambda x: [
        layers.Cropping2D(((i, 3 - i), (j, 4 - j)))(x) for i in (0, 3) for j in (0, 4)], (4, 1)),
    "channels first": ((3, 6, 5), lambda x: [
        layers.Cropping2D(((i, 4 - i), (1, 2)), data_format="channels_first")(x)
        for i in (0, 2, 4)], (3, 1)),
    "beside a slice": ((9, 4), lambda x: [layers.Cropping1D((6, 0))(x), x[:, 2:5]], (2, 1)),
    "two lengths": ((9, 4), lambda x: [
        layers.Cropping1D(c)(x) for c in ((1, 4), (4, 1), (2, 4), (3, 3))], (4, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", TOWERS)
def test_towers(name):
    shape, cuts, counts = TOWERS[name]
    join = {"two lengths": 1}.get(name, -1)
    x = keras.Input(shape)
    outputs = [layers.Dense(5)(lane) for lane in cuts(x)]
    assert_fuses_cheaply(keras.Model(x, layers.Concatenate(axis=join)(outputs)), layers=counts)


def test_cropped_rows():
    model = dense_towers(
        (6, 5, 3), lambda x: [layers.Cropping2D(((i, 5 - i), (0, 0)))(x) for i in range(6)]
    )
    assert_fuses(model, layers=(6, 1))


def test_shifted_cropping_is_caught():
    def cuts(starts):
        return lambda x: [layers.Cropping1D((i, 6 - i))(x) for i in starts]

    assert_shift_is_caught((9, 4), cuts((0, 3, 6)), cuts((0, 2, 6)), (3, 1))


def test_take_and_split_of_a_cropping():
    def cuts(x):
        rows = layers.Cropping1D((1, 2))(x)
        return ops.split(ops.take(rows, [5, 3, 1, 0, 2, 4], axis=1), 3, axis=1)

    assert_fuses_cheaply(dense_towers((9, 4), cuts), layers=(3, 1))
