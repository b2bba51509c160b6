"""`x[…]` and `ops.take`: which selections are pieces, which are left alone, what they fuse to."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse.graph import Graph, Value
from parallel_fuse.pieces import pieces_of
from parallel_fuse.splits import SPLITS
from parallel_fuse.splits.indexing import getitem_pieces, take_pieces
from tests.asserts import assert_fuses, operation_names
from tests.splits.checks import (
    assert_fuses_cheaply,
    assert_left_alone,
    assert_selects,
    assert_shift_is_caught,
    dense_towers,
)

SELECTIONS = {
    "index": lambda x: x[:, 2],
    "negative index": lambda x: x[:, -1],
    "two indices": lambda x: x[:, 2, -3],
    "slice": lambda x: x[:, 1:4],
    "open slice": lambda x: x[:, 2:],
    "negative bounds": lambda x: x[:, -4:-1],
    "bounds beyond the end": lambda x: x[:, 3:99],
    "step": lambda x: x[:, ::2],
    "step from the second": lambda x: x[:, 1::2],
    "negative step": lambda x: x[:, ::-1],
    "negative step with bounds": lambda x: x[:, 4:1:-2],
    "numpy integers in a slice": lambda x: x[:, np.int64(1) : np.int32(3)],
    "last axis": lambda x: x[..., 3],
    "ellipsis in the middle": lambda x: x[:, ..., 1:3],
    "ellipsis and both sides": lambda x: x[:, 1, ..., 2],
    "ellipsis that stands for nothing": lambda x: x[:, 1, ..., 2:4, 3],
    "new axis at the end": lambda x: x[:, 2, :, :, None],
    "new axis after the batch": lambda x: x[:, None, 2],
    "new axes around": lambda x: x[:, None, 2, ..., None],
    "slices on two axes": lambda x: x[:, 1:3, 2:5],
    "index behind a slice": lambda x: x[:, 1:4, 2],
    "everything": lambda x: x[:, ...],
    "key as a list": lambda x: ops.get_item(x, [slice(None), 2]),
    "slice of a slice": lambda x: x[:, 1:5][:, ::2][:, 1],
    "index of a reversed slice": lambda x: x[:, ::-1][:, 1],
    "slice of an index": lambda x: x[:, 3][:, 2:],
    "new axis on a slice": lambda x: x[:, 1:4][:, :, None],
    "take one": lambda x: ops.take(x, 2, axis=1),
    "take a negative one": lambda x: ops.take(x, -2, axis=1),
    "take a list": lambda x: ops.take(x, [4, 0, 3], axis=1),
    "take a tuple of negatives": lambda x: ops.take(x, (-1, 0, -3), axis=2),
    "take an array, repeated": lambda x: ops.take(x, np.array([1, 1, 2]), axis=-1),
    "take a tensor of constants": lambda x: ops.take(x, ops.convert_to_tensor([3, 1]), axis=1),
    "take of a take": lambda x: ops.take(ops.take(x, [4, 2, 0], axis=1), [2, 0], axis=1),
    "index of a take": lambda x: ops.take(x, [4, 2, 0], axis=2)[:, :, 1],
}


def skip_what_the_backend_lacks(name: str) -> None:
    backend = keras.backend.backend()
    if name == "key as a list" and backend != "tensorflow":
        pytest.skip(f"{backend} takes no such key")
    if backend == "torch" and ("negative step" in name or "reversed" in name):
        pytest.skip("PyTorch takes no negative step")


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection(name):
    skip_what_the_backend_lacks(name)
    (piece,) = assert_selects((5, 6, 4), SELECTIONS[name])
    assert piece.source.call is None, "composed down to the input"


LEFT_ALONE = {
    "the batch axis": lambda x: x[0],
    "a part of the batch": lambda x: x[1:, ...],
    "a new axis before the batch": lambda x: x[None, ...],
    "nothing at all": lambda x: x[:, 3:3],
    "take of the batch": lambda x: ops.take(x, [0, 1], axis=0),
    "take of the batch, negative axis": lambda x: ops.take(x, [0], axis=-4),
    "take of the flattened tensor": lambda x: ops.take(x, [0, 5], axis=None),
    "take out of range": lambda x: ops.take(x, [0, 5], axis=1),
    "take out of range below": lambda x: ops.take(x, -6, axis=1),
    "take in two dimensions": lambda x: ops.take(x, [[0, 1], [2, 3]], axis=1),
    "take nothing": lambda x: ops.take(x, np.zeros(0, "int32"), axis=1),
    "take at computed places": lambda x: ops.take(x, ops.cast(x[0, 0, 0] > 0, "int32"), axis=1),
    "take from a constant": lambda x: ops.take(np.eye(3), ops.cast(x[:, 0, 0], "int32"), axis=1),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_left_alone(name):
    assert_left_alone((5, 6, 4), LEFT_ALONE[name])


UNKNOWN_SIZES = {
    "index": lambda x: x[:, -1],
    "slice": lambda x: x[:, -3:],
    "step": lambda x: x[:, ::2],
    "take": lambda x: ops.take(x, [0, 1], axis=1),
}


@pytest.mark.parametrize("name", UNKNOWN_SIZES)
def test_an_axis_of_unknown_size_is_left_alone(name):
    assert_left_alone((None, 6), UNKNOWN_SIZES[name])


def test_other_axes_beside_one_of_unknown_size():
    def select(x):
        return x[:, :, 2], x[..., 1:4], x[:, 0:, -1]

    x = keras.Input((None, 6))
    graph = Graph.of(keras.Model(x, select(x)))
    assert [getitem_pieces(call)[0].picks for call in graph.calls] == [
        (None, None, 2), (None, None, (1, 2, 3)), (None, None, 5)]  # fmt: skip


def _call(key, *more):
    """A call that Keras 3.15 refuses to make, but other releases may."""
    x = Value(0, (None, 5, 6), "float32", None, 0)
    return SimpleNamespace(inputs=(x, *more), args=(x, key), kwargs={}, outputs=())


def test_b23_a_tensor_in_the_key_is_left_alone():
    index = Value(1, (), "int32", None, 1)
    for key in ((slice(None), index), (slice(None), slice(index, None)), index):
        assert getitem_pieces(_call(key, index)) == {}
        assert getitem_pieces(_call(key)) == {}


@pytest.mark.parametrize(
    "entry", [True, np.True_, np.array([True] * 5), np.array([0, 2]), [0, 2], "a", 1.0]
)
def test_fancy_and_boolean_keys_are_left_alone(entry):
    assert getitem_pieces(_call((slice(None), entry))) == {}


@pytest.mark.parametrize(
    "key", [(slice(None),) * 4, (..., ...), (0, 0, 0, 0), (slice(None), 5), (slice(None), -6)]
)
def test_keys_that_do_not_fit_are_left_alone(key):
    assert getitem_pieces(_call(key)) == {}


def test_numpy_integer_is_an_index():
    assert getitem_pieces(_call((slice(None), np.int64(-2))))[0].picks == (None, 3, None)


def test_take_by_keyword_or_with_floats_is_left_alone():
    call = _call(None)
    call.operation = SimpleNamespace(axis=1)
    call.args = call.args[:1]
    assert take_pieces(call) == {}
    call.args = (call.inputs[0], np.array([0.0, 1.0]))
    assert take_pieces(call) == {}


def test_slices_of_a_split_and_of_a_reshape_start_there():
    x = keras.Input((4, 6))
    first, _ = ops.split(layers.Activation("tanh")(x), 2, axis=1)
    model = keras.Model(x, [first[:, 1], ops.reshape(x, (-1, 8, 3))[:, 5]])
    graph = Graph.of(model)
    pieces = [pieces_of(graph, SPLITS)[v.index] for v in graph.outputs]
    assert [p.picks for p in pieces] == [(None, 1, None), (None, 5, None)]
    makers = [type(graph.producer(p.source).operation).__name__ for p in pieces]
    assert makers == ["Activation", "Reshape"]


# model shape, cuts, layers before and after, operations
TOWERS = {
    "indices": ((5, 7), lambda x: [x[:, i] for i in range(5)], (5, 1)),
    "some of them, reversed": ((5, 7), lambda x: [x[:, i] for i in (4, 2, 0)], (3, 1)),
    "negative": ((5, 7), lambda x: [x[:, -i] for i in (1, 2, 3)], (3, 1)),
    "slices": ((3, 8), lambda x: [x[..., i : i + 2] for i in range(0, 8, 2)], (4, 1)),
    "slices that overlap": ((3, 8), lambda x: [x[..., i : i + 4] for i in range(0, 5, 2)], (3, 1)),
    "even and odd": ((3, 8), lambda x: [x[..., i::2] for i in range(2)], (2, 1)),
    "reversed slices": ((3, 6), lambda x: [x[..., 2::-1], x[..., 5:2:-1]], (2, 1)),
    "last axis with new axis": ((7, 3), lambda x: [x[:, None, :, i] for i in range(3)], (3, 1)),
    "new axis behind": ((4, 7, 3), lambda x: [x[:, i, None, :, :] for i in range(4)], (4, 1)),
    "two widths": ((9,), lambda x: [x[:, 0:2], x[:, 2:5], x[:, 5:7], x[:, 6:9]], (4, 2)),
    "lists": ((9,), lambda x: [ops.take(x, p, axis=1) for p in ([0, 8, 3], [3, 4, 3], [7, 1, 0])],
              (3, 1)),
    "takes of one": ((5, 7), lambda x: [ops.take(x, i, axis=1) for i in (3, -1, 0)], (3, 1)),
    "slices of slices": ((6, 7), lambda x: [x[:, 1:5][:, ::2][:, i] for i in range(2)], (2, 1)),
    "slices of different slices": ((6, 7), lambda x: [x[:, i:][:, 1] for i in range(4)], (4, 1)),
    "after a permute": ((7, 5), lambda x: [layers.Permute((2, 1))(x)[:, i] for i in range(1)]
                        + [x[:, :, 3], x[:, :, 1]], (3, 1)),
    "of one permute": ((7, 5), lambda x: (lambda y: [y[:, i] for i in range(5)])(
        layers.Permute((2, 1))(x)), (5, 1)),
    "of one reshape": ((35,), lambda x: (lambda y: [y[:, i] for i in range(5)])(
        layers.Reshape((5, 7))(x)), (5, 1)),
    "patches": ((4, 6, 3), lambda x: [x[:, i : i + 2, j : j + 3] for i in (0, 2) for j in (0, 3)],
                (4, 1)),
    "a grid of points": ((3, 4, 5), lambda x: [x[:, i, j] for i in (2, 0) for j in (1, 3, 0)],
                         (6, 1)),
    "a grid of strips": ((3, 4, 5), lambda x: [x[:, i, j : j + 2] for j in (2, 0) for i in (1, 2)],
                         (4, 1)),
    "points that make no grid": ((3, 4, 5), lambda x: [x[:, 0, 1], x[:, 1, 3], x[:, 2, 2]], (3, 1)),
    "the same slice each time": ((5, 7), lambda x: [x[:, 2] for _ in range(3)], (3, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", TOWERS)
def test_towers(name):
    skip_what_the_backend_lacks(name)
    shape, cuts, counts = TOWERS[name]
    assert_fuses_cheaply(dense_towers(shape, cuts), layers=counts)


def test_contiguous_slices_of_an_axis_are_not_copied():
    model = dense_towers((3, 8), lambda x: [x[..., i : i + 2] for i in range(0, 8, 2)])
    fused, _ = assert_fuses(model, layers=(4, 1))
    assert "GetItem" not in operation_names(fused)
    assert "Take" not in operation_names(fused)


def test_a_grid_of_patches_needs_no_slice():
    def cuts(x):
        return [x[:, i : i + 2, j : j + 3] for i in (0, 2, 4) for j in (0, 3)]

    fused, _ = assert_fuses(dense_towers((6, 6, 5), cuts), layers=(6, 1))
    assert {"GetItem", "Take", "Stack"}.isdisjoint(operation_names(fused))


def test_equal_slices_are_one_shared_input():
    model = dense_towers((5, 7), lambda x: [x[:, 2] for _ in range(3)])
    assert_fuses(model, layers=(3, 1), operations=["GetItem", "Dense", "Identity"])


def test_unused_slices_are_gone():
    x = keras.Input((5, 7))
    lanes = [x[:, i] for i in range(5)]
    model = keras.Model(x, layers.Concatenate()([layers.Dense(4)(v) for v in lanes[1:4]]))
    fused, _ = assert_fuses(model, layers=(3, 1))
    assert operation_names(fused).count("GetItem") == 1


def test_shifted_slices_are_caught():
    assert_shift_is_caught(
        (6, 7),
        lambda x: [x[:, i] for i in range(5)],
        lambda x: [x[:, i] for i in (0, 1, 3, 3, 4)],
        (5, 1),
    )


def test_shifted_take_is_caught():
    assert_shift_is_caught(
        (9,),
        lambda x: [ops.take(x, p, axis=1) for p in ([0, 8, 3], [3, 4, 3], [7, 1, 0])],
        lambda x: [ops.take(x, p, axis=1) for p in ([0, 8, 3], [3, 5, 3], [7, 1, 0])],
        (3, 1),
    )


def test_shifted_patch_is_caught():
    def patches(columns):
        return lambda x: [x[:, i : i + 2, j : j + 3] for i, j in zip((0, 0, 2, 2), columns)]

    assert_shift_is_caught((4, 7, 3), patches((0, 3, 0, 3)), patches((0, 3, 0, 4)), (4, 1))
