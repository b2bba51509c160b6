"""Weights of Keras 1 and 2 given to the layers of a model made again, by name.

Keras itself goes by position, and the order of layers is not that of Keras 2 in every model.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from parallel_fuse.reading.keras2.layers import Making
from parallel_fuse.reading.refusing import Refused

Arrays = Sequence[np.ndarray]
Named = Mapping[str, Arrays]  # layer → its weights, trainable ones first


def assign(layer: Any, arrays: Arrays, name: str) -> None:
    """Gives a layer its weights, trainable ones first.

    Raises:
        Refused: their number or a shape differs.
    """
    variables = ordered(layer)
    shapes = [tuple(v.shape) for v in variables], [tuple(a.shape) for a in arrays]
    if shapes[0] != shapes[1]:
        raise Refused(
            f"whose weights do not fit layer '{name}': expected shapes {shapes[0]}, "
            f"found {shapes[1]}",
            "Save the model again, whole.",
        )
    for variable, array in zip(variables, arrays):
        variable.assign(array)
    if variables and hasattr(layer, "finalize_state"):
        layer.finalize_state()


def ordered(layer: Any) -> list[Any]:
    """As Keras has always written them: trainable ones first."""
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def fill(making: Making, found: Callable[[tuple[str, ...]], Arrays | None]) -> None:
    """Asks for the weights of each layer by its path of original names, and assigns them."""
    for path, layer in with_weights(making):
        arrays = found(path)
        if arrays is None:
            raise Refused(
                f"which holds no weights for layer '{'/'.join(path)}'",
                "Save the model again, whole.",
            )
        assign(layer, arrays, path[-1])


def with_weights(making: Making) -> Iterator[tuple[tuple[str, ...], Any]]:
    for path, layer in making.leaves:
        if layer.weights:
            yield path, layer


def by_owner(
    names: Sequence[str], arrays: Arrays, making: Making, top: str
) -> dict[tuple[str, ...], list[np.ndarray]]:
    """The weights of one nested model, told apart by the layer that each name holds.

    Where the names do not tell (old files), by position.
    """
    inside = [(path, layer) for path, layer in with_weights(making) if path[0] == top]
    found: dict[tuple[str, ...], list[np.ndarray]] = {path: [] for path, _ in inside}
    for name, array in zip(names, arrays):
        owners = [path for path in found if f"/{path[-1]}/" in f"/{name}"]
        if owners:
            found[max(owners, key=lambda path: len(path[-1]))].append(array)
    if all(len(found[path]) == len(layer.weights) for path, layer in inside):
        return found
    return dict(zip(found, _by_position(inside, list(arrays), top)))


def _by_position(inside: list, arrays: list, top: str) -> Iterator[list[np.ndarray]]:
    """A model lists the trainable weights of all layers before the others."""
    expected = sum(len(layer.weights) for _, layer in inside)
    if expected != len(arrays):
        raise Refused(
            f"which holds {len(arrays)} weights for '{top}', expected {expected}",
            "Save the model again, whole.",
        )
    trainable = sum(len(layer.trainable_weights) for _, layer in inside)
    first, second = iter(arrays[:trainable]), iter(arrays[trainable:])
    for _, layer in inside:
        yield [next(first) for _ in layer.trainable_weights] + [
            next(second) for _ in layer.non_trainable_weights
        ]
