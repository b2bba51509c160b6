"""A `.keras` file in a process of its own: with and without this package, with custom classes."""

import keras
import pytest
from keras import layers

import parallel_fuse
from parallel_fuse.command.exits import Exit
from parallel_fuse.errors import ConversionError
from tests.builders import channel_towers, randomise, towers

SCALING = """
import keras

class Scaling(keras.layers.Layer):
    def call(self, inputs):
        return inputs * 1.5
"""
SPY = """
import sys
import numpy as np
from importlib.machinery import PathFinder

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name == "parallel_fuse":
            raise ImportError("not here")

sys.meta_path.insert(0, Forbidden())
"""


def convolutions() -> keras.Model:
    def branch(index, piece):
        return layers.Flatten()(layers.Conv1D(4, 3)(piece))

    return randomise(channel_towers(branch, (9, 6), 2))


def test_stock_layers_load_without_this_package(tmp_path, monkeypatch):
    """The process is kept from importing it: a file that needs it could not be proven."""
    (tmp_path / "sitecustomize.py").write_text(SPY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    randomise(towers(lambda i, x: layers.Dense(3)(x))).save(tmp_path / "dense.keras")
    convolutions().save(tmp_path / "conv.keras")
    report = parallel_fuse.convert(tmp_path / "dense.keras", tmp_path / "fused.keras")
    assert report.file.own_layers == ()
    assert report.file.proof.modes == ("Keras in a fresh process",)
    assert "loads without this package" in report.to_text()
    with pytest.raises(ConversionError, match="not here") as caught:
        parallel_fuse.convert(tmp_path / "conv.keras", tmp_path / "other.keras")
    assert caught.value.code == Exit.WRITTEN_DIFFERS
    assert not (tmp_path / "other.keras").exists()


def test_own_and_custom_classes_are_found_where_they_are_defined(tmp_path, monkeypatch):
    (tmp_path / "scaling_layers.py").write_text(SCALING)
    monkeypatch.syspath_prepend(str(tmp_path))
    from scaling_layers import Scaling

    model = convolutions()
    model = randomise(keras.Model(model.input, Scaling()(model.output)))
    model.save(tmp_path / "custom.keras")
    known = {"Scaling": Scaling}
    report = parallel_fuse.convert(
        tmp_path / "custom.keras", tmp_path / "fused.keras", custom_objects=known
    )
    assert report.file.proof.modes == ("Keras in a fresh process",)
    assert report.file.own_layers == ("parallel_fuse>GroupedConv1D",)
    assert "`import parallel_fuse`" in report.to_text()
    assert report.file.operations["GroupedConv1D"] == 1


def test_a_class_that_lives_nowhere_is_proven_here(tmp_path):
    class Local(layers.Layer):
        def call(self, inputs):
            return inputs * 1.5

    model = towers(lambda i, x: layers.Dense(3)(x))
    randomise(keras.Model(model.input, Local()(model.output))).save(tmp_path / "custom.keras")
    known = {"Local": Local}
    report = parallel_fuse.convert(
        tmp_path / "custom.keras", tmp_path / "fused.keras", custom_objects=known
    )
    (mode,) = report.file.proof.modes
    assert mode.startswith("Keras in this process, for Local cannot be imported")
