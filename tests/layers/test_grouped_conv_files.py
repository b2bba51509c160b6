"""Saved, reloaded and exported grouped layers: in a fresh process, without oneDNN, as ONNX."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from tests.layers.separate import Case, Separate, assert_close, grouped_layer, inputs_for

TENSORFLOW = keras.backend.backend() == "tensorflow"
CASES = (
    Case("line", (13,), 3, 2, 4, (5,), {"padding": "causal", "activation": "relu"}),
    Case("image", (9, 11), 4, 5, 3, (3, 2), {"activation": "relu", "padding": "same"}),
    Case("bare_image", (8, 7), 2, 3, 5, (2, 3), {"strides": 2, "use_bias": False}),
    Case("volume", (5, 6, 7), 3, 2, 4, (2, 3, 1)),
)
TERMS = 30  # of the longest sum
RELOAD = """
import sys
import keras
import numpy as np
import parallel_fuse.layers

folder, backend = sys.argv[1], keras.backend.backend()
data = np.load(f"{folder}/data.npz")
inputs = [data[f"x{i}"] for i in range(4)]
model = keras.models.load_model(f"{folder}/model.keras")
results = dict(enumerate(model.predict(inputs, verbose=0)))
if backend == "tensorflow":
    import tensorflow as tf

    served = tf.saved_model.load(f"{folder}/served")  # the variables live as long as it does
    results.update({4 + i: y for i, y in enumerate(served.serve([x[:3] for x in inputs]))})
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(y**2) for y in tf.function(model)(inputs)])
    variables = [variable.value for variable in model.trainable_variables]
    results.update({8 + i: g for i, g in enumerate(tape.gradient(loss, variables))})
np.savez(f"{folder}/results.npz", **{f"r{i}": r for i, r in results.items()})
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model with four inputs and outputs, its file, its inputs and what it must give."""
    folder = tmp_path_factory.mktemp("grouped")
    keras.utils.set_random_seed(11)
    layers = [grouped_layer(case, seed=i) for i, case in enumerate(CASES)]
    inputs = [keras.Input(shape) for shape in shapes()]
    model = keras.Model(inputs, [layer(x) for layer, x in zip(layers, inputs)])
    arrays = [inputs_for(case, 7, seed=i) for i, case in enumerate(CASES)]
    separate = [Separate(case, layer.get_weights()) for case, layer in zip(CASES, layers)]
    wanted = [ops.convert_to_numpy(f(x)) for f, x in zip(separate, arrays)]
    model.save(folder / "model.keras")
    np.savez(folder / "data.npz", **{f"x{i}": x for i, x in enumerate(arrays)})
    if TENSORFLOW:
        model.export(str(folder / "served"))
    return folder, model, arrays, wanted, separate


def shapes():
    return [(*case.spatial, case.groups * case.channels) for case in CASES]


def wanted_gradients(arrays, separate):
    import tensorflow as tf

    for call, x in zip(separate, arrays):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(call(x) ** 2)
        for lane in tape.gradient(loss, call.variables):
            yield tf.concat(lane, axis=-1)


@pytest.mark.parametrize("onednn", ["1", "0"] if TENSORFLOW else ["1"])
def test_fresh_process_computes_the_same(saved, onednn):
    folder, model, arrays, wanted, separate = saved
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": onednn, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", RELOAD, str(folder)], env=environment, check=True)
    results = np.load(folder / "results.npz")
    for i, y in enumerate(wanted):
        assert_close(results[f"r{i}"], y, TERMS)
    if not TENSORFLOW:
        return
    for i, y in enumerate(wanted):
        assert_close(results[f"r{4 + i}"], y[:3], TERMS)
    gradients = list(wanted_gradients(arrays, separate))
    assert len(gradients) == len(model.trainable_variables) == 7
    for i, gradient in enumerate(gradients):
        assert_close(results[f"r{8 + i}"], gradient, TERMS * 7 * 9 * 11)


@pytest.mark.skipif(not TENSORFLOW, reason="tf2onnx reads TensorFlow graphs")
@pytest.mark.filterwarnings("ignore::FutureWarning")  # the converter still asks for np.object
def test_onnx_runtime_computes_the_same(saved):
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 8):
        pytest.skip("Keras exports ONNX from 3.8 on")
    folder, model, arrays, wanted, _ = saved
    model.export(str(folder / "model.onnx"), format="onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    for batch in (1, 7):
        feeds = {i.name: x[:batch] for i, x in zip(session.get_inputs(), arrays)}
        for found, y in zip(session.run(None, feeds), wanted):
            assert_close(found, y[:batch], TERMS)
