"""Runs a functional model one operation at a time, with a hook around each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keras import tree

from parallel_fuse import _keras

Apply = Callable[[Any, tuple, dict, tuple], Iterable[Any]]


def run(functional: Any, values: Sequence[Any], apply: Apply) -> list[Any]:
    """Computes a model's flat outputs from its flat inputs.

    Args:
        functional: a functional graph, as `_keras.functional_inside` gives it.
        values: one value for each of `functional.inputs`: tensors, or anything `apply` understands.
        apply: called as `apply(node, args, kwargs, tensors)` for each operation of the model and
            of the models nested in it; `tensors` are the values of the call's tensors, in order.
            Gives one value for each of `node.outputs`.
    """
    env = {id(t): value for t, value in zip(functional.inputs, values)}
    for node in _keras.nodes_in_order(functional):
        env.update(zip(map(id, node.outputs), _results(node, env, apply)))
    return [env[id(t)] for t in functional.outputs]


def _results(node: Any, env: dict[int, Any], apply: Apply) -> Iterable[Any]:
    inner = _inlined(node)
    if inner is not None:
        return run(inner, [env[id(t)] for t in _keras.call_tensors(node)], apply)
    return apply(node, *_keras.arguments(node, env))


def _inlined(node: Any) -> Any:
    inner = _keras.functional_inside(node.operation)
    return None if inner is None or _keras.call_context(node, inner) is None else inner


def nodes(functional: Any) -> Iterator[Any]:
    """The calls that `run` makes, those of nested models in place of the model's."""
    for node in _keras.nodes_in_order(functional):
        inner = _inlined(node)
        yield from (node,) if inner is None else nodes(inner)


def infer(operation: Any, args: tuple, kwargs: dict) -> list[Any]:
    """Calls an operation as a model does with `training=False`; gives its flat results."""
    kwargs = _keras.with_context(operation, kwargs, {"training": False})
    return tree.flatten(operation(*args, **kwargs))
