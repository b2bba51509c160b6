"""Dilated convolutions as TensorFlow writes them on a CPU: the samples are spread over the batch.

    SpaceToBatchND ── [ExpandDims] ── Conv (valid) ── [Squeeze] ── BatchToSpaceND

becomes one convolution with that dilation. What stands between the two ends is no tensor of its
own: a `Spread`, then a `Pending` convolution that is made when the crops are known.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from keras import ops

from parallel_fuse.translation.node import Node
from parallel_fuse.translation.values import UntranslatedError, constant, integers, tensor

Pads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Spread:
    """`tensor`, padded, its samples spread over the batch by `rates`."""

    tensor: Any
    rates: tuple[int, ...]
    pads: Pads


@dataclass(frozen=True)
class Pending:
    """A valid convolution of a `Spread`: `make(x, dilation, padding)` makes it."""

    spread: Spread
    size: tuple[int, ...]
    make: Callable[[Any, tuple[int, ...], str], Any]
    squeezed: tuple[int, ...] = ()


def _spread(node: Node) -> Spread:
    value, rates, pads = node.args
    pairs = tuple((int(a), int(b)) for a, b in constant(pads, "the padding of a dilation"))
    return Spread(tensor(value), integers(rates, "a dilation"), pairs)


def expanded(value: Spread, axis: int) -> Spread:
    if axis not in (1, -3) or len(value.tensor.shape) != 3:
        raise UntranslatedError("a new axis within a dilated convolution")
    pads = ((0, 0), *value.pads)
    return Spread(ops.expand_dims(value.tensor, 1), (1, *value.rates), pads)


def squeezed(value: Pending, axes: tuple[int, ...]) -> Pending:
    return replace(value, squeezed=axes)


def _joined(node: Node) -> Any:
    pending = node.args[0]
    if not isinstance(pending, Pending):
        raise UntranslatedError("samples taken from the batch")
    crops = constant(node.args[2], "the crop of a dilation").tolist()
    crops = [[0, 0]] * (len(pending.size) - len(crops)) + crops
    if any(front for front, _ in crops):
        raise UntranslatedError("a dilation cropped in front")
    pads = tuple((a, b - crop) for (a, b), (_, crop) in zip(pending.spread.pads, crops))
    x, padding = _padded(pending, pads)
    found = pending.make(x, pending.spread.rates, padding)
    return ops.squeeze(found, pending.squeezed) if pending.squeezed else found


def _padded(pending: Pending, pads: Pads) -> tuple[Any, str]:
    spread = pending.spread
    whole = [(size - 1) * rate for size, rate in zip(pending.size, spread.rates)]
    if not any(map(any, pads)):
        return spread.tensor, "valid"
    if pads == tuple((n // 2, n - n // 2) for n in whole):
        return spread.tensor, "same"
    return ops.pad(spread.tensor, ((0, 0), *pads, (0, 0))), "valid"


TRANSLATIONS: dict[str, Callable[[Node], Any]] = {
    "BatchToSpaceND": _joined,
    "SpaceToBatchND": _spread,
}
