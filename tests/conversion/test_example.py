"""`examples/convert_saved_model.py` does in ten lines what the README says."""

import os
import subprocess
import sys
from pathlib import Path

import onnxruntime
from keras import layers

from tests.builders import randomise, towers

ROOT = Path(__file__).parents[2]


def test_the_example_converts_a_file(tmp_path):
    randomise(towers(lambda i, x: layers.Dense(3)(x), (17, 7))).save(tmp_path / "in.keras")
    script = ROOT / "examples" / "convert_saved_model.py"
    command = [sys.executable, str(script), str(tmp_path / "in.keras"), str(tmp_path / "out.onnx")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "17 × (Dense(3))" in done.stdout
    assert "proven against the original" in done.stdout
    assert onnxruntime.InferenceSession(tmp_path / "out.onnx").get_inputs()[0].name == "x"
    lines = [line for line in script.read_text().splitlines() if line.strip()]
    assert len(lines) <= 10
