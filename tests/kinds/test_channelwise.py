"""Pooling, padding, upsampling: what fuses, what does not."""

import keras
import pytest
from keras import layers

from parallel_fuse.kinds.channelwise import CHANNELWISE
from parallel_fuse.policy import Policy
from tests.asserts import assert_fuses, assert_rejects
from tests.builders import channel_towers, towers
from tests.devices import GROUPED_CONV

SHAPES = {1: (9, 6), 2: (9, 8, 6), 3: (5, 8, 7, 6)}

# name → (spatial axes, layer, its arguments)
EXAMPLES = {
    "max 1d": (1, layers.MaxPooling1D, {"pool_size": 3, "strides": 2, "padding": "same"}),
    "max 2d": (2, layers.MaxPooling2D, {"pool_size": (3, 2)}),
    "max 3d": (3, layers.MaxPooling3D, {"pool_size": (2, 3, 1)}),
    "average 1d": (1, layers.AveragePooling1D, {"pool_size": 3}),
    "average 2d": (2, layers.AveragePooling2D, {"pool_size": (2, 3), "padding": "same"}),
    "average 3d": (3, layers.AveragePooling3D, {"pool_size": 2, "strides": (1, 2, 1)}),
    "global max 1d": (1, layers.GlobalMaxPooling1D, {}),
    "global max 2d": (2, layers.GlobalMaxPooling2D, {"keepdims": True}),
    "global max 3d": (3, layers.GlobalMaxPooling3D, {}),
    "global average 1d": (1, layers.GlobalAveragePooling1D, {"keepdims": True}),
    "global average 2d": (2, layers.GlobalAveragePooling2D, {}),
    "global average 3d": (3, layers.GlobalAveragePooling3D, {"keepdims": True}),
    "zero padding 1d": (1, layers.ZeroPadding1D, {"padding": (1, 2)}),
    "zero padding 2d": (2, layers.ZeroPadding2D, {"padding": ((1, 0), (2, 3))}),
    "zero padding 3d": (3, layers.ZeroPadding3D, {"padding": (1, 0, 2)}),
    "upsampling 1d": (1, layers.UpSampling1D, {"size": 3}),
    "upsampling 2d": (2, layers.UpSampling2D, {"size": (2, 3), "interpolation": "bilinear"}),
    "upsampling 3d": (3, layers.UpSampling3D, {"size": (1, 2, 3)}),
}
if hasattr(layers, "AdaptiveAveragePooling1D"):  # newer releases of Keras
    EXAMPLES["adaptive average 1d"] = (1, layers.AdaptiveAveragePooling1D, {"output_size": 4})
    EXAMPLES["adaptive max 2d"] = (2, layers.AdaptiveMaxPooling2D, {"output_size": (3, 5)})


@pytest.mark.parametrize("name", EXAMPLES)
def test_channel_slices(name):
    rank, layer, arguments = EXAMPLES[name]
    model = channel_towers(lambda i, x: layer(**arguments)(x), SHAPES[rank])
    # one example of each rank under XLA: what the others compute there is Keras' affair
    operations = [layer.__name__, "Identity"]
    assert_fuses(model, layers=(3, 1), operations=operations, xla=name.startswith("max"))


CHANNELS_FIRST = {
    "max 2d": lambda: layers.MaxPooling2D((3, 2), data_format="channels_first"),
    "average 1d": lambda: layers.AveragePooling1D(3, 2, "same", data_format="channels_first"),
    "global average 2d": lambda: layers.GlobalAveragePooling2D(data_format="channels_first"),
    "global max 1d": lambda: layers.GlobalMaxPooling1D("channels_first", keepdims=True),
    "zero padding 2d": lambda: layers.ZeroPadding2D((1, 2), data_format="channels_first"),
    "upsampling 2d": lambda: layers.UpSampling2D((1, 3), data_format="channels_first"),
}


@pytest.mark.parametrize("name", CHANNELS_FIRST)
def test_channels_first(name):
    x = keras.Input((6, 8) if "1d" in name else (6, 9, 8))
    outputs = [CHANNELS_FIRST[name]()(x[:, s : s + 2]) for s in (0, 2, 4)]
    model = keras.Model(x, layers.Concatenate(axis=1)(outputs))
    assert_fuses(model, layers=(3, 1), xla=False)


@pytest.mark.parametrize("pool", [layers.MaxPooling1D, layers.GlobalAveragePooling1D])
def test_between_dense_levels_the_lanes_stay_in_front(pool):
    def branch(i, x):
        return layers.Dense(3)(pool()(layers.Dense(4)(x)))

    fused, _ = assert_fuses(towers(branch, (5, 6, 7)), layers=(15, 3))
    transposes = [op for op in fused.operations if type(op).__name__ == "Transpose"]
    assert len(transposes) == 2


def test_after_a_convolution_of_unknown_size():
    def branch(i, x):
        return layers.GlobalMaxPooling2D()(layers.Conv2D(4, 3)(x))

    model = channel_towers(branch, (None, None, 6))
    operations = [f"{GROUPED_CONV}2D", "GlobalMaxPooling2D", "Identity"]
    assert_fuses(model, layers=(6, 2), operations=operations)


def test_one_tensor_pooled_alike_is_pooled_once():
    x = keras.Input((9, 4))
    pooled = [layers.MaxPooling1D(3)(x) for _ in range(3)]
    model = keras.Model(x, layers.Concatenate()([layers.Dense(2)(one) for one in pooled]))
    fused, _ = assert_fuses(model, layers=(6, 2))
    assert sum(type(one) is layers.MaxPooling1D for one in fused.layers) == 1


def test_unequal_widths_after_a_wide_layer():
    x = keras.Input((9, 4))
    wide = [layers.MaxPooling1D(2)(layers.Conv1D(n, 3)(x)) for n in (3, 5, 2)]
    model = keras.Model(x, layers.Concatenate()(wide))
    assert_fuses(model, layers=(6, 2), operations=["Conv1D", "MaxPooling1D", "Identity"])


REJECTED = {
    "pool_size 2": lambda i: layers.MaxPooling1D(2 + i, strides=1, padding="same"),
    "keepdims False": lambda i: layers.GlobalAveragePooling1D(keepdims=i > 0),
    "padding": lambda i: layers.ZeroPadding1D((i, 1 - i)),
    "size 2": lambda i: layers.UpSampling1D(2 + 2 * i),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    x = keras.Input((9, 4))
    outputs = [REJECTED[reason](i)(x[..., 2 * i : 2 * i + 2]) for i in (0, 1)]
    assert_rejects(keras.Model(x, outputs), reason)


def test_masked_pooling_is_rejected():
    x = keras.Input((9, 4))
    masked = [layers.Masking()(x[..., s : s + 2]) for s in (0, 2)]
    outputs = [layers.GlobalAveragePooling1D()(one) for one in masked]
    # by this rule alone: others may find siblings among the operations that make the masks
    assert_rejects(keras.Model(x, outputs), "mask", kinds=(CHANNELWISE,))


def test_alone_behind_unlike_layers_it_does_not_pay():
    x = keras.Input((9, 4))
    convolved = [layers.Conv1D(3, 2 + i, padding="same")(x) for i in (0, 1)]
    model = keras.Model(x, [layers.MaxPooling1D()(one) for one in convolved])
    assert_rejects(model, "fewer kernels", policy=Policy())
