"""The little that `keras.ops` does not offer and each backend does its own way."""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import keras


def compiled(function: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """The function as the backend's compiled graph, as `predict` would run it.

    Nothing of a model is used or set but what the function calls, so its own `predict_function`
    stays as it is.

    Returns:
        None on a backend whose models run as they are written (torch).
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return _tensorflow_graph(function)
    if backend == "jax":
        import jax

        return jax.jit(function)
    return None


def _tensorflow_graph(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import tensorflow as tf

    # A partial, so that TensorFlow counts each function's traces alone: together they would soon
    # make it warn of too many. As in Keras' trainer no source is converted, and the batch size is
    # first taken as it is, from the second one on as unknown.
    plain = functools.partial(tf.autograph.experimental.do_not_convert(function))
    return tf.function(plain, reduce_retracing=True, autograph=False)


# TensorFlow operations that map each element on its own, whatever the shape.
_POINTWISE = frozenset(
    """Abs Acos Acosh Add AddV2 Asin Asinh Atan Atan2 Atanh Cast Ceil ClipByValue Cos Cosh Div
    DivNoNan Elu Equal Erf Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual
    Identity Inv IsFinite IsInf IsNan LeakyRelu Less LessEqual Log Log1p LogicalAnd LogicalNot
    LogicalOr Maximum Minimum Mod Mul MulNoNan Neg NotEqual Pow RealDiv Reciprocal Relu Relu6 Rint
    Round Rsqrt SelectV2 Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square
    SquaredDifference StopGradient Sub Tan Tanh Xdivy Xlog1py Xlogy""".split()
)
_LAST_AXIS = frozenset(("Softmax", "LogSoftmax"))


def record(function: Callable[[Any], Any], shape: tuple) -> tuple[Hashable, bool] | None:
    """The backend operations a function makes of one tensor of this shape, as hashable data.

    For functions with backend code inside, which take no symbolic Keras tensor.

    Returns:
        (record, whether it is elementwise); the function works along the last axis if not. None if
        that cannot be proven, and on a backend other than TensorFlow.
    """
    if keras.config.backend() != "tensorflow":
        return None
    import tensorflow as tf

    if function is tf.nn.silu:  # elementwise, but its gradient is a function of its own
        return "tf.nn.silu", True
    try:
        with tf.Graph().as_default() as graph:
            result = function(tf.compat.v1.placeholder(keras.config.floatx(), shape))
    except Exception:  # noqa: BLE001  a user's function may fail in any way it likes
        return None
    if not isinstance(result, tf.Tensor) or result.graph is not graph:
        return None
    return _record(result) if result.shape.dims and tuple(result.shape) == shape else None


def _record(result: Any) -> tuple[Hashable, bool] | None:
    operations = result.graph.get_operations()
    places = {operation.name: place for place, operation in enumerate(operations)}
    entries = [_entry(operation, places) for operation in operations]
    if None in entries:
        return None
    along = any(operation.type in _LAST_AXIS for operation in operations)
    return (*entries, places[result.op.name]), not along


def _entry(operation: Any, places: dict[str, int]) -> Hashable | None:
    """One operation as data; None if it is unknown, a tensor, or has a gradient of its own."""
    attributes = operation.node_def.attr
    known = operation.type in _POINTWISE | _LAST_AXIS | {"Placeholder", "Const"}
    if not known or operation.control_inputs or "_gradient_op_type" in attributes:
        return None
    if operation.type == "Const" and operation.outputs[0].shape.rank:
        return None
    options = sorted(
        (name, value.SerializeToString(deterministic=True))
        for name, value in attributes.items()
        if not name.startswith("_") and not _is_shape(value)
    )
    inputs = tuple((places[t.op.name], t.value_index) for t in operation.inputs)
    return operation.type, tuple(options), inputs


def _is_shape(attribute: Any) -> bool:
    return attribute.WhichOneof("value") == "shape"


def on_refused_calls(takes: Callable[[tuple, dict], bool], answer: Callable) -> None:
    """Lets `answer(function, args, kwargs)` stand in for calls that TensorFlow cannot take, where
    `takes(args, kwargs)` says so. For the rest of the process: TensorFlow keeps its handlers.
    """
    import tensorflow as tf

    base = tf.__internal__.dispatch.GlobalOpDispatcher

    def handle(self, op, args, kwargs):
        return answer(op, args, kwargs) if takes(args, kwargs) else self.NOT_SUPPORTED

    type("Handler", (base,), {"handle": handle})().register()


def runs_loops_as_one_kernel() -> bool:
    """Whether a whole recurrent layer may be one kernel of the backend's: cuDNN, PyTorch's own."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))
    if backend == "jax":
        import jax

        return jax.default_backend() == "gpu"
    return backend == "torch"


def runs_single_operations() -> bool:
    """Whether a compiled graph still runs kernel by kernel, on the cores of a CPU: TensorFlow's."""
    return keras.backend.backend() == "tensorflow" and not runs_loops_as_one_kernel()
