"""The models that are timed: each a function of its sizes, untrained weights, one input."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import keras
from keras import layers


@dataclass(frozen=True)
class Case:
    """One cell of the grid.

    `build` makes the model; `batches` are the batch sizes it is timed at; `sizes` are for tables.
    """

    family: str
    sizes: dict[str, int]
    build: Callable[[], keras.Model]
    batches: tuple[int, ...]
    name: str = field(init=False)

    def __post_init__(self):
        sizes = " ".join(f"{k}={v}" for k, v in self.sizes.items())
        object.__setattr__(self, "name", f"{self.family} {sizes}")


def dense_towers(lanes: int, width: int, units: int, depth: int, norm: bool = False):
    x = keras.Input((lanes, width), name="x")
    outputs = [_tower(x[:, i], units, depth, norm) for i in range(lanes)]
    return keras.Model(x, layers.Concatenate()(outputs))


def _tower(y, units: int, depth: int, norm: bool):
    for _ in range(depth):
        y = layers.Dense(units, activation="relu")(y)
        y = layers.BatchNormalization()(y) if norm else y
    return layers.Dense(1)(y)


def conv_branches(lanes: int, size: int, rank: int, channels: int, filters: int, kernel: int):
    x = keras.Input((*[size] * rank, lanes * channels), name="x")
    conv = layers.Conv1D if rank == 1 else layers.Conv2D
    cut = [x[..., i * channels : (i + 1) * channels] for i in range(lanes)]
    return keras.Model(x, layers.Concatenate()([
        conv(filters, kernel, padding="same", activation="relu")(piece) for piece in cut
    ]))  # fmt: skip


def heads(count: int, width: int, units: int):
    x = keras.Input((width,), name="x")
    return keras.Model(x, layers.Concatenate()([layers.Dense(units)(x) for _ in range(count)]))


def separate_inputs(lanes: int, width: int, units: int, depth: int):
    xs = [keras.Input((width,), name=f"x{i}") for i in range(lanes)]
    return keras.Model(xs, layers.Concatenate()([_tower(x, units, depth, False) for x in xs]))


TOWERS = [(32, 16, 16, 3, (1, 32)), (100, 8, 32, 3, (128,)), (32, 64, 64, 1, (1024,))]
CONVS = [
    (8, 32, 2, 1, 8, 3, 32),
    (32, 32, 2, 1, 4, 3, 16),
    (16, 28, 2, 16, 16, 3, 8),
    (64, 128, 1, 1, 8, 5, 32),
    (32, 128, 1, 16, 16, 5, 16),
]


def facts() -> Iterator[Case]:
    """The towers, heads and convolutions of the README's table."""
    for m, width, units, depth, batches in TOWERS:
        sizes = dict(lanes=m, width=width, units=units, depth=depth)
        yield Case("dense towers", sizes, _later(dense_towers, **sizes), batches)
    for m, size, rank, channels, filters, kernel, batch in CONVS:
        sizes = dict(lanes=m, size=size, rank=rank, channels=channels, filters=filters,
                     kernel=kernel)  # fmt: skip
        yield Case("conv branches", sizes, _later(conv_branches, **sizes), (batch,))
    sizes = dict(count=64, width=512, units=10)
    yield Case("shared-input heads", sizes, _later(heads, **sizes), (256,))


def grid() -> Iterator[Case]:
    """Branch count × width × depth, to find where fusing loses."""
    for lanes in (2, 4, 8, 32, 128):
        for units in (8, 32, 64, 128, 256):
            for depth in (1, 3):
                sizes = dict(lanes=lanes, width=units, units=units, depth=depth)
                yield Case("dense grid", sizes, _later(dense_towers, **sizes), (1, 32, 256))
    for lanes in (8, 32):
        sizes = dict(lanes=lanes, width=16, units=24, depth=2)
        norm = _later(dense_towers, norm=True, **sizes)
        yield Case("dense+batchnorm", sizes, norm, (1, 32, 256))
        yield Case("separate inputs", sizes, _later(separate_inputs, **sizes), (1, 32, 256))
    for count in (2, 4, 16):
        sizes = dict(count=count, width=128, units=16)
        yield Case("shared-input heads", sizes, _later(heads, **sizes), (1, 32, 256))
    for lanes in (2, 4, 8):
        for channels, filters in ((1, 8), (16, 16), (32, 64)):
            sizes = dict(lanes=lanes, size=16, rank=2, channels=channels, filters=filters, kernel=3)
            yield Case("conv grid", sizes, _later(conv_branches, **sizes), (1, 16))


def _later(build: Callable, **sizes) -> Callable[[], keras.Model]:
    return lambda: build(**sizes)


SETS: dict[str, Callable[[], Iterator[Case]]] = {"facts": facts, "grid": grid}
