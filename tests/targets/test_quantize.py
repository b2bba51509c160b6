"""TFLite with smaller numbers: what is in the file, and the tolerance that follows from it."""

import numpy as np
import pytest
from keras import layers
from tensorflow.lite.python import schema_py_generated as schema

import parallel_fuse
from parallel_fuse.command.exits import Exit
from parallel_fuse.errors import ConversionError
from tests.builders import channel_towers, randomise
from tests.devices import since


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`convs.keras`, large enough for `dynamic` to bother, and 24 rows of its input."""
    place = tmp_path_factory.mktemp("quantize")

    def branch(index, piece):
        return layers.Flatten()(layers.Conv1D(24, 5, activation="relu")(piece))

    randomise(channel_towers(branch, (13, 12), 4)).save(place / "convs.keras")
    rows = np.random.default_rng(1).normal(size=(24, 13, 12)).astype("float32")
    np.savez(place / "rows.npz", x=rows)
    np.save(place / "rows.npy", rows)
    return place


def kernel_types(path):
    """The types of the constant tensors of more than 1,000 numbers."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    names = {code: name for name, code in vars(schema.TensorType).items() if name.isupper()}
    large = [
        tensor
        for tensor in model.subgraphs[0].tensors
        if model.buffers[tensor.buffer].data is not None and np.prod(tensor.shape) > 1000
    ]
    return {names[tensor.type] for tensor in large}


@pytest.mark.parametrize(
    ("quantize", "types", "worst"),
    [
        ("float16", {"FLOAT16"}, 5e-4),
        ("dynamic", {"INT8"}, 5e-2),
        pytest.param("int8", {"INT8"}, 5e-2, marks=since("3.15")),
    ],
)
def test_weights_have_the_type_asked_for(folder, quantize, types, worst):
    out = folder / f"{quantize}.tflite"
    data = folder / ("rows.npz" if quantize == "int8" else "rows.npy")
    report = parallel_fuse.convert(
        folder / "convs.keras", out, quantize=quantize, representative_data=data
    )
    assert kernel_types(out) == types
    assert report.file.quantize == quantize
    assert report.file.proof.inputs == "given"
    assert 0 < report.file.difference < worst
    assert "its largest change there" in report.file.proof.tolerance_rule
    assert f"tflite, {quantize}" in report.to_text()


def fails(folder, code, match, **options):
    before = sorted(folder.iterdir())
    with pytest.raises(ConversionError, match=match) as caught:
        parallel_fuse.convert(folder / "convs.keras", folder / "out.tflite", **options)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    assert sorted(folder.iterdir()) == before


def test_int8_needs_data(folder):
    fails(folder, Exit.USAGE, "real inputs to quantize with", quantize="int8")


def test_unknown_quantization(folder):
    fails(folder, Exit.USAGE, "a quantization out of float16", quantize="int4")


def test_data_is_missing_or_no_array(folder, tmp_path):
    (tmp_path / "text.npz").write_text("no array")
    options = {"quantize": "int8"}
    for name, code in (("nope.npz", Exit.MISSING_FILE), ("text.npz", Exit.MISSING_FILE)):
        data = tmp_path / name
        fails(folder, code, "expected a .npy or .npz", representative_data=data, **options)


@pytest.mark.parametrize("shape", [(24, 12, 13), (0, 13, 12)])
def test_data_that_does_not_fit(folder, tmp_path, shape):
    np.save(tmp_path / "rows.npy", np.zeros(shape, "float32"))
    fails(folder, Exit.USAGE, "rows.npy: expected", representative_data=tmp_path / "rows.npy")


def test_data_under_other_names(folder, tmp_path):
    np.savez(tmp_path / "rows.npz", y=np.zeros((3, 13, 12)), z=np.zeros((3, 4)))
    match = "expected arrays x in .*Received: y, z"
    fails(folder, Exit.USAGE, match, representative_data=tmp_path / "rows.npz")


def test_quantization_is_for_tflite(folder):
    with pytest.raises(ConversionError, match="no quantization for onnx"):
        parallel_fuse.convert(folder / "convs.keras", folder / "out.onnx", quantize="float16")
