"""The compile arguments of a Keras 2 model, as far as Keras 3 can read them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras

from parallel_fuse.reading.nests import replaced
from parallel_fuse.reading.told import Told

# The optimizer and the loss are needed, the others can be left out.
READ_BY = {
    "loss": keras.losses.deserialize,
    "metrics": keras.metrics.deserialize,
    "weighted_metrics": keras.metrics.deserialize,
}
PLAIN = ("loss_weights", "steps_per_execution", "jit_compile")


def compile_as_keras2(
    model: keras.Model, saved: Mapping[str, Any], known: Mapping[str, Any], told: Told
) -> None:
    """Compiles the model with what an HDF5 file or a `.keras` archive of Keras 2 says.

    Raises:
        Exception: the optimizer or the loss cannot be read.
    """
    with keras.saving.custom_object_scope(dict(known)):
        optimizer = _optimizer(saved.get("optimizer_config") or saved["optimizer"])
        found = {"loss": _read("loss", saved["loss"], known)}
        for key in ("metrics", "weighted_metrics"):
            try:
                found[key] = _read(key, saved.get(key), known)
            except Exception as error:  # noqa: BLE001 - whatever Keras raises of an old metric
                told(f"{key} left out, Keras cannot read them ({_line(error)})")
        found |= {key: saved[key] for key in PLAIN if saved.get(key) is not None}
        model.compile(optimizer, **_renamed(found, told.renamed))


def _optimizer(saved: Any) -> Any:
    """Some arguments of Keras 2 are gone; those that Keras 3 knows have kept their names."""
    if not isinstance(saved, Mapping):
        return saved
    cls = type(keras.optimizers.get(saved["class_name"].rpartition(">")[2].lower()))
    config = {**saved["config"]}
    if "lr" in config:
        config["learning_rate"] = config.pop("lr")
    taken = inspect.signature(cls.__init__).parameters.keys()
    return cls.from_config({key: value for key, value in config.items() if key in taken})


def _read(key: str, nest: Any, known: Mapping[str, Any]) -> Any:
    return replaced(nest, lambda part: _object(part, READ_BY[key], known))


def _object(part: Any, read: Callable[[Any], Any], known: Mapping[str, Any]) -> Any:
    if isinstance(part, str) and part in known:
        return known[part]
    if isinstance(part, str) and read is keras.losses.deserialize:
        keras.losses.get(part)  # unknown names are noticed now, not in `fit`
    if not isinstance(part, Mapping) or "class_name" not in part or "config" not in part:
        return part
    if part["class_name"] == "MeanMetricWrapper":
        return part["config"]["fn"]
    return read(dict(part))


def _renamed(arguments: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Losses by the name of an output that has another name now."""
    return {
        key: {names.get(k, k): v for k, v in one.items()} if isinstance(one, dict) else one
        for key, one in arguments.items()
    }


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
