"""The grouped layers against separate stock convolutions on slices of the channels."""

import sys

import keras
import numpy as np
import pytest
from keras import ops

from parallel_fuse.layers import GroupedConv1D, GroupedConv2D
from tests.layers.separate import (
    STOCK,
    Case,
    Separate,
    assert_close,
    grouped_layer,
    input_shape,
    inputs_for,
)

TENSORFLOW = keras.backend.backend() == "tensorflow"
MODES = ("eager", "graph", "xla") if TENSORFLOW else ("eager",)
PATHS = ("chosen", "split") if TENSORFLOW else ("chosen",)

if TENSORFLOW:
    import tensorflow as tf

    from parallel_fuse.layers import _grouped_conv_tensorflow as grouped_tf

only_tensorflow = pytest.mark.skipif(not TENSORFLOW, reason="how TensorFlow runs is tested")

FIRST = {"data_format": "channels_first"}
CASES = (
    Case("1d", (13,), 3, 2, 4, (5,), {"activation": "relu"}),
    Case("1d_causal_depthwise", (11,), 4, 1, 2, (3,), {"padding": "causal", "dilation_rate": 2}),
    Case("1d_same_strided", (12,), 5, 2, 3, (4,), {"padding": "same", "strides": 2}),
    Case("1d_causal_first", (10,), 3, 2, 4, (5,), {"padding": "causal", "strides": 2, **FIRST}),
    Case("2d", (9, 11), 4, 5, 3, (3, 2), {"activation": "relu"}),
    Case("2d_same_strided", (7, 10), 3, 2, 4, (3, 5), {"padding": "same", "strides": (3, 2)}),
    Case("2d_dilated", (9, 8), 2, 3, 5, (3, 2), {"padding": "same", "dilation_rate": (1, 2)}),
    Case("2d_depthwise", (8, 6), 5, 1, 1, (2, 3), {"use_bias": False, "activation": "tanh"}),
    Case("2d_first", (8, 7), 3, 4, 2, (2, 3), {"padding": "same", **FIRST}),
    Case("2d_first_dilated", (9, 7), 4, 2, 3, (3, 2), {"dilation_rate": 2, **FIRST}),
    Case("3d", (5, 6, 7), 3, 2, 4, (2, 3, 1), {"activation": "softmax"}),
    Case("3d_same_strided", (7, 5, 6), 2, 3, 4, (3, 2, 1), {"padding": "same", "strides": 2}),
    Case("3d_first_dilated", (6, 7, 5), 2, 3, 4, (2, 3, 2), {"dilation_rate": 2, **FIRST}),
)
B14 = Case("b14", (30, 29), 4, 1, 3, (3, 2))  # tf#53631
B18 = Case("b18", (10, 9), 3, 1, 2, (3, 2), FIRST)  # keras#20414
BY_NAME = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
TRAINED = [case for case in CASES if case.name in ("1d_causal_first", "2d_dilated", "3d")]


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    if request.param == "split":
        monkeypatch.setattr(grouped_tf, "_has_kernel", lambda inputs, window: False)
    return request.param


def as_mode(function, mode, case):
    if mode == "eager":
        return function
    if mode == "xla":
        return tf.function(function, jit_compile=True)
    signature = tf.TensorSpec(input_shape(case, unknown=True), "float32")
    return tf.function(function, input_signature=[signature])


@BY_NAME
@pytest.mark.parametrize("mode", MODES)
def test_matches_separate_convolutions(case, mode, path):
    layer = grouped_layer(case)
    separate = Separate(case, layer.get_weights())
    run = as_mode(layer, mode, case)
    for batch in (7,) if mode == "xla" else (1, 2, 7):
        x = ops.convert_to_tensor(inputs_for(case, batch, seed=batch))
        assert_close(run(x), separate(x), case.terms)


@pytest.mark.parametrize("case", [CASES[0], CASES[4], CASES[8], CASES[10]], ids=lambda c: c.name)
def test_control_permuted_groups_are_caught(case, path):
    layer = grouped_layer(case)
    separate = Separate(case, layer.get_weights())
    x = ops.convert_to_tensor(inputs_for(case, 2))
    for index in range(2):
        weights = layer.get_weights()
        wrong = weights[:index] + [np.roll(weights[index], case.filters, -1)] + weights[index + 1 :]
        layer.set_weights(wrong)
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            assert_close(layer(x), separate(x), case.terms)
        layer.set_weights(weights)
    assert_close(layer(x), separate(x), case.terms)


@only_tensorflow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", TRAINED, ids=lambda case: case.name)
def test_gradients_match_separate_convolutions(case, mode, path):
    layer = grouped_layer(case)
    separate = Separate(case, layer.get_weights())
    x = tf.constant(inputs_for(case, 5))

    def gradients(call, variables):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            outputs = call(x)
            losses = tf.reduce_sum(outputs**2), tf.reduce_sum(tf.sin(outputs))
        return [tape.gradient(loss, [x, *variables]) for loss in losses]

    run = gradients if mode == "eager" else tf.function(gradients, jit_compile=mode == "xla")
    found = run(layer, [v.value for v in layer.trainable_variables])
    wanted = gradients(separate, [[v.value for v in lane] for lane in separate.variables])
    terms = 5 * int(np.prod(case.spatial)) * case.terms
    for (dx, *dw), (wanted_dx, *wanted_dw) in zip(found, wanted):
        assert_close(dx, wanted_dx, terms)
        for one, several in zip(dw, wanted_dw):
            assert_close(one, ops.concatenate(several, axis=-1), terms)


@pytest.mark.parametrize(
    ("case", "jit_compile"),
    [(CASES[0], "auto"), pytest.param(CASES[6], True, marks=only_tensorflow)],
    ids=["1d", "2d_dilated-xla"],
)
def test_trains_like_separate_convolutions(case, jit_compile):
    layer = grouped_layer(case)
    separate = Separate(case, layer.get_weights())
    before = layer.get_weights()
    inputs = keras.Input(input_shape(case)[1:])
    x = inputs_for(case, 5)
    y = np.random.default_rng(3).normal(size=layer.compute_output_shape(x.shape))
    losses, predictions = [], []
    for call in (layer, separate):
        model = keras.Model(inputs, call(inputs))
        model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=jit_compile)
        # The last batch is smaller than those before.
        model.fit(x, y, batch_size=3, epochs=2, shuffle=False, verbose=0)
        model.compile(loss="mse", jit_compile=False)
        losses.append(model.evaluate(x, y, batch_size=3, verbose=0))
        predictions.append(model.predict(x, batch_size=2, verbose=0))
    assert_close(*losses, terms=100)
    assert_close(*predictions, terms=100)
    for one, several, old in zip(layer.get_weights(), separate.variables, before):
        assert_close(one, ops.concatenate(several, axis=-1), terms=100)
        assert np.abs(one - old).max() > 1e-3


@only_tensorflow
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float64"])
@pytest.mark.parametrize("case", [CASES[1], CASES[5], CASES[11]], ids=lambda case: case.name)
def test_dtype_policies(case, dtype, path):
    layer = grouped_layer(case, dtype=dtype)
    separate = Separate(case, layer.get_weights(), dtype=dtype)
    x = tf.constant(inputs_for(case, 2, dtype=layer.variable_dtype))
    assert_close(layer(x), separate(x), case.terms, layer.compute_dtype)
    with tf.GradientTape() as tape:
        outputs = tf.function(layer)(x)
        loss = tf.reduce_sum(tf.cast(outputs, layer.variable_dtype) ** 2)
    kernel = layer.kernel.value
    gradient = tape.gradient(loss, kernel)
    assert outputs.dtype == layer.compute_dtype
    assert gradient.dtype == kernel.dtype
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(separate(x), layer.variable_dtype) ** 2)
    wanted = tf.concat(tape.gradient(loss, [f.kernel.value for f in separate.layers]), -1)
    terms = 2 * int(np.prod(case.spatial)) * case.terms
    assert_close(gradient, wanted, terms, layer.compute_dtype)


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_config_and_weights_are_those_of_the_stock_layer(case):
    layer = grouped_layer(case, kernel_regularizer="l2", bias_constraint="non_neg")
    stock = STOCK[case.rank].from_config(layer.get_config())
    stock.build(input_shape(case))
    assert stock.get_config() == layer.get_config()
    assert [w.shape for w in stock.weights] == [w.shape for w in layer.weights]
    assert [w.name for w in stock.weights] == [w.name for w in layer.weights]
    stock.set_weights(layer.get_weights())
    assert_close(layer.losses[0], stock.losses[0], case.groups * case.filters * case.terms)
    shape = input_shape(case, batch=7)
    assert layer.compute_output_shape(shape) == stock.compute_output_shape(shape)
    assert tuple(layer(inputs_for(case, 7)).shape) == stock.compute_output_shape(shape)
    assert keras.saving.get_registered_name(type(layer)) == f"parallel_fuse>{type(layer).__name__}"


def test_one_group_is_the_stock_layer():
    case = Case("ungrouped", (9, 8), 1, 3, 5, (3, 2), {"padding": "same"})
    layer = grouped_layer(case)
    x = ops.convert_to_tensor(inputs_for(case, 2))
    assert_close(layer(x), Separate(case, layer.get_weights())(x), case.terms)


def test_low_rank_adaptation_is_part_of_the_kernel():
    case = CASES[4]
    layer = grouped_layer(case)
    layer.enable_lora(2)
    rng = np.random.default_rng(5)
    layer.lora_kernel_b.assign(rng.normal(size=layer.lora_kernel_b.shape))
    x = ops.convert_to_tensor(inputs_for(case, 2))
    merged = [ops.convert_to_numpy(w) for w in (layer.kernel, layer.bias)]
    assert_close(layer(x), Separate(case, merged)(x), case.terms)


def test_what_the_stock_layer_refuses_is_refused():
    with pytest.raises(ValueError, match="number of filters must be evenly divisible"):
        GroupedConv2D(7, 3, groups=2)
    with pytest.raises(ValueError, match="strides > 1"):
        GroupedConv2D(6, 3, groups=2, strides=2, dilation_rate=2)
    with pytest.raises(ValueError, match="input channels must be evenly divisible"):
        GroupedConv2D(6, 3, groups=2).build((None, 8, 9, 5))


@only_tensorflow
def test_input_shorter_than_the_kernel_is_refused():
    layer = GroupedConv1D(6, 5, groups=2)
    layer.build((None, None, 4))
    with pytest.raises(ValueError, match="Computed output size would be"):
        layer(np.zeros((2, 3, 4), "float32"))


@pytest.mark.parametrize("batch", [1, 20])
@pytest.mark.parametrize("mode", MODES)
def test_b14_grouped_convolution_with_fused_bias_and_relu(mode, batch, path):
    layer = grouped_layer(B14, activation="relu")
    x = ops.convert_to_tensor(inputs_for(B14, batch))
    wanted = ops.relu(Separate(B14, layer.get_weights())(x))
    assert_close(as_mode(layer, mode, B14)(x), wanted, B14.terms)


@pytest.mark.parametrize("mode", MODES)
def test_b18_channels_first_on_a_cpu(mode, path):
    layer = grouped_layer(B18)
    x = ops.convert_to_tensor(inputs_for(B18, 2))
    found = as_mode(layer, mode, B18)(x)
    assert tuple(found.shape) == (2, 6, 8, 8)
    assert_close(found, Separate(B18, layer.get_weights())(x), B18.terms)


@pytest.mark.skipif(TENSORFLOW, reason="on TensorFlow the module is meant to be loaded")
def test_tensorflow_is_not_imported_under_another_backend():
    grouped_layer(CASES[0])(inputs_for(CASES[0], 2))
    assert not [name for name in sys.modules if name.endswith("_grouped_conv_tensorflow")]
