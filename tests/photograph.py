"""Everything about a model that fusing must leave alone, at any depth."""

import keras
import numpy as np

from parallel_fuse import _keras


def photograph(model: keras.Model) -> dict:
    """Plain data: two photographs of an unchanged model are equal."""
    return {
        "class": type(model),
        "layers": [_layer(one) for one in _everything(model)],
        "compiled": model.compiled,
        "compile arguments": repr(_keras.compile_arguments(model)),
        "optimizer": _values(model.optimizer.variables) if model.compiled else None,
        "attributes": sorted(vars(model)),
    }


def _everything(model: keras.Model) -> list:
    """The model, its layers and raw operations, and theirs, each once."""
    found, waiting = {}, [model]
    while waiting:
        one = waiting.pop()
        if id(one) in found:
            continue
        found[id(one)] = one
        inner = _keras.functional_inside(one)
        waiting += [] if inner is None else inner.operations
        waiting += _keras.sublayers(one)
    return list(found.values())


def _layer(one) -> dict:
    state = _values(one.variables) if isinstance(one, keras.Layer) else None
    return {
        "id": id(one),
        "name": one.name,
        "calls": (len(one._inbound_nodes), len(one._outbound_nodes)),
        "readers": [len(t._keras_history.operation._outbound_nodes) for t in _results(one)],
        "trainable": getattr(one, "trainable", None),
        "policy": str(getattr(one, "dtype_policy", None)),
        "losses": len(getattr(one, "losses", ())),
        "state": state,
    }


def _results(one) -> list:
    return [t for node in one._inbound_nodes for t in node.outputs]


def _values(variables) -> list:
    return [(v.path, v.trainable, np.array(v).tolist()) for v in variables]
