"""How Keras 1 and 2 wrote down the calls of a layer, and which of them come first.

A tensor is `[layer, number of the call, number of the output]`, the first argument's with the
other arguments as a fourth entry. Source: `Node.serialize` in tf_keras 2.19.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CONSTANT = "_CONSTANT_VALUE"


@dataclass(frozen=True)
class Reference:
    """Output number `output` of a layer's call number `call`."""

    layer: str
    call: int
    output: int


@dataclass(frozen=True)
class Call:
    """One call: the first argument and the others, with a Reference for each tensor."""

    layer: str
    number: int
    first: Any
    others: Mapping[str, Any]

    def needs(self) -> set[tuple[str, int]]:
        return {(r.layer, r.call) for r in references((self.first, self.others))}


def calls_of(layer: str, written: list, layers: set[str], unwrap: bool) -> list[Call]:
    """The calls of one layer. `unwrap`: a list of one tensor is that tensor."""
    found = []
    for number, node in enumerate(written):
        others: dict[str, Any] = {}
        first = _first(node, layers, others)
        if unwrap and isinstance(first, list) and len(first) == 1:
            (first,) = first
        found.append(Call(layer, number, first, others))
    return found


def _first(node: Any, layers: set[str], others: dict[str, Any]) -> Any:
    if _is_tensor(node, layers):
        if len(node) > 3:
            others.update({k: referred(v, layers) for k, v in (node[3] or {}).items()})
        return node[2] if node[0] == CONSTANT else Reference(*node[:3])
    if isinstance(node, dict):
        return {key: _first(one, layers, others) for key, one in node.items()}
    if isinstance(node, (list, tuple)):
        return [_first(one, layers, others) for one in node]
    return node


def referred(nest: Any, layers: set[str]) -> Any:
    """The nest with a Reference for each tensor that it names."""
    if _is_tensor(nest, layers) and len(nest) == 3 and nest[0] != CONSTANT:
        return Reference(*nest)
    if isinstance(nest, dict):
        return {key: referred(one, layers) for key, one in nest.items()}
    if isinstance(nest, (list, tuple)):
        return [referred(one, layers) for one in nest]
    return nest


def _is_tensor(x: Any, layers: set[str]) -> bool:
    if not isinstance(x, (list, tuple)) or len(x) not in (3, 4) or not isinstance(x[0], str):
        return False
    return x[0] == CONSTANT or (x[0] in layers and type(x[1]) is type(x[2]) is int)


def references(nest: Any) -> Iterator[Reference]:
    if isinstance(nest, Reference):
        yield nest
    elif isinstance(nest, dict):
        for one in nest.values():
            yield from references(one)
    elif isinstance(nest, (list, tuple)):
        for one in nest:
            yield from references(one)


def filled(nest: Any, value: Callable[[Reference], Any]) -> Any:
    if isinstance(nest, Reference):
        return value(nest)
    if isinstance(nest, dict):
        return {key: filled(one, value) for key, one in nest.items()}
    if isinstance(nest, (list, tuple)):
        return [filled(one, value) for one in nest]
    return nest


def first_numbers(calls: list[Call], ends: Any) -> dict[str, int]:
    """The number that a layer's first call goes by: 1 for nested models of most versions, else 0.

    Every call is read by another one or is an output, so the highest number read tells.
    """
    count: dict[str, int] = {}
    for call in calls:
        count[call.layer] = count.get(call.layer, 0) + 1
    highest: dict[str, int] = {}
    for one in references(([(call.first, call.others) for call in calls], ends)):
        highest[one.layer] = max(one.call, highest.get(one.layer, 0))
    return {name: max(0, highest.get(name, 0) - times + 1) for name, times in count.items()}
