"""The committed files of Keras 2, unpacked, and what Keras 2 computed of a fixed input."""

import json
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import tree

from parallel_fuse import _keras

ARCHIVE = Path(__file__).parents[1] / "data" / "keras2.zip"


def unpacked(folder: Path) -> Path:
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


def skip_without_its_python(folder: Path) -> None:
    saved = json.loads((folder / "versions.json").read_text())["python"]
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != saved:
        pytest.skip(f"the lambdas are byte code of Python {saved}, this is {here}")


def assert_computes_the_same(model: keras.Model, folder: Path, name: str) -> None:
    """The model gives what Keras 2 gave, to rounding."""
    with np.load(folder / f"{name}.npz") as saved:
        given = dict(saved)
    inputs = [given[f"input_{i}"] for i in range(len(model.inputs))]
    nest = tree.pack_sequence_as(_keras.structures(model)[0], inputs)
    outputs = tree.flatten(model(nest, training=False))
    assert len(outputs) == sum(key.startswith("output") for key in given)
    for i, output in enumerate(outputs):
        expected = given[f"output_{i}"]
        assert tuple(output.shape) == expected.shape
        received = keras.ops.convert_to_numpy(output)
        np.testing.assert_allclose(received, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
