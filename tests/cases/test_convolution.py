"""Convolutional models as people write them; each test is named after the case it is made from."""

import keras
import pytest
from keras import layers, ops

from tests.asserts import assert_fuses
from tests.devices import GROUPED_CONV, channels_first


def conv_bn_relu(x, filters, size, **options):
    x = layers.Conv2D(filters, size, use_bias=False, **options)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def convolutions(model) -> list[int]:
    """The groups of every convolution, the fewest first."""
    return sorted(one.groups for one in model.layers if hasattr(one, "groups"))


def test_r06_resnext_block_of_full_width_branches():
    """1x1 on the whole tensor, then 3x3 with a stride in each branch: wide, then grouped."""
    x = keras.Input((8, 9, 5))
    branches = []
    for _ in range(4):
        branch = conv_bn_relu(x, 3, 1, kernel_regularizer="l2")
        branches.append(conv_bn_relu(branch, 3, 3, strides=2, padding="same"))
    joined = layers.Concatenate(axis=-1)(branches)
    block = layers.BatchNormalization()(layers.Conv2D(7, 1, use_bias=False)(joined))
    shortcut = layers.BatchNormalization()(layers.Conv2D(7, 1, strides=2, use_bias=False)(x))
    model = keras.Model(x, layers.ReLU()(layers.Add()([block, shortcut])))
    fused, _ = assert_fuses(model, regions=2, layers=(4 * 6 + 2, 6 + 1))
    assert convolutions(fused) == [1, 1, 1, 4]


@pytest.mark.parametrize("axis", [pytest.param(1, marks=channels_first), 3])
def test_r07_q08_channel_slices_convolved_and_joined(axis):
    """A grouped convolution written by hand, with the channels first or last."""
    data_format = "channels_first" if axis == 1 else "channels_last"
    x = keras.Input((10, 8, 9) if axis == 1 else (8, 9, 10))
    groups = []
    for start in range(0, 10, 2):
        piece = x[:, start : start + 2] if axis == 1 else x[:, :, :, start : start + 2]
        groups.append(layers.Conv2D(3, (3, 2), use_bias=False, data_format=data_format)(piece))
    model = keras.Model(x, layers.Concatenate(axis=axis)(groups))
    assert_fuses(model, layers=(5, 1), operations=[f"{GROUPED_CONV}2D", "Identity"])


def test_r08_inception_time_names_the_kernel_sizes():
    x = keras.Input((12, 6))
    bottleneck = layers.Conv1D(4, 1, padding="same", use_bias=False)(x)
    convolved = [
        layers.Conv1D(3, size, padding="same", use_bias=False, name=f"size_{size}")(bottleneck)
        for size in (7, 5, 3)
    ]
    pooled = layers.Conv1D(3, 1, use_bias=False)(layers.MaxPooling1D(3, 1, padding="same")(x))
    joined = layers.Concatenate(axis=2)([*convolved, pooled])
    model = keras.Model(x, layers.ReLU()(layers.BatchNormalization()(joined)))
    _, report = assert_fuses(model, regions=0)
    reasons = " ".join(str(miss) for miss in report.rejections)
    assert "kernel_size" in reasons
    assert "size_7" in reasons


@channels_first
def test_r13_two_groups_channels_first_of_unknown_size():
    """AlexNet: split in two, convolve, join, three times over."""
    x = image = keras.Input((8, None, None))
    for filters, size in ((3, 5), (5, 3), (2, 3)):
        half = x.shape[1] // 2
        conv = {"padding": "same", "activation": "tanh", "data_format": "channels_first"}
        parts = [layers.Conv2D(filters, size, **conv)(x[:, s : s + half]) for s in (0, half)]
        x = layers.Concatenate(axis=1)(parts)
    model = keras.Model(image, x)
    operations = [*[f"{GROUPED_CONV}2D"] * 3, "Identity"]
    assert_fuses(model, regions=3, layers=(6, 3), operations=operations)


def test_r17_inception_block_of_unequal_filters():
    """Three 1x1 convolutions of one tensor become one; what follows each differs."""

    def unit(x, filters, *size):
        x = layers.Conv2D(filters, size, padding="same", use_bias=False)(x)
        return layers.ReLU()(layers.BatchNormalization(scale=False)(x))

    x = keras.Input((8, 9, 5))
    one, five, three = unit(x, 4, 1, 1), unit(x, 3, 1, 1), unit(x, 6, 1, 1)
    five = unit(five, 7, 5, 5)
    three = unit(unit(three, 5, 3, 3), 5, 3, 3)
    pooled = unit(layers.AveragePooling2D(3, 1, padding="same")(x), 2, 1, 1)
    model = keras.Model(x, layers.Concatenate(axis=3)([one, five, three, pooled]))
    fused, _ = assert_fuses(model)
    assert len(convolutions(model)) - len(convolutions(fused)) == 2


def test_r05_class_and_box_heads_on_shared_maps():
    """At each scale two convolutions read one map; the scales stay apart."""
    x = keras.Input((8, 9, 5))
    maps = [x, layers.MaxPooling2D(2)(x)]
    classes, boxes = [], []
    for i, features in enumerate(maps):
        conv = {"kernel_size": 3, "padding": "same", "kernel_regularizer": "l2"}
        for found, size, name in ((classes, 4, "classes"), (boxes, 3, "boxes")):
            head = layers.Conv2D(2 * size, name=f"{name}{i}", **conv)(features)
            found.append(layers.Reshape((-1, size))(head))
    outputs = [layers.Concatenate(axis=1)(found) for found in (classes, boxes)]
    model = keras.Model(x, {"classes": layers.Softmax()(outputs[0]), "boxes": outputs[1]})
    fused, _ = assert_fuses(model, regions=2, layers=(4, 2))
    assert convolutions(fused) == [1, 1]


def test_r01_one_convolutional_tower_per_variable():
    """Separate inputs, two levels of convolution and pooling, flattened and joined."""
    inputs = [keras.Input((20, 1), name=f"variable_{i}") for i in range(3)]
    flat = []
    for x in inputs:
        for filters in (4, 3):
            x = layers.Conv1D(filters, 5, activation="relu")(x)
            x = layers.MaxPooling1D(2)(x)
        flat.append(layers.Flatten()(x))
    hidden = layers.Dense(6, activation="relu")(layers.Concatenate(axis=-1)(flat))
    model = keras.Model(inputs, layers.Dense(2, activation="softmax")(hidden))
    fused, _ = assert_fuses(model, layers=(15, 5))
    assert convolutions(fused) == [3, 3]


def test_q01_independent_towers_on_one_image_stacked():
    x = keras.Input((9, 10, 2))
    towers = []
    for _ in range(3):
        y = layers.Conv2D(4, 3, activation="relu")(x)
        y = layers.Conv2D(5, 3, strides=2, activation="relu")(layers.MaxPooling2D(2)(y))
        towers.append(layers.GlobalAveragePooling2D()(y))
    pooled = layers.GlobalAveragePooling1D()(ops.stack(towers, axis=1))
    model = keras.Model(x, layers.Dense(3)(pooled))
    fused, _ = assert_fuses(model, layers=(12, 4))
    assert convolutions(fused) == [1, 3]


def test_r15_padded_groups_of_one_split():
    """Padding and a valid convolution per group of channels, as ported models write it."""
    x = keras.Input((8, 9, 6))
    groups = [
        layers.Conv2D(3, 3, use_bias=False)(layers.ZeroPadding2D(1)(piece))
        for piece in ops.split(x, 2, axis=-1)
    ]
    model = keras.Model(x, layers.BatchNormalization()(ops.concatenate(groups, axis=-1)))
    assert_fuses(model, layers=(4, 2))
