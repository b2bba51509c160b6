"""The protocol of a join: an operation that makes one tensor of several lanes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from keras import tree

from parallel_fuse.graph import Call, Value
from parallel_fuse.lanes import Lanes, Layout

Tensor = Any


def all_inputs(call: Call, neutral: float | None = None) -> tuple[Value, ...]:
    """Every tensor of a call, in order; none where it does more than join them.

    A number or an array beside the tensors would be lost, unless it is the `neutral` element (the
    0 that `sum([…])` begins with); so would a cast by the layer's dtype policy, a mask that the
    layer makes of its operands' masks, and a loss of its own.
    """
    leaves = [x for x in tree.flatten((call.args, call.kwargs)) if not _idle(x, neutral)]
    plain = all(isinstance(leaf, Value) for leaf in leaves)
    casts = any(value.dtype != call.output.dtype for value in call.inputs)
    return call.inputs if plain and not casts and not _layer_does_more(call) else ()


def _layer_does_more(call: Call) -> bool:
    if not isinstance(call.operation, keras.layers.Layer):
        return False
    return call.operation.activity_regularizer is not None or any(v.masked for v in call.inputs)


def _idle(leaf: Any, neutral: float | None) -> bool:
    if leaf is None:
        return True
    return neutral is not None and type(leaf) in (int, float) and leaf == neutral


@dataclass(frozen=True)
class Join:
    """The rule for one family of joining operations.

    Attributes:
        handles: exact classes.
        layout: call → the layout in which its operands, carried as lanes, already are the result
            (Concatenate: folded; stack: a lane axis). None for a reduction.
        reduce: (call, lanes) → their reduction over the lane axis, the shape of one lane. None for
            a join that only lays lanes side by side.
        combine: (call, tensors, counts) → the result, from the reductions of several groups of
            operands; `counts` says how many operands each stands for.
        associative: a join of joins, such as (a + b) + c, is one join of all their operands.
        operands: call → the joined values, in order; none where the call does more than join.
    """

    handles: tuple[type, ...]
    layout: Callable[[Call], Layout] | None = None
    reduce: Callable[[Call, Lanes], Tensor] | None = None
    combine: Callable[[Call, list[Tensor], list[int]], Tensor] | None = None
    associative: bool = False
    operands: Callable[[Call], tuple[Value, ...]] = all_inputs
