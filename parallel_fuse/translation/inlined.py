"""The operations of a TensorFlow graph, those of the functions that it calls in their place."""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
Place = tuple[str, int]


@dataclass(frozen=True)
class Operation:
    """One operation: `inputs` are (operation, which of its outputs)."""

    kind: str
    name: str
    inputs: tuple[Place, ...]
    shapes: tuple[tuple[int | None, ...] | None, ...]
    source: Any


class Inlined:
    """All operations, producers first, each under a name of its own.

    Grappler leaves calls that XLA is to compile as they are: Keras makes one of every grouped
    convolution.
    """

    def __init__(self, graph: Any):
        self.operations: list[Operation] = []
        self.library = {f.signature.name: f for f in graph.as_graph_def().library.function}
        self.aliases: dict[Place, Place] = {}
        self._add(graph, "")

    def place(self, tensor: Any, prefix: str = "") -> Place:
        found = prefix + tensor.op.name, tensor.value_index
        return self.aliases.get(found, found)

    def _add(self, graph: Any, prefix: str) -> None:
        for op in _in_order(graph):
            if op.type in CALLS:
                self._open(op, prefix)
            elif (prefix + op.name, 0) not in self.aliases:  # else an argument of a function
                self.operations.append(self._operation(op, prefix))

    def _open(self, call: Any, prefix: str) -> None:
        from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

        body = function_def_to_graph(self.library[call.get_attr("f").name])
        inner = f"{prefix}{call.name}/"
        for argument, tensor in zip(body.inputs, call.inputs, strict=True):
            self.aliases[inner + argument.op.name, 0] = self.place(tensor, prefix)
        self._add(body, inner)
        for index, tensor in enumerate(body.outputs):
            self.aliases[prefix + call.name, index] = self.place(tensor, inner)

    def _operation(self, op: Any, prefix: str) -> Operation:
        inputs = tuple(self.place(tensor, prefix) for tensor in op.inputs)
        return Operation(op.type, prefix + op.name, inputs, tuple(map(_shape, op.outputs)), op)


def _in_order(graph: Any) -> Sequence[Any]:
    """Producers first; what only orders side effects is not looked at."""
    operations = {op.name: op for op in graph.get_operations()}
    sorter = TopologicalSorter({n: [t.op.name for t in op.inputs] for n, op in operations.items()})
    return [operations[name] for name in sorter.static_order()]


def _shape(tensor: Any) -> tuple[int | None, ...] | None:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
