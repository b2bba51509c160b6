"""Many files at once: what is done, skipped, done again, and what one failure or Ctrl-C leaves."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest
from click.testing import CliRunner
from keras import layers

from parallel_fuse.command import cli
from parallel_fuse.command.exits import Exit
from parallel_fuse.conversion import manifest, workers
from tests.builders import randomise, towers

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of 17 lanes, and a file that is cut short."""
    place = tmp_path_factory.mktemp("models")
    for name, width in (("a", 3), ("b", 5)):
        keras.utils.set_random_seed(width)
        dense = randomise(towers(lambda i, x, width=width: layers.Dense(width)(x), (17, 7)))
        dense.save(place / f"{name}.keras")
    whole = (place / "a.keras").read_bytes()
    (place / "cut.keras").write_bytes(whole[: len(whole) // 2])
    return place


@pytest.fixture
def folder(tmp_path, monkeypatch, models):
    """The current folder, with copies of the models."""
    for path in models.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "150", "LINES": "40"}


def on_a_terminal(*arguments: str) -> tuple[int, str, str]:
    """(exit code, what is printed, what the terminal shows of stderr)."""
    pty = pytest.importorskip("pty", reason="terminals of one's own are made on POSIX only")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "parallel_fuse", "fuse", *arguments]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    printed = process.stdout.read()
    process.stdout.close()
    os.close(ours)
    return process.wait(), printed, shown.decode()


def run(*arguments: str):
    return CliRunner().invoke(cli.main, ["fuse", *arguments])


def states(printed: str) -> dict[str, str]:
    """File → what became of it, read from the table."""
    return dict(re.findall(r"│ (\S+)\s+│ (done|skipped|failed) ", printed))


def test_one_failure_does_not_stop_the_rest_and_a_second_run_skips_what_is_done(folder):
    """One run of three files, then three more: unchanged, one input changed, an option changed."""
    files = ("a.keras", "b.keras", "cut.keras")
    code, printed, shown = on_a_terminal(*files, "-o", "out/", "--jobs", "2")
    assert code == Exit.SOME_FAILED
    assert states(printed) == {"a.keras": "done", "b.keras": "done", "cut.keras": "failed"}
    assert "cut short" in printed
    assert "2 done, 1 failed" in printed
    assert re.search("[0-3]/3", shown), "a progress bar on the terminal"
    assert sorted(path.name for path in Path("out").iterdir()) == [
        *("a.keras", "b.keras", "parallel-fuse.json"),
    ]
    written = {name: Path("out", name).read_bytes() for name in ("a.keras", "b.keras")}
    recorded = json.loads(Path("out/parallel-fuse.json").read_text())["files"]
    assert set(recorded) == set(written)

    again = run("a.keras", "b.keras", "-o", "out/")
    assert again.exit_code == Exit.OK, again.output
    assert states(again.stdout) == {"a.keras": "skipped", "b.keras": "skipped"}
    assert {name: Path("out", name).read_bytes() for name in written} == written

    shutil.copy("b.keras", "a.keras")  # another model under the old name
    changed = run("a.keras", "b.keras", "-o", "out/")
    assert states(changed.stdout) == {"a.keras": "done", "b.keras": "skipped"}
    assert Path("out/a.keras").read_bytes() != written["a.keras"]

    other = run("b.keras", "-o", "out/", "--portable")
    assert states(other.stdout) == {"b.keras": "done"}


def test_an_output_that_somebody_changed_is_kept(folder):
    assert run("a.keras", "-o", "out/").exit_code == Exit.OK
    Path("out/a.keras").write_text("mine")
    refused = run("a.keras", "-o", "out/")
    assert refused.exit_code == Exit.SOME_FAILED
    assert "exit code 7" in refused.stdout
    assert Path("out/a.keras").read_text() == "mine"
    assert run("a.keras", "-o", "out/", "--overwrite").exit_code == Exit.OK
    assert Path("out/a.keras").read_bytes()[:2] == b"PK"


@pytest.mark.slow
def test_interrupted_leaves_no_half_file(folder):
    """Ctrl-C reaches all processes of the terminal at once."""
    shutil.copy("a.keras", "c.keras")
    command = [sys.executable, "-m", "parallel_fuse", "fuse", "a.keras", "b.keras", "c.keras"]
    process = subprocess.Popen(
        [*command, "-o", "out/", "--jobs", "2"],
        env=environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not list(Path("out").glob(".*.new")):  # one has begun to write
        assert process.poll() is None
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == Exit.FAILED
    left = {path.name for path in Path("out").iterdir()}
    assert left <= {"a.keras", "b.keras", "c.keras", manifest.NAME}
    for name in left - {manifest.NAME}:
        keras.saving.load_model(Path("out", name))
    finished = run("a.keras", "b.keras", "c.keras", "-o", "out/", "--overwrite")
    assert finished.exit_code == Exit.OK, finished.output


def test_two_files_that_would_become_one_are_refused(folder):
    Path("more").mkdir()
    shutil.copy("b.keras", "more/a.keras")
    refused = run("a.keras", "more/a.keras", "-o", "out/")
    assert refused.exit_code == Exit.USAGE
    assert "would both become" in refused.stderr
    assert not Path("out").exists()


def test_a_record_that_is_none_is_kept(folder):
    Path("out").mkdir()
    Path("out/parallel-fuse.json").write_text("mine")
    refused = run("a.keras", "b.keras", "-o", "out/")
    assert refused.exit_code == Exit.USAGE
    assert "record of an earlier run" in refused.stderr
    assert Path("out/parallel-fuse.json").read_text() == "mine"


def work(task: tuple[str, Path]) -> str:
    """What a worker does in the tests below."""
    kind, place = task
    if kind == "die":
        os._exit(3)
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "wait":
        try:
            (place / f"{os.getpid()}").write_text("half")
            time.sleep(60)
        finally:
            (place / f"{os.getpid()}").unlink()
    return f"{kind} {os.getpid()}"


def test_a_process_that_dies_takes_only_its_own_task_with_it(tmp_path):
    found = {}
    kinds = ["one", "die", "two", "killed", "three", "four"]
    workers.run(
        [(kind, tmp_path) for kind in kinds],
        work,
        2,
        lambda task, result: found.update({task[0]: str(result)}),
    )
    assert set(found) == set(kinds)
    assert found["die"] == "the process ended with status 3"
    assert found["killed"] == "the process was ended by SIGKILL"
    assert all(found[kind].startswith(f"{kind} ") for kind in ("one", "two", "three", "four"))
    assert len({found[kind] for kind in ("one", "two", "three", "four")}) == 4


def test_an_interrupt_ends_all_processes_and_waits_until_they_have_cleaned_up(tmp_path):
    def interrupted(task, result):
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    tasks = [(kind, tmp_path) for kind in ("wait", "wait", "quick")]
    with pytest.raises(KeyboardInterrupt):
        workers.run(tasks, work, 3, interrupted)
    assert list(tmp_path.iterdir()) == []
