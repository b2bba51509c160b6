"""M recurrent layers as one: what the inputs add to the gates by one product outside of the loop,
then one loop over time for all lanes.
"""

from typing import Any

import keras
from keras import layers, ops

from parallel_fuse.layers._recurrence import GATES, STATES, over_time, step_of
from parallel_fuse.layers._template import OfTemplate

Tensor = Any
Shape = tuple[int | None, ...]


@keras.saving.register_keras_serializable(package="parallel_fuse")
class StackedRNN(OfTemplate):
    """M LSTM, GRU or SimpleRNN layers, or M Bidirectional ones, with weights of their own.

    Input shape: (M, batch, time, features), or (batch, time, features) with `shared`; `mask` and
    `initial_state` as for one lane, (M, …), or without the lane axis with `shared`.
    Output shape: (M, …), each of the outputs that one lane has.

    Args:
        template: one of these layers, or its serialised form, that says what a lane is. The two
            directions of a Bidirectional are alike but for `go_backwards`.
        count: M.
        shared: all lanes read one tensor, which has no lane axis.
    """

    def __init__(self, template: Any, count: int, shared: bool = False, **kwargs):
        super().__init__(template, count, shared, **kwargs)
        cell = self.directions[0].cell
        if cell.dropout or cell.recurrent_dropout:
            self.seed_generator = keras.random.SeedGenerator(cell.seed)

    @property
    def directions(self) -> tuple[Any, ...]:
        """The layers inside one lane."""
        return directions_of(self.template)

    def build(self, sequences_shape, initial_state_shape=None):
        one, lanes = self.directions[0], (len(self.directions), self.count)
        features, width = sequences_shape[-1], GATES[type(one)] * one.units
        in_front = (features, self.count) if self.shared else (self.count, features)
        self.kernel = self._weight("kernel", (*in_front, lanes[0], width))
        self.recurrent_kernel = self._weight("recurrent", (*lanes, one.units, width))
        twice = (2,) if getattr(one, "reset_after", False) else ()
        self.bias = self._weight("bias", (*lanes, *twice, width)) if one.use_bias else None

    def _weight(self, name: str, shape: tuple[int, ...]) -> Any:
        cell = self.directions[0].cell
        return self.add_weight(
            name="recurrent_kernel" if name == "recurrent" else name,
            shape=shape,
            initializer="zeros",
            regularizer=getattr(cell, f"{name}_regularizer"),
            constraint=getattr(cell, f"{name}_constraint"),
        )

    def call(self, sequences, initial_state=None, mask=None, training=False):
        one, shape = self.directions[0], ops.shape(sequences)
        batch = shape[0 if self.shared else 1]
        noise = self._noise(one.recurrent_dropout, (batch, one.units), training)
        bias, of_states = self._biases()
        kernel = ops.convert_to_tensor(self.recurrent_kernel)
        inputs = self._projected(sequences, batch, training)
        last, outputs, states = over_time(
            step_of(one, kernel, of_states, noise),
            self._turned(inputs if bias is None else inputs + ops.expand_dims(bias, 1)),
            self._states(initial_state, batch),
            None if mask is None else self._turned(self._mask(mask)),
            one,
        )
        return self._lanes(outputs if one.return_sequences else last, states)

    def _biases(self) -> tuple[Tensor | None, Tensor | None]:
        """Of the inputs and of the states, (D, M, 1, gates · units) each."""
        if self.bias is None:
            return None, None
        bias = ops.convert_to_tensor(self.bias)
        if len(bias.shape) == 3:
            return ops.expand_dims(bias, 2), None
        return bias[:, :, :1], bias[:, :, 1:]

    def _projected(self, sequences: Tensor, batch: Any, training: Any) -> Tensor:
        """(D, time, M, batch, gates · units)."""
        kernel = ops.convert_to_tensor(self.kernel)
        of_kernel = "fmdg" if self.shared else "mfdg"
        of_input = "btf" if self.shared else "mbtf"
        features = sequences.shape[-1]
        noise = self._noise(self.directions[0].dropout, (batch, 1, features), training)
        if noise is None:
            return ops.einsum(f"{of_input},{of_kernel}->dtmbg", sequences, kernel)
        factors = ops.unstack(noise, noise.shape[0])
        parts = ops.split(kernel, len(factors), axis=-1)
        # Gate by gate, with noise of its own, where the cells of the template do so.
        found = [
            ops.einsum(f"dmbtf,{of_kernel}->dtmbg", sequences * factor, part)
            for factor, part in zip(factors, parts)
        ]
        return ops.concatenate(found, axis=-1)

    def _noise(self, rate: float, shape: tuple, training: Any) -> Tensor | None:
        """(gates or 1, D, M, *shape): zeros and what makes up for them."""
        if not training or not rate:
            return None
        times = getattr(self.directions[0].cell, "dropout_mask_count", 1)
        ones = ops.ones((times, len(self.directions), self.count, *shape), self.compute_dtype)
        return keras.random.dropout(ones, rate, seed=self.seed_generator)

    def _mask(self, mask: Tensor) -> Tensor:
        """(D, time, M or 1, batch, 1)."""
        mask = ops.cast(mask, "bool")
        mask = ops.expand_dims(mask, 0) if self.shared else mask
        mask = ops.expand_dims(ops.transpose(mask, (2, 0, 1)), (0, -1))
        return ops.repeat(mask, len(self.directions), axis=0)

    def _turned(self, tensor: Tensor) -> Tensor:
        """(D, time, …) with time reversed in the directions that go backwards."""
        backwards = [one.go_backwards for one in self.directions]
        if not any(backwards):
            return tensor
        parts = ops.split(tensor, len(backwards), axis=0)
        turned = [ops.flip(part, 1) if back else part for part, back in zip(parts, backwards)]
        return turned[0] if len(turned) == 1 else ops.concatenate(turned, axis=0)

    def _states(self, given: Any, batch: Any) -> list[Tensor]:
        """(D, M, batch, units) each."""
        one, count = self.directions[0], len(self.directions)
        shape, each = (count, self.count, batch, one.units), STATES[type(one)]
        if given is None:
            return [ops.zeros(shape, self.compute_dtype) for _ in range(each)]
        given = list(given) if isinstance(given, (list, tuple)) else [given]
        given = [ops.cast(state, self.compute_dtype) for state in given]
        stacked = [ops.stack(given[k::each]) for k in range(each)]
        if self.shared:
            return [ops.broadcast_to(ops.expand_dims(state, 1), shape) for state in stacked]
        return stacked

    def _lanes(self, outputs: Tensor, states: list[Tensor]) -> Any:
        """The outputs of the lanes, in the order of the template's."""
        template, sequences = self.template, self.directions[0].return_sequences
        if sequences:
            outputs = ops.transpose(outputs, (0, 2, 3, 1, 4))
        found = list(ops.unstack(outputs, len(self.directions)))
        if sequences and len(found) == 2:
            found[1] = ops.flip(found[1], 2)
        results = merged(found, getattr(template, "merge_mode", None))
        if template.return_state:
            apart = [ops.unstack(state, len(self.directions)) for state in states]
            results += [state for direction in zip(*apart) for state in direction]
        return results[0] if len(results) == 1 else tuple(results)

    def compute_output_shape(self, sequences_shape, initial_state_shape=None):
        template, one = self.template, self.directions[0]
        batch, time, _ = sequences_shape if self.shared else sequences_shape[1:]
        mode, count = getattr(template, "merge_mode", None), len(self.directions)
        steps = (time,) if one.return_sequences else ()
        width = one.units * (2 if mode == "concat" else 1)
        shapes = [(self.count, batch, *steps, width)] * (1 if mode else count)
        if template.return_state:
            shapes += [(self.count, batch, one.units)] * (STATES[type(one)] * count)
        return shapes[0] if len(shapes) == 1 else tuple(shapes)

    def compute_mask(self, inputs, previous_mask):
        """Lanes carry none."""
        return


def directions_of(layer: Any) -> tuple[Any, ...]:
    if isinstance(layer, layers.Bidirectional):
        return layer.forward_layer, layer.backward_layer
    return (layer,)


def merged(found: list[Tensor], mode: str | None) -> list[Tensor]:
    """Forward and backward as a Bidirectional of this `merge_mode` puts them together."""
    if mode is None:
        return list(found)
    forward, backward = found
    if mode == "concat":
        return [ops.concatenate([forward, backward], axis=-1)]
    if mode == "mul":
        return [forward * backward]
    both = forward + backward
    return [both / 2 if mode == "ave" else both]
