"""Old files on the command line: explained, fused and verified, with what was repaired."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from parallel_fuse.command import cli
from parallel_fuse.command.exits import Exit
from parallel_fuse.targets import fresh
from tests.reading.files import unpacked


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    """A fresh process for each written file takes seconds; tests/targets has what that shows."""
    monkeypatch.setattr(fresh, "_homeless", lambda path, options: ["the test"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(unpacked(tmp_path))
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli.main, list(arguments))
    assert result.exit_code == Exit.OK, result.output
    return result.stdout


@pytest.mark.parametrize("source", ["operations.h5", "nested.keras", "served"])
def test_old_files_are_explained_fused_and_verified(folder, source):
    assert "note: repaired: " in run("explain", source)
    assert "note: repaired: " in run("fuse", source, "-o", "new.keras", "--everything")
    assert "equivalent" in run("verify", source, "new.keras")


def test_an_architecture_with_its_weights(folder):
    weights = ("--weights", "images.weights-only.h5")
    assert "4 × " in run("explain", "images.json", *weights)
    printed = run("fuse", "images.json", *weights, "-o", "new.keras", "--report", "new.json")
    sizes = [Path(name).stat().st_size for name in ("images.json", "images.weights-only.h5")]
    assert f"{sum(sizes) / 1000:.3g} kB → " in printed
    assert "equivalent" in run("verify", "images.h5", "new.keras")


def test_several_old_files_into_one_folder(folder):
    printed = run("fuse", "operations.h5", "served", "slashes.h5", "-o", "out/", "--to", "onnx")
    assert "3 done" in printed
    assert sorted(path.name for path in Path("out").glob("*.onnx")) == [
        *("operations.onnx", "served.onnx", "slashes.onnx"),
    ]
