"""Whether a twin made from a layer's configuration has all that the layer has."""

from typing import Any

import numpy as np

PLAIN = (bool, int, float, complex, str, bytes, type(None))


def check_complete(layer: Any, twin: Any) -> None:
    """Raise ValueError if a plain attribute of a custom layer differs from its twin's.

    `get_config` may leave out what `call` reads: a number that was set from outside, or one that
    the layer drew when it was made.
    """
    if type(layer).__module__.split(".")[0] == "keras":
        return
    theirs = vars(twin)
    for name, value in vars(layer).items():
        if name == "name" or name.startswith("_") or not _is_plain(value):
            continue
        if name not in theirs or not _equal(value, theirs[name]):
            raise ValueError(f"its get_config leaves out '{name}'")


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (*PLAIN, np.ndarray, np.generic))


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, (list, tuple)):
        same = isinstance(other, (list, tuple)) and len(value) == len(other)
        return same and all(map(_equal, value, other))
    if isinstance(value, (np.ndarray, np.generic)) or isinstance(other, (np.ndarray, np.generic)):
        return np.array_equal(value, other)
    return type(value) is type(other) and (value == other or value != value)
