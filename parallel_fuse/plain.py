"""Plain values as text: hashable, and equal only where nothing can tell the values apart."""

from typing import Any

import numpy as np
from keras import tree

from parallel_fuse.errors import Reject

PLAIN = (int, float, complex, str, type(None))


def exact(value: Any) -> str:
    """A nest of plain values as text: types are told apart (2 and 2.0), and so are 0.0 and -0.0.

    Raises:
        Reject: it holds an array, a tensor or another object.
    """
    return repr(tree.map_structure(_leaf, value))


def _leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.generic):
        return f"{type(leaf).__name__} {leaf}"
    if not isinstance(leaf, PLAIN):
        raise Reject(f"holds a {type(leaf).__name__}, expected plain numbers")
    return leaf
