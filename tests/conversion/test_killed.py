"""A conversion that is ended at any moment leaves the old output, none, or a complete one."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import parallel_fuse
from parallel_fuse.command import leftovers
from parallel_fuse.command.exits import Exit
from parallel_fuse.command.writing import replacing
from tests.builders import inputs_for, randomise, towers

ROOT = Path(__file__).parents[2]
KILLS = 5  # of each of two formats
# Says when it begins and ends, so that the moments of the kills lie in between.
SCRIPT = """
import sys
import parallel_fuse
print("begins", flush=True)
parallel_fuse.convert(*sys.argv[1:], overwrite=True)
print("ends", flush=True)
"""


def dense(width: int) -> keras.Model:
    keras.utils.set_random_seed(width)
    return randomise(towers(lambda i, x: layers.Dense(width)(x), (17, 7)))


@dataclass(frozen=True)
class Place:
    """A folder with `in.keras` and an old output of another model."""

    folder: Path
    target: Path
    x: np.ndarray
    expected: np.ndarray
    old: np.ndarray


@pytest.fixture(scope="module", params=["out.keras", "out.savedmodel"])
def place(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    model, other = dense(3), dense(5)
    model.save(folder / "in.keras")
    other.save(folder / "other.keras")
    target = folder / request.param
    x = inputs_for(model, 2, seed=3)
    outputs = (keras.ops.convert_to_numpy(one(x)) for one in (model, other))
    parallel_fuse.convert(folder / "other.keras", target)
    return Place(folder, target, x, *outputs)


def started(place: Place) -> subprocess.Popen:
    command = [sys.executable, "-c", SCRIPT, "in.keras", place.target.name]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=place.folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begins\n"
    return process


def ended(process: subprocess.Popen) -> int:
    process.stdout.read()
    process.stdout.close()
    return process.wait()


def computed(place: Place) -> np.ndarray:
    """What the file gives, opened by its own runtime."""
    if place.target.suffix == ".keras":
        return keras.ops.convert_to_numpy(keras.saving.load_model(place.target)(place.x))
    serve = tf.saved_model.load(str(place.target)).signatures["serving_default"]
    return next(iter(serve(tf.constant(place.x)).values())).numpy()


def is_one_of(place: Place, *expected: np.ndarray) -> bool:
    received = computed(place)
    return any(
        received.shape == one.shape and np.abs(received - one).max() < 1e-5 * np.abs(one).max()
        for one in expected
    )


@pytest.mark.slow
def test_killed_at_random_moments(place):
    process = started(place)
    began = time.perf_counter()
    assert ended(process) == 0
    duration = time.perf_counter() - began
    assert is_one_of(place, place.expected)
    for moment in np.random.default_rng(20240117).uniform(0, 1.05 * duration, KILLS):
        process = started(place)
        time.sleep(moment)
        process.kill()
        ended(process)
        assert not place.target.exists() or is_one_of(place, place.expected, place.old)
    process = started(place)
    assert ended(process) == 0
    assert is_one_of(place, place.expected)
    names = {path.name for path in place.folder.iterdir()}
    assert names == {"in.keras", "other.keras", place.target.name}, "swept by the next run"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_nothing(place, number):
    """Ctrl-C, and what ends services: the command cleans up behind itself."""
    before = {path.name for path in place.folder.iterdir()}
    command = [sys.executable, "-m", "parallel_fuse", "fuse", "in.keras", "--overwrite", "-o"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*command, place.target.name], cwd=place.folder, env=environment, stderr=subprocess.PIPE
    )
    while not list(place.folder.glob(".out*")):  # it has begun to write
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(number)
    process.stderr.read()
    process.stderr.close()
    assert process.wait() in (Exit.FAILED, 128 + number)
    assert {path.name for path in place.folder.iterdir()} == before
    assert is_one_of(place, place.expected, place.old)


def dead_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def mark(process: int) -> str:
    machine, _, number = leftovers.new_mark().rsplit("-", 2)
    return f"{machine}-{process}-{number}"


def test_what_a_killed_run_left_is_swept_and_nothing_else(tmp_path):
    target, other = tmp_path / "out.keras", tmp_path / "out.keras2"
    ours = leftovers.temporary(target, mark(dead_process()))
    running = leftovers.temporary(target, mark(os.getpid()))
    foreign = leftovers.temporary(other, mark(dead_process()))
    for folder in (ours, running, foreign):
        folder.mkdir()
        (folder / "half").write_text("half a")
    (tmp_path / ".out.keras").write_text("the user's")
    with replacing(target) as place:
        place.write_text("new")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {".out.keras", "out.keras", running.name, foreign.name}
    assert target.read_text() == "new"


def test_an_old_folder_that_stepped_aside_comes_back(tmp_path):
    """The one moment in which there is no output: between two renames."""
    target = tmp_path / "out.savedmodel"
    aside = leftovers.aside(target, mark(dead_process()))
    aside.mkdir()
    (aside / "saved_model.pb").write_text("old")
    leftovers.sweep(target)
    assert [path.name for path in tmp_path.iterdir()] == ["out.savedmodel"]
    assert (target / "saved_model.pb").read_text() == "old"


def test_an_old_folder_that_was_replaced_goes(tmp_path):
    target = tmp_path / "out.savedmodel"
    aside = leftovers.aside(target, mark(dead_process()))
    for folder, text in ((aside, "old"), (target, "new")):
        folder.mkdir()
        (folder / "saved_model.pb").write_text(text)
    leftovers.sweep(target)
    assert [path.name for path in tmp_path.iterdir()] == ["out.savedmodel"]
    assert (target / "saved_model.pb").read_text() == "new"
