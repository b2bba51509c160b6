"""One layer of Keras 1 or 2 as a layer of Keras 3."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras

from parallel_fuse.layers.activations import keras2_hard_sigmoid
from parallel_fuse.reading.refusing import Refused, unknown
from parallel_fuse.reading.repairs.arguments import ALIASES, repaired
from parallel_fuse.reading.repairs.keras1 import merging
from parallel_fuse.reading.repairs.lambdas import function_of
from parallel_fuse.reading.told import Told

MODELS = ("Functional", "Model", "Sequential", "Container", "Graph")
INSIDE = ("layer", "backward_layer", "cell")  # arguments that are layers themselves


@dataclass(frozen=True)
class Making:
    """What is needed to make the layers of a file.

    Attributes:
        known: custom classes and functions by name.
        safe_mode: refuse Python code.
        told: collects the repairs.
        leaves: (path of original names, layer) of every layer made, nested models looked into.
    """

    known: Mapping[str, Any]
    safe_mode: bool
    told: Told
    leaves: list[tuple[tuple[str, ...], Any]] = field(default_factory=list)


def is_model(written: Mapping[str, Any]) -> bool:
    config = written["config"]
    return written["class_name"] in MODELS or isinstance(config, list) or "layers" in config


def layer_of(written: Mapping[str, Any], making: Making, model: Callable) -> Any:
    """The layer; `model` makes a nested model. A name in the configuration is already a new one.

    Raises:
        Refused: its class is unknown, or asks for what Keras 3 does not do.
    """
    if is_model(written):
        return model(written)
    kind = ALIASES.get(written["class_name"], written["class_name"])
    if kind == "Lambda":
        return _lambda(written["config"], making)
    config = written["config"]
    if kind == "Merge":
        kind, config = merging(config)
    cls = class_of(kind, making.known)
    config = {k: _inside(k, v, making, model) for k, v in config.items()}
    if not cls.__module__.startswith("keras."):
        return _custom(cls, config, making)
    trainable = config.pop("trainable", True)  # not every class takes it
    config = {k: _activation(k, v, making) for k, v in repaired(cls, config, making.told).items()}
    with keras.saving.custom_object_scope(dict(making.known)):
        holds = any(key in config for key in (*INSIDE, "cells"))
        layer = cls(**config) if holds else cls.from_config(config)
    layer.trainable = bool(trainable)
    return layer


def class_of(kind: str, known: Mapping[str, Any]) -> type:
    """The class that a file means: the caller's, a registered one, or one of Keras."""
    short = kind.rpartition(">")[2]
    registered = keras.saving.get_registered_object(kind)
    found = known.get(kind) or known.get(short) or registered or getattr(keras.layers, short, None)
    if not isinstance(found, type):
        raise unknown(short)
    return found


def _custom(cls: type, config: dict[str, Any], making: Making) -> Any:
    config.pop("batch_input_shape", None)
    with keras.saving.custom_object_scope(dict(making.known)):
        return cls.from_config(config)


def _inside(key: str, value: Any, making: Making, model: Callable) -> Any:
    if key == "cells" and isinstance(value, list):
        return [layer_of(one, making, model) for one in value]
    if key not in INSIDE or not isinstance(value, dict) or "class_name" not in value:
        return value
    return layer_of(value, making, model)


def _activation(key: str, value: Any, making: Making) -> Any:
    if not key.endswith("activation"):
        return value
    if isinstance(value, dict):
        value = value["config"] if isinstance(value.get("config"), str) else value
    if isinstance(value, str) and value in making.known:
        making.told(f"activation '{value}' given by name")
        return making.known[value]
    if value == "hard_sigmoid":
        making.told("hard_sigmoid as Keras 2 had it, 0.2 x + 0.5 between 0 and 1")
        return keras2_hard_sigmoid
    if isinstance(value, str) and not _is_known_activation(value):
        raise unknown(value)
    return value


def _is_known_activation(name: str) -> bool:
    try:
        return callable(keras.activations.get(name))
    except ValueError:
        return False


def _lambda(config: Mapping[str, Any], making: Making) -> Any:
    function = function_of(config, making.known, making.safe_mode, making.told)
    arguments, shape = config.get("arguments") or {}, config.get("output_shape")
    if isinstance(shape, list) and len(shape) == 3 and isinstance(shape[0], str):
        shape = None  # code that Keras worked the shape out with; Keras 3 finds it by itself
    options = {k: config[k] for k in ("trainable",) if k in config}
    return keras.layers.Lambda(
        function,
        output_shape=tuple(shape) if isinstance(shape, list) else None,
        arguments=arguments,
        name=config["name"],
        **options,
    )


def refuse_ragged(config: Mapping[str, Any]) -> None:
    if config.get("ragged"):
        raise Refused(
            f"whose input '{config['name']}' is ragged, which Keras 3 has no layers for",
            "Save a model that pads its input.",
        )
