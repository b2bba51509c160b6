"""Names of operations: unique, without "/", the same for the same model."""

import re
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from keras import layers

from parallel_fuse import _keras

Tensor = Any


class Names:
    """Gives out each name once. Reserved names go only to those who ask for them by right."""

    def __init__(self, reserved: Iterable[str]):
        self.reserved = set(reserved)
        self.used: set[str] = set()

    def claim(self, name: str) -> str:
        """A reserved name, for its owner."""
        self.used.add(name)
        return name

    def fresh(self, *candidates: str) -> str:
        """The first candidate that is free, else the first one with a number."""
        clean = [c.replace("/", "_") for c in candidates]
        free = (c for c in clean if c not in self.used and c not in self.reserved)
        return self.claim(next(free, None) or self._numbered(clean[0]))

    def _numbered(self, name: str) -> str:
        number = 1
        while f"{name}_{number}" in self.used | self.reserved:
            number += 1
        return f"{name}_{number}"


def bundle_name(names: Sequence[str]) -> str:
    """What the fused layer of these is called."""
    return f"{names[0]}_x{len(names)}"


def name_outputs(
    tensors: Sequence[Tensor], wanted: Sequence[str], names: Names, is_twin: Callable[[Any], bool]
) -> list[Tensor]:
    """Gives model outputs their old names: losses, metrics and signatures are keyed by them.

    An output is named after the operation that makes it. One of our own is renamed; behind any
    other stands an Identity, one for all outputs of a name, as a layer with several outputs was.

    Args:
        tensors: the new outputs.
        wanted: a name for each; equal names came from one operation.
        is_twin: whether an operation is the twin of one of the user's.
    """
    groups: dict[str, dict[int, Tensor]] = {}
    for tensor, name in zip(tensors, wanted):
        groups.setdefault(name, {})[id(tensor)] = tensor
    done = {
        (name, index): tensor
        for name, group in groups.items()
        for index, tensor in zip(group, _named(list(group.values()), name, names, is_twin))
    }
    return [done[name, id(tensor)] for tensor, name in zip(tensors, wanted)]


def _named(group: list[Tensor], name: str, names: Names, is_twin: Callable) -> list[Tensor]:
    makers = [_keras.maker_of(tensor) for tensor in group]
    if all(maker.name == name for maker in makers):
        return group
    if len(group) == 1 and not is_twin(makers[0]) and _may_rename(makers[0], names):
        _keras.rename(makers[0], names.claim(name))
        return group
    identity = layers.Identity(name=names.claim(name), dtype=group[0].dtype)
    return [identity(group[0])] if len(group) == 1 else identity(group)


def _may_rename(maker: Any, names: Names) -> bool:
    """Raw operations and activations of our own, unless they already name another output."""
    plain = not isinstance(maker, layers.Layer) or type(maker) is layers.Activation
    single = len(_keras.calls_of(maker)) == 1 and len(_keras.calls_of(maker)[0].outputs) == 1
    return plain and single and not (maker.name in names.used and maker.name in names.reserved)


def name_the_rest(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], names: Names, is_twin: Callable
) -> None:
    """Names the reshapes and joins between the layers.

    Keras has numbered them as they came, without a look at the names of a model read from a file.
    """
    graph = SimpleNamespace(inputs=list(inputs), outputs=list(outputs))
    makers = dict.fromkeys(node.operation for node in _keras.nodes_in_order(graph))
    fixed = {_keras.maker_of(tensor) for tensor in (*inputs, *outputs)}
    fixed.update(maker for maker in makers if is_twin(maker))
    held = {maker.name for maker in fixed}
    for maker in (maker for maker in makers if maker not in fixed):
        fused = isinstance(maker, layers.Layer) and maker.name in names.used - held
        if not fused:
            _keras.rename(maker, names.fresh(re.sub(r"(?<=.)_\d+$", "", maker.name)))
        held.add(maker.name)
