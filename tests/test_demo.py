"""The demo does what it says on real digits, and the examples run."""

import runpy
from pathlib import Path

import keras
import numpy as np
import pytest
from click.testing import CliRunner
from keras import layers

from parallel_fuse.command import cli, demo
from parallel_fuse.command.exits import Exit, FileError

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def digits():
    return demo.load_digits()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """The whole demo, trained for less long and timed once."""
    return demo.run(tmp_path_factory.mktemp("demo"), epochs=4, rounds=1)


def test_digits_are_the_real_ones(digits):
    images = np.concatenate([digits.train_images, digits.test_images])
    assert images.shape == (1797, 8, 8)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert len(digits.test_images) == 450
    assert set(digits.test_labels) == set(range(10))


def test_model_has_dense_and_conv_towers():
    kinds = [type(layer).__name__ for layer in demo.branchy_model().layers]
    assert kinds.count("Conv1D") == 2 * 8
    assert kinds.count("Dense") == 2 * 16 + 1
    assert kinds.count("BatchNormalization") == 16 + 8


def test_fused_file_predicts_the_same_digits(outcome, digits):
    assert outcome.report.changed
    assert outcome.report.verification is not None
    assert outcome.identical == outcome.held_out == 450
    assert outcome.correct["original"] == outcome.correct["fused"]
    assert outcome.correct["original"] > 0.8 * outcome.held_out
    original, fused = (keras.saving.load_model(path, compile=False) for path in outcome.files[:2])
    assert len(fused.layers) < len(original.layers) / 2
    predicted = np.argmax(fused.predict(digits.test_images, verbose=0), axis=-1)
    assert int(np.sum(predicted == digits.test_labels)) == outcome.correct["fused"]


def test_identical_predictions_are_counted_not_assumed(digits):
    """Negative control: a model that says 3 always, and one that says 3 or 5 by one pixel."""
    x = keras.Input((8, 8))
    always_3, by_pixel = np.eye(10)[3], np.zeros((64, 10))
    by_pixel[2 * 8 + 5, 5] = 100.0  # row 2, column 5
    models = {}
    for name, kernel in (("three", 0.0 * by_pixel), ("pixel", by_pixel)):
        dense = layers.Dense(10)
        models[name] = keras.Model(x, dense(layers.Flatten()(x)))
        dense.set_weights([kernel, always_3])
    inked = digits.test_images[:, 2, 5] > 0.01
    correct, identical = demo.agreement(models, digits)
    assert identical == int(np.sum(~inked))
    assert 0 < identical < len(inked)
    assert correct["three"] == int(np.sum(digits.test_labels == 3))
    assert correct["pixel"] == int(np.sum(digits.test_labels == np.where(inked, 5, 3)))


def test_demo_writes_its_files_and_nothing_else(outcome):
    assert all(path.stat().st_size for path in outcome.files)
    assert {path.name for path in outcome.files[0].parent.iterdir()} == {
        "digits.keras",
        "digits-fused.keras",
        "report.txt",
        "report.html",
    }


def test_every_figure_is_measured(outcome):
    tables = (outcome.loads, outcome.first_calls, *outcome.calls.values())
    assert len(tables) == 2 + len(demo.BATCHES)
    for timings in tables:
        assert list(timings) == ["original", "fused"]
        assert all(timing.median > 0 for timing in timings.values())


def test_command_prints_the_outcome(outcome, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "run", lambda folder, *, on_stage: outcome)
    result = CliRunner().invoke(cli.main, ["demo", "--output", str(tmp_path / "out")])
    assert result.exit_code == Exit.OK, result.output
    assert "identical predictions: 450 of 450 held-out digits" in result.stdout
    for row in ("operations", "accuracy", "load, ms", "first call, ms", "call, batch 128, ms"):
        assert row in result.stdout
    assert outcome.report.to_text() in result.stdout


def test_command_refuses_a_folder_that_holds_files(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = CliRunner().invoke(cli.main, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == Exit.OUTPUT_EXISTS, result.output
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_command_without_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(cli.main, ["demo", "--output", str(tmp_path / "out")])
    assert result.exit_code == Exit.MISSING_PACKAGE, result.output
    assert "scikit-learn" in result.stderr
    assert not (tmp_path / "out").exists()


def test_default_folder_is_always_a_new_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [demo.fresh_folder(None).name for _ in range(3)]
    assert names == ["parallel-fuse-demo", "parallel-fuse-demo-2", "parallel-fuse-demo-3"]


def test_chosen_folder_is_replaced_only_when_asked(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    assert demo.fresh_folder(tmp_path, overwrite=True) == tmp_path
    with pytest.raises(FileError, match="which holds files") as refusal:
        demo.fresh_folder(tmp_path)
    assert refusal.value.code is Exit.OUTPUT_EXISTS


def test_chosen_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(FileError, match="Choose another one") as refusal:
        demo.fresh_folder(tmp_path / "file" / "demo")
    assert refusal.value.code is Exit.WRITE_FAILED


@pytest.mark.parametrize(
    ("name", "said"),
    [("sensors.py", "60 × (Dense(16, relu) → Dense(1))"), ("why_not.py", "frozen: trainable")],
)
def test_example_runs(name, said, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert said in capsys.readouterr().out


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "convert_saved_model.py",  # in tests/conversion
        "sensors.py",
        "why_not.py",
    }
