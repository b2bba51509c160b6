"""`ops.split` and `ops.unstack`."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from tests.asserts import assert_fuses, operation_names
from tests.builders import randomise
from tests.splits.checks import (
    assert_fuses_cheaply,
    assert_selects,
    assert_shift_is_caught,
    dense_towers,
    pieces_found,
)

SELECTIONS = {
    "equal parts": lambda x: ops.split(x, 3, axis=1),
    "negative axis": lambda x: ops.split(x, 2, axis=-1),
    "indices": lambda x: ops.split(x, [1, 4], axis=1),
    "a tuple": lambda x: ops.split(x, (2, 3, 5), axis=1),
    "an array": lambda x: ops.split(x, np.array([2, 5]), axis=1),
    "one part": lambda x: ops.split(x, 1, axis=1),
    "unstack": lambda x: ops.unstack(x, axis=1),
    "unstack, negative axis": lambda x: ops.unstack(x, axis=-2),
    "unstack, number said": lambda x: ops.unstack(x, 8, axis=2),
    "parts of parts": lambda x: ops.split(ops.split(x, 2, axis=1)[1], 3, axis=1),
    "unstacked parts": lambda x: ops.unstack(ops.split(x, 3, axis=1)[1], axis=1),
    "parts along two axes": lambda x: ops.split(ops.split(x, 2, axis=2)[1], 3, axis=1),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection(name):
    pieces = assert_selects((6, 8, 4), SELECTIONS[name])
    assert all(piece.source.call is None for piece in pieces)


LEFT_ALONE = {
    "the batch axis": ((6,), lambda x: ops.split(x, [1, 2], axis=0), 3),
    "the batch axis unstacked": ((6,), lambda x: ops.unstack(x, 3, axis=0), 3),
    "unknown size": ((None, 6), lambda x: ops.split(x, 2, axis=1), 2),
    "unknown size, indices": ((None, 6), lambda x: ops.split(x, [2], axis=1), 2),
    "unknown size unstacked": ((None, 6), lambda x: ops.unstack(x, 3, axis=1), 3),
    "another number than the size": ((4, 6), lambda x: ops.unstack(x, 3, axis=1), 3),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_left_alone(name):
    shape, select, count = LEFT_ALONE[name]
    assert pieces_found(shape, select) == [None] * count


def test_an_empty_part_is_left_alone():
    found = pieces_found((6, 5), lambda x: ops.split(x, [2, 2], axis=1))
    assert [piece is None for piece in found] == [False, True, False]


TOWERS = {
    "equal parts": ((6, 4), lambda x: ops.split(x, 3, axis=1), (3, 1)),
    "unequal parts": ((3, 9), lambda x: ops.split(x, [2, 4, 7], axis=-1), (4, 1), 1),
    "two widths": ((3, 10), lambda x: ops.split(x, [2, 4, 7], axis=-1), (4, 2)),
    "unstack": ((5, 7), lambda x: ops.unstack(x, axis=1), (5, 1)),
    "unstack the middle": ((7, 3, 5), lambda x: ops.unstack(x, axis=2), (3, 1)),
    "in another order": ((5, 7), lambda x: [ops.unstack(x, axis=1)[i] for i in (3, 0, 4)], (3, 1)),
    "slices of parts": ((6, 7), lambda x: [p[:, 1] for p in ops.split(x, 3, axis=1)], (3, 1)),
    "some outputs": ((6, 7), lambda x: ops.split(x, 3, axis=1)[1:], (2, 1)),
}


@pytest.mark.parametrize("name", TOWERS)
def test_towers(name):
    shape, cuts, counts, *left = TOWERS[name]
    if left:
        counts = (counts[0] - left[0], counts[1])
    assert_fuses_cheaply(dense_towers(shape, cuts), layers=counts)


def test_split_costs_nothing():
    model = dense_towers((3, 8), lambda x: ops.split(x, 4, axis=-1))
    fused, _ = assert_fuses(model, layers=(4, 1))
    assert "Split" not in operation_names(fused)


def test_q04_one_split_with_five_outputs():
    model = dense_towers((5, 5), lambda x: ops.split(x, 5, axis=2), units=1)
    assert_fuses(model, layers=(5, 1))


def test_unequal_parts_after_a_layer():
    x = keras.Input((9,))
    parts = ops.split(layers.Dense(10)(x), [3, 5, 8], axis=-1)
    model = keras.Model(x, [layers.Dense(4)(part) for part in parts])
    assert_fuses_cheaply(randomise(model), layers=(4, 2))


def test_shifted_split_is_caught():
    assert_shift_is_caught(
        (3, 9),
        lambda x: ops.split(x, [3, 6], axis=-1),
        lambda x: (lambda a, b, c: [a, x[..., 4:7], c])(*ops.split(x, [3, 6], axis=-1)),
        (3, 1),
    )


def test_shifted_unstack_is_caught():
    assert_shift_is_caught(
        (5, 7),
        lambda x: ops.unstack(x, axis=1),
        lambda x: [ops.unstack(x, axis=1)[i] for i in (0, 1, 2, 4, 4)],
        (5, 1),
    )
