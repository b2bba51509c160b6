"""M layers of any class as one: the class's own `call`, mapped over stacked weights."""

from typing import Any

import keras
from keras import ops, tree

from parallel_fuse import _keras
from parallel_fuse.layers._template import OfTemplate


@keras.saving.register_keras_serializable(package="parallel_fuse")
class Vectorized(OfTemplate):
    """Runs `template.call` once for all lanes, by `keras.ops.vectorized_map`.

    Input shape: (M, batch, …), or (batch, …) with `shared`; a list of such tensors if the
    template takes one; `mask` and `initial_state` alike. Output shape: (M, batch, …), or as many
    such tensors as the template makes.

    Args:
        template: a layer, or its serialised form, that computes one lane.
        count: M.
        shared: all lanes read one tensor, which has no lane axis.
    """

    def build(self, input_shape):
        nested = isinstance(input_shape[0], (tuple, list))
        specs = [keras.KerasTensor(tuple(s), self.compute_dtype) for s in as_list(input_shape)]
        self._lane_spec(specs if nested else specs[0])  # builds the template
        template = self.template
        weights = {id(w) for w in template.weights}
        self.own = [self._stacked(w, True) for w in template.trainable_variables]
        # What is no weight is the state of a seed that is never drawn from.
        self.fixed = [
            self._stacked(v, False) if id(v) in weights else None
            for v in template.non_trainable_variables
        ]

    def _stacked(self, weight: Any, trainable: bool) -> Any:
        return self.add_weight(
            shape=(self.count, *weight.shape),
            dtype=weight.dtype,
            trainable=trainable,
            initializer="zeros",
            autocast=getattr(weight, "autocast", True),
            name=weight.name,
        )

    def _lane_spec(self, specs: Any, **more: Any) -> Any:
        """What the template makes of one lane, as far as shapes say."""
        cut = slice(None) if self.shared else slice(1, None)
        lane = lambda x: keras.KerasTensor(x.shape[cut], x.dtype)  # noqa: E731
        return self.template(tree.map_structure(lane, specs), **tree.map_structure(lane, more))

    def compute_output_spec(self, inputs, training=None, mask=None, initial_state=None):
        lane = self._lane_spec(inputs, **_given(mask=mask, initial_state=initial_state))
        stacked = lambda x: keras.KerasTensor((self.count, *x.shape), x.dtype)  # noqa: E731
        return tree.map_structure(stacked, lane)

    def call(self, inputs, training=None, mask=None, initial_state=None):
        keywords = {"training": training} if _keras.takes_training(self.template) else {}
        data = (inputs, _given(mask=mask, initial_state=initial_state))
        states = self.template.non_trainable_variables

        def lane(elements):
            own, mapped, mine = elements
            mapped = iter(mapped)
            fixed = [s if w is None else next(mapped) for s, w in zip(states, self.fixed)]
            x, more = data if self.shared else mine
            return self.template.stateless_call(own, fixed, x, **more, **keywords)[0]

        own = [ops.convert_to_tensor(w) for w in self.own]
        fixed = [ops.convert_to_tensor(w) for w in self.fixed if w is not None]
        return ops.vectorized_map(lane, (own, fixed, () if self.shared else data))


def as_list(shapes: Any) -> list:
    return list(shapes) if isinstance(shapes[0], (tuple, list)) else [shapes]


def _given(**options: Any) -> dict:
    """Keras writes an open mask as None, or as one None for each input."""
    return {k: v for k, v in options.items() if any(x is not None for x in tree.flatten(v))}
