"""Operations on each element alone, and softmax."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from keras import ops

from parallel_fuse.translation.node import Node
from parallel_fuse.translation.values import Sizes, UntranslatedError, entries_of, plain, tensor


def added(x: Any, y: Any) -> Any:
    """x + y. Keras on TensorFlow takes a y with one axis of more than one for a bias, and adds it
    along the last axis or the second, wherever that axis is.
    """
    shapes = [getattr(one, "shape", ()) for one in (x, y)]
    if len(shapes[1]) <= 1 or shapes[0] == shapes[1]:
        return ops.add(x, y)
    return ops.subtract(x, -y if isinstance(y, np.ndarray) else ops.negative(y))


ONE = {
    "Abs": ops.abs, "Acos": ops.arccos, "Acosh": ops.arccosh, "Asin": ops.arcsin,
    "Asinh": ops.arcsinh, "Atan": ops.arctan, "Atanh": ops.arctanh, "Ceil": ops.ceil,
    "Cos": ops.cos, "Cosh": ops.cosh, "Elu": ops.elu, "Erf": ops.erf, "Exp": ops.exp,
    "Expm1": ops.expm1, "Floor": ops.floor, "Inv": ops.reciprocal, "IsFinite": ops.isfinite,
    "IsInf": ops.isinf, "IsNan": ops.isnan, "Log": ops.log, "Log1p": ops.log1p,
    "LogicalNot": ops.logical_not, "LogSoftmax": ops.log_softmax, "Neg": ops.negative,
    "OnesLike": ops.ones_like, "Reciprocal": ops.reciprocal, "Relu": ops.relu, "Relu6": ops.relu6,
    "Round": ops.round, "Rsqrt": ops.rsqrt, "Selu": ops.selu, "Sigmoid": ops.sigmoid,
    "Sign": ops.sign, "Sin": ops.sin, "Sinh": ops.sinh, "Softmax": ops.softmax,
    "Softplus": ops.softplus, "Softsign": ops.softsign, "Sqrt": ops.sqrt, "Square": ops.square,
    "StopGradient": ops.stop_gradient, "Tan": ops.tan, "Tanh": ops.tanh,
    "ZerosLike": ops.zeros_like,
}  # fmt: skip
TWO = {
    "Add": added, "AddV2": added, "Atan2": ops.arctan2, "Div": ops.divide,
    "DivNoNan": ops.divide_no_nan, "Equal": ops.equal, "FloorDiv": ops.floor_divide,
    "FloorMod": ops.mod, "Greater": ops.greater, "GreaterEqual": ops.greater_equal,
    "Less": ops.less, "LessEqual": ops.less_equal, "LogicalAnd": ops.logical_and,
    "LogicalOr": ops.logical_or, "Maximum": ops.maximum, "Minimum": ops.minimum,
    "Mul": ops.multiply, "NotEqual": ops.not_equal, "Pow": ops.power, "RealDiv": ops.divide,
    "Sub": ops.subtract,
}  # fmt: skip
# What may be done to sizes that are known only when the model runs; the result is unknown, too.
OF_SIZES = {"Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply}


def _one(node: Node) -> Any:
    return ONE[node.kind](tensor(node.args[0]))


def _two(node: Node) -> Any:
    if node.absorbed:
        return next(arg for arg in node.args if not isinstance(arg, np.ndarray))
    if any(isinstance(arg, Sizes) for arg in node.args):
        return _of_sizes(node)
    return TWO[node.kind](*(plain(tensor(arg)) for arg in node.args))


def _of_sizes(node: Node) -> Sizes | np.ndarray:
    """Sizes times one, plus or minus zero: what is left of arithmetic on the way to a shape."""
    if not all(isinstance(arg, (Sizes, np.ndarray)) for arg in node.args):
        raise UntranslatedError("arithmetic with a size that is known only when the model runs")
    first, second = map(entries_of, node.args)
    neutral = 1 if node.kind == "Mul" else 0
    if node.kind in OF_SIZES and set(second) == {neutral}:
        return Sizes(first, getattr(node.args[0], "scalar", False)).simple()
    if node.kind in OF_SIZES and node.kind != "Sub" and set(first) == {neutral}:
        return Sizes(second, getattr(node.args[1], "scalar", False)).simple()
    raise UntranslatedError("arithmetic with a size that is known only when the model runs")


def _erfc(node: Node) -> Any:
    return ops.subtract(1.0, ops.erf(tensor(node.args[0])))


def _leaky_relu(node: Node) -> Any:
    return ops.leaky_relu(tensor(node.args[0]), negative_slope=node.attribute("alpha"))


def _squared_difference(node: Node) -> Any:
    return ops.square(ops.subtract(*(plain(tensor(arg)) for arg in node.args)))


def _cast(node: Node) -> Any:
    if isinstance(node.args[0], Sizes):
        return node.args[0]
    return ops.cast(tensor(node.args[0]), node.attribute("DstT").name)


def _select(node: Node) -> Any:
    condition, yes, no = map(tensor, node.args)
    if node.kind == "Select" and len(condition.shape) != len(getattr(yes, "shape", ())):
        raise UntranslatedError("Select by rows")
    return ops.where(condition, plain(yes), plain(no))


def _clip(node: Node) -> Any:
    x, low, high = (plain(tensor(arg)) for arg in node.args)
    return ops.minimum(ops.maximum(x, low), high)


def _add_n(node: Node) -> Any:
    return reduce(added, map(tensor, node.args))


def _same(node: Node) -> Any:
    return node.args[0] if len(node.args) == 1 else tuple(node.args)


TRANSLATIONS: dict[str, Callable[[Node], Any]] = {
    **dict.fromkeys(ONE, _one),
    **dict.fromkeys(TWO, _two),
    **dict.fromkeys(("Identity", "IdentityN", "Snapshot", "PreventGradient"), _same),
    **dict.fromkeys(("Select", "SelectV2"), _select),
    "AddN": _add_n,
    "Cast": _cast,
    "ClipByValue": _clip,
    "Erfc": _erfc,
    "LeakyRelu": _leaky_relu,
    "SquaredDifference": _squared_difference,
}
