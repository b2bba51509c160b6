"""The steps of recurrent cells on many lanes at once, and the loop over time.

Lanes are two axes in front of the batch: D directions and M lanes. A step takes what the inputs
add to every gate, (D, M, batch, gates · units), and the states, (D, M, batch, units) each.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import layers, ops

from parallel_fuse import _keras

Tensor = Any
Step = Callable[[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]

GATES = {layers.LSTM: 4, layers.GRU: 3, layers.SimpleRNN: 1}
STATES = {layers.LSTM: 2, layers.GRU: 1, layers.SimpleRNN: 1}


def step_of(layer: Any, kernel: Tensor, bias: Tensor | None, noise: Tensor | None) -> Step:
    """One step of the layers that are configured like this one.

    Args:
        kernel: (D, M, units, gates · units), of the states.
        bias: (D, M, 1, gates · units), of the states; a GRU's with `reset_after` only.
        noise: (gates or 1, D, M, batch, units), what the state is multiplied by on its way in.
    """
    return STEPS[type(layer)](layer, kernel, bias, noise)


def _lstm(layer: Any, kernel: Tensor, bias: Tensor | None, noise: Tensor | None) -> Step:
    product = product_with(kernel, noise)

    def step(inputs: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        hidden, carry = states
        i, f, c, o = ops.split(inputs + product(hidden), 4, axis=-1)
        gate = layer.recurrent_activation
        carry = gate(f) * carry + gate(i) * layer.activation(c)
        hidden = gate(o) * layer.activation(carry)
        return hidden, [hidden, carry]

    return step


def _gru(layer: Any, kernel: Tensor, bias: Tensor | None, noise: Tensor | None) -> Step:
    """The reset gate scales the product (`reset_after`), or the state before it."""
    cut = 2 * layer.units
    gates = product_with(kernel[..., :cut], None if noise is None else noise[:2])
    rest = product_with(kernel[..., cut:], None if noise is None else noise[2:])
    whole = product_with(kernel, noise)

    def candidate_after(inputs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        inner = whole(hidden) if bias is None else whole(hidden) + bias
        (x_z, x_r, x_h), (h_z, h_r, h_h) = (ops.split(t, 3, axis=-1) for t in (inputs, inner))
        reset = layer.recurrent_activation(x_r + h_r)
        return layer.recurrent_activation(x_z + h_z), x_h + reset * h_h

    def candidate_before(inputs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        x_z, x_r, x_h = ops.split(inputs, 3, axis=-1)
        h_z, h_r = ops.split(gates(hidden), 2, axis=-1)
        reset = layer.recurrent_activation(x_r + h_r)
        return layer.recurrent_activation(x_z + h_z), x_h + rest(reset * hidden)

    candidate = candidate_after if layer.reset_after else candidate_before

    def step(inputs: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        update, new = candidate(inputs, states[0])
        hidden = update * states[0] + (1 - update) * layer.activation(new)
        return hidden, [hidden]

    return step


def _simple(layer: Any, kernel: Tensor, bias: Tensor | None, noise: Tensor | None) -> Step:
    product = product_with(kernel, noise)

    def step(inputs: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        hidden = layer.activation(inputs + product(states[0]))
        return hidden, [hidden]

    return step


STEPS = {layers.LSTM: _lstm, layers.GRU: _gru, layers.SimpleRNN: _simple}


def product_with(kernel: Tensor, noise: Tensor | None) -> Callable[[Tensor], Tensor]:
    """state → state · kernel; with noise of its own for each part of the kernel's columns."""
    if noise is None:
        return lambda state: ops.matmul(state, kernel)
    factors = ops.unstack(noise, noise.shape[0])
    parts = ops.split(kernel, len(factors), axis=-1)

    def product(state: Tensor) -> Tensor:
        found = [ops.matmul(state * one, part) for one, part in zip(factors, parts)]
        return found[0] if len(found) == 1 else ops.concatenate(found, axis=-1)

    return product


def over_time(
    step: Step, inputs: Tensor, states: list[Tensor], mask: Tensor | None, layer: Any
) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
    """Runs a step along time.

    Args:
        inputs: (D, time, M, batch, gates · units).
        states: (D, M, batch, units) each.
        mask: (D, time, M or 1, batch, 1), True where a step counts; elsewhere the states stay.
        layer: says whether to unroll, to keep all outputs, and what stands for a masked one.

    Returns:
        The last output, all outputs (the last alone, if only that is kept), the last states.
    """
    keep, to_zero = layer.return_sequences, layer.zero_output_for_mask
    if layer.unroll or keras.config.backend() == "torch":
        return _unrolled(step, inputs, states, mask, keep, to_zero)
    return _keras.rnn(
        step,
        inputs,
        states,
        mask,
        every_output=keep,
        zero_output_for_mask=to_zero,
    )


def _unrolled(
    step: Step,
    inputs: Tensor,
    states: list[Tensor],
    mask: Tensor | None,
    keep: bool,
    to_zero: bool,
) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
    """Keras' own unrolled loop takes no mask for states of more than two axes."""
    length = inputs.shape[1]
    zeros = output = ops.zeros_like(states[0])
    masks = [None] * length if mask is None else ops.unstack(mask, length, axis=1)
    outputs = []
    for given, counts in zip(ops.unstack(inputs, length, axis=1), masks):
        new, after = step(given, states)
        if counts is not None:
            new = ops.where(counts, new, zeros if to_zero else output)
            after = [ops.where(counts, one, old) for one, old in zip(after, states)]
        output, states = new, after
        outputs.append(output)
    return output, ops.stack(outputs if keep else outputs[-1:], axis=1), states
