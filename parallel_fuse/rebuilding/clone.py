"""Twins of layers that stay as they are. The user's own layer objects are never called again:
a call would grow their list of nodes, that is, change the user's model.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, MappingProxyType
from typing import Any

import keras
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.rebuilding.complete import check_complete
from parallel_fuse.rebuilding.state import copy_assets, copy_state

logger = logging.getLogger("parallel_fuse")

Layer = keras.layers.Layer


class Cloner:
    """Makes one twin per operation, so that shared layers stay shared.

    `sharing` maps the names of layers that could not be cloned to the reason. Their twins are
    objects of their own, but hold the original's weights.
    """

    def __init__(self) -> None:
        self.twins: dict[int, Any] = {}
        self.sharing: dict[str, str] = {}
        self._made: set[int] = set()

    def call(self, operation: Any, name: str, run: Callable[[Any], Any]) -> Any:
        """What `run` gives for the operation's twin; the first call makes the twin, called `name`.

        `run` calls the operation it is given, and raises if the outputs are not as they should be.
        """
        twin = self.twins.get(id(operation))
        if twin is not None:
            return run(twin)
        if not isinstance(operation, Layer):
            return run(self._keep(operation, _keras.fresh_operation(operation, name)))
        try:
            twin = _named(clone_layer(operation, self.twins), name)
            copy_assets(operation, twin)
            outputs = run(twin)
            copy_state(operation, twin)
            check_complete(operation, twin)
            self._keep(operation, twin)
            return outputs
        except Exception as error:  # noqa: BLE001 - a custom layer may fail in any way it likes
            self.sharing[operation.name] = _in_short(error)
            logger.debug("cannot clone %s: %s", operation.name, error)
        return run(self._keep(operation, _keras.sharing_twin(operation, name)))

    def made(self, operation: Any) -> bool:
        """Whether an operation is one of the twins."""
        return id(operation) in self._made

    def _keep(self, operation: Any, twin: Any) -> Any:
        self.twins[id(operation)] = twin
        self._made.add(id(twin))
        return twin

    def notes(self) -> list[str]:
        return [
            f"layer '{name}' could not be cloned, both models hold the same weights ({reason})"
            for name, reason in self.sharing.items()
        ]


def _in_short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 120 else text[:119] + "…"


def clone_layer(layer: Layer, twins: Mapping[int, Any] = MappingProxyType({})) -> Layer:
    """A new layer of the same class and configuration, without weights yet.

    Args:
        twins: layer id → its twin, for layers that this one may hold (tied weights stay tied).

    Raises:
        Exception: whatever the layer's own class raises.
    """
    if type(layer) is keras.layers.Lambda:
        return _clone_lambda(layer)
    if _keras.functional_inside(layer) is not None:
        return keras.models.clone_model(layer, clone_function=clone_layer)
    config = _config(layer)
    policy = None if "dtype" in config else layer.dtype_policy
    with keras.utils.custom_object_scope(_custom_objects(layer)), _default_policy(policy):
        return _from_configs(layer, config, twins)


def _config(layer: Layer) -> dict:
    """The configuration, less what every layer writes down but not every class takes."""
    config = _keras.config_of(layer)
    parameters = inspect.signature(type(layer).__init__).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return config
    common = {"name", "trainable", "dtype"} - {p.name for p in parameters}
    return {key: value for key, value in config.items() if key not in common}


def _from_configs(layer: Layer, config: dict, twins: Mapping[int, Any]) -> Layer:
    """Functions and layers go in as live objects: written down and read again they may be lost.

    A class whose `from_config` expects them written down gets them so.
    """
    try:
        return type(layer).from_config(_with_live_objects(layer, config, twins))
    except Exception as error:  # noqa: BLE001 - any class may read its config in its own way
        logger.debug("%s does not take live objects: %s", layer.name, error)
        return type(layer).from_config(_config(layer))


def _with_live_objects(layer: Layer, config: dict, twins: Mapping[int, Any]) -> dict:
    functions = ((key, getattr(layer, key, None)) for key, value in config.items() if value)
    live = {key: f for key, f in functions if isinstance(f, FunctionType)}
    rest = {key: value for key, value in config.items() if key not in live}

    def swap(x: Any) -> Any:
        return (twins.get(id(x)) or clone_layer(x, twins)) if isinstance(x, Layer) else x

    return {**tree.map_structure(swap, rest), **live}


def twin_of(thing: Any) -> Any:
    """A new optimizer or metric of the same class and configuration."""
    with keras.utils.custom_object_scope(_custom_objects(thing)):
        return type(thing).from_config(thing.get_config())


def _custom_objects(thing: Any) -> dict[str, Any]:
    """The classes and functions that a configuration may mention by name."""
    inside = _keras.sublayers(thing) or [thing]
    values = [value for one in inside for value in vars(one).values()]
    functions = {f.__name__: f for f in values if isinstance(f, FunctionType)}
    classes = {type(x).__name__: type(x) for x in [*inside, *values] if _is_custom(type(x))}
    return {**functions, **classes}


def _is_custom(cls: type) -> bool:
    return cls.__module__.split(".")[0] not in ("keras", "builtins")


@contextmanager
def _default_policy(policy: Any) -> Iterator[None]:
    """A layer that does not write its dtype down takes the policy of the day."""
    if policy is None:
        yield
        return
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _named(twin: Layer, name: str) -> Layer:
    """Not every class takes a name; before it is built, a name is only a name."""
    _keras.rename(twin, name)
    return twin


def _clone_lambda(layer: keras.layers.Lambda) -> keras.layers.Lambda:
    """From the live function: serialising it would lose closures and default arguments."""
    return keras.layers.Lambda(
        layer.function,
        arguments=layer.arguments,
        dtype=layer.dtype_policy,
        trainable=layer.trainable,
        **_keras.lambda_options(layer),
    )
