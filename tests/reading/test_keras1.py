"""Files of Keras 1, written here as it wrote them, against the same computed by NumPy."""

import json

import h5py
import numpy as np
import pytest

from parallel_fuse.command.exits import Exit
from parallel_fuse.errors import ConversionError
from parallel_fuse.reading.load import load_model, read

DENSE = {
    "trainable": True,
    "init": "glorot_uniform",
    "bias": True,
    **dict.fromkeys(["W_regularizer", "b_regularizer", "activity_regularizer"]),
    **dict.fromkeys(["W_constraint", "b_constraint"]),
}
CONV = {**DENSE, "border_mode": "same", "subsample": [1, 1], "dim_ordering": "tf"}
rng = np.random.default_rng(11)


def array(*shape):
    return rng.normal(size=shape).astype("float32")


def write(path, config, weights):
    """`weights`: layer → its arrays, under the names that Keras 1 gave them."""
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = b"1.2.2"
        file.attrs["model_config"] = json.dumps(config).encode()
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name.encode() for name in weights]
        for name, arrays in weights.items():
            inner = group.create_group(name)
            names = [f"{name}_{i}:0" for i in range(len(arrays))]
            inner.attrs["weight_names"] = [one.encode() for one in names]
            for one, values in zip(names, arrays):
                inner[one] = values
    return path


def dense(name, units, inputs, **options):
    config = {**DENSE, "name": name, "output_dim": units, "input_dim": inputs, **options}
    return {"class_name": "Dense", "config": {"activation": "linear", **config}}


def functional(layers, ends, outputs):
    listed = [
        {**layer, "name": layer["config"]["name"], "inbound_nodes": nodes}
        for layer, nodes in layers
    ]
    named = {"name": "old", "layers": listed}
    return {
        "class_name": "Model",
        "config": {**named, "input_layers": ends, "output_layers": outputs},
    }


def entry(name, *shape):
    config = {"batch_input_shape": [None, *shape], "input_dtype": "float32", "name": name}
    return {"class_name": "InputLayer", "config": {**config, "sparse": False}}


def merge(name, mode):
    merged = {"name": name, "mode": mode, "mode_type": "raw", "concat_axis": -1, "dot_axes": -1}
    return {"class_name": "Merge", "config": merged}


def test_a_sequential_model(tmp_path):
    first, second = dense("dense_1", 5, 4, activation="relu"), dense("dense_2", 3, 5)
    first["config"]["batch_input_shape"] = [None, 4]
    dropout = {
        "class_name": "Dropout",
        "config": {"p": 0.5, "trainable": True, "name": "dropout_1"},
    }
    w, b, v, c = array(4, 5), array(5), array(5, 3), array(3)
    config = {"class_name": "Sequential", "config": [first, dropout, second]}
    path = write(
        tmp_path / "old.h5", config, {"dense_1": [w, b], "dropout_1": [], "dense_2": [v, c]}
    )
    opened = read(path)
    x = array(6, 4)
    expected = np.maximum(x @ w + b, 0) @ v + c
    np.testing.assert_allclose(opened.model(x), expected, rtol=0, atol=1e-5)
    told = "\n".join(opened.repairs)
    assert "arguments of Keras 1 under their new names: Dense.kernel_initializer (was init)" in told
    assert opened.model.get_layer("dropout_1").rate == 0.5


@pytest.mark.parametrize(
    ("mode", "joined"),
    [
        ("concat", lambda a, b: np.concatenate([a, b], -1)),
        ("sum", lambda a, b: a + b),
        ("mul", lambda a, b: a * b),
        ("ave", lambda a, b: (a + b) / 2),
        ("max", np.maximum),
    ],
)
def test_merged_branches(tmp_path, mode, joined):
    w, b, v, c = array(4, 3), array(3), array(4, 3), array(3)
    layers = [
        (entry("x", 4), []),
        (dense("left", 3, 4), [[["x", 0, 0]]]),
        (dense("right", 3, 4), [[["x", 0, 0]]]),
        (merge("merged", mode), [[["left", 0, 0], ["right", 0, 0]]]),
    ]
    config = functional(layers, [["x", 0, 0]], [["merged", 0, 0]])
    path = write(tmp_path / "old.h5", config, {"right": [v, c], "left": [w, b]})
    x = array(5, 4)
    expected = joined(x @ w + b, x @ v + c)
    np.testing.assert_allclose(load_model(path)(x), expected, rtol=0, atol=1e-5)


def convolution(**options):
    config = {**CONV, "name": "conv", "nb_filter": 2, "nb_row": 1, "nb_col": 3, **options}
    return {"class_name": "Convolution2D", "config": {"activation": "linear", **config}}


def normalization(mode):
    config = {"name": "norm", "epsilon": 1e-3, "mode": mode, "axis": -1, "momentum": 0.99}
    config |= {"gamma_regularizer": None, "beta_regularizer": None}
    return {"class_name": "BatchNormalization", "config": config}


def picture(tmp_path, conv, norm):
    w, b = array(1, 3, 5, 2), array(2)
    statistics = [array(2), array(2), array(2), np.abs(array(2)) + 0.5]
    layers = [
        (entry("x", 4, 6, 5), []),
        (conv, [[["x", 0, 0]]]),
        (norm, [[["conv", 0, 0]]]),
    ]
    config = functional(layers, [["x", 0, 0]], [["norm", 0, 0]])
    return (
        write(tmp_path / "old.h5", config, {"conv": [w, b], "norm": statistics}),
        w,
        b,
        statistics,
    )


def test_a_convolution_and_its_normalization(tmp_path):
    path, w, b, (gamma, beta, mean, variance) = picture(tmp_path, convolution(), normalization(0))
    x = array(2, 4, 6, 5)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 0)])
    y = sum(padded[:, :, i : i + 6] @ w[0, i] for i in range(3)) + b
    expected = (y - mean) / np.sqrt(variance + 1e-3) * gamma + beta
    np.testing.assert_allclose(load_model(path)(x), expected, rtol=0, atol=1e-4)


def fails(path, match):
    with pytest.raises(ConversionError, match=match) as caught:
        read(path)
    assert caught.value.code == Exit.NOT_A_MODEL
    assert "\n" not in str(caught.value)


def test_the_axes_of_theano_are_refused(tmp_path):
    path = picture(tmp_path, convolution(dim_ordering="th"), normalization(0))[0]
    fails(path, "Conv2D orders its axes as Theano did")


def test_another_mode_of_normalization_is_refused(tmp_path):
    path = picture(tmp_path, convolution(), normalization(1))[0]
    fails(path, "BatchNormalization 'norm' has mode=1")


def test_a_merge_by_a_function_is_refused(tmp_path):
    layers = [(entry("x", 4), []), (merge("merged", "lambda"), [[["x", 0, 0], ["x", 0, 0]]])]
    path = write(tmp_path / "old.h5", functional(layers, [["x", 0, 0]], [["merged", 0, 0]]), {})
    fails(path, "Merge 'merged' has the mode 'lambda'")
