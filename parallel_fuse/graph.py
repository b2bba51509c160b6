"""The read-only view of a functional model: calls over values, in topological order.

Nested functional models and Sequentials are inlined; a shared layer is seen once per call.
Nothing here can be edited: later stages describe what to do in a `Plan` and replay this view.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import keras

from parallel_fuse import _keras
from parallel_fuse.errors import Reject, UnsupportedModelError

Opener = Callable[[Any, Any], "keras.Model | Reject | None"]


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """One tensor of the graph. `call` is the index of its producer, None for a model input.

    `masked` says that Keras hung a mask on it, to be picked up by a layer or a loss.
    """

    index: int
    shape: tuple[int | None, ...]
    dtype: str
    call: int | None
    position: int
    masked: bool = False

    def __repr__(self) -> str:
        return f"%{self.index}"


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One call of one operation: its exact arguments, with a `Value` where a tensor stood."""

    index: int
    operation: Any
    args: tuple
    kwargs: dict
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    scope: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.operation.name

    @property
    def output(self) -> Value:
        return self.outputs[0]


@dataclass(frozen=True, eq=False)
class Graph:
    """A functional model as data.

    `uses` counts the calls of each operation, by the operation's id; `consumers` maps a value's
    index to the calls that read it, in topological order. `opened` names the layers that an opener
    was asked for and gave.
    """

    model: keras.Model
    calls: tuple[Call, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    uses: dict[int, int]
    consumers: dict[int, tuple[Call, ...]]
    depths: tuple[int, ...] = field(repr=False)
    opaque: tuple[tuple[str, str], ...] = ()
    opened: tuple[str, ...] = ()

    @staticmethod
    def of(model: keras.Model, opener: Opener | None = None) -> "Graph":
        """Reads a functional or Sequential model.

        Args:
            opener: (layer, the tensors it is called on) → a functional model that computes the
                same, to be read in the layer's place; why not, or None, where it stays one call.

        Raises:
            UnsupportedModelError: the model has no graph (subclassed, or not built).
        """
        return _Reader(model, opener).graph()

    def producer(self, value: Value) -> Call | None:
        return None if value.call is None else self.calls[value.call]

    def readers(self, value: Value) -> tuple[Call, ...]:
        return self.consumers.get(value.index, ())

    def __str__(self) -> str:
        lines = [f"inputs: {_listing(self.inputs)}"]
        lines += [_line(call) for call in self.calls]
        return "\n".join([*lines, f"outputs: {_listing(self.outputs)}"])


class _Reader:
    """Walks the model once, innermost calls first. An explicit stack: depth is no limit."""

    def __init__(self, model: keras.Model, opener: Opener | None = None):
        self.model = model
        self.opener = opener
        self.opened: list[str] = []
        self.calls: list[Call] = []
        self.values = 0
        self.opaque: list[tuple[str, str]] = []

    def graph(self) -> Graph:
        functional = _functional_of(self.model)
        inputs = tuple(self.value(t, None, i) for i, t in enumerate(functional.inputs))
        env = {id(t): v for t, v in zip(functional.inputs, inputs)}
        self.read(functional, env)
        outputs = tuple(env[id(t)] for t in functional.outputs)
        calls = tuple(self.calls)
        return Graph(
            self.model, calls, inputs, outputs, _uses(calls), _consumers(calls),
            _depths(calls), tuple(dict.fromkeys(self.opaque)), tuple(dict.fromkeys(self.opened)),
        )  # fmt: skip

    def value(self, tensor: Any, call: int | None, position: int) -> Value:
        self.values += 1
        shape = tuple(tensor.shape)
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        return Value(self.values - 1, shape, dtype, call, position, _keras.has_mask(tensor))

    def read(self, functional: keras.Model, env: dict[int, Value]) -> None:
        """Reads every call, diving into nested models without recursion."""
        frames = [_Frame(_keras.nodes_in_order(functional), env, (), {})]
        while frames:
            frame = frames[-1]
            node = next(frame.nodes, None)
            if node is not None:
                frames.extend(self.step(frame, node))
                continue
            frames.pop()
            frame.leave()

    def step(self, frame: "_Frame", node: Any) -> list["_Frame"]:
        operation = node.operation
        inner = _keras.functional_inside(operation) or self.open(node)
        if inner is None:
            self.append(frame, node)
            return []
        context = _keras.call_context(node, inner)
        if context is None:
            self.opaque.append((operation.name, _keras.CLOSED))
            self.append(frame, node)
            return []
        env = {id(t): frame.env[id(s)] for t, s in zip(inner.inputs, _keras.call_tensors(node))}
        scope = (*frame.scope, operation.name)
        nodes = _keras.nodes_in_order(inner)
        context = {**context, **frame.context}
        return [_Frame(nodes, env, scope, context, frame.env, inner, node)]

    def open(self, node: Any) -> keras.Model | None:
        """What an opener finds inside a layer that is called on tensors alone."""
        args, kwargs = node.arguments.args, node.arguments.kwargs
        given = [leaf for key, leaf in kwargs.items() if key != "training" and leaf is not None]
        if self.opener is None or len(args) != 1 or given or not node.input_tensors:
            return None
        if any(map(_keras.has_mask, node.input_tensors)):
            return None
        inner = self.opener(node.operation, args[0])
        if isinstance(inner, Reject):
            self.opaque.append((node.operation.name, f"not opened: {inner.reason}"))
            return None
        self.opened += [] if inner is None else [node.operation.name]
        return inner

    def append(self, frame: "_Frame", node: Any) -> None:
        index = len(self.calls)
        args, kwargs, tensors = _keras.arguments(node, frame.env)
        kwargs = _keras.with_context(node.operation, kwargs, frame.context)
        outputs = tuple(self.value(t, index, i) for i, t in enumerate(node.outputs))
        frame.env.update({id(t): v for t, v in zip(node.outputs, outputs)})
        call = Call(index, node.operation, args, kwargs, tensors, outputs, frame.scope)
        self.calls.append(call)


@dataclass
class _Frame:
    """One (nested) model being read: where its tensors are, and where its outputs go."""

    nodes: Iterator
    env: dict[int, Value]
    scope: tuple[str, ...]
    context: dict
    outer: dict[int, Value] | None = None
    inner: Any = None
    node: Any = None

    def leave(self) -> None:
        if self.outer is None:
            return
        for outer, tensor in zip(self.node.outputs, self.inner.outputs):
            self.outer[id(outer)] = self.env[id(tensor)]


def _functional_of(model: Any) -> keras.Model:
    if not isinstance(model, keras.Model):
        raise UnsupportedModelError(
            f"Expected a functional keras.Model of Keras {keras.__version__}. "
            f"Received: {_origin(type(model))}. Load or convert it to a Keras 3 functional model "
            "first."
        )
    functional = _keras.functional_inside(model)
    if functional is not None:
        return functional
    raise UnsupportedModelError(
        f"Model '{model.name}' has no graph of layers. Expected a functional model or a built "
        f"Sequential. Received: {_describe(model)}"
    )


def _origin(cls: type) -> str:
    """Where a class comes from: another Keras looks like this one but for module and version."""
    package = sys.modules.get(cls.__module__.split(".")[0])
    version = getattr(package, "__version__", None)
    return f"{cls.__module__}.{cls.__name__}" + (f" of version {version}" if version else "")


def _describe(model: keras.Model) -> str:
    if isinstance(model, keras.Sequential):
        return "a Sequential that was never built; call it once, or begin it with keras.Input."
    return (
        f"the subclassed model {type(model).__name__}; rebuild it as "
        "keras.Model(inputs, outputs), for example from layers called on keras.Input."
    )


def _uses(calls: tuple[Call, ...]) -> dict[int, int]:
    uses: dict[int, int] = {}
    for call in calls:
        uses[id(call.operation)] = uses.get(id(call.operation), 0) + 1
    return uses


def _consumers(calls: tuple[Call, ...]) -> dict[int, tuple[Call, ...]]:
    found: dict[int, dict[int, Call]] = {}
    for call in calls:
        for value in call.inputs:
            found.setdefault(value.index, {})[call.index] = call
    return {index: tuple(readers.values()) for index, readers in found.items()}


def _depths(calls: tuple[Call, ...]) -> tuple[int, ...]:
    """The longest path from the inputs to each call: equal depth proves independence."""
    depths: list[int] = []
    for call in calls:
        above = (depths[v.call] for v in call.inputs if v.call is not None)
        depths.append(1 + max(above, default=0))
    return tuple(depths)


def _listing(values: tuple[Value, ...]) -> str:
    return ", ".join(f"{v}{list(v.shape)}" for v in values)


def _line(call: Call) -> str:
    outputs = ", ".join(map(str, call.outputs))
    kind = type(call.operation).__name__
    return f"{outputs} = {kind} {call.name}({', '.join(map(str, call.inputs))})"
