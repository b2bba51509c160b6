"""Negative controls: a file that gives something else is refused, whatever its format."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers

import parallel_fuse
from parallel_fuse.command.exits import Exit
from parallel_fuse.conversion import convert as conversion
from parallel_fuse.conversion.proof import prove
from parallel_fuse.errors import ConversionError
from parallel_fuse.targets import TARGETS, Options
from tests.builders import channel_towers, randomise
from tests.devices import since
from tests.targets.models import branchy

EXPORTED = [one for one in TARGETS if one.form.name != "keras"]


def disturbed(model: keras.Model, change) -> keras.Model:
    """A copy whose first kernel is changed."""
    twin = keras.models.clone_model(model)
    first, *rest = model.get_weights()
    twin.set_weights([change(first), *rest])
    return twin


def slightly(kernel: np.ndarray) -> np.ndarray:
    kernel = kernel.copy()
    kernel[..., 1] *= 1.001
    return kernel


def turned(kernel: np.ndarray) -> np.ndarray:
    return np.roll(kernel, 1, axis=-1)


@pytest.mark.parametrize("target", EXPORTED, ids=lambda one: one.form.name)
def test_a_thousandth_of_one_column_is_seen(target, tmp_path):
    original, path = branchy(), tmp_path / f"other{target.form.suffix}"
    target.write(disturbed(original, slightly), path, Options())
    with pytest.raises(ConversionError, match="output 'price': differs by") as caught:
        prove(original, path, target, Options())
    assert caught.value.code == Exit.WRITTEN_DIFFERS


INT8 = pytest.param("int8", marks=since("3.15"))


@pytest.mark.parametrize("quantize", ["float16", "dynamic", INT8])
def test_turned_units_are_seen_through_coarse_numbers(quantize, tmp_path):
    original, path = conv_towers(), tmp_path / "other.tflite"
    rows = (np.random.default_rng(3).normal(size=(24, 9, 6)).astype("float32"),)
    target = next(one for one in TARGETS if one.form.name == "tflite")
    options = Options(quantize, rows)
    target.write(original, path, options)
    assert prove(original, path, target, options, rows[0][:8])[0].ok
    path.unlink()
    target.write(disturbed(original, turned), path, options)
    with pytest.raises(ConversionError, match="differs by"):
        prove(original, path, target, options, rows[0][:8])


def conv_towers() -> keras.Model:
    def branch(index, piece):
        return layers.Flatten()(layers.Conv1D(4, 3, activation="relu")(piece))

    return randomise(channel_towers(branch, (9, 6), 2))


def test_an_output_that_differs_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*arguments):
        fused, report = fuse(arguments[0], return_report=True)
        return disturbed(fused, turned), report

    fuse = conversion.fuse_parallel_branches
    monkeypatch.setattr(conversion, "fuse_parallel_branches", lambda model, **_: refuse(model))
    branchy().save(tmp_path / "in.keras")
    before = (tmp_path / "in.keras").read_bytes()
    (tmp_path / "kept.onnx").write_text("old")
    for name in ("new.onnx", "kept.onnx"):
        with pytest.raises(ConversionError, match=rf"from .*{name} what the original gives"):
            parallel_fuse.convert(tmp_path / "in.keras", tmp_path / name, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.keras", "kept.onnx"]
    assert (tmp_path / "kept.onnx").read_text() == "old"
    assert (tmp_path / "in.keras").read_bytes() == before


def test_a_batch_that_is_not_dynamic_is_seen(tmp_path):
    original, path = branchy(), tmp_path / "fixed.onnx"
    target = next(one for one in TARGETS if one.form.name == "onnx")
    target.write(original, path, Options())
    fixed = onnx.load(path)
    for tensor in fixed.graph.input:
        tensor.type.tensor_type.shape.dim[0].ClearField("dim_param")
        tensor.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(fixed, path)
    with pytest.raises(ConversionError, match=r"to run fixed\.onnx at batch sizes 1, 8"):
        prove(original, path, target, Options())
