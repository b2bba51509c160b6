"""The weights of a SavedModel of Keras 2, by layer.

The object graph of the model and that of its checkpoint number their nodes apart; the names on the
way from the root are the same.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

VALUE = "VARIABLE_VALUE"
LEARNT = ("mean", "variance", "count")
Path_ = tuple[str, ...]


def arrays_of(
    folder: Path, object_graph: Any, noted: Mapping[int, Mapping[str, Any]]
) -> Callable[[Path_], list[np.ndarray] | None]:
    """Path of layer names → the layer's weights, trainable ones first."""
    import tensorflow as tf
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    saved = trackable_object_graph_pb2.TrackableObjectGraph()
    saved.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    keys = _keys(object_graph, saved)
    layers = dict(_layers(object_graph, noted, 0, ()))

    def found(path: Path_) -> list[np.ndarray] | None:
        if path not in layers:
            return None
        return [reader.get_tensor(keys[one]) for one in _variables(object_graph, layers[path])]

    return found


def _layers(
    graph: Any, noted: Mapping[int, Mapping[str, Any]], number: int, path: Path_
) -> Iterator[tuple[Path_, int]]:
    """Every layer, nested models looked into, and its node."""
    for name, child in _children(graph, number).items():
        if name == "layer":  # of a wrapper, maybe a model
            yield from _layers(graph, noted, child, path)
        if name.startswith("layer-") and child in noted:
            inner = (*path, noted[child]["name"])
            yield inner, child
            yield from _layers(graph, noted, child, inner)


def _variables(graph: Any, layer: int) -> list[int]:
    children = _children(graph, layer)
    listed = _children(graph, children["variables"]) if "variables" in children else {}
    found = [listed[name] for name in sorted((n for n in listed if n.isdigit()), key=int)]
    # Normalization keeps what it has learnt of the data by name only.
    return found or [children[name] for name in LEARNT if name in children]


def _keys(graph: Any, saved: Any) -> dict[int, str]:
    """Node of a variable → its name in the checkpoint. Both graphs are walked side by side."""
    pairs, seen = [(0, 0)], {(0, 0)}
    for ours, theirs in pairs:  # grows while it is read
        there = _children(saved, theirs)
        here = _children(graph, ours).items()
        new = [(child, there[name]) for name, child in here if name in there]
        pairs += [pair for pair in dict.fromkeys(new) if pair not in seen]
        seen.update(new)
    found = {}
    for ours, theirs in pairs:
        for attribute in saved.nodes[theirs].attributes:
            if attribute.name == VALUE:
                found[ours] = attribute.checkpoint_key
    return found


def _children(graph: Any, number: int) -> dict[str, int]:
    return {child.local_name: child.node_id for child in graph.nodes[number].children}
