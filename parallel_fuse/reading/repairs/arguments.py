"""Arguments of layers that Keras 3 no longer takes: renamed, or left out where they say nothing."""

import inspect
from collections.abc import Mapping
from typing import Any

import keras

from parallel_fuse.reading.refusing import Refused
from parallel_fuse.reading.repairs.keras1 import keras1_arguments
from parallel_fuse.reading.told import Told

ALIASES = {
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "SyncBatchNormalization": "BatchNormalization",
    "GRUV1": "GRU",
    "GRUV2": "GRU",
    "LSTMV1": "LSTM",
    "LSTMV2": "LSTM",
    "DenseV1": "Dense",
    "Convolution1D": "Conv1D",
    "Convolution2D": "Conv2D",
    "Convolution3D": "Conv3D",
    "Deconvolution2D": "Conv2DTranspose",
    "SeparableConvolution2D": "SeparableConv2D",
}
# What an argument was when a file does not name it, where Keras 3 has another default.
OLD_DEFAULTS = {"GRU": {"reset_after": False}, "GRUCell": {"reset_after": False}}
RENAMED = {("LeakyReLU", "alpha"): "negative_slope"}
# Arguments without an effect on what a trained layer computes, whatever their value.
SILENT = frozenset(
    """batch_input_shape input_shape input_dtype input_dim input_length dynamic implementation
    fused virtual_batch_size renorm_clipping renorm_momentum adjustment experimental_autocast
    expects_mask_arg expects_training_arg build_input_shape query_shape key_shape
    value_shape""".split()
)
# Arguments that Keras 3 lacks, with the values that ask for what it does anyway.
HARMLESS = {"groups": (1,), "mode": (0,)}
# Keras 2 wrote these down for the kernel that such a layer does not have: it has two others.
UNUSED = ("kernel_initializer", "kernel_regularizer", "kernel_constraint")
KEPT = frozenset(["batch_input_shape", "input_shape"])


def repaired(cls: type, config: Mapping[str, Any], told: Told) -> dict[str, Any]:
    """The configuration of a layer of Keras, as `cls(**…)` takes it.

    Raises:
        Refused: an argument asks for something that Keras 3 does not do.
    """
    name, kind = config["name"], cls.__name__
    found = {**OLD_DEFAULTS.get(kind, {}), **keras1_arguments(kind, config, told)}
    found = _renamed(kind, found, told)
    accepted = _accepted(cls)
    for argument in [one for one in found if one not in accepted]:
        value = found.pop(argument)
        harmless = (*HARMLESS.get(argument, ()), None, False, [])
        if argument in (*SILENT, *UNUSED) or value in harmless:
            _tell(argument, kind, told)
            continue
        raise Refused(
            f"whose {kind} '{name}' has {argument}={value!r}, which Keras 3 does not know",
            "Save the model again without it.",
        )
    return {key: _value(key, value, name, told) for key, value in found.items()}


def _tell(argument: str, kind: str, told: Told) -> None:
    if argument not in KEPT:
        told("arguments that change nothing left out", f"{kind}.{argument}")


def _renamed(kind: str, config: dict[str, Any], told: Told) -> dict[str, Any]:
    found = {}
    for key, value in config.items():
        new = RENAMED.get((kind, key), key)
        found[new] = value
        if new != key:
            told("arguments under their new names", f"{kind}.{new} (was {key})")
    return found


def _accepted(cls: type) -> set[str]:
    """What a layer's `__init__` takes, with those it hands its arguments on to."""
    found: set[str] = set()
    for one in cls.__mro__:
        if "__init__" not in vars(one) or one is object:
            continue
        parameters = inspect.signature(one.__init__).parameters.values()
        found |= {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found - {"self", "kwargs"}


def _value(key: str, value: Any, name: str, told: Told) -> Any:
    if key == "axis" and isinstance(value, (list, tuple)) and len(value) == 1:
        return int(value[0])
    if key == "dtype" and isinstance(value, dict):
        return _policy(value)
    if key.endswith("_initializer") and not _readable(value):
        told("an initializer that Keras 3 cannot read left out", name)
        return "zeros"
    return value


def _policy(value: Mapping[str, Any]) -> Any:
    """Keras 2 wrote `{"class_name": "Policy", "config": {"name": "mixed_float16"}}`."""
    name = (value.get("config") or {}).get("name")
    return name if name and value.get("class_name") in ("Policy", "PolicyV1") else value


def _readable(value: Any) -> bool:
    try:
        keras.initializers.get(value)
    except Exception:  # noqa: BLE001 - whatever an old initializer makes Keras raise
        return False
    return True
