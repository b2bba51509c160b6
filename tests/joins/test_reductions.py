"""Add, Average, Maximum, Minimum, Multiply, as layers, operations and operators."""

from functools import reduce

import keras
import numpy as np
import pytest
from keras import layers, ops

from tests.asserts import assert_fuses, operation_names
from tests.builders import randomise
from tests.joins.checks import assert_joined, joined
from tests.splits.checks import assert_fuses_cheaply

JOINS = {
    "Add": lambda b: layers.Add()(b),
    "Average": lambda b: layers.Average()(b),
    "Maximum": lambda b: layers.Maximum()(b),
    "Minimum": lambda b: layers.Minimum()(b),
    "Multiply": lambda b: layers.Multiply()(b),
    "add chain": lambda b: reduce(ops.add, b),
    "maximum chain": lambda b: reduce(ops.maximum, b),
    "minimum chain": lambda b: reduce(ops.minimum, b),
    "multiply chain": lambda b: reduce(ops.multiply, b),
    "+": lambda b: b[0] + b[1] + b[2] + b[3],
    "+ from the right": lambda b: b[0] + (b[1] + (b[2] + b[3])),
    "+ balanced": lambda b: (b[0] + b[1]) + (b[2] + b[3]),
    "sum": lambda b: sum(b),
    "*": lambda b: b[0] * b[1] * b[2] * b[3],
    "product that begins with one": lambda b: reduce(lambda p, q: p * q, b, 1.0),
    "Add of sums": lambda b: layers.Add()([b[0] + b[1], b[2], b[3]]),
    "operands repeated": lambda b: layers.Add()([b[0], b[0], b[1], b[2], b[3]]),
    "average with repeats": lambda b: layers.Average()([b[0], b[0], b[1], b[2], b[3]]),
    "product with repeats": lambda b: layers.Multiply()([b[0], b[3], b[0], b[1], b[2]]),
    "another order": lambda b: layers.Add()([b[2], b[0], b[3], b[1]]),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
def test_join(name):
    fused, _ = assert_joined(JOINS[name])
    kept = {"Add", "Average", "Maximum", "Minimum", "Multiply"} & set(operation_names(fused))
    assert kept <= {"Multiply"} and (name.lower().startswith("average") or not kept)


@pytest.mark.parametrize("name", ["Add", "Average", "Multiply", "sum"])
def test_join_from_every_side(name):
    assert_fuses(joined(JOINS[name]), layers=(4, 1))


SOMETHING_MORE = {
    "a foreign operand": lambda b, x: layers.Add()([b[0], x[:, :, 0, :6], b[1], b[2], b[3]]),
    "a foreign factor": lambda b, x: b[0] * ops.sin(x[:, :, 2, 1:]) * b[1] * b[2] * b[3],
    "average with a foreign operand": lambda b, x: layers.Average()([*b, x[:, :, 0, :6]]),
    "maximum with a foreign operand": lambda b, x: layers.Maximum()([x[:, :, 0, :6], *b]),
    "two layers of averages": lambda b: layers.Average()([layers.Average()(b[:3]), b[3]]),
    "a number added": lambda b: (b[0] + 1.5) + b[1] + b[2] + b[3],
    "a number in the middle": lambda b: b[0] + b[1] + 2.5 + b[2] + b[3],
    "a factor": lambda b: 2.0 * b[0] * b[1] * b[2] * b[3],
    "relu by maximum": lambda b: ops.maximum(ops.maximum(b[0], 0.1), ops.maximum(*b[1:3])) + b[3],
    "an array added": lambda b: b[0] + np.arange(6, dtype="float32") + b[1] + b[2] + b[3],
    "weighted": lambda b: 0.1 * b[0] + 0.2 * b[1] + 0.3 * b[2] + 0.4 * b[3],
    "mean by hand": lambda b: (b[0] + b[1] + b[2] + b[3]) / 4.0,
    "a difference": lambda b: layers.Subtract()([b[0] + b[1], b[2] + b[3]]),
    "differences": lambda b: b[0] - b[1] - b[2] - b[3],
    "a dot product": lambda b: layers.Dot(axes=-1)([layers.Add()(b[:2]), layers.Add()(b[2:])]),
    "a sum and a product": lambda b: layers.Multiply()([layers.Add()(b[:2]), layers.Add()(b[2:])]),
    "broadcast": lambda b, x: layers.Add()([*b, layers.Dense(1, name="row")(x[:, :1, 0])]),
    "broadcast in a chain": lambda b, x: b[0] + b[1] + x[:, :1, 0, :1] + b[2] + b[3],
    "broadcast from a lower rank": lambda b, x: layers.Add()([*b, x[:, 0, 0, :6]]),
    "doubled": lambda b: (lambda s: s + s)(b[0] + b[1] + b[2] + b[3]),
    "squared": lambda b: (lambda s: s * s)(b[0] * b[1] * b[2] * b[3]),
    "a cast": lambda b: layers.Add(dtype="float16")(b),
    "a wider type": lambda b, x: b[0] + b[1] + ops.cast(x[:, :, 0, :6], "float64") + b[2] + b[3],
}  # fmt: skip


@pytest.mark.parametrize("name", SOMETHING_MORE)
def test_what_is_more_than_a_join_of_lanes(name):
    assert_joined(SOMETHING_MORE[name], None)


@pytest.mark.parametrize("name", SOMETHING_MORE)
def test_branches_behind_it_still_fuse(name):
    _, report = assert_joined(SOMETHING_MORE[name], None)
    dense = [name for region in report.regions for name in region.layers if name.startswith("b")]
    assert sorted(dense) == ["b0", "b1", "b2", "b3"]
    assert sum("Dense(6" in region.text for region in report.regions) == 1


def test_a_tap_in_the_chain_breaks_it_there():
    def join(b):
        tapped = b[0] + b[1]
        return [tapped + b[2] + b[3], ops.sin(tapped)]

    fused, _ = assert_joined(join)
    assert operation_names(fused).count("Sum") == 2


def test_a_link_of_the_chain_as_an_output():
    def join(b):
        inner = b[0] + b[1] + b[2]
        return [inner + b[3], inner]

    assert_fuses_cheaply(joined(join))


def test_a_chain_that_doubles_does_not_explode():
    def join(b):
        total = sum(b)
        for _ in range(40):
            total = (total + total) * 0.5
        for _ in range(20):
            total = total + total
        return total

    fused, _ = assert_joined(join)
    assert len(fused.operations) < 120


def test_a_long_chain_is_one_sum():
    x = keras.Input((60, 7))
    lanes = [layers.Dense(4)(x[:, i]) for i in range(60)]
    model = randomise(keras.Model(x, reduce(ops.add, lanes)))
    fused, _ = assert_fuses_cheaply(model, layers=(60, 1))
    assert operation_names(fused) == ["Transpose", "EinsumDense", "Sum"]


def test_unequal_widths_in_one_bundle():
    x = keras.Input((7,))
    heads = [layers.Dense(n, "tanh", name=f"h{n}{i}")(x) for i, n in enumerate((3, 5, 3, 5, 2))]
    outputs = [heads[0] + heads[2], layers.Multiply()([heads[1], heads[3]]), heads[4]]
    assert_fuses_cheaply(randomise(keras.Model(x, outputs)), layers=(5, 1))


def test_lanes_that_are_one_tensor():
    """M equal layers without weights on one tensor are one call; their sum counts it M times."""
    x = keras.Input((7,))
    same = [layers.Activation("tanh")(x) for _ in range(3)]
    outputs = [layers.Add()(same), layers.Average()(same), layers.Concatenate()(same)]
    model = keras.Model(x, outputs)
    assert_fuses_cheaply(model, layers=(3, 1))
