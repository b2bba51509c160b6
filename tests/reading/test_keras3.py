"""What stops files of Keras 3 itself: functions saved as Python code."""

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse.command.exits import Exit
from parallel_fuse.errors import ConversionError
from parallel_fuse.reading.load import load_model, read
from tests.builders import inputs_for, randomise

SUFFIXES = [".keras", ".h5"]
pytestmark = pytest.mark.filterwarnings("ignore:.*includes a `lambda`:UserWarning")


def saved(model, path):
    randomise(model).save(path)
    x = inputs_for(model, 3, seed=1)
    return x, keras.ops.convert_to_numpy(model(x))


def agree(model, x, expected):
    np.testing.assert_allclose(model(x), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def slices():
    x = keras.Input((5, 4), name="x")
    cut = [layers.Lambda(lambda t, i=i: t[:, i])(x) for i in range(5)]
    return keras.Model(x, layers.Concatenate()([layers.Dense(3)(piece) for piece in cut]))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_default_arguments_saved_as_a_list(tmp_path, suffix):
    x, expected = saved(slices(), tmp_path / f"in{suffix}")
    opened = read(tmp_path / f"in{suffix}", safe_mode=False)
    agree(opened.model, x, expected)
    (told,) = opened.repairs
    assert told.startswith("repaired: default arguments of a Lambda as a tuple: lambda")
    assert told.endswith(" and 2 more")


def capped(x):
    return keras.ops.clip(x, -0.5, 0.5)


def test_activation_saved_as_code(tmp_path):
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(3, activation=lambda y: keras.ops.clip(y, -0.5, 0.5))(x))
    x, expected = saved(model, tmp_path / "in.keras")
    with pytest.raises(ConversionError, match='"<lambda>=module:Name"') as caught:
        read(tmp_path / "in.keras")
    assert caught.value.code == Exit.UNKNOWN_CLASS
    agree(load_model(tmp_path / "in.keras", safe_mode=False), x, expected)
    opened = read(tmp_path / "in.keras", {"<lambda>": capped})
    agree(opened.model, x, expected)
    assert opened.repairs == ("repaired: activation '<lambda>' given by name",)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_today_needs_no_repair(tmp_path, suffix):
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(3)(layers.Dense(5)(x[:, 1:])))
    model.compile("adam", "mse")
    x, expected = saved(model, tmp_path / f"in{suffix}")
    opened = read(tmp_path / f"in{suffix}", compiled=True)
    agree(opened.model, x, expected)
    assert opened.repairs == ()
    assert opened.model.loss == "mse"
    assert not read(tmp_path / f"in{suffix}").model.compiled


def test_the_state_of_the_optimizer_is_read(tmp_path):
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(3)(x))
    model.compile("adam", "mse")
    model.fit(np.ones((6, 4)), np.ones((6, 3)), epochs=2, batch_size=3, verbose=0)
    model.save(tmp_path / "in.keras")
    optimizer = load_model(tmp_path / "in.keras").optimizer
    assert int(optimizer.iterations) == 4
    for ours, theirs in zip(optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def own_loss(y, z):
    return keras.ops.mean(keras.ops.abs(y - z))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_loss_that_is_unknown_leaves_the_model_uncompiled(tmp_path, suffix):
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(3)(x))
    model.compile("adam", own_loss)
    x, expected = saved(model, tmp_path / f"in{suffix}")
    opened = read(tmp_path / f"in{suffix}", compiled=True)
    agree(opened.model, x, expected)
    assert not opened.model.compiled
    assert "compile arguments left out" in opened.repairs[0]
    known = read(tmp_path / f"in{suffix}", {"own_loss": own_loss}, compiled=True)
    assert known.model.compiled
    assert known.repairs == ()
