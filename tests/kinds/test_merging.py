"""Operations on several tensors of each lane, and that joins of all lanes stay joins."""

import re

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import KINDS
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Graph
from tests.asserts import assert_fuses, operation_names
from tests.builders import channel_towers, towers


def residual(merge):
    def branch(i, x):
        x = layers.Dense(4)(x)
        return layers.Dense(2)(merge(layers.Dense(4, "relu")(x), x))

    return branch


MERGES = {
    "Add": lambda a, b: layers.Add()([a, b]),
    "Subtract": lambda a, b: layers.Subtract()([a, b]),
    "Multiply": lambda a, b: layers.Multiply()([a, b]),
    "Average": lambda a, b: layers.Average()([a, b]),
    "Maximum": lambda a, b: layers.Maximum()([a, b]),
    "Minimum": lambda a, b: layers.Minimum()([b, a]),
    "Add of three": lambda a, b: layers.Add()([a, b, a]),
    "Concatenate": lambda a, b: layers.Concatenate()([a, b]),
    "a + b": lambda a, b: a + b,
    "a * b": lambda a, b: a * b,
    "b - a": lambda a, b: b - a,
    "where": lambda a, b: ops.where(a > b, a, 0.1 * b),
    "concatenate": lambda a, b: ops.concatenate([b, a], axis=-1),
}


@pytest.mark.parametrize("case", MERGES)
@pytest.mark.parametrize("lanes", [2, 5])
def test_a_residual_keeps_the_tower_in_front(case, lanes):
    model = towers(residual(MERGES[case]), shape=(lanes, 7))
    fused, _ = assert_fuses(model)
    names = operation_names(fused)
    assert names[:2] == ["Transpose", "EinsumDense"]
    assert names[-3:] == ["EinsumDense", "Transpose", "Reshape"]
    assert names.count("EinsumDense") == 3


def test_a_long_chain_of_residuals():
    def branch(i, x):
        x = layers.Dense(4)(x)
        for _ in range(3):
            x = x + layers.Dense(4, "relu")(x)
        return x

    fused, _ = assert_fuses(towers(branch, shape=(3, 7)))
    assert operation_names(fused).count("Add") == 3
    assert operation_names(fused).count("EinsumDense") == 4


def test_a_chain_within_each_lane_is_no_join_of_lanes():
    def branch(i, x):
        x = layers.Dense(4)(x)
        return layers.Dense(4, "relu")(x) + layers.Activation("tanh")(x) + x

    fused, _ = assert_fuses(towers(branch, shape=(4, 7)))
    assert operation_names(fused).count("Add") == 2
    assert "Sum" not in operation_names(fused)


def test_residuals_between_convolutions_stay_folded():
    def branch(i, x):
        x = layers.Conv1D(4, 2)(x)
        return layers.Add()([layers.Conv1D(4, 3, padding="same")(x), x])

    fused, _ = assert_fuses(channel_towers(branch, shape=(9, 6)))
    assert operation_names(fused) == ["GroupedConv1D", "GroupedConv1D", "Add", "Identity"]


def test_a_gate_of_channels_is_broadcast_within_its_lane():
    def branch(i, x):
        x = layers.Conv1D(4, 2)(x)
        gate = layers.Dense(4, "sigmoid")(layers.GlobalAveragePooling1D(keepdims=True)(x))
        return layers.Multiply()([x, gate])

    fused, _ = assert_fuses(channel_towers(branch, shape=(9, 6)))
    assert operation_names(fused).count("Multiply") == 1


def test_a_gate_of_one_number():
    def branch(i, x):
        return layers.Dense(4)(x) * layers.Dense(1, "sigmoid")(x)

    fused, _ = assert_fuses(towers(branch, shape=(5, 7)))
    assert operation_names(fused).count("Multiply") == 1


def test_two_halves_put_together_in_each_lane():
    def branch(i, x):
        halves = layers.Conv1D(4, 3)(x), layers.Conv1D(3, 3, activation="relu")(x)
        return layers.Conv1D(2, 2)(layers.Concatenate()(halves))

    fused, _ = assert_fuses(channel_towers(branch, shape=(9, 6)))
    assert operation_names(fused).count("Concatenate") == 1
    assert operation_names(fused).count("GroupedConv1D") == 3


def test_put_together_along_the_length_the_channels_stay_folded():
    def branch(i, x):
        return layers.Concatenate(axis=1)([layers.Conv1D(4, 2)(x), layers.Conv1D(4, 3)(x)])

    fused, _ = assert_fuses(channel_towers(branch, shape=(9, 6)))
    assert operation_names(fused)[-2:] == ["Concatenate", "Identity"]
    assert "Transpose" not in operation_names(fused)


def test_heads_of_unequal_width():
    x = keras.Input((7,))
    heads = [layers.Dense(n)(x) for n in (4, 3, 5)]
    outputs = [layers.Multiply()([layers.Activation("sigmoid")(head), head]) for head in heads]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(outputs)))
    assert operation_names(fused) == ["Dense", "Activation", "Multiply", "Identity"]


def test_equal_merges_of_the_same_tensors_become_one():
    x, y = keras.Input((7,)), keras.Input((7,))
    outputs = [layers.Add()([x, y]) for _ in range(3)]
    fused, _ = assert_fuses(keras.Model([x, y], layers.Concatenate()(outputs)))
    assert operation_names(fused) == ["Add", "Concatenate"]


# Joins stay joins.


def lanes_of(count: int, units: int = 3) -> tuple:
    x = keras.Input((count, 7), name="x")
    return x, [layers.Dense(units)(x[:, i]) for i in range(count)]


JOINS = {
    "one Add": (lambda ys: layers.Add()(ys), ["Sum"]),
    "a chain": (lambda ys: sum(ys), ["Sum"]),
    "a tree": (lambda ys: (ys[0] + ys[1]) + (ys[2] + ys[3]), ["Sum"]),
    "two sums": (
        lambda ys: layers.Concatenate()([ys[0] + ys[1], ys[2] + ys[3]]),
        ["GetItem", "GetItem", "Sum", "Sum", "Concatenate"],
    ),
}


@pytest.mark.parametrize("case", JOINS)
def test_a_sum_over_lanes_is_no_lane(case):
    join, expected = JOINS[case]
    x, lanes = lanes_of(4)
    fused, _ = assert_fuses(keras.Model(x, join(lanes)), layers=(4, 1))
    assert operation_names(fused) == ["Transpose", "EinsumDense", *expected]


def test_two_tasks_weigh_the_same_experts():
    """Each task sums over five experts: the experts are the lanes, not the two sums."""
    x = keras.Input((7,))
    experts = [layers.Dense(4)(x) for _ in range(5)]
    outputs = []
    for _ in range(2):
        gate = layers.Dense(5, "softmax")(x)
        weighed = [experts[e] * gate[:, e : e + 1] for e in range(5)]
        outputs.append(layers.Dense(3)(layers.Add()(weighed)))
    fused, _ = assert_fuses(keras.Model(x, outputs), regions=2)
    assert operation_names(fused).count("Multiply") == 2
    assert operation_names(fused).count("Sum") == 2


def test_three_ensembles_of_unlike_towers_fuse_across_the_ensembles():
    """As in three DeepLC models: each concatenates towers that differ from one another."""
    x, z = keras.Input((9, 4), name="x"), keras.Input((6,), name="z")
    outputs = []
    for _ in range(3):
        parts = [
            layers.Flatten()(layers.Conv1D(3, 2, activation="relu")(x)),
            layers.Flatten()(layers.Conv1D(2, 3, activation="relu")(x)),
            layers.Dense(5, "relu")(z),
        ]
        outputs.append(layers.Dense(1)(layers.Concatenate()(parts)))
    fused, _ = assert_fuses(keras.Model([x, z], layers.Average()(outputs)))
    assert operation_names(fused).count("Concatenate") == 1
    assert operation_names(fused).count("EinsumDense") == 1


REJECTED = {
    "along the batch": lambda a, b: layers.Concatenate(axis=0)([a, b]),
    "are added: Keras on TensorFlow": lambda a, b: layers.Add()([a, b[:, :1]]),
    "added: Keras on TensorFlow takes": lambda a, b: a + b[:, :1],
    "operands of different rank": lambda a, b: ops.multiply(a, b[:, 0]),
    "an array among the operands": lambda a, b: layers.Multiply()([a, np.ones((1, 7))]),
    "holds a ndarray": lambda a, b: ops.concatenate([a, np.ones((3, 7)), b], axis=1),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    """Asked of the rule itself: the report keeps silent on joins that are no lanes."""
    x, y = keras.Input((7,)), keras.Input((7,))
    call = Graph.of(keras.Model([x, y], REJECTED[reason](x, y))).calls[-1]
    kind = next(kind for kind in KINDS if type(call.operation) in kind.handles)
    with pytest.raises(Reject, match=re.escape(reason)):
        kind.signature(call)
