"""Every private Keras name this package touches, each with the reason.

No other file may import from `keras.src` or read an underscore attribute of a Keras object, so
that a new Keras release is checked in one place.
"""

import inspect
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import keras
from keras import tree
from keras.src import backend
from keras.src.activations import activations as activation_ops
from keras.src.legacy.saving import saving_utils
from keras.src.legacy.saving.saving_options import keras_option_scope
from keras.src.models.functional import Functional, functional_like_constructor
from keras.src.ops import core as core_ops
from keras.src.ops import math as math_ops
from keras.src.ops import nn as nn_ops
from keras.src.ops import numpy as numpy_ops
from keras.src.saving import saving_lib
from keras.src.saving.serialization_lib import SafeModeScope

# The operation classes behind `x[...]` and `keras.ops.*`: Keras exports the functions only, and a
# rule recognises an operation by its exact class.
GetItem = numpy_ops.GetItem
Split = numpy_ops.Split
Take = numpy_ops.Take
Unstack = core_ops.Unstack
Concatenate = numpy_ops.Concatenate
Stack = numpy_ops.Stack
Add = numpy_ops.Add
Multiply = numpy_ops.Multiply
Maximum = numpy_ops.Maximum
Minimum = numpy_ops.Minimum
ExpandDims = numpy_ops.ExpandDims
Squeeze = numpy_ops.Squeeze
Reshape = numpy_ops.Reshape
Transpose = numpy_ops.Transpose
Swapaxes = numpy_ops.Swapaxes
Moveaxis = numpy_ops.Moveaxis


def _classes(names: str) -> tuple[type, ...]:
    """The operation classes of these names; releases differ in which they have, and where."""
    homes = (numpy_ops, nn_ops, math_ops, core_ops, activation_ops)
    found = (getattr(home, name, None) for name in names.split() for home in homes)
    return tuple(dict.fromkeys(cls for cls in found if _is_operation_class(cls)))


def _is_operation_class(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, keras.Operation)


# Operations that map each element on its own, whatever the shape.
POINTWISE = _classes(
    """Relu ReLU Relu6 LeakyRelu Elu Selu Celu Gelu Silu Mish Softplus Softsign Sigmoid HardSigmoid
    HardSilu HardTanh Tanh TanhShrink HardShrink SoftShrink Squareplus SparsePlus SparseSigmoid
    LogSigmoid Threshold Exp Exp2 Expm1 Log Log2 Log10 Log1p Abs Absolute Fabs Negative Square Sqrt
    Rsqrt Cbrt Reciprocal Sign Sin Cos Tan Sinh Cosh Arcsin Arccos Arctan Arcsinh Arccosh Arctanh
    Sinc Erf Erfc Erfinv Floor Ceil Round Trunc Clip NanToNum Cast SaturateCast StopGradient Add
    Subtract Multiply Divide DivideNoNan TrueDivide FloorDivide Mod Fmod Power Maximum Minimum Fmax
    Fmin Arctan2 Hypot Logaddexp Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd
    LogicalOr LogicalXor LogicalNot Isnan Isinf Isfinite Where"""
)
# Operations along the axes that their attribute `axis` names, one element apart from the others.
SOFTMAX = _classes("Softmax LogSoftmax Sparsemax")


def functional_inside(operation: Any) -> Functional | None:
    """The functional graph of a model, None if its `call` is its own.

    A built Sequential keeps its graph in `_functional`; a user's subclass of a functional model is
    one as long as it does not override `call`.
    """
    if isinstance(operation, keras.Sequential):
        inherits = type(operation).call is keras.Sequential.call
        return operation._functional if inherits else None
    if isinstance(operation, Functional) and type(operation).call is Functional.call:
        return operation
    return None


def is_plain_model(model: keras.Model) -> bool:
    """Whether the model's class adds nothing to a functional model (no own `train_step` …)."""
    return type(model) in (Functional, keras.Model, keras.Sequential)


def takes_inputs_and_outputs(cls: type) -> bool:
    """Whether `cls(inputs, outputs, name=…)` makes a functional model; Keras asks the same."""
    return issubclass(cls, Functional) and functional_like_constructor(cls)


def structures(model: keras.Model) -> tuple[Any, Any]:
    """The nested input and output structures, with the model's own KerasTensors as leaves.

    `model.input` and `model.output` unwrap single-element lists in some releases.
    """
    functional = functional_inside(model)
    return functional._inputs_struct, functional._outputs_struct


def nodes_in_order(functional: Functional) -> Iterator[Any]:
    """The model's call nodes, producers first. Iterative: a chain of any length works.

    A node is the only record of one call's exact arguments; `model.operations` loses the calls of
    a shared layer.
    """
    seen = {id(t) for t in functional.inputs}
    done: set[int] = set()
    stack = list(reversed(functional.outputs))
    while stack:
        tensor = stack[-1]
        if id(tensor) in seen:
            stack.pop()
            continue
        node = node_of(tensor)
        waiting = [t for t in node.input_tensors if id(t) not in seen]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        seen.update(id(t) for t in node.outputs)
        if id(node) not in done:
            done.add(id(node))
            yield node


def node_of(tensor: Any) -> Any:
    """The call that made a KerasTensor: the history is the only link from tensor to call."""
    operation, node_index, _ = tensor._keras_history
    return operation._inbound_nodes[node_index]


def calls_of(operation: Any) -> list[Any]:
    """All calls of an operation: only its list of nodes knows them."""
    return operation._inbound_nodes


def input_layer_of(tensor: Any) -> Any:
    """The InputLayer behind an input tensor: its config holds dtype, sparse, optional, name."""
    return maker_of(tensor)


def maker_of(tensor: Any) -> Any:
    """The operation that made a tensor: only its history knows."""
    return tensor._keras_history.operation


def arguments(node: Any, env: dict[int, Any]) -> tuple[tuple, dict, tuple]:
    """A node's args, kwargs and tensors, with every KerasTensor replaced through `env`.

    `node.arguments` keeps the exact nests the caller passed.
    """
    args, kwargs = node.arguments.args, node.arguments.kwargs
    tensors = tuple(env[id(t)] for t in node.input_tensors)
    if not kwargs and len(args) == 1 and isinstance(args[0], keras.KerasTensor):
        return tensors, {}, tensors

    def swap(x):
        return env[id(x)] if isinstance(x, keras.KerasTensor) else x

    return tree.map_structure(swap, args), tree.map_structure(swap, kwargs), tensors


def call_tensors(node: Any) -> list[Any]:
    """The tensors a nested model was called on, in the order of its inputs."""
    return tree.flatten(node.arguments.args[0])


CLOSED = "nested model adapts its inputs or receives a mask: left closed"


def call_context(node: Any, inner: Functional) -> dict | None:
    """The `training` a nested model was called with, or None if the call cannot be inlined.

    Masks, extra arguments and inputs whose structure, rank or dtype the nested model would adapt
    on the way in are left to Keras: such a model stays one opaque layer.
    """
    args, kwargs = node.arguments.args, dict(node.arguments.kwargs)
    training = kwargs.pop("training", None)
    # Keras writes a mask argument of None for each unmasked tensor.
    if len(args) != 1 or any(leaf is not None for leaf in tree.flatten(kwargs)):
        return None
    given = tree.flatten(args[0])
    if len(given) != len(inner.inputs) or not _same_structure(args[0], inner._inputs_struct):
        return None
    if any(len(t.shape) != len(i.shape) or t.dtype != i.dtype for t, i in zip(given, inner.inputs)):
        return None
    return {} if training is None else {"training": training}


def _same_structure(a: Any, b: Any) -> bool:
    single = isinstance(a, keras.KerasTensor), isinstance(b, (list, tuple))
    if single[0] and ((single[1] and len(b) == 1) or isinstance(b, keras.KerasTensor)):
        return True
    try:
        tree.assert_same_structure(tree.lists_to_tuples(a), tree.lists_to_tuples(b))
    except (ValueError, TypeError):
        return False
    return True


def with_context(operation: Any, kwargs: dict, context: dict) -> dict:
    """Adds the `training` of the nested models around a call, where the operation takes one.

    Keras hands it down at run time and lets the outermost value win; inlining must do the same.
    """
    if not context or not takes_training(operation):
        return kwargs
    return {**kwargs, **context}


def takes_training(operation: Any) -> bool:
    known = getattr(operation, "_call_has_training_arg", None)
    if known is not None:
        return bool(known)
    return "training" in inspect.signature(operation.call).parameters


def has_mask(tensor: Any) -> bool:
    """Whether Keras would hand this tensor's mask to the next layer by itself."""
    return mask_of(tensor) is not None


def mask_of(tensor: Any) -> Any:
    """The mask that Keras hung on a tensor. Newer releases keep a table for them."""
    get = getattr(keras.src.backend, "get_keras_mask", None)
    return get(tensor) if get else getattr(tensor, "_keras_mask", None)


def fresh_operation(operation: Any, name: str) -> Any:
    """A copy of a raw operation (`GetItem`, `Add`, …) that belongs to no graph yet.

    Calling the original again would grow its list of calls, that is, change the user's model.
    Raw operations hold no weights, and not all can be made again from their config; `copy.copy`
    would save them to a file and load them.
    """
    twin = type(operation).__new__(type(operation))
    vars(twin).update(vars(operation))
    vars(twin).update(_inbound_nodes=[], _outbound_nodes=[], name=name)
    return twin


def config_of(operation: Any) -> dict:
    """`get_config()` without the warning that a lambda in it is unsafe to read back: none is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*lambda.*")
        return operation.get_config()


def sharing_twin(layer: keras.layers.Layer, name: str) -> keras.layers.Layer:
    """A layer with the same variables and sublayers that belongs to no graph yet.

    For layers that cannot be made again: `copy` would save and load them. `build` and `quantize`
    are wrapped for each object when it is made, losses are collected in a list of its own.
    """
    twin = type(layer).__new__(type(layer))
    wrapped = ("build", "quantize")
    vars(twin).update((k, v) for k, v in vars(layer).items() if k not in wrapped)
    vars(twin).update(_inbound_nodes=[], _outbound_nodes=[], _losses=[], _loss_ids=set(), name=name)
    return twin


def rename(operation: Any, name: str) -> None:
    """Names an operation this package has just made (never one of the user's)."""
    operation.name = name


def compile_arguments(model: keras.Model) -> dict[str, Any] | None:
    """What `compile` was called with, as live objects; None where nothing was.

    The public `get_compile_config` writes them down, and cannot read a user's own loss again.
    """
    arguments = getattr(model, "_compile_config", None)
    return dict(arguments.config) if model.compiled and arguments is not None else None


def attributes(operation: Any) -> dict[str, Any]:
    """What a raw operation was made with: it has no `get_config` that says all of it."""
    public = (item for item in vars(operation).items() if not item[0].startswith("_"))
    return {key: value for key, value in public if key != "name"}


def new_operation(cls: type, name: str, **attributes: Any) -> Any:
    """A raw operation. Older releases take no name when they make one."""
    operation = cls(**attributes)
    operation.name = name
    return operation


def trace(function: Any, shape: tuple[int | None, ...]) -> list[tuple] | None:
    """The Keras operations a function makes of one tensor of this shape, in order.

    Returns:
        (operation, its arguments) for each call, with `("tensor", i)` for the result of the i-th
        and `("tensor", -1)` for the function's argument; the result is the last one. None if the
        function fails, reads another tensor, calls a layer that it did not make, or makes
        anything but one tensor of the given shape.
    """
    probe = keras.KerasTensor(shape)
    try:
        result = function(probe)
    except Exception:  # noqa: BLE001  a user's function may fail in any way it likes
        return None
    if not isinstance(result, keras.KerasTensor) or tuple(result.shape) != shape:
        return None
    nodes = _nodes_between(probe, result)
    places = {id(probe): -1}
    places |= {id(t): i for i, node in enumerate(nodes) for t in node.outputs}
    old = [_forget(node) for node in _after(probe, nodes)]
    foreign = any(id(t) not in places for node in nodes for t in node.input_tensors)
    if foreign or any(old) or len(old) < len(nodes):
        return None
    return [(node.operation, _placed(node, places)) for node in nodes]


def _nodes_between(probe: Any, result: Any) -> list[Any]:
    """The calls that lead to a tensor, producers first, back to the probe or to a source."""
    seen, nodes, stack = {id(probe)}, [], [result]
    while stack:
        tensor = stack[-1]
        if id(tensor) in seen or getattr(tensor, "_keras_history", None) is None:
            seen.add(id(stack.pop()))
            continue
        node = node_of(tensor)
        waiting = [t for t in node.input_tensors if id(t) not in seen]
        if waiting:
            stack.extend(waiting)
            continue
        seen.update(id(t) for t in node.outputs)
        nodes.append(node)
    return nodes


def _after(probe: Any, nodes: list[Any]) -> list[Any]:
    """The calls that a probe has led to; others are part of a graph of the user's."""
    made, found = {id(probe)}, []
    for node in nodes:
        if any(id(t) in made for t in node.input_tensors):
            made.update(id(t) for t in node.outputs)
            found.append(node)
    return found


def _forget(node: Any) -> bool:
    """Undoes a call; True if the operation has others, so that it is older than the probe."""
    calls = node.operation._inbound_nodes
    calls.remove(node)
    return bool(calls)


def _placed(node: Any, places: dict[int, int]) -> tuple:
    def place(x):
        return ("tensor", places[id(x)]) if isinstance(x, keras.KerasTensor) else x

    return tree.map_structure(place, (node.arguments.args, node.arguments.kwargs))


def sublayers(operation: Any) -> list[Any]:
    """A layer and all layers inside it; nothing for a raw operation.

    A wrapper or a custom layer keeps its Embedding or Dense where no public property shows it.
    """
    return operation._flatten_layers() if isinstance(operation, keras.Layer) else []


def own_weights(layer: Any) -> list[Any]:
    """The weights a layer made itself: `layer.weights` holds those of its sublayers too."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def copy_mask(source: Any, target: Any) -> Any:
    """Gives `target` the mask that Keras hung on `source`; a changed copy of a tensor loses it.

    Some tensors take no attribute; newer releases keep a table for them.
    """
    get = getattr(keras.src.backend, "get_keras_mask", None)
    mask = get(source) if get else getattr(source, "_keras_mask", None)
    if mask is None:
        return target
    if get:
        keras.src.backend.set_keras_mask(target, mask)
    else:
        target._keras_mask = mask
    return target


def names(model: keras.Model) -> tuple[list[str], list[str]]:
    """The names of the inputs and outputs: those of the layers, which survive saving.

    The names of the tensors do not, and a Sequential has no `output_names`.
    """
    functional = functional_inside(model)
    inputs = [maker_of(t).name for t in functional.inputs]
    return inputs, list(functional.output_names)


def lambda_options(layer: keras.layers.Lambda) -> dict[str, Any]:
    """The output shape and mask function a Lambda was given: stored under private names only."""
    return {"output_shape": layer._output_shape, "mask": layer.mask}


def rnn(
    step: Any,
    sequences: Any,
    states: list,
    mask: Any,
    every_output: bool,
    zero_output_for_mask: bool,
) -> tuple[Any, Any, list]:
    """The backend's loop over the second axis, as the recurrent layers run it."""
    return backend.rnn(
        step,
        sequences,
        states,
        mask=mask,
        input_length=sequences.shape[1],
        zero_output_for_mask=zero_output_for_mask,
        return_all_outputs=every_output,
    )


def legacy_backend() -> Any:
    """What `keras.backend` was in Keras 2, for functions saved then. Only TensorFlow has it all."""
    return import_module("keras.src.legacy.backend")


def load_archive(archive: Any, custom_objects: dict[str, Any], safe_mode: bool) -> keras.Model:
    """A `.keras` archive in memory; the public function takes a path only."""
    return saving_lib.load_model(archive, custom_objects, compile=False, safe_mode=safe_mode)


def model_from_hdf5_config(config: dict, known: dict[str, Any], safe_mode: bool) -> keras.Model:
    """As Keras 3 reads the configuration it wrote to HDF5."""
    with keras_option_scope(use_legacy_config=True), SafeModeScope(safe_mode):
        return saving_utils.model_from_config(config, custom_objects=known)
