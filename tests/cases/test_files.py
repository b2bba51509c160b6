"""Lessons from files and exporters; each test is named after the case it is made from."""

import keras
import numpy as np
import pytest
from keras import layers

import parallel_fuse
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.targets import onnx
from tests.builders import channel_towers, randomise, towers


def converted(model, folder, name, **options):
    model.save(folder / "in.keras")
    return parallel_fuse.convert(folder / "in.keras", folder / name, policy=EVERYTHING, **options)


def test_b09_a_saved_model_of_two_inputs_is_called_by_name(tmp_path):
    """Named against the order in which they are given."""
    second, first = keras.Input((3,), name="z_first"), keras.Input((5,), name="a_second")
    joined = layers.Concatenate()([layers.Dense(4)(second), layers.Dense(2)(first)])
    model = randomise(keras.Model([second, first], joined))
    model.export(str(tmp_path / "served"), verbose=False)
    found = parallel_fuse.load_model(tmp_path / "served")
    random = np.random.default_rng(0)
    given = {"z_first": random.normal(size=(2, 3)), "a_second": random.normal(size=(2, 5))}
    expected = model([given["z_first"], given["a_second"]])
    np.testing.assert_allclose(found(given), expected, rtol=0, atol=1e-5)


def test_b10_a_folder_that_is_no_saved_model_is_said_to_be_none(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match=r"without a saved_model\.pb") as caught:
        parallel_fuse.load_model(tmp_path / "folder")
    assert caught.value.code is Exit.NOT_A_MODEL


def test_b15_grouped_convolutions_in_tflite(tmp_path):
    model = randomise(channel_towers(lambda i, x: layers.Conv2D(3, 2)(x), (7, 8, 6)))
    report = converted(model, tmp_path, "out.tflite")
    assert report.changed
    assert report.file.proof.ok
    assert not any(kind.startswith("Flex") for kind in report.file.operations)


def test_b17_b16_a_batched_product_in_tflite(tmp_path):
    """Explicit equal ranks: no broadcasting, no product that the converter takes apart."""
    model = randomise(towers(lambda i, x: layers.Dense(3, "relu")(x), (6, 5)))
    report = converted(model, tmp_path, "out.tflite")
    assert report.file.operations["BATCH_MATMUL"] == 1
    assert report.file.proof.ok
    assert not report.file.undone


def test_b19_more_weights_than_an_onnx_file_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, "LIMIT", 10)
    model = randomise(towers(lambda i, x: layers.Dense(3)(x), (6, 5)))
    with pytest.raises(FileError, match="fewer than 10 weights") as caught:
        converted(model, tmp_path, "out.onnx")
    assert caught.value.code is Exit.WRITE_FAILED
    assert not (tmp_path / "out.onnx").exists()


def test_b21_recurrent_branches_in_tflite_leave_nothing_that_does_not_run(tmp_path):
    """A loop over time of any batch is more than LiteRT runs: that is seen, and said."""
    x = keras.Input((6, 6), name="x")
    lanes = [layers.LSTM(3)(x[..., 2 * i : 2 * i + 2]) for i in range(3)]
    model = randomise(keras.Model(x, layers.Concatenate()(lanes)))
    with pytest.raises(FileError, match="expected LiteRT to run") as caught:
        converted(model, tmp_path, "out.tflite")
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "out.tflite").exists()
