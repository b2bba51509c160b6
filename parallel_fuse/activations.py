"""What is known of an activation function: whether it equals another, and how far it reaches.

An elementwise function may be applied to lanes in any layout. One that works along the last axis of
a tensor (softmax) needs the lanes apart from that axis. Of any other function nothing is known.

Functions of Keras are known by name. Of a user's function the operations are recorded that it makes
of a symbolic tensor: they prove how far it reaches, and two functions are the same if their records
are. A record holds the values of closures, default arguments and globals, so that `lambda x: x * a`
made twice in a loop is two functions where `a` differs, and one where it does not.
"""

import inspect
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import keras
from keras import layers

from parallel_fuse import _backend, _keras
from parallel_fuse.errors import Reject
from parallel_fuse.plain import exact

ELEMENTWISE = frozenset(
    """linear relu relu6 leaky_relu elu selu celu gelu silu softplus softsign sigmoid hard_sigmoid
    hard_silu hard_tanh tanh tanh_shrink hard_shrink soft_shrink squareplus exponential mish
    log_sigmoid threshold sparse_plus sparse_sigmoid""".split()
)
LAST_AXIS = frozenset("softmax log_softmax sparsemax".split())
LAYERS = (layers.ReLU, layers.LeakyReLU, layers.ELU)
KNOWN = {*_keras.POINTWISE, *_keras.SOFTMAX, *LAYERS}
# Two shapes of different rank: a function that computes with the shape shows two records.
PROBES = ((None, 3, 5), (None, 7, 2, 11))
FAR = 1000  # a function that refers to more objects than this is left alone


@dataclass(frozen=True, eq=False)
class Activation:
    """An activation as data; equal keys compute the same."""

    key: Hashable
    elementwise: bool
    function: Callable | None
    name: str = "linear"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Activation) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.name


LINEAR = Activation("linear", True, None)


def activation_of(function: Any) -> Activation:
    """Reads an activation function.

    Raises:
        Reject: it is not known to work elementwise or along the last axis.
    """
    if function is None or function is keras.activations.linear:
        return LINEAR
    name = getattr(function, "__name__", type(function).__name__)
    if getattr(keras.activations, name, None) is function and name in ELEMENTWISE | LAST_AXIS:
        return Activation(name, name in ELEMENTWISE, function, name)
    if isinstance(function, layers.Layer):
        return _of_layer(function)
    found = None if _holds_graph(function) else _traced(function)
    if found is None:
        raise Reject(f"activation {name}: not known to work on each element alone")
    record, elementwise = found
    return Activation(record, elementwise, function, name)


def _of_layer(layer: layers.Layer) -> Activation:
    """A layer given as `activation=`. The fused layer gets a twin: a layer belongs to one model."""
    name, cls = type(layer).__name__, type(layer)
    if cls not in LAYERS:
        raise Reject(f"activation {name}: a layer with a rule or weights of its own")
    twin = cls.from_config(layer.get_config())
    return Activation((cls, exact(_options(layer))), True, twin, name)


def _traced(function: Callable) -> tuple[Hashable, bool] | None:
    """(record, whether it is elementwise), if the function makes the same of every shape."""
    for record in (_keras_record, _backend.record):
        first, *others = (record(function, shape) for shape in PROBES)
        if first is not None and all(other == first for other in others):
            return first
    return None


def _keras_record(function: Callable, shape: tuple) -> tuple[Hashable, bool] | None:
    """A function's Keras operations as hashable data, if each works where a lane is whole."""
    calls = _keras.trace(function, shape)
    if calls is None or not {type(op) for op, _ in calls} <= KNOWN:
        return None
    along = [op for op, _ in calls if type(op) in _keras.SOFTMAX]
    if any(op.axis != -1 for op in along):
        return None
    try:
        return tuple((type(op), exact(_options(op)), exact(args)) for op, args in calls), not along
    except Reject:
        return None


def _options(operation: Any) -> dict:
    if not isinstance(operation, layers.Layer):
        return _keras.attributes(operation)
    return {k: v for k, v in operation.get_config().items() if k not in ("name", "trainable")}


def _holds_graph(function: Any) -> bool:
    """Whether a function may call a layer or read a tensor of a model: tracing would change it."""
    seen: set[int] = set()
    waiting = [function]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, (layers.Layer, keras.KerasTensor)) or len(seen) > FAR:
            return True
        if id(thing) not in seen:
            seen.add(id(thing))
            waiting.extend(_held(thing))
    return False


def _held(thing: Any) -> Iterable[Any]:
    """What a function refers to by name or was given; nothing of Keras' own functions."""
    if isinstance(thing, (list, tuple)):
        return thing
    if isinstance(thing, dict):
        return thing.values()
    if isinstance(thing, partial):
        return (thing.func, *thing.args, *thing.keywords.values())
    if isinstance(thing, MethodType):
        return (thing.__self__, thing.__func__)
    if isinstance(thing, FunctionType) and not thing.__module__.startswith("keras."):
        names = inspect.getclosurevars(thing)
        defaults = (thing.__defaults__ or (), *(thing.__kwdefaults__ or {}).values())
        return (*names.nonlocals.values(), *names.globals.values(), *defaults)
    if type(thing).__module__ == "builtins" or isinstance(thing, type):
        return ()
    return tuple(getattr(thing, "__dict__", {}).values())
