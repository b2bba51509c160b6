"""Which sizes, unknown until the model runs, are known to be equal."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.graph import Graph
from parallel_fuse.matching.sizes import BATCH, Sizes
from parallel_fuse.pieces import pieces_of
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.splits import SPLITS
from tests.asserts import assert_close
from tests.builders import randomise


def sizes_of(inputs, outputs) -> list[tuple]:
    graph = Graph.of(keras.Model(inputs, outputs))
    sizes = Sizes(graph, pieces_of(graph, SPLITS))
    return [sizes.known[value.index] for value in graph.outputs]


# what is done to x (batch, n1, 6, 4) → the sizes, with n1 as the length
KEPT = {
    "an activation": (lambda x: layers.ReLU()(x), (BATCH, "n1", 6, 4)),
    "Dense": (lambda x: layers.Dense(5)(x), (BATCH, "n1", 6, 5)),
    "normalization": (lambda x: layers.BatchNormalization()(x), (BATCH, "n1", 6, 4)),
    "same padding": (lambda x: layers.Conv2D(3, 2, padding="same")(x), (BATCH, "n1", 6, 3)),
    "pooling by one": (lambda x: layers.MaxPooling2D(3, 1, "same")(x), (BATCH, "n1", 6, 4)),
    "EinsumDense": (lambda x: layers.EinsumDense("btuc,cd->btud", (None, 6, 5))(x),
                    (BATCH, "n1", 6, 5)),
    "EinsumDense that turns": (lambda x: layers.EinsumDense("btuc,cd->tbud", (None, 6, 5))(x),
                               ("n1", BATCH, 6, 5)),
    "a slice": (lambda x: x[:, :, 2:4], (BATCH, "n1", 2, 4)),
    "an index": (lambda x: x[..., 0], (BATCH, "n1", 6)),
    "a new axis": (lambda x: x[:, None, :, 3], (BATCH, 1, "n1", 4)),
    "pointwise": (lambda x: ops.sin(x) * 2.0 + x, (BATCH, "n1", 6, 4)),
    "broadcast": (lambda x: x + x[:, :, :1, 0:1], (BATCH, "n1", 6, 4)),
    "broadcast from a lower rank": (lambda x: x + np.ones((6, 4), "float32"), (BATCH, "n1", 6, 4)),
    "a transpose": (lambda x: ops.transpose(x, (0, 2, 1, 3)), (BATCH, 6, "n1", 4)),
    "a transpose of everything": (lambda x: ops.transpose(x), (4, 6, "n1", BATCH)),
    "a mean": (lambda x: ops.mean(x, axis=2), (BATCH, "n1", 4)),
    "a sum that keeps": (lambda x: ops.sum(x, axis=(-1, 2), keepdims=True), (BATCH, "n1", 1, 1)),
    "softmax": (lambda x: ops.softmax(x, axis=1), (BATCH, "n1", 6, 4)),
    "concatenation elsewhere": (lambda x: ops.concatenate([x, x], axis=-1), (BATCH, "n1", 6, 8)),
    "Concatenate elsewhere": (lambda x: layers.Concatenate(axis=2)([x, x])[:, :, 0],
                              (BATCH, "n2", 4)),
    "a stack": (lambda x: ops.stack([x, x, x], axis=1), (BATCH, 3, "n1", 6, 4)),
    "a stack behind": (lambda x: ops.stack([x, x, x], axis=2), (BATCH, "n1", 3, 6, 4)),
    "a gather behind": (lambda x: ops.take(x, [[1, 2], [0, 1]], axis=-1), (BATCH, "n1", 6, 2, 2)),
    "a flattened image": (lambda x: ops.reshape(x[:, :, 0, 0][:, None], (-1, 1, 1)), ("n2", 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_kept_sizes(name):
    build, expected = KEPT[name]
    x = keras.Input((None, 6, 4))
    assert sizes_of(x, [build(x)]) == [expected]


def test_a_reshape_that_keeps_the_batch():
    x = keras.Input((6, 4))
    assert sizes_of(x, [ops.reshape(x, (-1, 3, 8)), layers.Reshape((-1,))(x)]) == [
        (BATCH, 3, 8), (BATCH, 24)]  # fmt: skip
    assert sizes_of(x, [ops.reshape(x, (-1, 4))]) == [("n1", 4)]


# two results with the same unknown shape → whether they are as long
PAIRS = {
    "the same steps": (lambda x, y: (layers.Conv1D(3, 2)(x), layers.Conv1D(5, 2)(x)), True),
    "the same steps on slices": (
        lambda x, y: [layers.Conv1D(3, 2, 2)(x[..., i : i + 2]) for i in (0, 2)], True),
    "other strides": (lambda x, y: (layers.Conv1D(3, 2)(x), layers.Conv1D(3, 2, 2)(x)), False),
    "other kernels": (lambda x, y: (layers.Conv1D(3, 2)(x), layers.Conv1D(3, 3)(x)), False),
    "other kernels, padded": (lambda x, y: [layers.Conv1D(3, k, padding="same")(x) for k in (2, 3)],
                              True),
    "other inputs": (lambda x, y: (x, y), False),
    "one input": (lambda x, y: (x, ops.sin(x)), True),
    "equal parts": (lambda x, y: ops.split(x, 2, axis=1), True),
    "unequal parts": (lambda x, y: ops.split(x, [2], axis=1), False),
    "the same part": (lambda x, y: (x[:, 2:, 0], x[:, 2:, 1]), True),
    "the same part, with a new axis": (lambda x, y: (x[:, -2:, 0, None], x[:, -2:]), True),
    "other parts": (lambda x, y: (x[:, 2:], x[:, 1:]), False),
    "joined in length": (lambda x, y: (ops.concatenate([x, x], 1), ops.concatenate([x, y], 1)),
                         False),
    "joined in length alike": (lambda x, y: [layers.Concatenate(axis=1)([x, x]) for _ in "ab"],
                               True),
    "the batch joined": (lambda x, y: (x, ops.concatenate([x, x], axis=0)), False),
    "the batch in a layer": (lambda x, y: (x, layers.Concatenate(axis=0)([x, x])), False),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name):
    build, equal = PAIRS[name]
    x, y = keras.Input((None, 4)), keras.Input((None, 4))
    one, other = sizes_of([x, y], list(build(x, y)))
    assert (one[:2] == other[:2]) is equal


def test_the_names_of_custom_layers_are_their_own():
    class Halving(layers.Layer):
        def call(self, inputs):
            return inputs[:, ::2]

        def compute_output_shape(self, shape):
            return (shape[0], None, shape[2])

    x = keras.Input((None, 4))
    (b1, n1, _), (b2, n2, _) = sizes_of(x, [Halving()(x), Halving()(x)])
    assert b1 == b2 == BATCH
    assert n1 != n2


UNEQUAL = {
    "joined in length": lambda a, b: layers.Concatenate(axis=1)([a, b]),
    "pooled": lambda a, b: layers.Add()([layers.GlobalMaxPooling1D()(v) for v in (a, b)]),
    "no join": lambda a, b: [a, b],
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_inputs_of_unequal_lengths_are_not_stacked(name):
    a, b = keras.Input((None, 3), name="a"), keras.Input((None, 3), name="b")
    lanes = [layers.Dense(4, "tanh")(layers.Dense(5)(x)) for x in (a, b)]
    model = randomise(keras.Model([a, b], UNEQUAL[name](*lanes)))
    fused, report = fuse_parallel_branches(
        model, return_report=True, verify=False, policy=EVERYTHING
    )
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(2, n, 3)).astype("float32") for n in (5, 8)]
    assert_close(fused(arrays), model(arrays))
    assert any("run-time sizes" in str(miss) for miss in report.rejections)


def test_rows_of_a_joined_batch_are_not_stacked_with_single_ones():
    x = keras.Input((2, 7))
    both = layers.Concatenate(axis=0)([x[:, 0], x[:, 1]])
    lanes = [layers.Dense(4)(both), layers.Dense(4)(x[:, 0])]
    model = randomise(keras.Model(x, layers.Concatenate(axis=0)(lanes)))
    fused = fuse_parallel_branches(model, verify=False, policy=EVERYTHING)
    array = np.random.default_rng(0).normal(size=(3, 2, 7)).astype("float32")
    assert_close(fused(array), model(array))


def test_slices_of_one_sequence_of_unknown_length_fuse():
    x = keras.Input((None, 6))
    lanes = [layers.Conv1D(3, 2)(layers.Conv1D(4, 3, 2)(x[..., i : i + 2])) for i in (0, 2, 4)]
    model = randomise(keras.Model(x, layers.Concatenate()(lanes)))
    fused, report = fuse_parallel_branches(
        model, return_report=True, verify=False, policy=EVERYTHING
    )
    assert report.regions[0].layers_after == 2
    array = np.random.default_rng(0).normal(size=(2, 13, 6)).astype("float32")
    assert_close(fused(array), model(array))
