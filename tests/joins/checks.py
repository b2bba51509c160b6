"""Branches for the tests of joins: alike, so that only the join differs."""

from collections.abc import Callable

import keras
from keras import layers

from tests.builders import randomise
from tests.splits.checks import assert_fuses_cheaply

LANES = 4


def branches(x, count: int = LANES, units: int = 6, activation: str = "tanh") -> list:
    """Outputs of shape (batch, 3, units) of Dense layers on slices of x (batch, 3, count, 7)."""
    return [
        layers.Dense(units, activation, name=f"b{i}")(x[:, :, i]) for i in range(count)
    ]


def joined(join: Callable, **options) -> keras.Model:
    """`join(lanes)` or `join(lanes, x)` as the model's output."""
    x = keras.Input((3, LANES, 7), name="x")
    lanes = branches(x, **options)
    output = join(lanes) if join.__code__.co_argcount == 1 else join(lanes, x)
    return randomise(keras.Model(x, output))


def assert_joined(join: Callable, layers: tuple[int, int] | None = (LANES, 1), **options):
    """Fuses cheaply; gives the fused model and the report."""
    return assert_fuses_cheaply(joined(join, **options), layers=layers)
