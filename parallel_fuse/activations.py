"""What is known of an activation function: whether it is the same as another, and how far it reaches.

An elementwise function may be applied to lanes in any layout. One that works along the last axis of
a tensor (softmax) needs the lanes apart from that axis. Of any other function nothing is known.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import keras

from parallel_fuse import _keras
from parallel_fuse.errors import Reject

ELEMENTWISE = frozenset(
    """linear relu relu6 leaky_relu elu selu celu gelu silu softplus softsign sigmoid hard_sigmoid
    hard_silu hard_tanh tanh tanh_shrink hard_shrink soft_shrink squareplus exponential mish
    log_sigmoid threshold sparse_plus sparse_sigmoid""".split()
)
LAST_AXIS = frozenset("softmax log_softmax sparsemax".split())
ACTIVATION_LAYERS = (keras.layers.ReLU, keras.layers.LeakyReLU, keras.layers.ELU)


@dataclass(frozen=True)
class Activation:
    """An activation as data; equal keys compute the same."""

    key: Hashable
    elementwise: bool
    function: Callable | None

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Activation) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


LINEAR = Activation("linear", True, None)


def activation_of(function: Any) -> Activation:
    """Reads an activation function.

    Raises:
        Reject: it is not known to work elementwise or along the last axis.
    """
    if function is None or function is keras.activations.linear:
        return LINEAR
    name = getattr(function, "__name__", type(function).__name__)
    if getattr(keras.activations, name, None) is function and name in ELEMENTWISE:
        return Activation(name, True, function)
    if getattr(keras.activations, name, None) is function and name in LAST_AXIS:
        return Activation(name, False, function)
    if type(function) in ACTIVATION_LAYERS:
        config = sorted((k, v) for k, v in function.get_config().items() if k not in _HISTORY)
        return Activation((name, repr(config)), True, function)
    if _keras.traces_elementwise(function):
        return Activation(("function", _code_key(function)), True, function)
    raise Reject(f"activation {name}: not known to work on each element alone")


_HISTORY = ("name", "dtype", "trainable")


def _code_key(function: Any) -> Hashable:
    """Two lambdas of one source line are equal if nothing outside their code can differ."""
    code = getattr(function, "__code__", None)
    if code is None or function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        return id(function)
    return (code.co_code, code.co_consts, code.co_names, id(function.__globals__))
