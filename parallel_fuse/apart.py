"""Calls of a user's layer that leave nothing behind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras


@dataclass(frozen=True)
class Outcome:
    """What a call gave, and whether it would have left something: a state, a loss, a seed moved on,
    Keras' own for the whole process among them.
    """

    outputs: Any
    leaves: bool


def call_apart(function: Callable, *args: Any, **kwargs: Any) -> Outcome:
    """Calls a layer, or its `call`, on eager tensors: no variable is set, no loss is kept."""
    with keras.StatelessScope(collect_losses=True) as scope:
        outputs = function(*args, **kwargs)
    return Outcome(outputs, bool(scope.state_mapping or scope.losses))
