"""The last resort: layers of any class that have no rule, mapped over their stacked weights.

    x0 ── Own ── y0
    x1 ── Own ── y1   →   (M, batch, …) ── vectorized_map(Own.call) ── (M, batch, …)
    x2 ── Own ── y2

The class's own `call` runs once, and the backend turns each of its operations into one over all
lanes. Assumes a `call` of tensors that keeps no state, draws nothing and adds no loss: a trial in
training says whether that is so.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from keras import layers, ops, tree

from parallel_fuse import _keras
from parallel_fuse.activations import activation_of
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call, Value
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.kinds.weights import stacked, unstacked
from parallel_fuse.lanes import LEADING, Layout
from parallel_fuse.layers.vectorized import Vectorized
from parallel_fuse.plan import Bundle
from parallel_fuse.policy import Policy
from parallel_fuse.wording import first_line

MANY, SMALL = 8, 4096  # lanes; parameters of one lane
LOOPS = (layers.RNN, layers.Bidirectional)  # a mapped loop does not run under XLA
TENSORS = ("mask", "initial_state")  # keywords that may hold them
UNKNOWN = 4  # a size for the trial where the shape tells none
BATCH = 3
TRIAL = 1e-2  # of the largest value: half precision is no error, another lane's weights are


def may_be_mapped(call: Call) -> bool:
    """Any layer but those whose `call` is not all there is to know."""
    layer = call.operation
    if not isinstance(layer, layers.Layer) or isinstance(layer, layers.Lambda):
        return False
    if any(isinstance(one, LOOPS) for one in _keras.sublayers(layer)):
        return False
    opaque = hasattr(type(layer), "save_assets") or _keras.functional_inside(layer) is not None
    values = tree.flatten(call.args)
    plain = len(call.args) == 1 and all(isinstance(v, Value) for v in values) and values
    return not opaque and bool(plain) and set(call.kwargs) <= {"training", *TENSORS}


def signature(call: Call) -> dict:
    layer = call.operation
    if any(getattr(weight, "constraint", None) is not None for weight in layer.weights):
        raise Reject("a constraint on a weight of a layer without a rule")
    try:
        config = config_signature(call)
    except NotImplementedError:
        raise Reject("no get_config: a layer cannot be made again") from None
    weights = tuple((tuple(w.shape), w.dtype, w.trainable) for w in layer.weights)
    return {**config, "activation": _activation(layer), "weights": weights}


def _activation(layer: Any) -> Any:
    function = getattr(layer, "activation", None)
    return None if function is None else activation_of(function)


def check_by_trial(bundle: Bundle) -> None:
    """Raises Reject where the layer keeps state, draws numbers or adds a loss, or does not run."""
    layer = bundle.layers[0]
    if layer.losses:
        raise Reject("a loss or a regularizer of its own")
    try:
        data, more = _data(bundle.calls[0])
        state = [np.array(v) for v in layer.non_trainable_variables]
        after = _trial(layer, data, more)
        alike = all(_mapped_alike(bundle, rows) for rows in (1, BATCH))
    except Exception as error:  # noqa: BLE001 - a user's code may fail in any way
        raise Reject(f"a trial failed: {first_line(error)}") from None
    if any((np.array(a) != b).any() for a, b in zip(after, state)):
        raise Reject("keeps state or draws random numbers in training")
    if not alike:
        raise Reject("mapped, it does not give the same")


def _mapped_alike(bundle: Bundle, rows: int) -> bool:
    """Whether the lanes give mapped what they give alone. A backend's rule for mapping an operation
    may be wrong, for a single sample above all; and a lane may keep something of its own beside
    its weights and its configuration, where only the first lane's `call` would run.
    """
    members = bundle.layers
    common = {"name": "trial", "dtype": members[0].dtype_policy}
    mapped = Vectorized(twin_of(members[0], common), len(members), **common)
    data, more = _data(bundle.calls[0], rows)
    stacked = tree.map_structure(lambda x: ops.stack([x] * len(members)), (data, more))
    mapped(stacked[0], **stacked[1])
    for weight, array in zip(mapped.weights, stack(members)):
        weight.assign(array)
    found = tree.flatten(mapped(stacked[0], **stacked[1]))
    alone = zip(*(_alone(layer, data, more) for layer in members))
    return all(_close(one, ops.stack(lanes)) for one, lanes in zip(found, alone))


def _alone(layer: Any, data: Any, more: dict) -> list:
    variables = layer.trainable_variables, layer.non_trainable_variables
    return tree.flatten(layer.stateless_call(*variables, data, **more)[0])


def _close(one: Any, other: Any) -> bool:
    one, other = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in (one, other))
    scale = np.abs(other).max(initial=1e-30)
    return one.shape == other.shape and np.abs(one - other).max(initial=0) <= TRIAL * scale


def _trial(layer: Any, data: Any, more: dict) -> Sequence[Any]:
    """The state after one call in training. The layer itself is not changed."""
    keywords = {"training": True} if _keras.takes_training(layer) else {}
    variables = layer.trainable_variables, layer.non_trainable_variables
    _, state, losses = layer.stateless_call(
        *variables, data, return_losses=True, **more, **keywords
    )
    if losses:
        raise ValueError("it adds a loss")
    return state


def _data(call: Call, rows: int = BATCH) -> tuple[Any, dict]:
    """Random arguments of a call: the first, and the tensors given by keyword."""
    random = np.random.default_rng(0)

    def one(value: Value) -> Any:
        shape = (rows, *(UNKNOWN if size is None else size for size in value.shape[1:]))
        fill = np.ones if value.dtype == "bool" else np.zeros  # a mask, or ids
        values = random.normal(size=shape) if "float" in value.dtype else fill(shape)
        return ops.convert_to_tensor(values, dtype=value.dtype)

    more = {k: call.kwargs[k] for k in TENSORS if call.kwargs.get(k) is not None}
    return tree.map_structure(one, (call.args[0], more))


def build(bundle: Bundle, layout: Layout, common: dict, shared: bool = False) -> Vectorized:
    first = bundle.layers[0]
    template = twin_of(first, {**common, "name": first.name})
    return Vectorized(template, bundle.size, shared=shared, **common)


def stack(members) -> list:
    """Weights that are trained first, as a layer lists its own."""
    return stacked(map(_weights, members))


def _weights(layer: Any) -> list:
    weights = [*layer.trainable_weights, *layer.non_trainable_weights]
    return [ops.convert_to_numpy(weight) for weight in weights]


def pays(bundle: Bundle, policy: Policy) -> None:
    """Only many small lanes: a mapped operation may be a slower one."""
    size = sum(int(np.prod(w.shape)) for w in bundle.layers[0].weights)
    if bundle.size < MANY or size > SMALL:
        lanes = f"{bundle.size} lanes of {size} parameters"
        raise Reject(f"{lanes}, mapped where {MANY} or more are small")


MAPPED = Lowering(
    name="vectorized-map",
    layouts=lambda bundle: (LEADING,),
    build=build,
    stack=stack,
    unstack=unstacked,
    accepts=check_by_trial,
    pays=pays,
    kernels=3,  # operations of the class's own, how many is not known
    portable=False,
)

VECTORIZED = Kind(
    handles=(),
    takes=may_be_mapped,
    signature=signature,
    lowerings=(
        replace(
            MAPPED,
            name="vectorized-map-shared",
            layouts=lambda bundle: None,
            build=partial(build, shared=True),
            makes=lambda bundle, layout: LEADING,
            shared=True,
        ),
        MAPPED,
    ),
    keywords=TENSORS,
    several=True,
    by_sample=False,
)
