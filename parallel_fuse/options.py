"""Regularizers and constraints that mean the same for stacked weights as for each lane's."""

from collections.abc import Iterable
from typing import Any

import keras

from parallel_fuse.errors import Reject

REGULARIZERS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
CONSTRAINTS = (keras.constraints.NonNeg,)


def check_options(options: Iterable[tuple[str, Any]]) -> None:
    """Raises Reject for a regularizer that is no sum over elements, a constraint that is not
    elementwise.

    Args:
        options: (name, value); other names are passed over.
    """
    for name, value in options:
        if name.endswith("_regularizer") and value is not None:
            _check(name, value, REGULARIZERS, "not a sum over elements")
        if name.endswith("_constraint") and value is not None:
            _check(name, value, CONSTRAINTS, "not elementwise")


def _check(name: str, value: Any, allowed: tuple[type, ...], why: str) -> None:
    if type(value) not in allowed:
        raise Reject(f"{name} {type(value).__name__}: {why}")
