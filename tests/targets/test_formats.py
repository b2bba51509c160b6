"""Each format: what is written runs in its own runtime under the names of the original's export."""

from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import parallel_fuse
from parallel_fuse.conversion.content import size_of
from parallel_fuse.targets import TARGETS, Options
from tests.builders import inputs_for
from tests.targets.models import branchy

EXPORTED = [one for one in TARGETS if one.form.name != "keras"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The original, `branchy.keras`, and each fused file, with the reports."""
    place = tmp_path_factory.mktemp("formats")
    branchy().save(place / "branchy.keras")
    return place


@pytest.fixture(scope="module")
def original(folder):
    return keras.saving.load_model(folder / "branchy.keras")


@pytest.fixture(scope="module")
def reports(folder):
    return {
        one.form.name: parallel_fuse.convert(
            folder / "branchy.keras", folder / f"fused{one.form.suffix}"
        )
        for one in EXPORTED
    }


def run_savedmodel(path: Path, feed: dict) -> tuple[list, dict]:
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    outputs = serve(**{name: tf.constant(x) for name, x in feed.items()})
    names = {**serve.structured_input_signature[1], **serve.structured_outputs}
    return [outputs[f"output_{i}"].numpy() for i in range(2)], {
        k: v.shape for k, v in names.items()
    }


def run_tflite(path: Path, feed: dict) -> tuple[list, dict]:
    opened = tf.lite.Interpreter(str(path))
    outputs = opened.get_signature_runner()(**feed)
    (listed,) = opened.get_signature_list().values()
    return [outputs[f"output_{i}"] for i in range(2)], listed


def run_onnx(path: Path, feed: dict) -> tuple[list, dict]:
    session = onnxruntime.InferenceSession(str(path))
    both = [*session.get_inputs(), *session.get_outputs()]
    return session.run(None, feed), {one.name: len(one.shape) for one in both}


RUNS = {"savedmodel": run_savedmodel, "tflite": run_tflite, "onnx": run_onnx}


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
@pytest.mark.parametrize("form", RUNS)
def test_the_file_gives_what_the_original_gives_at_any_batch(folder, original, reports, form):
    path = Path(reports[form].file.path)
    for batch in (1, 3, 8):
        inputs = inputs_for(original, batch, seed=batch)
        feed = dict(zip(("sensors", "waves"), inputs))
        received, _ = RUNS[form](path, feed)
        for old, new in zip(original(inputs), received, strict=True):
            np.testing.assert_allclose(new, old, rtol=0, atol=2e-6 * np.abs(old).max() * 8)


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
@pytest.mark.parametrize("form", RUNS)
def test_b31_b20_names_are_those_of_the_originals_own_export(folder, original, reports, form):
    target = next(one for one in TARGETS if one.form.name == form)
    exported = folder / f"exported{target.form.suffix}"
    target.write(original, exported, Options())
    feed = dict(zip(("sensors", "waves"), inputs_for(original, 2, seed=0)))
    assert RUNS[form](exported, feed)[1] == RUNS[form](Path(reports[form].file.path), feed)[1]
    assert len(target.operations(exported)) > reports[form].file.operation_count


@pytest.mark.parametrize("form", RUNS)
def test_the_report_tells_what_was_written(reports, form):
    file = reports[form].file
    assert file.proof.ok
    assert file.proof.batch_sizes == (1, 8)
    assert [check.name for check in file.proof.outputs] == ["price", "risk"]
    assert 0 <= file.difference < 1e-5
    assert file.size == size_of(Path(file.path))
    assert file.undone == ()
    assert file.inputs == {"sensors": "sensors", "waves": "waves"}
    assert file.outputs == {"price": "output_0", "risk": "output_1"}
    text = reports[form].to_text()
    assert f"{file.operation_count} operations" in text
    assert "'output_0' is price" in text
    assert reports[form].to_dict()["file"]["proof"]["ok"]


def test_dict_outputs_keep_their_keys(tmp_path):
    heads = branchy()
    model = keras.Model(heads.inputs, {"zeta": heads.outputs[0], "alpha": heads.outputs[1]})
    model.save(tmp_path / "keys.keras")
    report = parallel_fuse.convert(tmp_path / "keys.keras", tmp_path / "keys.savedmodel")
    assert report.file.proof.ok
    serve = tf.saved_model.load(report.file.path).signatures["serving_default"]
    assert set(serve.structured_outputs) == {"zeta", "alpha"}
    assert serve.structured_outputs["zeta"].shape[-1] == 2
