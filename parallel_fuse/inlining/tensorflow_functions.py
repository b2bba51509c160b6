"""TensorFlow function name → the same by `keras.ops`. Parameters are called as TensorFlow's are.

A default that `keras.ops` does not share (`tf.concat` has no axis, `tf.gather` takes axis 0) is
written out. Sources: the signatures of TensorFlow 2.21 and Keras 3.15.
"""

from collections.abc import Callable, Iterator
from typing import Any

from keras import ops


def _elementwise(function: Callable) -> Callable:
    """One operand, whatever TensorFlow calls it."""
    def run(*, x=None, features=None, input=None):
        return function(next(v for v in (x, features, input) if v is not None))

    return run


def _binary(function: Callable) -> Callable:
    return lambda x, y: function(x, y)


def _reduction(function: Callable) -> Callable:
    def run(input_tensor, axis=None, keepdims=False):
        return function(input_tensor, axis=axis, keepdims=keepdims)

    return run


def sizes(shape: Any) -> list:
    """A target shape: an unknown size that was read from a tensor is worked out from the others."""
    return [-1 if size is None else int(size) for size in shape]


def split(value, num_or_size_splits, axis=0, num=None):
    if isinstance(num_or_size_splits, int):
        return ops.split(value, num_or_size_splits, axis=axis)
    ends = [sum(num_or_size_splits[: i + 1]) for i in range(len(num_or_size_splits))]
    return ops.split(value, ends[:-1], axis=axis)


def matmul(a, b, transpose_a=False, transpose_b=False):
    turned = (ops.swapaxes(x, -1, -2) if t else x for x, t in ((a, transpose_a), (b, transpose_b)))
    return ops.matmul(*turned)


def gather(params, indices, axis=None, batch_dims=0):
    if batch_dims:
        raise TypeError("batch_dims")
    return ops.take(params, indices, axis=axis or 0)


def slice_(input_, begin, size):
    stops = [None if n == -1 else b + n for b, n in zip(begin, size)]
    return input_[tuple(slice(b, s) for b, s in zip(begin, stops))]


def add_n(inputs):
    total, *others = inputs
    for one in others:
        total = total + one
    return total


def squeeze(input, axis=None, squeeze_dims=None):
    return ops.squeeze(input, axis=axis if axis is not None else squeeze_dims)


def cast(x, dtype):
    return ops.cast(x, getattr(dtype, "name", dtype))


def expand_dims(input, axis):
    return ops.expand_dims(input, axis)


def one_hot(indices, depth, axis=-1, dtype="float32"):
    return ops.one_hot(indices, depth, axis=axis, dtype=getattr(dtype, "name", dtype))


ELEMENTWISE = """abs exp log log1p sqrt rsqrt square sign sin cos tan tanh sigmoid relu relu6 elu
selu softplus softsign neg:negative negative floor ceil round reciprocal erf""".split()
BINARY = """add subtract multiply divide maximum minimum floordiv:floor_divide
floor_div:floor_divide pow:power truediv:divide sub:subtract mul:multiply div:divide
squared_difference greater greater_equal less less_equal equal not_equal
logical_and logical_or""".split()
REDUCTIONS = "sum mean max min prod any all".split()


def squared_difference(x, y):
    return ops.square(x - y)


def _named(entries: list[str]) -> Iterator[tuple[str, Callable]]:
    """TensorFlow's name and the function of `keras.ops`, which may have another: `pow:power`."""
    for entry in entries:
        name, _, other = entry.partition(":")
        yield name, getattr(ops, other or name, None) or globals()[name]


def _table() -> dict[str, Callable]:
    found = {name: _elementwise(function) for name, function in _named(ELEMENTWISE)}
    found.update((name, _binary(function)) for name, function in _named(BINARY))
    found.update({f"reduce_{name}": _reduction(getattr(ops, name)) for name in REDUCTIONS})
    return found


FUNCTIONS: dict[str, Callable] = {
    **_table(),
    "add_n": add_n,
    "cast": cast,
    "concat": lambda values, axis: ops.concatenate(list(values), axis=axis),
    "convert_to_tensor": lambda value, dtype=None: value if dtype is None else cast(value, dtype),
    "einsum": lambda equation, *inputs: ops.einsum(equation, *inputs),
    "expand_dims": expand_dims,
    "gather": gather,
    "gelu": lambda features, approximate=False: ops.gelu(features, approximate=approximate),
    "identity": lambda input: input,
    "leaky_relu": lambda features, alpha=0.2: ops.leaky_relu(features, negative_slope=alpha),
    "log_softmax": lambda logits, axis=None: ops.log_softmax(logits, -1 if axis is None else axis),
    "matmul": matmul,
    "one_hot": one_hot,
    "ones_like": lambda input, dtype=None: ops.ones_like(input, dtype=dtype),
    "pad": lambda tensor, paddings, mode="CONSTANT", constant_values=0: ops.pad(
        tensor, paddings, mode.lower(), constant_values if mode == "CONSTANT" else None
    ),
    "repeat": lambda input, repeats, axis=None: ops.repeat(input, repeats, axis=axis),
    "reshape": lambda tensor, shape: ops.reshape(tensor, sizes(shape)),
    "reverse": lambda tensor, axis: ops.flip(tensor, axis=axis),
    "roll": lambda input, shift, axis: ops.roll(input, shift, axis),
    "shape": lambda input, out_type=None: ops.shape(input),
    "silu": lambda features, beta=1.0: features * ops.sigmoid(beta * features),
    "slice": slice_,
    "softmax": lambda logits, axis=None: ops.softmax(logits, -1 if axis is None else axis),
    "split": split,
    "squeeze": squeeze,
    "stack": lambda values, axis=0: ops.stack(list(values), axis=axis),
    "swish": lambda features, beta=1.0: features * ops.sigmoid(beta * features),
    "tensordot": lambda a, b, axes: ops.tensordot(a, b, axes),
    "tile": lambda input, multiples: ops.tile(input, multiples),
    "transpose": lambda a, perm=None: ops.transpose(a, perm),
    "unstack": lambda value, num=None, axis=0: ops.unstack(value, num, axis),
    "where": lambda condition, x, y: ops.where(condition, x, y),
    "zeros_like": lambda input, dtype=None: ops.zeros_like(input, dtype=dtype),
}
