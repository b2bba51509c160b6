"""The protocol of a join: an operation that makes one tensor of several lanes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from parallel_fuse.graph import Call, Value
from parallel_fuse.lanes import Lanes, Layout

Tensor = Any


def all_inputs(call: Call) -> tuple[Value, ...]:
    return call.inputs


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
        associative: a chain of two-operand calls is one join of all their operands.
        operands: call → the joined values, in order.
    """

    handles: tuple[type, ...]
    layout: Callable[[Call], Layout] | None = None
    reduce: Callable[[Call, Lanes], Tensor] | None = None
    combine: Callable[[Call, list[Tensor], list[int]], Tensor] | None = None
    associative: bool = False
    operands: Callable[[Call], tuple[Value, ...]] = all_inputs
