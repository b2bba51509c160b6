"""The command line: what each command writes and says, and one test for each way to fail."""

import errno
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from click.testing import CliRunner
from keras import layers

from parallel_fuse.command import cli
from parallel_fuse.command.exits import MEANINGS, Exit
from parallel_fuse.conversion import convert
from parallel_fuse.errors import NotEquivalentError
from parallel_fuse.targets import fresh

ROOT = Path(__file__).parents[1]
CAPPED = """
import keras

def capped(x):
    return keras.ops.clip(x, 0.0, 20.0)
"""
DOUBLING = """
import keras

class Doubling(keras.layers.Layer):
    def call(self, inputs):
        return inputs * 2.0
"""


class Doubling(layers.Layer):
    """A custom layer that nobody registered."""

    def call(self, inputs):
        return inputs * 2.0


class Subclassed(keras.Model):
    """A model without a graph; Keras finds the class again because it is registered."""

    def __init__(self, **options):
        super().__init__(**options)
        self.dense = layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs)


def capped(x):
    return keras.ops.clip(x, 0.0, 20.0)


def randomised(model):
    rng = np.random.default_rng(7)
    model.set_weights([rng.normal(size=w.shape).astype(w.dtype) for w in model.get_weights()])
    return model


def towers(lanes=16, activation="relu"):
    sensors = keras.Input((lanes, 4), name="sensors")
    branches = [layers.Dense(3, activation=activation)(sensors[:, i]) for i in range(lanes)]
    joined = layers.Concatenate()(branches)
    return randomised(keras.Model(sensors, layers.Dense(2)(joined), name="towers"))


def chain(extra=()):
    x = hidden = keras.Input((4,))
    for layer in (*extra, layers.Dense(3), layers.Dense(2)):
        hidden = layer(hidden)
    return randomised(keras.Model(x, hidden, name="chain"))


def run(*arguments):
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def fails(code, *arguments, saying):
    """Run, and expect one line on stderr, the exit code, and the current folder as it was."""
    before = contents(Path.cwd())
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stderr.startswith("error: expected ")
    assert "Received: " in result.stderr
    assert result.stderr.count("\n") == 1
    assert saying in result.stderr
    assert result.stdout == ""
    assert contents(Path.cwd()) == before
    return result


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    """A fresh process for each written file takes seconds; tests/targets has what that shows."""
    monkeypatch.setattr(fresh, "_homeless", lambda path, options: ["the test"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, holding `towers.keras`."""
    monkeypatch.chdir(tmp_path)
    towers().save("towers.keras")
    return tmp_path


@pytest.fixture
def importable(monkeypatch):
    """Modules that a test makes in the current folder, forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("my_activations", "my_layers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return Path


def test_explain_prints_the_report_and_writes_nothing(folder):
    before = contents(folder)
    result = run("explain", "towers.keras")
    assert result.exit_code == Exit.OK, result.output
    assert "16 × " in result.stdout
    assert "Dense(3, relu)" in result.stdout
    assert contents(folder) == before


def test_fuse_writes_an_equivalent_model_and_keeps_the_input(folder):
    before = contents(folder)
    result = run("fuse", "towers.keras", "-o", "fused.keras")
    assert result.exit_code == Exit.OK, result.output
    assert "written: fused.keras" in result.stdout
    after = contents(folder)
    assert set(after) == {"towers.keras", "fused.keras"}
    assert after["towers.keras"] == before["towers.keras"]
    fused = keras.saving.load_model("fused.keras")
    assert len(fused.layers) < len(towers().layers)
    assert run("verify", "towers.keras", "fused.keras").exit_code == Exit.OK


@pytest.mark.parametrize("suffix", [".h5", ".hdf5"])
def test_fuse_reads_hdf5(folder, suffix):
    towers().save(f"old{suffix}")
    result = run("fuse", f"old{suffix}", "-o", "fused.keras")
    assert result.exit_code == Exit.OK, result.output
    assert run("verify", f"old{suffix}", "fused.keras").exit_code == Exit.OK


def test_fuse_without_anything_to_fuse_writes_an_equal_model(folder):
    chain().save("chain.keras")
    result = run("fuse", "chain.keras", "-o", "same.keras")
    assert result.exit_code == Exit.OK, result.output
    assert "nothing to fuse" in result.stdout
    assert run("verify", "chain.keras", "same.keras").exit_code == Exit.OK


def test_no_verify_is_said_in_the_report(folder):
    result = run("fuse", "towers.keras", "-o", "fused.keras", "--no-verify")
    assert result.exit_code == Exit.OK, result.output
    assert "not verified" in result.stdout


def test_portable_writes_stock_layers_only(folder):
    result = run("fuse", "towers.keras", "-o", "fused.keras", "--portable")
    assert result.exit_code == Exit.OK, result.output
    with zipfile.ZipFile("fused.keras") as archive:
        assert b"parallel_fuse" not in archive.read("config.json")


def test_reports_by_suffix(folder):
    for suffix in (".txt", ".json", ".html"):
        output = f"fused{suffix}.keras"
        result = run("fuse", "towers.keras", "-o", output, "--report", f"report{suffix}")
        assert result.exit_code == Exit.OK, result.output
    assert "16 × " in Path("report.txt").read_text(encoding="utf-8")
    assert json.loads(Path("report.json").read_text(encoding="utf-8"))["changed"] is True
    assert Path("report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_overwrite_replaces_the_output(folder):
    Path("fused.keras").write_text("old")
    Path("report.txt").write_text("old")
    arguments = ("fuse", "towers.keras", "-o", "fused.keras", "--report", "report.txt")
    assert run(*arguments, "--overwrite").exit_code == Exit.OK
    assert zipfile.is_zipfile("fused.keras")
    assert Path("report.txt").read_text(encoding="utf-8") != "old"


def test_lambda_file_is_fused_with_the_flag(folder):
    chain([layers.Lambda(lambda t: t * 2.0)]).save("lambda.keras")
    result = run("fuse", "lambda.keras", "-o", "fused.keras", "--unsafe-lambda")
    assert result.exit_code == Exit.OK, result.output


def test_custom_class_is_found_in_the_current_folder(folder, importable):
    Path("my_layers.py").write_text(DOUBLING)
    chain([Doubling()]).save("custom.keras")
    known = ("--custom-objects", "my_layers:Doubling")
    result = run("fuse", "custom.keras", "-o", "fused.keras", *known)
    assert result.exit_code == Exit.OK, result.output
    assert run("verify", "custom.keras", "fused.keras", *known).exit_code == Exit.OK


def test_activation_saved_as_lambda_is_given_by_name(folder, importable):
    Path("my_activations.py").write_text(CAPPED)
    _save_as_keras_2_did("old.h5")
    known = ("--custom-objects", "<lambda>=my_activations:capped")
    result = run("fuse", "old.h5", "-o", "fused.keras", *known)
    assert result.exit_code == Exit.OK, result.output
    assert run("verify", "old.h5", "fused.keras", *known).exit_code == Exit.OK


def test_missing_file(folder):
    fails(Exit.MISSING_FILE, "explain", "nope.keras", saying="nope.keras, which does not exist")
    fails(Exit.MISSING_FILE, "fuse", "nope.keras", "-o", "out.keras", saying="nope.keras")
    fails(Exit.MISSING_FILE, "verify", "towers.keras", "nope.h5", saying="nope.h5")


def test_folder_instead_of_a_file(folder):
    Path("saved_model").mkdir()
    fails(Exit.NOT_A_MODEL, "explain", "saved_model", saying="a folder")


def test_file_of_another_type(folder):
    Path("notes.txt").write_text("no model")
    fails(Exit.NOT_A_MODEL, "explain", "notes.txt", saying="a .keras, .h5 or .hdf5 file")


@pytest.mark.parametrize("suffix", [".keras", ".h5", ".hdf5"])
def test_text_under_the_name_of_a_model(folder, suffix):
    Path(f"broken{suffix}").write_text("no model")
    fails(Exit.NOT_A_MODEL, "explain", f"broken{suffix}", saying="but another format")


def test_truncated_keras_file(folder):
    whole = Path("towers.keras").read_bytes()
    Path("broken.keras").write_bytes(whole[: len(whole) // 2])
    fails(Exit.DAMAGED, "fuse", "broken.keras", "-o", "out.keras", saying="cut short")


def test_truncated_hdf5_file(folder):
    towers().save("whole.h5")
    whole = Path("whole.h5").read_bytes()
    Path("broken.h5").write_bytes(whole[: len(whole) // 2])
    fails(Exit.DAMAGED, "explain", "broken.h5", saying="cut short or damaged")


def test_archive_without_a_model(folder):
    with zipfile.ZipFile("other.keras", "w") as archive:
        archive.writestr("readme", "no model")
    fails(Exit.NOT_A_MODEL, "explain", "other.keras", saying="without a model configuration")


def test_hdf5_with_weights_alone(folder):
    with h5py.File("weights.h5", "w") as file:
        file["kernel"] = np.ones((2, 3))
    fails(Exit.WEIGHTS_ALONE, "explain", "weights.h5", saying="weights alone")


def test_keras_file_without_weights(folder):
    with zipfile.ZipFile("towers.keras") as whole, zipfile.ZipFile("bare.keras", "w") as bare:
        bare.writestr("metadata.json", whole.read("metadata.json"))
        bare.writestr("config.json", whole.read("config.json"))
    fails(Exit.NOT_A_MODEL, "explain", "bare.keras", saying="model.weights")


def test_subclassed_model(folder, monkeypatch):
    model = Subclassed()
    model(np.ones((1, 4), "float32"))
    model.save("subclassed.keras")
    monkeypatch.setitem(keras.saving.get_custom_objects(), "Subclassed", Subclassed)
    result = run("explain", "subclassed.keras")
    assert result.exit_code == Exit.UNSUPPORTED, result.output
    assert result.stderr.count("\n") == 1
    assert "Subclassed" in result.stderr


def test_unknown_class(folder):
    chain([Doubling()]).save("custom.keras")
    chain([Doubling()]).save("custom.h5")
    for name in ("custom.keras", "custom.h5"):
        said = '--custom-objects "Doubling=module:Name"'
        fails(Exit.UNKNOWN_CLASS, "fuse", name, "-o", "out.keras", saying=said)


def test_unknown_activation(folder):
    chain([layers.Activation(capped)]).save("custom.keras")
    _save_as_keras_2_did("old.h5")
    fails(Exit.UNKNOWN_CLASS, "explain", "custom.keras", saying='"capped=module:Name"')
    fails(Exit.UNKNOWN_CLASS, "explain", "old.h5", saying='"<lambda>=module:Name"')


def test_activation_that_is_a_python_lambda(folder):
    with pytest.warns(UserWarning, match="includes a `lambda`"):
        chain([layers.Dense(3, activation=lambda x: x * 3.0)]).save("custom.keras")
    said = "saved from a Python lambda"
    fails(Exit.UNKNOWN_CLASS, "explain", "custom.keras", saying=said)
    assert run("explain", "custom.keras", "--unsafe-lambda").exit_code == Exit.OK


def test_lambda_without_the_flag(folder):
    chain([layers.Lambda(lambda t: t * 2.0)]).save("lambda.keras")
    chain([layers.Lambda(lambda t: t * 2.0)]).save("lambda.h5")
    for name in ("lambda.keras", "lambda.h5"):
        result = fails(Exit.UNSAFE_LAMBDA, "explain", name, saying="--unsafe-lambda")
        assert "runs the code stored in the file" in result.stderr


@pytest.mark.parametrize("text", ["Doubling", "my_layers:", ":Doubling", "a=b"])
def test_custom_objects_misspelt(folder, text):
    said = "module:Name or key=module:Name"
    fails(Exit.USAGE, "explain", "towers.keras", "--custom-objects", text, saying=said)


@pytest.mark.parametrize("text", ["no_such_module:Thing", "json:NoSuchName"])
def test_custom_objects_not_found(folder, importable, text):
    said = "something that can be imported"
    fails(Exit.UNKNOWN_CLASS, "explain", "towers.keras", "--custom-objects", text, saying=said)


def test_output_exists(folder):
    Path("fused.keras").write_text("mine")
    fails(Exit.OUTPUT_EXISTS, "fuse", "towers.keras", "-o", "fused.keras", saying="--overwrite")


def test_report_exists(folder):
    Path("report.txt").write_text("mine")
    arguments = ("fuse", "towers.keras", "-o", "fused.keras", "--report", "report.txt")
    fails(Exit.OUTPUT_EXISTS, *arguments, saying="report.txt")


def test_output_is_the_input(folder):
    for output in ("towers.keras", folder / "towers.keras", "./towers.keras"):
        arguments = ("fuse", "towers.keras", "-o", output, "--overwrite")
        fails(Exit.USAGE, *arguments, saying="the input, which is never changed")


def test_report_is_the_output(folder):
    arguments = ("fuse", "towers.keras", "-o", "out.keras", "--report", "out.keras")
    fails(Exit.USAGE, *arguments, saying="a report that ends in .txt, .json, .html")


def test_output_of_another_type(folder):
    fails(Exit.USAGE, "fuse", "towers.keras", "-o", "out.h5", saying="ends in .keras")


def test_output_is_a_folder(folder):
    Path("out.keras").mkdir()
    fails(Exit.USAGE, "fuse", "towers.keras", "-o", "out.keras", saying="a folder")


def test_output_in_a_folder_that_does_not_exist(folder):
    arguments = ("fuse", "towers.keras", "-o", "nowhere/out.keras")
    fails(Exit.WRITE_FAILED, *arguments, saying="Make it first")


def test_strict_and_nothing_fused(folder):
    chain().save("chain.keras")
    arguments = ("fuse", "chain.keras", "-o", "out.keras", "--strict")
    fails(Exit.NOTHING_FUSED, *arguments, saying="parallel-fuse explain chain.keras")


def test_verify_of_different_models(folder):
    other = towers()
    weights = other.get_weights()
    weights[-1][1] += 1e-2
    other.set_weights(weights)
    other.save("other.keras")
    result = run("verify", "towers.keras", "other.keras")
    assert result.exit_code == Exit.NOT_EQUIVALENT, result.output
    assert result.stderr.count("\n") == 1


def test_fuse_of_something_that_does_not_agree(folder, monkeypatch):
    def refuse(*_, **__):
        raise NotEquivalentError("expected equal outputs. Received: unequal ones.")

    monkeypatch.setattr(convert, "fuse_parallel_branches", refuse)
    arguments = ("fuse", "towers.keras", "-o", "out.keras")
    fails(Exit.NOT_EQUIVALENT, *arguments, saying="unequal ones")


def test_full_disk_leaves_the_old_output(folder, monkeypatch):
    def half(self, path, *_, **__):
        Path(path).write_bytes(b"half a")
        raise OSError(errno.ENOSPC, "No space left on device")

    Path("out.keras").write_text("mine")
    monkeypatch.setattr(keras.Model, "save", half)
    arguments = ("fuse", "towers.keras", "-o", "out.keras", "--overwrite")
    fails(Exit.WRITE_FAILED, *arguments, saying="No space left on device")


def test_model_that_cannot_be_saved(folder, monkeypatch):
    def refuse(self, path, *_, **__):
        raise NotImplementedError("get_config is missing")

    monkeypatch.setattr(keras.Model, "save", refuse)
    arguments = ("fuse", "towers.keras", "-o", "out.keras")
    fails(Exit.WRITE_FAILED, *arguments, saying="get_config is missing")


def test_written_file_that_holds_other_weights(folder, monkeypatch):
    save = keras.Model.save

    def other(model, path, *_, **__):
        changed = keras.models.clone_model(model)
        changed.set_weights([1.25 * w for w in model.get_weights()])
        save(changed, path)

    monkeypatch.setattr(keras.Model, "save", other)
    for old in ((), ("old",)):
        arguments = ("fuse", "towers.keras", "-o", "out.keras", *["--overwrite"] * len(old))
        for text in old:
            Path("out.keras").write_text(text)
        fails(Exit.WRITTEN_DIFFERS, *arguments, saying="from out.keras what the original gives")


@pytest.mark.parametrize("options", [(), ("--no-verify",)])
def test_written_file_that_cannot_be_read_back(folder, monkeypatch, options):
    monkeypatch.setattr(keras.Model, "save", lambda model, path: Path(path).write_text("half a"))
    arguments = ("fuse", "towers.keras", "-o", "out.keras", *options)
    code = Exit.WRITE_FAILED if options else Exit.WRITTEN_DIFFERS
    fails(code, *arguments, saying="BadZipFile")


def test_interrupt_leaves_nothing(folder, monkeypatch):
    def interrupted(self, path, *_, **__):
        Path(path).write_bytes(b"half a")
        raise KeyboardInterrupt

    before = contents(folder)
    monkeypatch.setattr(keras.Model, "save", interrupted)
    result = run("fuse", "towers.keras", "-o", "out.keras")
    assert result.exit_code == Exit.FAILED
    assert contents(folder) == before


def test_unexpected_error_is_one_line_too(folder, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(convert, "fuse_parallel_branches", broken)
    result = run("fuse", "towers.keras", "-o", "out.keras")
    assert result.exit_code == Exit.FAILED
    assert "unexpected RuntimeError: two lines --traceback shows" in result.stderr
    assert result.stderr.count("\n") == 1


def test_traceback_is_shown_when_asked(folder):
    plain = run("explain", "nope.keras")
    full = run("explain", "nope.keras", "--traceback")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in full.stderr
    assert full.stderr.endswith(plain.stderr)
    assert full.exit_code == plain.exit_code


def test_exit_codes_are_documented():
    shown = run("--help").stdout
    page = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE))
    assert table == {str(int(code)): MEANINGS[code] for code in Exit}
    for code in Exit:
        assert f"{int(code):>2}  {MEANINGS[code]}" in shown


def test_version_is_that_of_the_package():
    try:
        version = metadata.version("parallel-fuse")
    except metadata.PackageNotFoundError:
        pytest.skip("parallel-fuse is not installed here, so it has no version to show")
    assert run("--version").stdout == f"parallel-fuse, version {version}\n"


def test_help_needs_no_keras():
    program = [sys.executable, "-X", "importtime", "-m", "parallel_fuse", "--help"]
    done = _finished(program, {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0
    assert "parallel_fuse.command.cli" in done.stderr
    assert "| keras" not in done.stderr


def test_importing_the_package_registers_its_layers():
    probe = (
        "import parallel_fuse, keras; "
        "keras.saving.get_registered_object('parallel_fuse>GroupedConv2D').__name__"
    )
    assert _finished([sys.executable, "-c", probe], {"PYTHONPATH": str(ROOT)}).returncode == 0


def test_program_in_a_process_of_its_own(folder):
    program = [sys.executable, "-m", "parallel_fuse"]
    environment = {"PYTHONPATH": str(ROOT)}
    good = _finished([*program, "explain", "towers.keras"], environment)
    assert (good.returncode, good.stderr) == (Exit.OK, "")
    assert "16 × " in good.stdout
    bad = _finished([*program, "explain", "nope.keras"], environment)
    assert (bad.returncode, bad.stdout) == (Exit.MISSING_FILE, "")
    assert bad.stderr.count("\n") == 1


def _finished(command, environment):
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def _save_as_keras_2_did(path):
    """Keras 2 wrote an activation made from a Python lambda as the string `<lambda>`."""
    towers(activation=capped).save(path)
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        for layer in config["config"]["layers"]:
            if layer["config"].get("activation") not in (None, "linear"):
                layer["config"]["activation"] = "<lambda>"
        file.attrs["model_config"] = json.dumps(config)
