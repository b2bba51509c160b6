"""Bad input: one line, an exit code of its own, the input unchanged, nothing left behind."""

import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from keras import layers

from parallel_fuse.command import cli
from parallel_fuse.command.exits import Exit
from tests.builders import randomise, towers
from tests.reading.files import unpacked

ROOT = Path(__file__).parents[2]


class Unknown(layers.Layer):
    """A class that the file names and nobody registered."""

    def call(self, inputs):
        return inputs * 1.5


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with `in.keras`."""
    monkeypatch.chdir(tmp_path)
    dense().save("in.keras")
    return tmp_path


def dense() -> keras.Model:
    return randomise(towers(lambda i, x: layers.Dense(3)(x), (17, 7)))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def fails(code: Exit, *arguments: str, saying: str) -> None:
    """The command ends so, and every file and folder is as it was."""
    before, folders = contents(Path.cwd()), sorted(Path.cwd().rglob("*"))
    result = CliRunner().invoke(cli.main, ["fuse", *arguments])
    check(result.exit_code, result.stderr, code, saying)
    assert result.stdout == ""
    assert contents(Path.cwd()) == before
    assert sorted(Path.cwd().rglob("*")) == folders


def check(status: int, text: str, code: Exit, saying: str) -> None:
    assert status == code, text
    assert text.startswith("error: expected ")
    assert "Received: " in text
    assert text.count("\n") == 1
    assert saying in text


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.99])
def test_truncated_archive(folder, kept):
    whole = Path("in.keras").read_bytes()
    Path("cut.keras").write_bytes(whole[: int(kept * len(whole))])
    fails(Exit.DAMAGED, "cut.keras", "-o", "out.keras", saying="cut short")


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_truncated_hdf5(folder, kept):
    dense().save("in.h5")
    whole = Path("in.h5").read_bytes()
    Path("cut.h5").write_bytes(whole[: int(kept * len(whole))])
    fails(Exit.DAMAGED, "cut.h5", "-o", "out.keras", saying="cut.h5")


@pytest.mark.parametrize("change", [b"\x00" * 64, b"{" * 64], ids=["zeros", "braces"])
def test_archive_with_damaged_contents(folder, change):
    with zipfile.ZipFile("in.keras") as old, zipfile.ZipFile("bad.keras", "w") as new:
        for name in old.namelist():
            new.writestr(name, change if name == "config.json" else old.read(name))
    fails(Exit.DAMAGED, "bad.keras", "-o", "out.keras", saying="bad.keras")


@pytest.mark.parametrize(
    "name", ["../stray.txt", "/tmp/stray.txt", "assets/../../stray.txt", "..\\stray.txt", "C:/x"]
)
def test_archive_with_a_path_outside_itself(folder, name):
    shutil.copy("in.keras", "stray.keras")
    with zipfile.ZipFile("stray.keras", "a") as archive:
        archive.writestr(name, "anything")
    fails(Exit.STRAY_PATH, "stray.keras", "-o", "out.keras", saying="a path outside itself")


def test_archive_with_a_link(folder):
    shutil.copy("in.keras", "link.keras")
    link = zipfile.ZipInfo("assets/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile("link.keras", "a") as archive:
        archive.writestr(link, "/etc/passwd")
    fails(Exit.STRAY_PATH, "link.keras", "-o", "out.keras", saying="a path outside itself")


def test_hdf5_without_a_model(folder):
    dense().save_weights("only.weights.h5")
    fails(Exit.WEIGHTS_ALONE, "only.weights.h5", "-o", "out.keras", saying="weights alone")


def test_hdf5_whose_weights_lie_elsewhere(folder):
    """An external link would read any file that the user can."""
    unpacked(folder / "old")
    with h5py.File("old/slashes.h5", "r+") as file:
        layer = file["model_weights/tower/2/tower/2"]
        del layer["kernel:0"]
        layer["kernel:0"] = h5py.ExternalLink("images.h5", "/model_weights/conv2d/conv2d/kernel:0")
    fails(Exit.NOT_A_MODEL, "old/slashes.h5", "-o", "out.keras", saying="lies in another file")


def test_saved_model_without_a_model(folder):
    Path("saved").mkdir()
    Path("saved/saved_model.pb").write_bytes(b"\xff" * 99)
    fails(Exit.DAMAGED, "saved", "-o", "out.keras", saying="saved_model.pb is damaged")
    Path("saved/saved_model.pb").write_bytes(b"")
    fails(Exit.NOT_A_MODEL, "saved", "-o", "out.keras", saying="holds no graph")


def test_saved_model_with_an_unknown_operation(folder):
    module = tf.Module()
    module.serve = tf.function(
        lambda x: {"y": tf.math.bessel_i0(x)}, input_signature=[tf.TensorSpec((None, 3), name="x")]
    )
    tf.saved_model.save(module, "saved", signatures={"serving_default": module.serve})
    for output in ("out.keras", "out.onnx", "out.tflite", "other.savedmodel"):
        fails(Exit.UNTRANSLATED, "saved", "-o", output, saying="BesselI0")


def test_folder_that_is_none(folder):
    Path("empty").mkdir()
    fails(Exit.NOT_A_MODEL, "empty", "-o", "out.keras", saying="without a saved_model.pb")


def test_python_code_without_the_flag(folder):
    x = keras.Input((4,))
    keras.Model(x, layers.Lambda(lambda t: t * 2.0)(x)).save("lambda.keras")
    for name in ("lambda.keras", "old/lambdas.h5"):
        unpacked(folder / "old")
        fails(
            Exit.UNSAFE_LAMBDA, name, "-o", "out.keras", saying="runs the code stored in the file"
        )


def test_custom_class_that_is_missing(folder):
    x = keras.Input((4,))
    for name in ("custom.keras", "custom.h5"):
        keras.Model(x, Unknown()(x)).save(name)
        fails(Exit.UNKNOWN_CLASS, name, "-o", "out.keras", saying='"Unknown=module:Name"')


def test_custom_class_of_keras_2_that_is_missing(folder):
    unpacked(folder / "old")
    with h5py.File("old/images.h5", "r+") as file:
        file.attrs["model_config"] = file.attrs["model_config"].replace('"PReLU"', '"Own>Unknown"')
    fails(Exit.UNKNOWN_CLASS, "old/images.h5", "-o", "out.keras", saying='"Unknown=module:Name"')


def test_output_that_exists(folder):
    Path("out.keras").write_text("mine")
    fails(Exit.OUTPUT_EXISTS, "in.keras", "-o", "out.keras", saying="--overwrite")


def test_output_in_a_folder_that_is_missing(folder):
    fails(Exit.WRITE_FAILED, "in.keras", "-o", "nowhere/out.keras", saying="Make it first")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are asked for on POSIX only")
def test_output_in_a_folder_that_cannot_be_written(folder):
    Path("closed").mkdir(mode=0o555)
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere; the next test denies it what it asks for")
    fails(Exit.WRITE_FAILED, "in.keras", "-o", "closed/out.keras", saying="can be written")


@pytest.mark.parametrize("suffix", [".keras", ".savedmodel", ".tflite", ".onnx"])
def test_output_that_the_system_refuses(folder, monkeypatch, suffix):
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    fails(Exit.WRITE_FAILED, "in.keras", "-o", f"out{suffix}", saying="Permission denied")


FULL = """
import resource, runpy, signal, sys
sys.argv[1:] = ["fuse", "in.keras", "-o", sys.argv[1], "--no-verify", *sys.argv[2:]]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import keras  # writes its compiled code before the disk is full
import parallel_fuse.conversion.convert
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
runpy.run_module("parallel_fuse", run_name="__main__")
"""


@pytest.mark.parametrize("suffix", [".keras", ".savedmodel", ".tflite", ".onnx"])
def test_full_target(folder, suffix):
    """No file grows beyond 4 kB: what a full disk does, without one."""
    pytest.importorskip("resource", reason="limits are set on POSIX only")
    before = contents(folder)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FULL, f"out{suffix}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stderr[done.stderr.find("error:") :]  # behind what TensorFlow says of itself
    check(done.returncode, said, Exit.WRITE_FAILED, "File too large")
    assert contents(folder) == before
    assert [path.name for path in folder.iterdir()] == ["in.keras"]


def test_architecture_that_is_none(folder):
    np.save("w.npy", np.ones(3))
    dense().save_weights("w.weights.h5")
    for text, said in (("{", "is no JSON"), (json.dumps([1]), "is no architecture")):
        Path("arch.json").write_text(text)
        arguments = ("arch.json", "--weights", "w.weights.h5", "-o", "out.keras")
        fails(Exit.NOT_A_MODEL, *arguments, saying=said)
    arguments = ("arch.json", "--weights", "w.npy", "-o", "out.keras")
    fails(Exit.NOT_A_MODEL, *arguments, saying="which is no HDF5 file")
    arguments = ("arch.json", "--weights", "nope.h5", "-o", "out.keras")
    fails(Exit.MISSING_FILE, *arguments, saying="nope.h5")


def test_weights_are_for_one_architecture(folder):
    dense().save("in.h5")
    fails(Exit.USAGE, "in.keras", "--weights", "in.h5", "-o", "out.keras", saying="Leave out one")
    arguments = ("in.keras", "in.h5", "--weights", "in.h5", "-o", "out/")
    fails(Exit.USAGE, *arguments, saying="no --weights for several files")
