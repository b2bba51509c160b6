"""EinsumDense: every form of equation, with and without bias."""

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse.kinds.einsum import EINSUM_DENSE
from tests.asserts import assert_fuses, assert_rejects, operation_names
from tests.builders import towers

FORMS = {
    "plain": ("ab,bc->ac", 4, None, (5, 7)),
    "bias": ("abc,cd->abd", (None, 4), "d", (5, 6, 7)),
    "bias of two axes": ("abc,cde->abde", (None, 4, 3), "de", (5, 6, 7)),
    "other order": ("abc,cd->adb", (4, 6), "d", (5, 6, 7)),
    "two contracted": ("abcd,cde->abe", (None, 4), "e", (5, 6, 7, 3)),
    "ellipsis in front": ("...x,xy->...y", 4, "y", (5, 6, 7)),
    "ellipsis behind": ("ab...,bc->ac...", 4, None, (5, 6, 7)),
    "time unknown": ("abc,cd->abd", (None, 4), "d", (5, None, 7)),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    equation, output, bias, shape = FORMS[name]
    make = lambda i, x: layers.EinsumDense(equation, output, bias_axes=bias, activation="tanh")(x)  # noqa: E731
    fused, _ = assert_fuses(towers(make, shape=shape), layers=(5, 1))
    assert operation_names(fused).count("EinsumDense") == 1


def test_activations_differ():
    functions = ["relu", "tanh", None, "relu", "sigmoid"]
    make = lambda i, x: layers.EinsumDense("ab,bc->ac", 4, functions[i], "c")(x)  # noqa: E731
    assert_fuses(towers(make))


def test_a_bias_of_one_number():
    make = lambda i, x: layers.EinsumDense("ab,bc->ac", 1, bias_axes="c")(x)  # noqa: E731
    assert_rejects(towers(make), "a bias of one number")


def test_a_bias_that_keras_misreads():
    make = lambda i, x: layers.EinsumDense("abc,cd->adb", (6, 6), bias_axes="d")(x)  # noqa: E731
    assert_rejects(towers(make, shape=(5, 6, 7)), "adds along another axis of the same size")


def test_unstack_is_the_inverse():
    members = [layers.EinsumDense("abc,cd->abd", (None, 4), bias_axes="d") for _ in range(3)]
    for one in members:
        one.build((None, 6, 7))
        one.set_weights([np.random.normal(size=w.shape) for w in one.get_weights()])
    (lowering,) = EINSUM_DENSE.lowerings
    back = lowering.unstack(lowering.stack(members), 3)
    for one, arrays in zip(members, back, strict=True):
        for old, new in zip(one.get_weights(), arrays, strict=True):
            np.testing.assert_array_equal(old, new)
    assert keras.ops.shape(lowering.stack(members)[0]) == (3, 7, 4)
