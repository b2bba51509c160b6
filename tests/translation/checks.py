"""A TensorFlow function in, a Keras model that computes the same out; or the reason why not."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from parallel_fuse.errors import ConversionError
from parallel_fuse.translation.walk import functional_from_saved_model

Specs = dict[str, tf.TensorSpec]


def saved(path, function, specs: Specs, **held):
    """A SavedModel of one signature; `held` are its variables."""
    module = tf.Module()
    for name, value in held.items():
        setattr(module, name, value)
    module.serve = tf.function(lambda **given: {"y": function(**given)}, autograph=False)
    signature = module.serve.get_concrete_function(**specs)
    tf.saved_model.save(module, str(path), signatures=signature)
    return path


def spec(*shape, dtype="float32", name="x"):
    return tf.TensorSpec((None, *shape), dtype, name=name)


def values(specs: Specs, batch: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch)
    found = {}
    for name, one in specs.items():
        shape = (batch, *(6 if n is None else n for n in one.shape[1:]))
        integers = one.dtype.is_integer
        drawn = random.integers(0, 5, shape) if integers else random.normal(size=shape)
        found[name] = drawn.astype(one.dtype.as_numpy_dtype)
    return found


def assert_translates(path, function, specs: Specs, **held) -> keras.Model:
    """Equal to rounding at two batch sizes, after saving and loading too."""
    model = functional_from_saved_model(saved(path / "saved", function, specs, **held))
    model.save(path / "model.keras")
    again = keras.saving.load_model(path / "model.keras")
    for batch in (1, 3):
        given = values(specs, batch)
        wanted = function(**{name: tf.constant(value) for name, value in given.items()})
        for one in (model, again):
            found = one(given if len(given) > 1 else next(iter(given.values())))["y"]
            assert found.dtype == wanted.dtype
            scale = max(1.0, float(np.abs(np.asarray(wanted, "float64")).max(initial=0)))
            eps = 4e-3 if wanted.dtype == "float16" else 2e-6
            np.testing.assert_allclose(found, wanted, rtol=0, atol=eps * scale)
    return model


def assert_refused(path, function, specs: Specs, reason: str, **held) -> None:
    folder = saved(path / "saved", function, specs, **held)
    with pytest.raises(ConversionError, match=reason) as caught:
        functional_from_saved_model(folder)
    assert len(str(caught.value).splitlines()) == 1
