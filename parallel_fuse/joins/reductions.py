"""Add, Average, Maximum, Minimum, Multiply: a reduction over the lane axis.

    y0, y1, y2 ── Add      →      (batch, M, …) ── sum over the lane axis ── (batch, …)

Only operands of one shape are reduced; broadcasting operands keep the original call.
"""

from functools import partial
from functools import reduce as fold

from keras import layers, ops

from parallel_fuse import _keras
from parallel_fuse.graph import Call
from parallel_fuse.joins.base import Join, all_inputs
from parallel_fuse.lanes import Lanes, Tensor


def reduction(over, pair, mean: bool = False):
    """(reduce, combine) for a reduction `over` an axis whose two-operand form is `pair`."""

    def reduce(call: Call, lanes: Lanes) -> Tensor:
        layout, tensor = lanes.apart()
        return over(tensor, axis=layout.axis)

    def combine(call: Call, tensors: list[Tensor], counts: list[int]) -> Tensor:
        total = fold(pair, tensors)
        # Not `* (1 / n)`: Keras takes the product with a number for a sparse tensor.
        return total / sum(counts) if mean else total

    return {"reduce": reduce, "combine": combine}


def from_identity(neutral: float):
    """Operands of a chain that may begin with its neutral element, as Python's `sum` does."""
    return partial(all_inputs, neutral=neutral)


ADD = Join(
    handles=(layers.Add, _keras.Add),
    **reduction(ops.sum, ops.add),
    associative=True,
    operands=from_identity(0),
)
AVERAGE = Join(handles=(layers.Average,), **reduction(ops.sum, ops.add, mean=True))
MAXIMUM = Join(
    handles=(layers.Maximum, _keras.Maximum),
    **reduction(ops.max, ops.maximum),
    associative=True,
)
MINIMUM = Join(
    handles=(layers.Minimum, _keras.Minimum),
    **reduction(ops.min, ops.minimum),
    associative=True,
)
MULTIPLY = Join(
    handles=(layers.Multiply, _keras.Multiply),
    **reduction(ops.prod, ops.multiply),
    associative=True,
    operands=from_identity(1),
)
