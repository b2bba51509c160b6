"""Which axes of a result are as long as which axes of what it was made of."""

from collections.abc import Iterable
from math import prod

from keras import layers

from parallel_fuse import _keras
from parallel_fuse.graph import Call

Pairs = Iterable[tuple[int, int]]

# Layers that leave every axis but the last as long as it was.
KEEPING = frozenset(
    """Activation BatchNormalization Bidirectional Dense Dropout ELU GRU GaussianDropout
    GaussianNoise GroupNormalization Identity LSTM LayerNormalization LeakyReLU Masking
    MultiHeadAttention PReLU RMSNormalization ReLU Rescaling SimpleRNN Softmax SpatialDropout1D
    SpatialDropout2D SpatialDropout3D UnitNormalization""".split()
)


def kept_axes(call: Call, before: int, after: int) -> Pairs:
    """(axis of the result, axis of the first input that is as long), where that is known."""
    operation = call.operation
    if not isinstance(operation, layers.Layer):
        rule = RAW.get(type(operation), _reduced)
        return rule(call, before, after)
    if type(operation) is layers.EinsumDense and "." not in operation.equation:
        return _contracted(operation.equation)
    if type(operation) is layers.Embedding:
        return [(a, a) for a in range(before)]
    kept = range(after if _keeps(operation) and before == after else 1)
    return [(a, a) for a in kept if a != _joined_axis(operation, after)]


def _contracted(equation: str) -> Pairs:
    """Letters of the input that the result has, too."""
    above, result = equation.replace(" ", "").replace(",", "->", 1).split("->")[::2]
    return [(axis, above.index(letter)) for axis, letter in enumerate(result) if letter in above]


def _transposed(call: Call, before: int, after: int) -> Pairs:
    axes = call.operation.axes or range(before)[::-1]
    return enumerate(a % before for a in axes)


def _joined(call: Call, before: int, after: int) -> Pairs:
    """A stack has one axis more than its operands."""
    at = call.operation.axis % after
    return [(a, a - (after > before and a > at)) for a in range(after) if a != at]


def _divided(call: Call, before: int, after: int) -> Pairs:
    """The axes in front, and those behind, which move where the axis goes or becomes several."""
    if call.operation.axis is None:
        return []
    at, more = call.operation.axis % before, after - before
    return [(a, a) for a in range(at)] + [(a + more, a) for a in range(at + 1, before)]


def _reshaped(call: Call, before: int, after: int) -> Pairs:
    """The batch, if the sizes behind it are known and multiply to the same number."""
    old, new = call.inputs[0].shape[1:], call.output.shape[1:]
    known = None not in old and None not in new
    return [(0, 0)] if known and prod(old) == prod(new) else []


def _reduced(call: Call, before: int, after: int) -> Pairs:
    """Sums, means and their like: whatever has `axis` and `keepdims`."""
    attributes = _keras.attributes(call.operation)
    if type(call.operation) in _keras.SOFTMAX:
        return [(a, a) for a in range(after)]
    if "keepdims" not in attributes:
        return []
    axis = attributes.get("axis")
    axes = range(before) if axis is None else axis if isinstance(axis, (list, tuple)) else [axis]
    left = [a for a in range(before) if a not in {b % before for b in axes}]
    return [(a, a) for a in left] if attributes["keepdims"] else list(enumerate(left))


RAW = {
    _keras.Transpose: _transposed,
    _keras.Concatenate: _joined,
    _keras.Stack: _joined,
    _keras.Split: _divided,
    _keras.Unstack: _divided,
    _keras.Take: _divided,
    _keras.Reshape: _reshaped,
}


def _keeps(layer: layers.Layer) -> bool:
    strides = getattr(layer, "strides", 1)
    ones = set(strides) == {1} if isinstance(strides, (list, tuple)) else strides == 1
    same = getattr(layer, "padding", None) == "same" and hasattr(layer, "strides") and ones
    return same or type(layer).__name__ in KEEPING


def _joined_axis(layer: layers.Layer, rank: int) -> int | None:
    return layer.axis % rank if type(layer) is layers.Concatenate else None
