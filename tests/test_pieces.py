"""Selections: composed, compared and made into lanes, against NumPy."""

from itertools import product

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from parallel_fuse.graph import Value
from parallel_fuse.lanes import Layout
from parallel_fuse.pieces import compose, select, to_lanes, varying_axes
from parallel_fuse.plan import Piece
from tests.splits.checks import cut

SHAPE = (2, 5, 4, 3)
SOURCE = Value(0, (None, *SHAPE[1:]), "float32", None, 0)
ARRAY = np.random.default_rng(0).normal(size=SHAPE).astype("float32")


def piece(*picks, inserts=()) -> Piece:
    return Piece(SOURCE, (None, *picks), inserts)


def picks_of(size: int):
    """A whole axis, one index, or a few in any order."""
    some = st.lists(st.integers(0, size - 1), min_size=1, max_size=3).map(tuple)
    return st.one_of(st.none(), st.integers(0, size - 1), some)


def pieces(shape=SHAPE):
    return st.tuples(*map(picks_of, shape[1:])).map(lambda picks: piece(*picks))


@given(pieces())
def test_select_is_numpy_indexing(one):
    result = select(ops.convert_to_tensor(ARRAY), one.picks)
    np.testing.assert_array_equal(ops.convert_to_numpy(result), cut(ARRAY, one))


@given(st.data())
def test_composed_is_one_after_the_other(data):
    inner = data.draw(pieces())
    middle = cut(ARRAY, inner)
    between = Value(1, middle.shape, "float32", 0, 0)
    picks = data.draw(st.tuples(*map(picks_of, middle.shape[1:])))
    outer = Piece(between, (None, *picks), data.draw(st.sampled_from([(), (1,), (1, 2)])))
    np.testing.assert_array_equal(cut(ARRAY, compose(inner, outer)), cut(middle, outer))
    assert compose(inner, outer).source is SOURCE


def test_nothing_is_composed_with_new_axes():
    assert compose(piece(None, 1, None, inserts=(1,)), piece(None, 1, None)) is None


def alike(axis: int):
    """Pieces that differ along one axis only, in any of the three forms."""

    def build(data):
        size = SHAPE[axis]
        others = [data.draw(picks_of(n)) for n in SHAPE[1:]]
        width = data.draw(st.integers(0, 3))
        index = st.integers(0, size - 1)
        some = st.lists(index, min_size=width, max_size=width).map(tuple) if width else index
        chosen = data.draw(st.lists(some, min_size=2, max_size=6))
        inserts = data.draw(st.sampled_from([(), (1,), (2,), (1, 2)]))
        rank = 1 + sum(not isinstance(p, int) for i, p in enumerate(others, 1) if i != axis)
        rank += width > 0
        fitting = tuple(i for i in inserts if i <= rank)
        return [piece(*others[: axis - 1], c, *others[axis:], inserts=fitting) for c in chosen]

    return build


@given(st.data(), st.integers(1, 3))
def test_lanes_along_one_axis(data, axis):
    found = alike(axis)(data)
    axes = varying_axes(found)
    assert axes in ((), (axis,))
    if axes:
        assert_lanes(found)


def assert_lanes(found, portable=False):
    lanes = to_lanes(found, ops.convert_to_tensor(ARRAY), varying_axes(found), portable)
    assert lanes.count == len(found)
    expected = [cut(ARRAY, one) for one in found]
    for index, one in enumerate(expected):
        np.testing.assert_array_equal(ops.convert_to_numpy(lanes.lane(index)), one)
    stacked = ops.convert_to_numpy(lanes.to(Layout(0)))
    np.testing.assert_array_equal(stacked, np.stack(expected))


GRIDS = {
    "patches": [((0, 1), (2, 3)), ((0, 1), (1, 2))],
    "points": [(3, 0, 4), (1, 3)],
    "points and strips": [(2, 0), ((0, 1), (1, 3), (2, 0))],
    "strips and points": [((4, 0), (1, 1)), (1, 3, 0)],
    "three axes": [((0, 1), (2, 3)), (3, 1), ((0,), (2,), (1,))],
    "three axes of points": [(4, 0), (3, 1), (0, 2, 1)],
}


@pytest.mark.parametrize("order", ["in order", "reversed", "mixed"])
@pytest.mark.parametrize("name", GRIDS)
def test_lanes_of_a_grid(name, order):
    cells = list(product(*GRIDS[name]))
    found = [piece(*cell, *[None] * (3 - len(cell))) for cell in cells]
    if order == "reversed":
        found.reverse()
    if order == "mixed":
        found = [found[i] for i in np.random.default_rng(1).permutation(len(found))]
        found.append(found[0])
    assert_lanes(found)
    assert_lanes(found, portable=True)


def test_a_grid_beside_other_selections():
    found = [piece(i, (2, 0), j, inserts=(1,)) for i, j in product((4, 2), (0, 2, 1))]
    assert varying_axes(found) == (1, 3)
    assert_lanes(found)


NO_LANES = {
    "a grid with a gap": [piece(0, 1, None), piece(0, 2, None), piece(1, 1, None)],
    "a diagonal": [piece(0, 1, None), piece(1, 2, None), piece(2, 3, None)],
    "an index and a slice": [piece(0, None, None), piece((1,), None, None)],
    "two widths": [piece((0, 1), None, None), piece((2, 3, 4), None, None)],
    "a whole axis and a part": [piece(None, None, None), piece((0, 1, 2, 3, 3), None, None)],
    "different new axes": [piece(0, None, None), piece(1, None, None, inserts=(1,))],
    "two tensors": [
        piece(0, None, None),
        Piece(Value(1, SOURCE.shape, "float32", None, 1), (None, 1, None, None)),
    ],
}


@pytest.mark.parametrize("name", NO_LANES)
def test_no_lanes_of_one_tensor(name):
    assert varying_axes(NO_LANES[name]) is None


def test_equal_pieces_vary_along_no_axis():
    assert varying_axes([piece(2, None, (0, 1))] * 3) == ()


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("shape", [(5, None, 3), (None, 4, 3), (None, None, 6)])
def test_unknown_sizes_beside_the_lanes(shape, portable):
    axis = 1 if shape[0] else 3
    x = keras.Input(shape)
    source = Value(0, (None, *shape), "float32", None, 0)
    width = 2 if axis == 3 else 1
    starts = range(0, x.shape[axis] - width + 1, width)
    found = [
        Piece(source, tuple(tuple(range(s, s + width)) if a == axis else None for a in range(4)))
        for s in starts
    ]
    lanes = to_lanes(found, x, (axis,), portable)
    model = keras.Model(x, [lanes.to(Layout(0)), lanes.to(Layout(4)), *lanes.all()])
    array = np.random.default_rng(2).normal(size=(2, *(n or 7 for n in shape))).astype("float32")
    leading, last, *single = model(array)
    expected = [cut(array, one) for one in found]
    np.testing.assert_array_equal(leading, np.stack(expected))
    np.testing.assert_array_equal(last, np.stack(expected, axis=-1))
    for one, other in zip(single, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_slices_that_tile_an_axis_are_the_tensor_itself():
    tensor = ops.convert_to_tensor(ARRAY)
    rows = to_lanes([piece(i, None, None) for i in range(5)], tensor, (1,), False)
    assert rows.to(Layout(1)) is tensor
    pairs = to_lanes([piece(None, (0, 1), None), piece(None, (2, 3), None)], tensor, (2,), False)
    assert pairs.to(Layout(2, folded=True)) is tensor
