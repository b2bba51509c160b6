"""LSTM, GRU and SimpleRNN: M loops over time become one.

    x0 ── LSTM ── y0
    x1 ── LSTM ── y1   →   (M, batch, time, n) ── StackedRNN ── (M, batch, …, units)
    x2 ── LSTM ── y2

Masks, initial states and returned states are lanes, too. Dropout draws for each lane, in training,
other numbers than the lanes did. Assumes that no state outlives the call.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import layers, tree

from parallel_fuse import _backend
from parallel_fuse.activations import activation_of
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call, Value
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.lanes import LEADING, Layout
from parallel_fuse.layers.recurrent import StackedRNN, directions_of
from parallel_fuse.options import check_options
from parallel_fuse.plan import Bundle
from parallel_fuse.policy import Policy

ACTIVATIONS = ("activation", "recurrent_activation")
HISTORY = ("unit_forget_bias", "recurrent_initializer", "recurrent_activation")
MANY_UNITS = 32  # measured: 16 units gain, 64 lose
# One step of all lanes leaves the cache sooner than the steps of each: rows · units / lanes.
ROWS_A_LANE = {layers.LSTM: 32, layers.GRU: 170, layers.SimpleRNN: 32}
FEW_LANES = 4


def signature(call: Call) -> dict:
    check_call(call)
    return {**config_signature(call, drop=HISTORY), **functions(call.operation)}


def check_call(call: Call) -> None:
    """Raises Reject unless it is called on sequences, states and a mask that can be lanes."""
    one = directions_of(call.operation)[0]
    masked = call.kwargs.get("mask") is not None
    if masked and getattr(one, "unroll", False) and getattr(one, "zero_output_for_mask", False):
        # On TensorFlow those of the reversed mask's mirror image, on JAX none.
        raise Reject("unrolled over a mask, zero_output_for_mask: Keras zeroes other steps")
    states = tree.flatten(call.kwargs.get("initial_state"))
    given = [*call.args, *states]
    if not all(value is None or isinstance(value, Value) for value in tree.flatten(given)):
        raise Reject("an initial state that is no tensor of the model")
    if len(call.inputs[0].shape) != 3:
        raise Reject(f"sequences with {len(call.inputs[0].shape)} axes, expected 3")


def functions(layer: Any) -> dict:
    """The activations, and a check of all else that a recurrent layer keeps in its cell.

    Raises:
        Reject: what it does cannot be done for all lanes at once.
    """
    cell = layer.cell
    if layer.stateful:
        raise Reject("stateful: its state outlives the call")
    if cell.dropout and not cell.recurrent_dropout and hasattr(cell, "dropout_mask_count"):
        raise Reject("implementation 1 with dropout: not kept when a model is saved")
    check_options(vars(cell).items())
    return {name: activation_of(getattr(cell, name)) for name in ACTIVATIONS if hasattr(cell, name)}


def own_noise(bundle: Bundle) -> None:
    cells = {id(one.cell): one.cell for layer in bundle.layers for one in directions_of(layer)}
    seeds = [c.seed for c in cells.values() if c.dropout or c.recurrent_dropout]
    twice = next((seed for seed in seeds if seed is not None and seeds.count(seed) > 1), None)
    if twice is not None:
        raise Reject(f"seed {twice}: lanes of one seed draw the same noise, one layer would not")


def pays(bundle: Bundle, policy: Policy) -> None:
    """Small lanes, where no kernel runs a whole loop."""
    one = directions_of(bundle.layers[0])[0]
    if one.units > MANY_UNITS:
        raise Reject(f"units {one.units}: above {MANY_UNITS} a loop is bound by arithmetic")
    most = ROWS_A_LANE[type(one)] * bundle.size // one.units
    if bundle.size < FEW_LANES or policy.batch > most:
        lanes = f"{bundle.size} lanes of {one.units} units, batch {policy.batch}"
        raise Reject(f"{lanes}: one loop may be slower below {FEW_LANES} lanes, above batch {most}")
    if runs_as_one_kernel(one) and _backend.runs_loops_as_one_kernel():
        raise Reject("the backend runs such a layer as one kernel (cuDNN)")


def runs_as_one_kernel(layer: Any) -> bool:
    """What Keras asks of a layer before it tries such a kernel."""
    plain = layer.use_bias and not layer.unroll and not layer.recurrent_dropout
    usual = (keras.activations.tanh, keras.activations.sigmoid)
    found = tuple(getattr(layer, name, None) for name in ACTIVATIONS)
    return bool(plain and found == usual and getattr(layer, "reset_after", True))


def template(layer: Any, common: dict) -> Any:
    """A layer like this one, to say what a lane is."""
    changes = {
        name: activation_of(getattr(layer, name)).function
        for name in ACTIVATIONS
        if hasattr(layer, name)
    }
    return twin_of(layer, {**common, "name": layer.name}, **changes)


def build(bundle: Bundle, layout: Layout, common: dict, shared: bool = False) -> StackedRNN:
    return StackedRNN(template(bundle.layers[0], common), bundle.size, shared=shared, **common)


def stack(members) -> list[np.ndarray]:
    """Kernels (M, n, D, gates · units) of D directions; all else (D, M, …)."""
    lanes = [[one.get_weights() for one in directions_of(layer)] for layer in members]
    kernels, *rest = (list(zip(*column)) for column in zip(*map(_by_weight, lanes)))
    return [np.stack([np.stack(one, axis=-2) for one in zip(*kernels)]),
            *(np.stack([np.stack(one) for one in weight]) for weight in rest)]  # fmt: skip


def _by_weight(lane: list[list[np.ndarray]]) -> list[tuple[np.ndarray, ...]]:
    """Kernel, recurrent kernel and bias, each of all directions."""
    return list(zip(*lane))


def unstack(arrays, count: int) -> list[list[np.ndarray]]:
    kernel, *rest = arrays
    return [
        [array for d in range(kernel.shape[2]) for array in
         (kernel[m, :, d], *(weight[d, m] for weight in rest))]
        for m in range(count)
    ]  # fmt: skip


def stack_shared(members) -> list[np.ndarray]:
    """As `stack`, but kernels (n, M, D, gates · units): one wide product."""
    kernel, *rest = stack(members)
    return [np.swapaxes(kernel, 0, 1), *rest]


def unstack_shared(arrays, count: int) -> list[list[np.ndarray]]:
    kernel, *rest = arrays
    return unstack([np.swapaxes(kernel, 0, 1), *rest], count)


STACKED = Lowering(
    name="stacked-rnn",
    layouts=lambda bundle: (LEADING,),
    build=build,
    stack=stack,
    unstack=unstack,
    accepts=own_noise,
    pays=pays,
    portable=False,
    any_shape=True,
)

SHARED = replace(
    STACKED,
    name="stacked-rnn-shared",
    layouts=lambda bundle: None,
    build=partial(build, shared=True),
    stack=stack_shared,
    unstack=unstack_shared,
    makes=lambda bundle, layout: LEADING,
    shared=True,
)

RECURRENT = Kind(
    handles=(layers.LSTM, layers.GRU, layers.SimpleRNN),
    signature=signature,
    lowerings=(SHARED, STACKED),
    keywords=("mask", "initial_state"),
    several=True,
)
