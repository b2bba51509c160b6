"""Selections hidden in Lambda layers and in a user's own layers."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.graph import Graph
from parallel_fuse.pieces import pieces_of
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.splits import SPLITS
from tests.asserts import assert_fuses, operation_names


def piece_of(function, shape=(5, 7, 3), dtype="float32"):
    """The piece that a Lambda of this function is, as (picks, inserts); None if it is none."""
    x = keras.Input(shape, dtype=dtype)
    try:
        graph = Graph.of(keras.Model(x, layers.Lambda(function, dtype=dtype)(x)))
    except NotImplementedError:
        pytest.skip("this backend does not tell the shape, and there is no such model")
    found = pieces_of(graph, SPLITS)
    return next(((piece.picks, piece.inserts) for piece in found.values()), None)


@pytest.mark.parametrize(
    ("function", "picks", "inserts"),
    [
        (lambda x: x[:, 3], (None, 3, None, None), ()),
        (lambda x: x[:, -1], (None, 4, None, None), ()),
        (lambda x: x[:, 2:3], (None, (2,), None, None), ()),
        (lambda x: x[:, :, 1:6:2], (None, None, (1, 3, 5), None), ()),
        (lambda x: x[..., 2], (None, None, None, 2), ()),
        (lambda x: x[:, 3, :, None, 1], (None, 3, None, (1,)), ()),
        (lambda x: x[:, None, 3], (None, (3,), None, None), ()),
        (lambda x: x[:, None], (None, None, None, None), (1,)),
        (lambda x: ops.take(x, [4, 0, 2], axis=1), (None, (4, 0, 2), None, None), ()),
        (lambda x: ops.take(x, [4, 0, 4], axis=1), (None, (4, 0, 4), None, None), ()),
        (lambda x: ops.flip(x, axis=1), (None, (4, 3, 2, 1, 0), None, None), ()),
        (lambda x: ops.split(x, 7, axis=2)[5], (None, None, (5,), None), ()),
        (lambda x: ops.squeeze(x[:, 1:2, 2:3], (1, 2)), (None, 1, 2, None), ()),
    ],
)
def test_selections(function, picks, inserts):
    assert piece_of(function) == (picks, inserts)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "bool"])
def test_every_dtype(dtype):
    assert piece_of(lambda x: x[:, 3], dtype=dtype) == ((None, 3, None, None), ())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, 3] * 2,
        lambda x: x[:, 3] + 0.0 * x[:, 2],  # a NaN there would be seen
        lambda x: ops.minimum(x[:, 3], x[:, 4]),
        lambda x: ops.transpose(x[:, 3], (0, 2, 1)),
        lambda x: ops.reshape(x, (-1, 35, 3))[:, ::2],  # crosses the rows of an axis
        lambda x: x[::-1, 3],  # other samples
        lambda x: ops.relu(x[:, 3]),
        lambda x: ops.clip(x[:, 3], -1e9, 1e9),
        lambda x: ops.round(x[:, 3]),
        lambda x: ops.stack([x[:, 1, 1], x[:, 2, 2]], axis=1),  # no grid
        lambda x: keras.random.shuffle(x, axis=1)[:, 3],
    ],
)
def test_no_selections(function):
    assert piece_of(function) is None


def test_a_selection_in_inference_only_is_none():
    def pick(x, training=False):
        return x[:, 1] if training else x[:, 0]

    assert piece_of(pick) is None


def test_values_of_every_size_must_come_through():
    for limit in (1e-3, 1e-5):
        assert piece_of(lambda x, e=limit: ops.where(ops.abs(x) < e, 0.0, x)[:, 3]) is None
    assert piece_of(lambda x: ops.maximum(x, -1e9)[:, 3]) is None
    assert piece_of(lambda x: ops.cast(ops.cast(x, "float16"), x.dtype)[:, 3]) is None


@pytest.mark.parametrize(
    ("function", "picks"),
    [
        (lambda x: x[:, :, 2], (None, None, 2, None)),
        (lambda x: x[..., 1:3], (None, None, None, (1, 2))),
        (lambda x: ops.take(x, [3, 0], axis=2)[..., 4], (None, None, (3, 0), 4)),
    ],
)
def test_sizes_that_are_unknown_and_taken_whole(function, picks):
    assert piece_of(function, shape=(None, 7, 5)) == (picks, ())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, 0],
        lambda x: x[:, -1],
        lambda x: x[:, :13],
        lambda x: x[:, :500],  # all of a short one
        lambda x: x[:, 1:],
        lambda x: x[:, : ops.shape(x)[1] // 8 * 8],
        lambda x: ops.flip(x, axis=1),
    ],
)
def test_sizes_that_are_unknown_and_not_taken_whole(function):
    assert piece_of(function, shape=(None, 7, 5)) is None


def test_two_unknown_sizes():
    shape = (None, None, 6)
    assert piece_of(lambda x: x[..., 2:4], shape=shape) == ((None, None, None, (2, 3)), ())
    assert piece_of(lambda x: x[:, :224, :224], shape=shape) is None


def test_tensors_that_are_too_large_are_not_tried():
    assert piece_of(lambda x: x[:, 0], shape=(2**13, 2**10)) is None


def lambda_towers(pick, count=5):
    x = keras.Input((5, 7), name="x")
    lanes = [layers.Dense(4, name=f"d{i}")(pick(i)(x)) for i in range(count)]
    return keras.Model(x, layers.Concatenate()(lanes))


def select(t, start, stop):
    return t[:, start:stop, :]


@pytest.mark.parametrize(
    "pick",
    [
        lambda i: layers.Lambda(lambda t: t[:, i]),
        lambda i: layers.Lambda(lambda t, k=i: t[:, k]),
        lambda i: layers.Lambda(select, arguments={"start": i, "stop": i + 1}),
    ],
    ids=["closure", "default argument", "named function"],
)
def test_q08_r07_lambda_slices_fuse_and_vanish(pick):
    fused, report = assert_fuses(lambda_towers(pick), layers=(5, 1))
    assert "Lambda" not in operation_names(fused)
    assert any("selections of a tensor" in note and "5 in all" in note for note in report.notes)


def test_q04_one_lambda_with_five_outputs():
    x = keras.Input((5, 6), name="x")
    parts = layers.Lambda(lambda t: ops.split(t, 3, axis=2))(x)
    lanes = [layers.Dense(1, name=f"d{i}")(part) for i, part in enumerate(parts)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(3, 1))
    assert "Lambda" not in operation_names(fused)


def test_q05_one_shared_dense_behind_lambdas():
    x, shared = keras.Input((30, 7), name="x"), layers.Dense(4)
    lanes = [shared(layers.Lambda(lambda t, k=i: t[:, k])(x)) for i in range(30)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(30, 1))
    assert operation_names(fused) == ["Dense", "Reshape"]


def test_q06_late_bound_lambdas_are_taken_as_they_run():
    """All of them read the last index: the lanes read one tensor."""
    x = keras.Input((5, 7), name="x")
    picks = []
    for i in range(5):
        picks.append(layers.Lambda(lambda t: t[:, i])(x))  # noqa: B023 - the mistake itself
    lanes = [layers.Dense(4 + k)(pick) for k, pick in enumerate(picks)]
    fused, report = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(5, 1))
    assert operation_names(fused).count("Dense") == 1
    assert "wide" in report.regions[0].lowerings


class Columns(layers.Layer):
    """A user's own slicing layer."""

    def __init__(self, columns, **kwargs):
        super().__init__(**kwargs)
        self.columns = columns

    def call(self, inputs):
        return ops.take(inputs, self.columns, axis=1)

    def get_config(self):
        return {**super().get_config(), "columns": self.columns}


def test_overlapping_columns_of_a_layer_of_ones_own():
    x = keras.Input((9,), name="x")
    groups = ([0, 4, 2], [1, 4, 8], [8, 0, 0], [2, 3, 5])
    lanes = [layers.Dense(4)(Columns(g)(x)) for g in groups]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(4, 1))
    assert "Columns" not in operation_names(fused)


def test_a_lambda_of_a_slice_of_a_lambda():
    x = keras.Input((6, 4, 7), name="x")
    half = layers.Lambda(lambda t: t[:, 1:5])(x)[:, :, 1]
    lanes = [layers.Dense(3)(layers.Lambda(lambda t, k=i: t[:, k])(half)) for i in range(4)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(4, 1))
    assert "Lambda" not in operation_names(fused)


def test_a_slice_of_a_part_that_a_lambda_cut_is_named_with_it():
    x = keras.Input((6, 7), name="x")
    parts = layers.Lambda(lambda t: ops.split(t, 3, axis=1), name="cut")(x)
    lanes = [layers.Dense(4)(part[:, i]) for part in parts for i in range(2)]
    fused, report = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(6, 1))
    assert "Lambda" not in operation_names(fused)
    assert any("selections of a tensor: cut" in note for note in report.notes)


def channel_slice(x, start, stop, axis):
    return x[:, start:stop] if axis == 1 else x[..., start:stop]


@pytest.mark.parametrize("shape", [(9, 8, 12), (None, None, 12)])
def test_q08_r07_channel_groups_of_an_image(shape):
    x = keras.Input(shape, name="x")
    lanes = []
    for start in range(0, 12, 3):
        options = {"start": start, "stop": start + 3, "axis": 3}
        group = layers.Lambda(channel_slice, arguments=options)(x)
        lanes.append(layers.Conv2D(5, (3, 2), use_bias=False)(group))
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate(axis=3)(lanes)), layers=(4, 1))
    assert "Lambda" not in operation_names(fused)


def test_r07_channel_groups_in_front():
    x = keras.Input((6, 9, 8), name="x")
    lanes = []
    for start in range(0, 6, 2):
        options = {"start": start, "stop": start + 2, "axis": 1}
        group = layers.Lambda(channel_slice, arguments=options)(x)
        lanes.append(layers.Dense(5)(layers.Flatten()(group)))
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)))
    assert "Lambda" not in operation_names(fused)


def test_q22_a_slice_past_the_only_layer():
    """One branch has a layer, the other none: nothing stands side by side."""
    x = keras.Input((6, 5), name="x")
    steps = layers.LSTM(3)(layers.Lambda(lambda t: t[:, :, :4])(x))
    last = layers.Lambda(lambda t: t[:, :, -1])(x)
    model = keras.Model(x, layers.Concatenate()([steps, last]))
    fused, report = fuse_parallel_branches(model, policy=EVERYTHING, return_report=True)
    assert not report.regions
    assert operation_names(fused).count("Lambda") == 2


@pytest.mark.parametrize("before", [layers.Permute((2, 1)), layers.Reshape((5, 7))])
def test_slices_of_a_tensor_whose_axes_were_moved(before):
    x = keras.Input((7, 5), name="x")
    moved = before(x)
    lanes = [layers.Dense(4)(layers.Lambda(lambda t, k=i: t[:, k])(moved)) for i in range(5)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(5, 1))
    assert "Lambda" not in operation_names(fused)


def test_axes_moved_within_the_lambda():
    x = keras.Input((7, 5), name="x")
    moved = [lambda t, k=i: ops.transpose(t, (0, 2, 1))[:, k] for i in range(5)]
    lanes = [layers.Dense(4)(layers.Lambda(function)(x)) for function in moved]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(5, 1))
    assert "Lambda" not in operation_names(fused)


def stays(layer_of):
    """Five layers that slice, and do something beside it."""
    x = keras.Input((5, 7), name="x")
    made = [layer_of(i) for i in range(5)]
    lanes = [layers.Dense(4)(layer(x)) for layer in made]
    model = keras.Model(x, layers.Concatenate()(lanes))
    fused = fuse_parallel_branches(model, policy=EVERYTHING, verify=False)
    assert operation_names(fused).count(type(made[0]).__name__) == 5
    return model, fused


class Penalising(layers.Layer):
    """A slice, and a loss."""

    def __init__(self, column, **kwargs):
        super().__init__(**kwargs)
        self.column = column

    def call(self, inputs):
        self.add_loss(ops.sum(inputs[:, self.column] ** 2))
        return inputs[:, self.column]


def test_a_slice_that_adds_a_loss_stays():
    model, fused = stays(Penalising)
    x = np.random.default_rng(0).normal(size=(3, 5, 7)).astype("float32")
    model(x), fused(x)
    sums = [float(sum(map(ops.convert_to_numpy, m.losses))) for m in (model, fused)]
    assert sums[0] > 1 and np.isclose(*sums, rtol=1e-5)


def test_a_slice_that_draws_or_counts_stays_and_its_state_is_left_alone():
    seeds = keras.random.SeedGenerator(4)
    count = keras.Variable(0.0)

    def draws(x):
        keras.random.normal((2,), seed=seeds)
        return x[:, 2]

    def counts(x):
        count.assign_add(1.0)
        return x[:, 2]

    before = ops.convert_to_numpy(seeds.state)
    assert piece_of(draws) is None
    assert piece_of(counts) is None
    assert np.array_equal(before, ops.convert_to_numpy(seeds.state))
    assert ops.convert_to_numpy(count) == 0


def test_a_layer_given_a_list_of_one():
    class First(layers.Layer):
        def call(self, inputs):
            return inputs[0][:, 2]

    x = keras.Input((5, 7, 3))
    graph = Graph.of(keras.Model(x, First()([x])))
    (piece,) = pieces_of(graph, SPLITS).values()
    assert piece.picks == (None, 2, None, None)


def test_a_shifted_slice_is_caught():
    model = lambda_towers(lambda i: layers.Lambda(lambda t, k=i: t[:, k]))
    fused = fuse_parallel_branches(model, policy=EVERYTHING)
    x = np.random.default_rng(0).normal(size=(3, 5, 7)).astype("float32")
    here, there, moved = map(ops.convert_to_numpy, (fused(x), model(x), fused(np.roll(x, 1, 1))))
    np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6)
    assert not np.allclose(moved, there, atol=1e-3)


def test_a_lambda_that_does_more_stays():
    model = lambda_towers(lambda i: layers.Lambda(lambda t: t[:, i] * 2.0))
    fused, _ = assert_fuses(model, reload=False)  # a Lambda in a file is not trusted
    assert operation_names(fused).count("Lambda") == 5
