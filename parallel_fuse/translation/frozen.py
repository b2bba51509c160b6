"""A SavedModel's signature as one flat graph, its functions inlined, its variables constants."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parallel_fuse.translation.inlined import Inlined, Operation
from parallel_fuse.translation.values import UntranslatedError

DEFAULT = "serving_default"
# Stateful as TensorFlow counts, but they only read variables or call what is looked into itself.
READING = frozenset(
    """Placeholder PartitionedCall StatefulPartitionedCall VarHandleOp ReadVariableOp
    ResourceGather ResourceGatherNd NoOp Const""".split()
)
ELSEWHERE = "Open the .keras or .h5 file that the model was saved in instead."


@dataclass(frozen=True)
class Frozen:
    """Operations, producers first; outputs under their names in the signature."""

    operations: tuple[Operation, ...]
    inputs: tuple[str, ...]
    outputs: Mapping[str, tuple[str, int]]


def frozen(path: Path, signature: str | None = None) -> Frozen:
    """Read a SavedModel's signature.

    Raises:
        UntranslatedError: there is no such signature, or it does more than compute its outputs.
    """
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    loaded = tf.saved_model.load(str(path))
    function = _signature(loaded.signatures, signature)
    _check_state(function)
    flat = convert_variables_to_constants_v2(function, lower_control_flow=False)
    body = Inlined(flat.graph)
    names = sorted(function.structured_outputs)
    outputs = {name: body.place(t) for name, t in zip(names, flat.outputs, strict=True)}
    return Frozen(tuple(body.operations), tuple(t.op.name for t in flat.inputs), outputs)


def _signature(found: Mapping[str, Any], name: str | None) -> Any:
    names = sorted(found)
    chosen = name or (DEFAULT if DEFAULT in names or len(names) != 1 else names[0])
    if chosen not in names:
        there = ", ".join(names) or "none"
        raise UntranslatedError(f"no signature '{chosen}' (there are: {there})")
    return found[chosen]


def _check_state(function: Any) -> None:
    from tensorflow.python.framework import op_def_registry

    for kind, name in _everything(function):
        known = op_def_registry.get(kind)
        if kind not in READING and (known is None or known.is_stateful):
            raise UntranslatedError(f"{kind} ('{name}'), which does more than compute")


def _everything(function: Any) -> Iterator[tuple[str, str]]:
    """(type, name) of all operations, those of called functions too."""
    graph = function.graph.as_graph_def()
    bodies = {f.signature.name: f.node_def for f in graph.library.function}
    waiting, seen = [graph.node], set()
    while waiting:
        for node in waiting.pop():
            yield node.op, node.name
            called = {v.func.name for v in node.attr.values() if v.WhichOneof("value") == "func"}
            waiting += [bodies[name] for name in called - seen if name in bodies]
            seen |= called


def value_of(operation: Operation) -> np.ndarray:
    """A constant's."""
    import tensorflow as tf

    return tf.make_ndarray(operation.source.get_attr("value"))
