"""One operation of a TensorFlow graph, with its operands already translated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Node:
    """What a translation is given.

    Attributes:
        kind: the operation's type, `MatMul`.
        name: its name in the graph.
        args: its operands, translated; see `values`.
        sources: the names of the operations that made them.
        attribute: reads one attribute, `strides`.
        layers: makes a layer once for each set of weights: (key, make) → layer.
        bias: what is added to all that this operation makes, and its source; the operation that
            adds it hands its operand on.
        absorbed: what this operation adds is in the layer that it reads.
    """

    kind: str
    name: str
    args: tuple[Any, ...]
    sources: tuple[str, ...]
    attribute: Callable[[str], Any]
    layers: Callable[[tuple, Callable[[], Any]], Any]
    bias: tuple[Any, str] | None = None
    absorbed: bool = False

    def flag(self, name: str) -> bool:
        return bool(self.attribute(name))

    def text(self, name: str) -> str:
        return self.attribute(name).decode()
