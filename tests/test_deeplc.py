"""Real trained models: peptide retention time, three convolutional networks of one package.

The wheel is fetched by the test itself and never kept in the repository. The files were written by
Keras 2, with an activation saved under the name `<lambda>`.
"""

import subprocess
import sys
import zipfile

import keras
import pytest

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from tests.photograph import photograph

pytestmark = pytest.mark.network
WHEEL = "deeplc==2.2.38"


def capped_leaky_relu(x):
    return keras.activations.relu(x, negative_slope=0.1, max_value=20)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deeplc")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", WHEEL]
    done = subprocess.run([*command, "-d", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip()[-200:]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        names = sorted(n for n in wheel.namelist() if n.endswith(".hdf5"))
        wheel.extractall(folder, names)
    assert len(names) == 3
    return [folder / name for name in names]


def load(path, name):
    known = {"<lambda>": capped_leaky_relu}
    model = keras.saving.load_model(path, custom_objects=known, compile=False)
    model.name = name
    return model


def average(models):
    inputs = [keras.Input(t.shape[1:], name=f"in{i}") for i, t in enumerate(models[0].inputs)]
    outputs = [model(inputs)[0] for model in models]
    return keras.Model(inputs, keras.layers.Average(name="average")(outputs), name="ensemble")


@pytest.mark.parametrize("number", range(3))
def test_one_model_has_no_two_towers_alike(files, number):
    model = load(files[number], "one")
    before = photograph(model)
    _, report = fuse_parallel_branches(model, return_report=True)
    assert photograph(model) == before
    assert report.verification.ok
    assert not report.regions


def test_the_average_of_three_fuses_tower_by_tower(files):
    model = average([load(path, f"m{i}") for i, path in enumerate(files)])
    before = photograph(model)
    fused, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    assert photograph(model) == before
    assert report.verification.ok
    assert fused.output_names == ["average"]
    assert sum(r.layers_before for r in report.regions) >= 60
    assert sum(r.layers_after for r in report.regions) <= 25
    assert report.after.layers < 0.7 * report.before.layers
    assert report.after.parameters == report.before.parameters
    assert any("kernel_size" in str(miss) for miss in report.rejections)
