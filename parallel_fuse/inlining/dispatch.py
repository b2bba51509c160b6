"""TensorFlow functions called on symbolic Keras tensors, done by `keras.ops`.

Keras refuses such calls; TensorFlow lets one handler answer for all its functions. The handler is
registered once, for good, and answers only inside `tensorflow_on_symbols`.
"""

import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import keras
from keras import tree

from parallel_fuse import _backend
from parallel_fuse.errors import Reject
from parallel_fuse.inlining.tensorflow_functions import FUNCTIONS

_state = threading.local()


@contextmanager
def tensorflow_on_symbols() -> Iterator[None]:
    """Within it, `tf.concat` and its like take KerasTensors. On other backends it does nothing."""
    if keras.backend.backend() == "tensorflow":
        _register()
    before = getattr(_state, "active", False)
    _state.active = True
    try:
        yield
    finally:
        _state.active = before


_register = cache(lambda: _backend.on_refused_calls(_is_ours, call))


def _is_ours(args: tuple, kwargs: dict) -> bool:
    leaves = tree.flatten((args, kwargs))
    symbolic = any(isinstance(leaf, keras.KerasTensor) for leaf in leaves)
    return symbolic and getattr(_state, "active", False)


def call(function: Any, args: tuple, kwargs: dict) -> Any:
    """What a TensorFlow function would give, made by `keras.ops`.

    Raises:
        Reject: there is none that does the same.
    """
    name = function.__name__.removesuffix("_with_dispatch").removesuffix("_v2")
    translated = FUNCTIONS.get(name.removeprefix("_").removesuffix("_dispatch"))
    if translated is None:
        raise Reject(f"TensorFlow's {name} has no translation")
    signature = inspect.signature(function)
    bound, parameters = signature.bind(*args, **kwargs), signature.parameters.values()
    defaults = {p.name: p.default for p in parameters}
    given = {k: v for k, v in bound.kwargs.items() if k != "name" and v is not defaults.get(k)}
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return translated(*bound.args, **given)
    named = {k: v for k, v in zip(defaults, bound.args) if k != "name" and v is not defaults[k]}
    try:
        return translated(**{**named, **given})
    except TypeError as error:
        raise Reject(f"TensorFlow's {name} with {error}") from None
