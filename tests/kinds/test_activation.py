"""Activation layers: what fuses, what does not."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse.kinds.activation import LANE_AXIS, SIDE_BY_SIDE
from tests.asserts import assert_fuses, assert_rejects, operation_names
from tests.builders import channel_towers, towers


def between_dense(middle, shape=(3, 7)) -> keras.Model:
    """Dense → middle(i) → Dense on slices: the lanes are in front."""
    return towers(lambda i, x: layers.Dense(2)(middle(i)(layers.Dense(4)(x))), shape=shape)


def between_conv(middle) -> keras.Model:
    """Conv → middle(i) → Conv on channel slices: the lanes are folded into the channels."""
    return channel_towers(
        lambda i, x: layers.Conv1D(2, 3)(middle(i)(layers.Conv1D(4, 2)(x))), shape=(9, 6)
    )


def leaky(x):
    return keras.activations.relu(x, negative_slope=0.1, max_value=20)


LAYERS = {
    "tanh": lambda i: layers.Activation("tanh"),
    "softmax": lambda i: layers.Activation("softmax"),
    "user's function": lambda i: layers.Activation(leaky),
    "layer as function": lambda i: layers.Activation(layers.LeakyReLU(0.2)),
    "ReLU": lambda i: layers.ReLU(max_value=6.0, negative_slope=0.1, threshold=0.2),
    "LeakyReLU": lambda i: layers.LeakyReLU(0.2),
    "ELU": lambda i: layers.ELU(0.3),
    "Softmax": lambda i: layers.Softmax(),
}


@pytest.mark.parametrize("case", LAYERS)
def test_between_dense_layers_the_lanes_stay_in_front(case):
    middle = type(LAYERS[case](0)).__name__
    assert_fuses(
        between_dense(LAYERS[case]),
        layers=(9, 3),
        operations=["Transpose", "EinsumDense", middle, "EinsumDense", "Transpose", "Reshape"],
        reload=case != "user's function",  # Keras cannot find a plain function by its name
    )


@pytest.mark.parametrize("case", ["tanh", "user's function", "ReLU", "LeakyReLU", "ELU"])
def test_between_convolutions_the_channels_stay_as_they_lie(case):
    fused, _ = assert_fuses(
        between_conv(LAYERS[case]), layers=(9, 3), reload=case != "user's function"
    )
    middle = type(LAYERS[case](0)).__name__
    assert middle in operation_names(fused)
    assert not {"Reshape", "Transpose"} & set(operation_names(fused))


@pytest.mark.parametrize("case", ["softmax", "Softmax"])
def test_a_softmax_over_channels_takes_them_apart(case):
    fused, _ = assert_fuses(between_conv(LAYERS[case]), layers=(9, 3))
    assert operation_names(fused).count("Reshape") == 2
    assert "Transpose" not in operation_names(fused)


AXES = {
    "length": (lambda i: layers.Softmax(axis=1), 0),
    "length, counted from the end": (lambda i: layers.Softmax(axis=[-2]), 0),
    "all but the batch": (lambda i: layers.Softmax(axis=(1, 2)), 2),
}


@pytest.mark.parametrize("case", AXES)
def test_a_softmax_over_another_axis(case):
    middle, reshapes = AXES[case]
    fused, _ = assert_fuses(between_conv(middle), layers=(9, 3))
    assert operation_names(fused).count("Reshape") == reshapes


def test_a_softmax_over_the_slices_of_the_last_axis():
    """`x[..., i]` leaves the lanes last, where the softmax must not look."""
    x = keras.Input((7, 3))
    outputs = [layers.Activation("softmax")(x[..., i]) for i in range(3)]
    assert_fuses(keras.Model(x, layers.Concatenate()(outputs)), layers=(3, 1))


def test_two_spellings_of_one_axis_are_one():
    model = between_conv(lambda i: layers.Softmax(axis=[-1, 2, 2][i]))
    assert_fuses(model, layers=(9, 3))


@pytest.mark.parametrize("layer", [layers.ReLU, lambda: layers.Activation("gelu")])
def test_alone_on_slices(layer):
    model = towers(lambda i, x: layer()(x), shape=(5, 7))
    assert_fuses(model, layers=(5, 1), operations=[type(layer()).__name__, "Reshape"])


@pytest.mark.parametrize(("lanes", "applied"), [(8, 2), (5, 4)], ids=["by group", "singly"])
def test_mixed_functions_are_applied_to_their_lanes(lanes, applied):
    """One operation per group of lanes, or per lane where that makes fewer operations in all."""
    functions = ["tanh", leaky, None]
    model = between_dense(lambda i: layers.Activation(functions[i % 3]), shape=(lanes, 7))
    fused, _ = assert_fuses(model, layers=(3 * lanes, 3), reload=False)
    assert operation_names(fused).count("Activation") == applied


def test_mixed_functions_on_one_tensor_are_applied_once_each():
    x = keras.Input((6, 7))
    branches = [layers.Activation(["tanh", "relu"][i % 2])(x) for i in range(5)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(branches)), layers=(5, 1))
    assert operation_names(fused) == ["Activation", "Activation", "Concatenate"]


def test_mixed_functions_on_heads_of_unequal_width_stay():
    x = keras.Input((7,))
    functions = [(4, "tanh"), (3, "relu"), (5, "tanh")]
    heads = [layers.Activation(f)(layers.Dense(n)(x)) for n, f in functions]
    _, report = assert_fuses(keras.Model(x, layers.Concatenate()(heads)), layers=(3, 1))
    assert "different widths have functions of their own" in str(report.rejections[0])


def test_mixed_functions_in_half_precision():
    functions = ["tanh", None, "tanh"]
    model = between_dense(lambda i: layers.Activation(functions[i], dtype="float16"))
    assert_fuses(model, layers=(9, 3))


def test_different_numbers_make_groups_and_one_stays_alone():
    model = towers(lambda i, x: layers.LeakyReLU([0.1, 0.1, 0.2][i])(x), shape=(3, 7))
    _, report = assert_fuses(model, layers=(2, 1))
    assert "negative_slope 0.2, its siblings 0.1" in str(report.rejections[0])


def test_r16_equal_layers_on_one_tensor_become_one():
    x = keras.Input((6, 7))
    branches = [layers.Conv1D(2, n)(layers.Activation("relu")(x)) for n in (1, 2, 3)]
    pooled = [layers.GlobalMaxPooling1D()(branch) for branch in branches]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(pooled)), layers=(3, 1))
    assert operation_names(fused).count("Activation") == 1


def test_r17_heads_of_unequal_width():
    x = keras.Input((7,))
    heads = [layers.ReLU()(layers.Dense(n)(x)) for n in (4, 3, 4)]
    model = keras.Model(x, layers.Concatenate()(heads))
    assert_fuses(model, layers=(6, 2), operations=["Dense", "ReLU", "Identity"])


def test_an_activation_layer_shared_by_all_lanes():
    shared = layers.ReLU()
    fused, _ = assert_fuses(between_dense(lambda i: shared), layers=(9, 3))
    assert operation_names(fused).count("ReLU") == 1


def test_half_precision_keeps_its_type():
    model = between_dense(lambda i: layers.ReLU(dtype="float16"))
    fused, _ = assert_fuses(model, layers=(9, 3))
    middle = next(layer for layer in fused.layers if isinstance(layer, layers.ReLU))
    assert middle.output.dtype == "float16"


REJECTED = {
    "activation glu: not known": lambda i: layers.Activation(keras.activations.glu),
    "activation <lambda>: not known": lambda i: layers.Activation(lambda x: x - ops.mean(x)),
    "activation PReLU: a layer with a rule": lambda i: layers.Activation(layers.PReLU()),
    "activity regularizer": lambda i: layers.ReLU(activity_regularizer="l2"),
    "activation softmax, its siblings elementwise": lambda i: layers.Activation(
        ["softmax", "relu"][i]
    ),
    "every lane has a function of its own": lambda i: layers.Activation(["tanh", "relu"][i]),
    "dtype policy": lambda i: layers.ReLU(dtype=["float32", "float16"][i]),
    "axis 2, its siblings 1": lambda i: layers.Softmax(axis=1 + i),
    "counted from the end": lambda i: layers.PReLU(shared_axes=[-1]),
    "MaxNorm": lambda i: layers.PReLU(alpha_constraint="max_norm"),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    model = towers(lambda i, x: REJECTED[reason](i)(x), shape=(2, 6, 4), join=lambda ys: ys)
    assert_rejects(model, reason)


def test_a_masked_softmax_is_rejected():
    x, mask = keras.Input((2, 7)), keras.Input((7,), dtype="bool")
    outputs = [layers.Softmax()(x[:, i], mask=mask) for i in range(2)]
    assert_rejects(keras.Model([x, mask], outputs), "receives a mask")


@pytest.mark.parametrize("shared", [None, [1], [2], [1, 2]])
def test_prelu_between_convolutions(shared):
    model = between_conv(lambda i: layers.PReLU(shared_axes=shared))
    assert_fuses(model, layers=(9, 3))


@pytest.mark.parametrize("shared", [None, 1])
def test_prelu_between_dense_layers(shared):
    model = between_dense(lambda i: layers.PReLU(shared_axes=shared, alpha_regularizer="l2"))
    fused, _ = assert_fuses(model, layers=(9, 3))
    assert len(fused.losses) == 1
    np.testing.assert_allclose(fused.losses[0], sum(model.losses), rtol=1e-6)


def test_prelu_of_unequal_width():
    x = keras.Input((7,))
    heads = [layers.PReLU()(layers.Dense(n)(x)) for n in (4, 3, 5)]
    model = keras.Model(x, layers.Concatenate()(heads))
    assert_fuses(model, layers=(6, 2), operations=["Dense", "PReLU", "Identity"])


def test_prelu_slopes_unstack_exactly():
    random = np.random.default_rng(0)
    for lowering, shared in ((SIDE_BY_SIDE, [1]), (LANE_AXIS, [2])):
        members = [layers.PReLU(shared_axes=shared) for _ in range(3)]
        for one in members:
            one.build((None, 6, 7))
            one.set_weights([random.normal(size=one.alpha.shape)])
        stacked = lowering.stack(members)
        for one, (alpha,) in zip(members, lowering.unstack(stacked, 3), strict=True):
            np.testing.assert_array_equal(one.get_weights()[0], alpha)
