"""A grouped layer and what it must equal: separate stock convolutions on channel slices."""

from dataclasses import dataclass, field

import keras
import numpy as np
from keras import ops

from parallel_fuse.layers import GroupedConv1D, GroupedConv2D, GroupedConv3D

GROUPED = {1: GroupedConv1D, 2: GroupedConv2D, 3: GroupedConv3D}
STOCK = {1: keras.layers.Conv1D, 2: keras.layers.Conv2D, 3: keras.layers.Conv3D}


@dataclass(frozen=True)
class Case:
    """Sizes of one layer: channels and filters are those of one group."""

    name: str
    spatial: tuple
    groups: int
    channels: int
    filters: int
    kernel: tuple
    options: dict = field(default_factory=dict)

    @property
    def rank(self):
        return len(self.spatial)

    @property
    def channels_first(self):
        return self.options.get("data_format") == "channels_first"

    @property
    def terms(self):
        return self.channels * int(np.prod(self.kernel))


def inputs_for(case, batch, seed=0, dtype="float32"):
    channels = case.groups * case.channels
    shape = (channels, *case.spatial) if case.channels_first else (*case.spatial, channels)
    return np.random.default_rng(seed).normal(size=(batch, *shape)).astype(dtype)


def input_shape(case, batch=None, unknown=False):
    spatial = (None,) * case.rank if unknown else case.spatial
    channels = case.groups * case.channels
    return (batch, channels, *spatial) if case.channels_first else (batch, *spatial, channels)


def grouped_layer(case, seed=1, **options):
    options = {**case.options, **options}
    layer = GROUPED[case.rank](
        case.groups * case.filters, case.kernel, groups=case.groups, **options
    )
    layer.build(input_shape(case))
    rng = np.random.default_rng(seed)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])
    return layer


class Separate:
    """One stock convolution per group, channels last, which every device has."""

    def __init__(self, case, weights, **options):
        self.case = case
        options = {**case.options, **options, "data_format": "channels_last"}
        self.activation = keras.activations.get(options.pop("activation", None))
        self.layers = []
        for pieces in zip(*[np.split(w, case.groups, axis=-1) for w in weights]):
            layer = STOCK[case.rank](case.filters, case.kernel, **options)
            layer.build((None, *case.spatial, case.channels))
            layer.set_weights(pieces)
            self.layers.append(layer)

    def __call__(self, inputs):
        if self.case.channels_first:
            inputs = ops.moveaxis(inputs, 1, -1)
        slices = ops.split(inputs, self.case.groups, axis=-1)
        outputs = ops.concatenate([f(x) for f, x in zip(self.layers, slices)], axis=-1)
        return self.activation(
            ops.moveaxis(outputs, -1, 1) if self.case.channels_first else outputs
        )

    @property
    def variables(self):
        return list(zip(*[layer.trainable_variables for layer in self.layers]))


def assert_close(found, wanted, terms, dtype="float32"):
    """Rounding grows with the root of the terms of a sum; 8 standard deviations are allowed."""
    found, wanted = (ops.convert_to_numpy(a).astype("float64") for a in (found, wanted))
    assert found.shape == wanted.shape
    eps = {"bfloat16": 2.0**-8}.get(dtype) or np.finfo(dtype).eps
    bound = 8 * eps * np.sqrt(terms) * np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)
