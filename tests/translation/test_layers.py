"""Operations with weights become stock layers with their biases; shared weights stay shared."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import parallel_fuse
from parallel_fuse import fuse_parallel_branches
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.errors import ConversionError
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.translation.walk import functional_from_saved_model
from tests.asserts import operation_names
from tests.builders import inputs_for, randomise
from tests.translation.checks import assert_translates, spec, values

RANDOM = np.random.default_rng(1)


def variable(*shape, dtype="float32"):
    return tf.Variable(RANDOM.normal(size=shape).astype(dtype))


def kinds(model) -> list[str]:
    return [type(layer).__name__ for layer in model.layers if layer.weights]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_dense_with_its_bias(dtype, tmp_path):
    kernel, bias = variable(7, 3, dtype=dtype), variable(3, dtype=dtype)
    model = assert_translates(
        tmp_path, lambda x: tf.nn.relu(tf.matmul(x, kernel) + bias), {"x": spec(7, dtype=dtype)},
        kernel=kernel, bias=bias,
    )  # fmt: skip
    assert kinds(model) == ["Dense"]
    assert operation_names(model) == ["Dense", "Relu"]


def test_a_kernel_that_is_turned(tmp_path):
    kernel = variable(3, 7)
    model = assert_translates(
        tmp_path, lambda x: tf.matmul(x, kernel, transpose_b=True), {"x": spec(7)}, kernel=kernel
    )
    assert model.layers[-1].kernel.shape == (7, 3)


def test_one_kernel_both_ways_is_two_layers(tmp_path):
    """A tied decoder: square, so that only the numbers tell."""
    kernel = variable(5, 5)
    model = assert_translates(
        tmp_path, lambda x: tf.matmul(tf.nn.relu(tf.matmul(x, kernel)), kernel, transpose_b=True),
        {"x": spec(5)}, kernel=kernel,
    )  # fmt: skip
    assert kinds(model) == ["Dense", "Dense"]


def test_a_shared_kernel_is_one_layer_called_twice(tmp_path):
    kernel, bias = variable(4, 3), variable(3)

    def function(x):
        return tf.concat([tf.matmul(x[:, i], kernel) + bias for i in (0, 1)], -1)

    model = assert_translates(tmp_path, function, {"x": spec(2, 4)}, kernel=kernel, bias=bias)
    assert kinds(model) == ["Dense"]
    assert len(model.weights) == 2


def test_one_kernel_with_two_biases(tmp_path):
    kernel, one, other = variable(4, 3), variable(3), variable(3)

    def function(x):
        return tf.matmul(x[:, 0], kernel) + one - (tf.matmul(x[:, 1], kernel) + other)

    specs = {"x": spec(2, 4)}
    assert_translates(tmp_path, function, specs, kernel=kernel, one=one, other=other)


def test_a_product_that_is_read_twice_keeps_its_bias_outside(tmp_path):
    kernel, bias = variable(4, 3), variable(3)

    def function(x):
        product = tf.matmul(x, kernel)
        return tf.nn.relu(product + bias) * product

    model = assert_translates(tmp_path, function, {"x": spec(4)}, kernel=kernel, bias=bias)
    assert not model.layers[1].use_bias


def test_a_vector_of_more_axes_than_the_tensor_is_no_bias(tmp_path):
    """(batch, 3) + (1, 1, 3) has three axes."""
    kernel, added = variable(4, 3), variable(1, 1, 3)
    held = {"kernel": kernel, "added": added}
    assert_translates(tmp_path, lambda x: tf.matmul(x, kernel) + added, {"x": spec(4)}, **held)
    held = {"kernel": added, "added": variable(3)}
    assert_translates(tmp_path / "2", lambda x: x * added + held["added"], {"x": spec(3)}, **held)


def test_layers_of_scopes_that_are_numbered_alike(tmp_path):
    """`separable_conv1d_1` is the second layer of one scope and the first of another."""
    x = keras.Input((9, 4), name="x")
    y = layers.SeparableConv1D(3, 2, name="separable_conv1d")(x)
    y = layers.SeparableConv1D(5, 2, name="separable_conv1d_1")(y)
    exported(randomise(keras.Model(x, y)), tmp_path)


def test_a_bias_along_another_axis_is_no_bias(tmp_path):
    """Three rows, three units: the vector is added along the rows."""
    kernel, added = variable(4, 3), variable(3, 1)

    def function(x):
        return tf.reshape(tf.matmul(tf.reshape(x, (-1, 4)), kernel), (-1, 3, 3)) + added

    assert_translates(tmp_path, function, {"x": spec(3, 4)}, kernel=kernel, added=added)


@pytest.mark.parametrize("time", [6, None])
def test_dense_on_sequences(time, tmp_path):
    x = keras.Input((time, 5), name="x")
    model = randomise(keras.Model(x, layers.Dense(7, activation="tanh")(x)))
    assert kinds(exported(model, tmp_path)) == ["Dense"]


CONVOLUTIONS = {  # name → layer, shape of a sample, what it comes back as
    "plain": (layers.Conv2D(3, (2, 4), activation="relu"), (8, 9, 5), "Conv2D"),
    "strides": (layers.Conv2D(3, 3, strides=(2, 1), padding="same"), (8, 9, 5), "Conv2D"),
    "dilated": (layers.Conv2D(3, 2, dilation_rate=(2, 3)), (8, 9, 5), "Conv2D"),
    "dilated, same": (
        layers.Conv2D(3, (2, 3), padding="same", dilation_rate=2),
        (8, 9, 5),
        "Conv2D",
    ),
    "dilated, one axis": (layers.Conv1D(3, 2, dilation_rate=3), (9, 5), "Conv2D"),
    "dilated, causal": (layers.Conv1D(3, 2, dilation_rate=2, padding="causal"), (9, 5), "Conv2D"),
    "dilated, depthwise": (
        layers.DepthwiseConv2D(2, dilation_rate=2), (8, 9, 5), "DepthwiseConv2D",
    ),
    "groups": (layers.Conv2D(6, 3, groups=2), (8, 9, 4), "Conv2D"),
    "no bias": (layers.Conv2D(3, 3, use_bias=False), (8, 9, 5), "Conv2D"),
    "one axis": (layers.Conv1D(3, 4, padding="causal"), (9, 5), "Conv2D"),
    "three axes": (layers.Conv3D(3, 2), (4, 5, 6, 2), "Conv3D"),
    "depthwise": (layers.DepthwiseConv2D((2, 3), depth_multiplier=2), (8, 9, 5), "DepthwiseConv2D"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, tmp_path):
    layer, shape, kind = CONVOLUTIONS[name]
    x = keras.Input(shape, name="x")
    model = randomise(keras.Model(x, type(layer).from_config(layer.get_config())(x)))
    assert kinds(exported(model, tmp_path)) == [kind]


def test_normalization_of_frozen_statistics(tmp_path):
    x = keras.Input((8, 9, 5), name="x")
    model = randomise(keras.Model(x, layers.BatchNormalization()(layers.Conv2D(3, 2)(x))))
    found = exported(model, tmp_path)
    assert kinds(found) == ["Conv2D", "BatchNormalization"]
    assert not found.layers[-1].trainable


def test_fused_batch_norm(tmp_path):
    held = {name: variable(5) for name in ("scale", "offset", "mean")}
    held["variance"] = tf.Variable(np.abs(RANDOM.normal(size=5)).astype("float32") + 0.1)

    def function(x):
        return tf.compat.v1.nn.fused_batch_norm(x, *held.values(), epsilon=0.01, is_training=False)[
            0
        ]

    model = assert_translates(tmp_path, function, {"x": spec(3, 4, 5)}, **held)
    assert kinds(model) == ["BatchNormalization"]


BLOCKS = {
    "attention": lambda x: layers.MultiHeadAttention(2, 3)(x, x),
    "layer norm": lambda x: layers.LayerNormalization()(x),
    "squeeze and excite": lambda x: x * layers.Dense(7, "sigmoid")(layers.Dense(2)(x)),
    "pooled": lambda x: layers.GlobalAveragePooling1D()(layers.AveragePooling1D(2)(x)),
    "flat": lambda x: layers.Dense(3, "softmax")(layers.Flatten()(x)),
    "separable": lambda x: layers.SeparableConv1D(4, 3)(x),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_as_keras_writes_them(name, tmp_path):
    x = keras.Input((6, 7), name="x")
    exported(randomise(keras.Model(x, BLOCKS[name](x))), tmp_path)


def test_q13_an_embedding(tmp_path):
    x = keras.Input((4,), dtype="int32", name="x")
    model = randomise(keras.Model(x, layers.Embedding(9, 3)(x)))
    assert kinds(exported(model, tmp_path)) == ["Embedding"]


def test_names_and_nests_of_the_signature(tmp_path):
    a, b = keras.Input((3,), name="first"), keras.Input((5,), name="second")
    outputs = [layers.Dense(2)(a), layers.Concatenate()([a, b])]
    model = randomise(keras.Model([a, b], outputs))
    model.export(str(tmp_path / "saved"), verbose=False)
    found = functional_from_saved_model(tmp_path / "saved")
    given = {"first": np.ones((2, 3), "float32"), "second": np.ones((2, 5), "float32")}
    assert [tuple(t.shape) for t in found(given)] == [(2, 2), (2, 8)]


def exported(model, tmp_path) -> keras.Model:
    """Back from a SavedModel, checked at two batch sizes."""
    model.export(str(tmp_path / "saved"), verbose=False)
    found = functional_from_saved_model(tmp_path / "saved")
    for batch in (1, 3):
        given = inputs_for(model, batch, seed=batch)
        given = given[0] if isinstance(given, list) else given
        wanted = np.asarray(model(given))
        np.testing.assert_allclose(found(given), wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())
    return found


def test_32_dense_towers_come_back_and_fuse(tmp_path):
    x = keras.Input((32, 6), name="x")
    towers = [layers.Dense(1)(layers.Dense(3, activation="relu")(x[:, i])) for i in range(32)]
    model = randomise(keras.Model(x, layers.Concatenate()(towers)))
    fused, report = fuse_parallel_branches(exported(model, tmp_path), return_report=True)
    assert report.verification.ok
    assert operation_names(fused).count("EinsumDense") == 2
    assert len(fused.operations) <= 10
    given = inputs_for(model, 5, seed=0)
    np.testing.assert_allclose(fused(given), model(given), rtol=0, atol=1e-5)


def test_16_convolutions_come_back_and_fuse(tmp_path):
    x = keras.Input((8, 9, 32), name="x")
    pieces = [x[..., 2 * i : 2 * i + 2] for i in range(16)]
    convolved = [layers.Conv2D(3, 3, padding="same", activation="relu")(p) for p in pieces]
    model = randomise(keras.Model(x, layers.Concatenate()(convolved)))
    fused, _ = fuse_parallel_branches(
        exported(model, tmp_path), return_report=True, policy=EVERYTHING
    )
    assert operation_names(fused).count("GroupedConv2D") == 1
    assert len(fused.operations) <= 5


@pytest.mark.parametrize(("signature", "words"), [("train", "no signature 'train'")])
def test_a_signature_that_is_not_there(signature, words, tmp_path):
    x = keras.Input((3,), name="x")
    keras.Model(x, layers.Dense(2)(x)).export(str(tmp_path / "saved"), verbose=False)
    with pytest.raises(ConversionError, match=words):
        functional_from_saved_model(tmp_path / "saved", signature)


def test_a_loop_is_refused_with_what_to_do(tmp_path):
    x = keras.Input((4, 3), name="x")
    keras.Model(x, layers.LSTM(2)(x)).export(str(tmp_path / "saved"), verbose=False)
    with pytest.raises(ConversionError, match=r"While .*Open the \.keras or \.h5 file"):
        functional_from_saved_model(tmp_path / "saved")


def test_ids_and_values_of_several_inputs(tmp_path):
    table = variable(5, 3)
    specs = {"ids": spec(2, dtype="int64", name="ids"), "x": spec(2, 3)}
    model = assert_translates(
        tmp_path, lambda ids, x: tf.gather(table, ids) * x, specs, table=table
    )
    assert set(values(specs, 2)) == set(model.input)


def test_by_the_command_line(tmp_path):
    """A SavedModel in, a proven file out; one that cannot be read leaves nothing."""
    x = keras.Input((16, 5), name="x")
    model = randomise(keras.Model(x, layers.Add()([layers.Dense(3)(x[:, i]) for i in range(16)])))
    model.export(str(tmp_path / "saved"), verbose=False)
    report = parallel_fuse.convert(tmp_path / "saved", tmp_path / "out.keras")
    assert report.changed
    assert report.file.proof.ok
    loop = keras.Input((4, 3))
    keras.Model(loop, layers.GRU(2)(loop)).export(str(tmp_path / "loop"), verbose=False)
    with pytest.raises(FileError, match="While") as caught:
        parallel_fuse.convert(tmp_path / "loop", tmp_path / "none.keras")
    assert caught.value.code is Exit.UNTRANSLATED
    assert not (tmp_path / "none.keras").exists()
