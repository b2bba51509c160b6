"""Concatenate and stack: every axis, any order, repeated and foreign operands, two joins."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import NotEquivalentError, verify_equivalence
from tests.asserts import assert_fuses, operation_names
from tests.builders import randomise
from tests.joins.checks import assert_joined, branches, joined
from tests.splits.checks import assert_fuses_cheaply

JOINS = {
    "layer, last axis": lambda b: layers.Concatenate()(b),
    "layer, axis 1": lambda b: layers.Concatenate(axis=1)(b),
    "layer, axis -2": lambda b: layers.Concatenate(axis=-2)(b),
    "layer, batch axis": lambda b: layers.Concatenate(axis=0)(b),
    "operation": lambda b: ops.concatenate(b, axis=-1),
    "operation, axis 1": lambda b: ops.concatenate(b, axis=1),
    "operation, batch axis": lambda b: ops.concatenate(b, axis=0),
    "another order": lambda b: layers.Concatenate()([b[2], b[0], b[3], b[1]]),
    "reversed on axis 1": lambda b: layers.Concatenate(axis=1)(b[::-1]),
    "repeated": lambda b: layers.Concatenate()([b[0], b[0], b[1], b[2], b[3], b[1]]),
    "the same twice over": lambda b: ops.concatenate([*b, *b], axis=1),
    "foreign in between": lambda b, x: layers.Concatenate()([x[:, :, 0], b[0], b[1], x[:, :, 2],
                                                             b[2], b[3], ops.sin(x[:, :, 1])]),
    "foreign on axis 1": lambda b, x: layers.Concatenate(axis=1)(
        [b[3], x[:, :, 0, :6], b[0], b[1], b[2]]),
    "by keyword": lambda b: layers.Concatenate()(inputs=b),
    "functional interface": lambda b: layers.concatenate(b, axis=1),
    "nested": lambda b: layers.Concatenate()([layers.Concatenate()(b[:2]),
                                              layers.Concatenate()(b[2:])]),
    "nested by another class": lambda b: ops.concatenate(
        [layers.Concatenate()(b[:2]), b[2], b[3]], axis=2),
    "nested along another axis": lambda b: layers.Concatenate(axis=1)(
        [layers.Concatenate(axis=2)(b[:2]), layers.Concatenate(axis=2)(b[2:])]),
    "stack first": lambda b: ops.stack(b, axis=0),
    "stack axis 1": lambda b: ops.stack(b, axis=1),
    "stack axis 2": lambda b: ops.stack(b, axis=2),
    "stack last": lambda b: ops.stack(b, axis=-1),
    "stack another order": lambda b: ops.stack([b[1], b[3], b[0], b[2]], axis=1),
    "stack repeated": lambda b: ops.stack([b[1], b[1], b[3], b[0], b[2]], axis=-1),
    "stack foreign": lambda b, x: ops.stack([b[1], x[:, :, 0, 1:], b[0], b[2], b[3]], axis=1),
    "sum of a stack": lambda b: ops.sum(ops.stack(b, axis=1), axis=1),
    "mean of a stack": lambda b: ops.mean(ops.stack(b, axis=-1), axis=-1),
    "stack and reshape": lambda b: ops.reshape(ops.stack(b, axis=2), (-1, 3, 24)),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
def test_join(name):
    assert_joined(JOINS[name])


def test_concatenate_costs_at_most_a_transpose():
    fused, _ = assert_fuses(joined(JOINS["layer, last axis"]), layers=(4, 1))
    assert {"Concatenate", "Stack", "GetItem"}.isdisjoint(operation_names(fused))


def test_stack_in_front_costs_nothing():
    fused, _ = assert_fuses(joined(JOINS["stack first"]), layers=(4, 1))
    assert operation_names(fused)[:2] == ["Transpose", "EinsumDense"]
    assert {"Concatenate", "Stack", "GetItem"}.isdisjoint(operation_names(fused))


def test_another_order_is_one_gather_at_most():
    fused, _ = assert_fuses(joined(JOINS["another order"]), layers=(4, 1))
    assert operation_names(fused).count("Take") <= 1
    assert {"Concatenate", "Stack", "GetItem", "Unstack"}.isdisjoint(operation_names(fused))


def test_nested_concatenations_are_one():
    fused, _ = assert_fuses(joined(JOINS["nested"]), layers=(4, 1))
    assert "Concatenate" not in operation_names(fused)


def test_an_inner_concatenation_read_elsewhere_stays():
    def join(b):
        inner = layers.Concatenate()(b[:2])
        return [layers.Concatenate()([inner, b[2], b[3]]), ops.sin(inner)]

    assert_joined(join)


def test_two_joins_of_the_same_lanes():
    def join(b):
        return [layers.Concatenate(axis=1)(b), ops.stack(b[::-1], axis=1), layers.Add()(b[:3])]

    assert_joined(join)


def test_two_joins_of_half_the_lanes_each():
    def join(b):
        return [layers.Concatenate()([b[0], b[2]]), layers.Concatenate()([b[1], b[3]])]

    assert_joined(join)


def test_r14_b08_foreign_operands_and_permuted_order():
    """concat([g, b3, b0, b1, h, b2])"""

    def join(b, x):
        g = layers.Dense(5, name="g")(x[:, :, 0])
        h = layers.Conv1D(2, 1, name="h")(x[:, :, 1])
        return layers.Concatenate()([g, b[3], b[0], b[1], h, b[2]])

    assert_joined(join)


def test_q22_a_slice_that_goes_straight_to_the_join():
    x = keras.Input((5, 7))
    lanes = [layers.Dense(4)(x[..., :3]), layers.Dense(4)(x[..., 3:6]), x[..., 6:]]
    assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(2, 1))


def test_q22_only_one_branch_has_a_layer():
    x = keras.Input((5, 7))
    model = keras.Model(x, layers.Concatenate()([layers.Dense(4)(x[..., :4]), x[..., 4:]]))
    assert_fuses_cheaply(randomise(model), layers=(0, 0))


def test_lanes_of_unequal_widths():
    x = keras.Input((5, 7))
    heads = [layers.Dense(n, "tanh")(x) for n in (3, 5, 2)]
    outputs = [
        layers.Concatenate()([heads[2], heads[0], heads[1]]),
        layers.Concatenate()(heads[:2]),
        layers.Concatenate(axis=1)([heads[1], heads[1]]),
    ]
    assert_fuses_cheaply(randomise(keras.Model(x, outputs)), layers=(3, 1))


def test_an_array_among_the_operands_is_kept():
    def join(b):
        constant = np.arange(12, dtype="float32").reshape((2, 6))
        return ops.concatenate([b[0][:, 0], constant, b[3][:, 2], b[1][:, 1], b[2][:, 0]], axis=-1)

    x = keras.Input((3, 4, 7), batch_size=2, name="x")
    model = randomise(keras.Model(x, join(branches(x))))
    fused, _ = assert_fuses_cheaply(model, layers=(6, 2), batches=(2,))
    assert "Concatenate" in operation_names(fused)


@pytest.mark.parametrize("join", [
    lambda b: layers.Concatenate(dtype="float16")(b),
    lambda b: layers.Concatenate(dtype="float64", axis=1)(b),
    lambda b, x: ops.concatenate([*b, ops.cast(x[:, :, 0], "float64")], axis=-1),
    lambda b: layers.Concatenate(activity_regularizer="l2")(b),
])  # fmt: skip
def test_a_join_that_does_more_keeps_its_call(join):
    fused, _ = assert_joined(join)
    assert "Concatenate" in operation_names(fused)


def test_exchanged_lanes_are_caught():
    fused, _ = assert_joined(JOINS["layer, last axis"])
    wrong = joined(JOINS["another order"])
    wrong.layers[-1].name = fused.layers[-1].name
    with pytest.raises(NotEquivalentError):
        verify_equivalence(wrong, fused)
