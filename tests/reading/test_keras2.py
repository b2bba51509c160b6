"""Files that Keras 2 wrote: they open and give what Keras 2 computed, and they fuse."""

import base64
import dis
import json
import marshal
import shutil
import sys
import types

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import parallel_fuse
from parallel_fuse.command.exits import Exit
from parallel_fuse.errors import ConversionError
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.reading.keras2.metadata import metadata
from parallel_fuse.reading.load import load_model, read
from tests.reading.files import assert_computes_the_same, skip_without_its_python, unpacked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return unpacked(tmp_path_factory.mktemp("keras2"))


PLAIN = [
    *("operations.h5", "slashes.h5", "nested.h5", "images.h5", "changed.h5"),
    *("nested.keras", "images.keras", "changed.keras"),
]


@pytest.mark.parametrize("name", PLAIN)
def test_a_file_gives_what_keras_2_computed(folder, name):
    before = (folder / name).read_bytes()
    opened = read(folder / name)
    assert_computes_the_same(opened.model, folder, name.partition(".")[0])
    assert opened.repairs
    assert (folder / name).read_bytes() == before


def test_hard_sigmoid_is_that_of_keras_2(folder, tmp_path):
    """Keras 3 computes another function under this name; the new file keeps the old one."""
    opened = read(folder / "changed.h5")
    assert any("hard_sigmoid as Keras 2 had it" in repair for repair in opened.repairs)
    parallel_fuse.convert(folder / "changed.h5", tmp_path / "fused.keras")
    again = load_model(tmp_path / "fused.keras")
    assert_computes_the_same(again, folder, "changed")


def test_lambdas_with_lists_of_defaults_and_names_that_were_not_saved(folder):
    skip_without_its_python(folder)
    opened = read(folder / "lambdas.h5", safe_mode=False)
    assert_computes_the_same(opened.model, folder, "lambdas")
    told = "\n".join(opened.repairs)
    assert "default arguments of a Lambda as a tuple: lambda, " in told
    assert "'K' defined for a Lambda" in told
    assert "'tf' defined for a Lambda" in told


def test_architecture_and_weights(folder):
    model = load_model(folder / "images.json", weights=folder / "images.weights-only.h5")
    assert_computes_the_same(model, folder, "images")


def test_a_model_saved_by_keras_3_as_architecture_and_weights(folder, tmp_path):
    model = load_model(folder / "nested.h5")
    (tmp_path / "nested.json").write_text(model.to_json())
    model.save_weights(tmp_path / "nested.weights.h5")
    again = load_model(tmp_path / "nested.json", weights=tmp_path / "nested.weights.h5")
    assert_computes_the_same(again, folder, "nested")


def test_lanes_of_an_old_file_fuse(folder, tmp_path):
    report = parallel_fuse.convert(folder / "operations.h5", tmp_path / "fused.keras")
    assert_computes_the_same(load_model(tmp_path / "fused.keras"), folder, "operations")
    assert "repaired: TensorFlow operations as Keras operations: tf." in report.to_text()
    assert any("repaired" in note for note in report.to_dict()["notes"])


def test_lambda_slices_of_an_old_file_fuse(folder, tmp_path):
    skip_without_its_python(folder)
    report = parallel_fuse.convert(
        folder / "lambdas.h5", tmp_path / "fused.keras", safe_mode=False, policy=EVERYTHING
    )
    assert report.changed
    assert "Lambda" not in report.file.operations
    assert_computes_the_same(load_model(tmp_path / "fused.keras"), folder, "lambdas")


def test_names_with_slashes_are_unique_and_the_same_every_time(folder):
    models = [load_model(folder / "slashes.h5") for _ in range(2)]
    names = [[layer.name for layer in model.layers] for model in models]
    assert names[0] == names[1]
    assert {"tower_3", "tower_3_1"} < set(names[0])
    assert models[0].get_layer("tower_3").units == 6  # the one whose name had no slash
    assert models[0].output_names == ["head_a", "head_b"]
    assert models[0].name == "with_slashes"


def test_losses_by_output_name_follow_the_new_names(folder):
    model = load_model(folder / "slashes.h5")
    assert model.compiled
    assert set(model.get_compile_config()["loss"]) == {"head_a", "head_b"}
    x, ys = np.ones((2, 36), "float32"), [np.ones((2, 2)), np.ones((2, 5))]
    assert np.isfinite(model.evaluate(x, ys, verbose=0)).all()


@pytest.mark.parametrize("name", ["images.h5", "images.keras"])
def test_compile_arguments_of_keras_2(folder, name):
    model = load_model(folder / name)
    assert float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)) == pytest.approx(0.01)
    assert model.loss == "mse"


def test_compile_arguments_that_nobody_knows_are_left_out_and_said(folder, tmp_path):
    path = changed(folder, tmp_path, "images", lambda text: text, lambda t: t.replace("mse", "own"))
    opened = read(path, compiled=True)
    assert not opened.model.compiled
    assert "compile arguments left out, Keras cannot read them" in "\n".join(opened.repairs)


def changed(folder, place, name, config, training=lambda text: text):
    """A copy of an HDF5 file whose configurations were edited."""
    path = place / f"{name}.h5"
    path.write_bytes((folder / f"{name}.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        for key, change in (("model_config", config), ("training_config", training)):
            if key in file.attrs:
                file.attrs[key] = change(file.attrs[key])
    return path


def fails(path, code, match, **options):
    with pytest.raises(ConversionError, match=match) as caught:
        read(path, **options)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_python_code_does_not_run_unless_asked(folder):
    fails(folder / "lambdas.h5", Exit.UNSAFE_LAMBDA, "runs the code stored in the file")


def test_a_function_in_place_of_a_lambda(folder):
    skip_without_its_python(folder)
    saved = json.loads(h5py.File(folder / "lambdas.h5").attrs["model_config"])
    names = [one["name"] for one in saved["config"]["layers"] if one["class_name"] == "Lambda"]
    lanes = {name: i for i, name in enumerate(names)}
    given = {name: (lambda t, lane=i, **_: t[:, lane]) for name, i in lanes.items()}
    model = load_model(folder / "lambdas.h5", custom_objects=given)
    assert_computes_the_same(model, folder, "lambdas")


def of_another_python():
    """A function without the instruction that begins every one, as another release numbers it."""
    code = (lambda t, i=3: t[:, i]).__code__
    begin = dis.opmap["RESUME"]
    return code.replace(co_code=bytes([begin ^ 2 if one == begin else one for one in code.co_code]))


def cut_short():
    """A function that does not end where it should."""
    code = (lambda t, i=3: t[:, i]).__code__
    return code.replace(co_code=code.co_code[:-4])


@pytest.mark.parametrize("made", [of_another_python, cut_short])
def test_code_that_would_crash_is_not_run(folder, tmp_path, made):
    function = types.FunctionType(made(), {}, "<lambda>", (3,))
    path = with_lambda(folder, tmp_path, function)
    fails(path, Exit.UNKNOWN_CLASS, "Lambda 'lambda' is byte code of another", safe_mode=False)


# `lambda t, i=3: t[:, i]` as each Python marshals it.
SLICES = {
    "3.6": (
        "4wIAAAAAAAAAAgAAAAMAAABDAAAAcxAAAAB8AGQAZACFAnwBZgIZAFMAKQFOqQApAtoBdNoBaXIBAAAAcgEA"
        "AAD6EC90bXAvaC9ta2NvZGUucHnaCDxsYW1iZGE+AgAAAHMAAAAA"
    ),
    "3.10": (
        "4wIAAAAAAAAAAAAAAAIAAAADAAAAQwAAAHMQAAAAfABkAGQAhQJ8AWYCGQBTACkBTqkAKQLaAXTaAWlyAQAA"
        "AHIBAAAA+hAvdG1wL2gvbWtjb2RlLnB52gg8bGFtYmRhPgIAAADzAgAAABAA"
    ),
    "3.12": (
        "4wIAAAAAAAAAAAAAAAMAAAADAAAA8xQAAACXAHwAZABkAIUCfAFmAhkAAABTAKkBTqkAKQLaAXTaAWlzAgAA"
        "ACAg+hAvdG1wL2gvbWtjb2RlLnB5+gg8bGFtYmRhPnIHAAAAAgAAAHMOAAAAgACQEZIxkFGQM5EWgADzAAAA"
        "AA=="
    ),
    "3.13": (
        "4wIAAAAAAAAAAAAAAAMAAAADAAAA8xQAAACVAFUAUwBTADICVQE0AgUAAAAkAKkBTqkAKQLaAXTaAWlzAgAA"
        "ACAg2hAvdG1wL2gvbWtjb2RlLnB52gg8bGFtYmRhPnIHAAAAAgAAAHMMAAAAgACQEZIxkFGQM5IW8wAAAAA="
    ),
}


@pytest.mark.parametrize("python", SLICES)
def test_code_of_other_pythons_is_not_run(folder, tmp_path, python):
    if python == f"{sys.version_info[0]}.{sys.version_info[1]}":
        pytest.skip("this is the Python that made it")

    def swapped(text):
        config = json.loads(text)
        for one in config["config"]["layers"]:
            if one["class_name"] == "Lambda":
                one["config"]["function"] = [SLICES[python], [3], None]
        return json.dumps(config)

    path = changed(folder, tmp_path, "lambdas", swapped)
    said = "Lambda 'lambda' is byte code of another Python"
    fails(path, Exit.UNKNOWN_CLASS, said, safe_mode=False)


@pytest.mark.parametrize("code", ["AAAA", "4wIAAAAAAAAA", "TgAA"])
def test_code_of_another_python_is_told(folder, tmp_path, code):
    def spoilt(text):
        config = json.loads(text)
        for one in config["config"]["layers"]:
            if one["class_name"] == "Lambda":
                one["config"]["function"][0] = code
        return json.dumps(config)

    path = changed(folder, tmp_path, "lambdas", spoilt)
    fails(path, Exit.UNKNOWN_CLASS, "Lambda 'lambda' (is byte|holds no)", safe_mode=False)


def test_an_operation_without_a_translation_is_named(folder, tmp_path):
    path = changed(folder, tmp_path, "operations", lambda t: t.replace("nn.softmax", "nn.fft"))
    fails(path, Exit.UNTRANSLATED, "layer 'tf.nn.fft' calls tf.nn.fft, which has no translation")


def test_ragged_inputs_are_refused(folder, tmp_path):
    path = changed(
        folder, tmp_path, "operations", lambda t: t.replace('"ragged": false', '"ragged": true')
    )
    fails(path, Exit.NOT_A_MODEL, "input 'sensors' is ragged")


def test_an_argument_that_asks_for_something_else_is_refused(folder, tmp_path):
    path = changed(
        folder, tmp_path, "nested", lambda t: t.replace('"time_major": false', '"time_major": true')
    )
    fails(path, Exit.NOT_A_MODEL, "GRU 'gru' has time_major=True")


def test_weights_of_another_shape_are_named(folder, tmp_path):
    path = changed(folder, tmp_path, "slashes", lambda t: t.replace('"units": 6', '"units": 7'))
    fails(path, Exit.NOT_A_MODEL, "weights do not fit layer 'tower_3'")


def test_weights_that_are_missing_are_named(folder, tmp_path):
    path = tmp_path / "slashes.h5"
    path.write_bytes((folder / "slashes.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        names = [name for name in file["model_weights"].attrs["layer_names"] if name != "tower/2"]
        file["model_weights"].attrs["layer_names"] = names
    fails(path, Exit.NOT_A_MODEL, "no weights for layer 'tower/2'")


def test_layers_are_found_by_name_not_by_position(folder, tmp_path):
    """Two layers of equal shapes in another order: by position they would trade their weights."""
    path = tmp_path / "slashes.h5"
    path.write_bytes((folder / "slashes.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        names = list(file["model_weights"].attrs["layer_names"])
        file["model_weights"].attrs["layer_names"] = names[::-1]
    assert_computes_the_same(load_model(path), folder, "slashes")


def test_an_architecture_needs_weights_and_no_other_file_does(folder):
    fails(folder / "images.json", Exit.USAGE, "Add --weights weights.h5")
    weights = folder / "images.weights-only.h5"
    fails(folder / "images.h5", Exit.USAGE, "Leave out one of the two", weights=weights)


def test_a_saved_model_by_its_configuration_and_checkpoint(folder):
    """Neither `tf_keras` nor the functions in it are needed."""
    opened = read(folder / "served")
    assert_computes_the_same(opened.model, folder, "served")
    assert [layer.name for layer in opened.model.layers if layer.name.startswith("side")] == [
        f"side_{i}" for i in range(3, 9)
    ]
    assert not opened.model.get_layer("side_4").trainable
    assert len(opened.model.get_layer("tower").layers) == 3


def test_a_saved_model_with_lambda_slices_fuses(folder, tmp_path):
    skip_without_its_python(folder)
    report = parallel_fuse.convert(
        folder / "lambdas", tmp_path / "fused.onnx", safe_mode=False, policy=EVERYTHING
    )
    assert report.changed
    assert report.file.proof.ok
    assert_computes_the_same(read(folder / "lambdas", safe_mode=False).model, folder, "lambdas")


def test_a_saved_model_of_older_tensorflow_keeps_its_configuration_in_the_graph(folder, tmp_path):
    """Before TensorFlow 2.5 there was no file of its own for it."""
    shutil.copytree(folder / "served", tmp_path / "served")
    place = tmp_path / "served" / "saved_model.pb"
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(place.read_bytes())
    graph = saved.meta_graphs[0].object_graph_def
    for number, noted in metadata(folder / "served", graph).items():
        graph.nodes[number].user_object.metadata = json.dumps(noted)
    place.write_bytes(saved.SerializeToString())
    (tmp_path / "served" / "keras_metadata.pb").unlink()
    assert_computes_the_same(read(tmp_path / "served").model, folder, "served")


def test_a_saved_model_with_a_class_that_is_unknown_is_read_from_its_graph(folder, tmp_path):
    shutil.copytree(folder / "served", tmp_path / "served")
    noted = tmp_path / "served" / "keras_metadata.pb"
    noted.write_bytes(
        noted.read_bytes().replace(b'"class_name": "Dense"', b'"class_name": "Dunse"')
    )
    opened = read(tmp_path / "served")
    assert "which needs 'Dunse'" in opened.repairs[0]
    with np.load(folder / "served.npz") as saved:
        x, expected = saved["input_0"], [saved["output_0"], saved["output_1"]]
    received = {one.shape: one.numpy() for one in keras.tree.flatten(opened.model(x))}
    for one in expected:
        np.testing.assert_allclose(received[one.shape], one, rtol=0, atol=1e-5)


def test_a_saved_model_with_code_that_may_not_run_is_read_from_its_graph(folder):
    """Whatever Python saved it: the graph has the operations that the code came to."""
    opened = read(folder / "lambdas")
    assert_computes_the_same(opened.model, folder, "lambdas")
    assert "its configuration is not read: it is one which holds a Lambda" in opened.repairs[0]
    assert not any(isinstance(layer, keras.layers.Lambda) for layer in opened.model.layers)


def with_lambda(folder, place, function):
    """`lambdas.h5` with the code of this function in each Lambda, of the Python that runs here."""
    code = base64.b64encode(marshal.dumps(function.__code__)).decode()
    defaults = list(function.__defaults__)

    def swapped(text):
        config = json.loads(text)
        for one in config["config"]["layers"]:
            if one["class_name"] == "Lambda":
                one["config"] |= {"function": [code, defaults, None], "arguments": {}}
        return json.dumps(config)

    return changed(folder, place, "lambdas", swapped)


def opened_lambdas(path):
    model = read(path, safe_mode=False).model
    return model, [one for one in model.layers if isinstance(one, keras.layers.Lambda)]


def test_a_lambda_that_computes_becomes_operations_and_its_file_needs_no_code(folder, tmp_path):
    path = with_lambda(
        folder,
        tmp_path,
        lambda t, i=3: tf.nn.relu(t[:, i]) * 2.0 - K.square(t[:, 1]),  # noqa: F821 - not saved
    )
    model, left = opened_lambdas(path)
    assert not left
    report = parallel_fuse.convert(path, tmp_path / "fused.keras", safe_mode=False)
    assert report.file.proof.ok
    assert "Lambda layers as Keras operations: lambda, " in report.to_text()
    x = np.random.default_rng(5).normal(size=(3, 9, 4)).astype("float32")
    again = keras.saving.load_model(tmp_path / "fused.keras")(x)
    np.testing.assert_allclose(again, model(x), rtol=0, atol=1e-5)
    piece = np.maximum(x[:, 3], 0) * 2 - x[:, 1] ** 2
    first = keras.Model(model.input, model.get_layer("dense_1").input)
    np.testing.assert_allclose(first(x), piece, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda t, i=3: t[:, i] + tf.random.normal((4,)),
        lambda t, i=3: t[:, i] * np.arange(4, dtype="float32"),
        lambda t, i=3, training=None: t[:, i],
        lambda t, i=3: tf.signal.dct(t[:, i]),
    ],
)
def test_a_lambda_that_does_more_than_compute_stays(folder, tmp_path, function):
    assert len(opened_lambdas(with_lambda(folder, tmp_path, function))[1]) == 9


def test_outputs_made_by_operations_have_their_old_names_every_time(folder, tmp_path):
    for _ in range(2):
        model = read(folder / "operations.h5").model
        assert model.output_names == ["price", "tf.nn.softmax"]
        names = [operation.name for operation in model.operations]
        assert len(set(names)) == len(names)
        assert {"tf.concat", "tf.split", "tf.math.truediv"} < set(names)
    model.save(tmp_path / "again.keras")
    assert load_model(tmp_path / "again.keras").output_names == model.output_names


def test_an_operation_and_a_layer_of_one_name(folder, tmp_path):
    """Keras numbers operations by their class: here a layer of the file has that name already."""
    with_names = changed(
        folder, tmp_path, "operations", lambda t: t.replace("dense_18", "concatenate")
    )
    with h5py.File(with_names, "r+") as file:
        group = file["model_weights"]
        names = [name.replace("dense_18", "concatenate") for name in group.attrs["layer_names"]]
        group.attrs["layer_names"] = names
        group.move("dense_18", "concatenate")
    keras.utils.clear_session()
    assert_computes_the_same(read(with_names).model, folder, "operations")


def test_an_output_that_hands_its_input_on_keeps_its_name(folder, tmp_path):
    def passed_on(text):
        config = json.loads(text)
        layers, ends = config["config"]["layers"], config["config"]["output_layers"]
        for one in layers:
            if one["name"] == "tf.nn.softmax":
                one["config"]["function"] = "identity"
                one["inbound_nodes"] = [["price", 0, 0, {}]]
        ends.append(["tf.nn.softmax", 0, 0])
        return json.dumps(config)

    model = read(changed(folder, tmp_path, "operations", passed_on)).model
    assert model.output_names == ["price", "tf.nn.softmax", "tf.nn.softmax"]
    price, same, again = model(np.ones((2, 9, 4), "float32"))
    np.testing.assert_array_equal(price, same)
    np.testing.assert_array_equal(price, again)
