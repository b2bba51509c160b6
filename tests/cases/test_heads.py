"""Heads and trunks as people write them; each test is named after the case it is made from."""

import keras
import numpy as np
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_fuses, operation_names
from tests.builders import randomise, slices
from tests.devices import GROUPED_CONV

LIGHT = {"gradients": False, "xla": False, "reload": False}


def test_q03_two_towers_on_one_vector_without_a_join():
    x = keras.Input((32,))
    outputs = [layers.Dense(4, name=f"eeg_{i}")(layers.Dense(16, "relu")(x)) for i in (0, 1)]
    fused, _ = assert_fuses(keras.Model(x, outputs), layers=(4, 2), **LIGHT)
    assert fused.output_names == ["eeg_0", "eeg_1"]


def test_q11_many_heads_with_activations_of_their_own_layer():
    """250 Dense layers written with separate activations: per-layer overhead is what costs."""
    x = keras.Input((11,))
    heads = [layers.Activation("sigmoid")(layers.Dense(1)(x)) for _ in range(25)]
    model = keras.Model(x, layers.Concatenate()(heads))
    assert_fuses(model, layers=(50, 2), operations=["Dense", "Activation"], **LIGHT)


def test_q20_q19_tens_of_named_heads_on_one_trunk():
    x = keras.Input((9,))
    trunk = layers.Dense(13, "tanh")(x)
    heads = [layers.Dense(1, "sigmoid", name=f"task_{i}")(trunk) for i in range(50)]
    fused, report = assert_fuses(keras.Model(x, heads), layers=(50, 1), **LIGHT)
    assert fused.output_names == [f"task_{i}" for i in range(50)]
    assert report.after.parameters == report.before.parameters


def test_q23_a_plain_stack_is_left_as_it_is():
    x = y = keras.Input((7,))
    for units in (5, 4, 3):
        y = layers.Dense(units, "relu")(y)
    fused, report = fuse_parallel_branches(keras.Model(x, y), return_report=True)
    assert not report.changed
    assert operation_names(fused) == ["Dense"] * 3


def test_q09_q10_three_ways_to_write_a_grouped_convolution():
    """1×1 on the whole tensor, on slices, with groups: numbers and weight layout stay."""
    x = keras.Input((8, 7, 6))
    full = [layers.Conv2D(4, 1)(x) for _ in range(3)]
    sliced = [layers.Conv2D(5, 3)(x[..., 2 * i : 2 * i + 2]) for i in range(3)]
    groups = layers.Conv2D(9, 3, groups=3)(x)
    outputs = [layers.Concatenate()(full), layers.Concatenate()(sliced), groups]
    model = randomise(keras.Model(x, outputs))
    fused, _ = assert_fuses(model, regions=2, layers=(6, 2), gradients=False, xla=False)
    assert operation_names(fused).count(f"{GROUPED_CONV}2D") == 1 + (GROUPED_CONV == "Conv") * 2
    wide = next(one for one in fused.layers if getattr(one, "filters", 0) == 15)
    kernels = [one.kernel for one in model.layers if getattr(one, "filters", 0) == 5]
    np.testing.assert_array_equal(wide.kernel, np.concatenate(kernels, axis=-1))


def test_q07_one_kernel_on_every_channel():
    """Split by channel, the same convolution for each: one layer called once."""
    x = keras.Input((8, 9, 5))
    shared = layers.Conv2D(1, 3)
    model = keras.Model(x, layers.Concatenate()([shared(x[..., i : i + 1]) for i in range(5)]))
    fused, _ = assert_fuses(model, gradients=False, xla=False)
    assert operation_names(fused).count("Conv2D") == 1


def test_q12_inception_of_one_dimension():
    x = keras.Input((16, 3))
    bottleneck = layers.Conv1D(4, 1, use_bias=False)(x)
    parallel = [layers.Conv1D(n, 5, padding="same", use_bias=False)(bottleneck) for n in (2, 3, 6)]
    pooled = layers.Conv1D(5, 1, use_bias=False)(layers.MaxPooling1D(3, 1, "same")(x))
    model = keras.Model(x, layers.Concatenate()([*parallel, pooled]))
    assert_fuses(model, layers=(3, 1), gradients=False, xla=False)


def test_q17_copies_of_one_net_on_inputs_of_their_own():
    inputs = [keras.Input((9, 2), name=f"series_{i}") for i in range(4)]
    outputs = []
    for i, x in enumerate(inputs):
        y = layers.MaxPooling1D(2)(layers.Conv1D(3, 2, activation="relu")(x))
        outputs.append(layers.Dense(2, name=f"copy_{i}")(layers.Flatten()(y)))
    fused, _ = assert_fuses(keras.Model(inputs, outputs), gradients=False, xla=False)
    assert fused.output_names == [f"copy_{i}" for i in range(4)]


def test_r19_three_different_nets_averaged():
    """Renamed, frozen, of different architecture: at once "nothing to fuse"."""
    x = keras.Input((8, 9, 2))
    outputs = []
    for i, filters in enumerate((3, 4, 5)):
        a = keras.Input((8, 9, 2))
        y = layers.Conv2D(filters, 2 + i, activation="relu")(a)
        net = keras.Model(a, layers.Dense(4)(layers.GlobalAveragePooling2D()(y)))
        net.name, net.trainable = f"net_{i}", False
        outputs.append(net(x))
    model = randomise(keras.Model(x, layers.Average()(outputs)))
    fused, report = fuse_parallel_branches(model, return_report=True)
    assert "kernel_size" in str(report)
    assert not fused.trainable_weights


def test_b01_a_lambda_that_gives_one_tensor_twice():
    x = keras.Input((5,))
    both = layers.Lambda(lambda t: [t, t])(x)
    lanes = [layers.Dense(3)(part) for part in both]
    model = keras.Model(x, layers.Add()(lanes))
    # a sum is the same in any order: no control
    options = {"gradients": False, "xla": False, "control": False}
    fused, _ = assert_fuses(model, layers=(2, 1), **options)
    assert "Lambda" not in operation_names(fused)


def test_b02_convolution_and_normalization_nested_twice():
    def nested(depth):
        a = keras.Input((8, 7, 2))
        if depth:
            return keras.Model(a, nested(depth - 1)(a))
        return keras.Model(a, layers.BatchNormalization()(layers.Conv2D(3, 2)(a)))

    x = keras.Input((8, 7, 6))
    lanes = [nested(2)(x[..., 2 * i : 2 * i + 2]) for i in range(3)]
    model = keras.Model(x, layers.Concatenate()(lanes))
    assert_fuses(model, layers=(6, 2), gradients=False, xla=False)


def test_b07_no_round_trip_through_json():
    """A function that cannot be written down stays the live object it is."""
    secret = object()
    x = keras.Input((3, 5))
    lanes = [layers.Dense(4)(s) for s in slices(x, 3)]
    odd = layers.Lambda(lambda t: t * (2.0 if secret else 1.0), output_shape=(12,))
    model = randomise(keras.Model(x, odd(layers.Concatenate()(lanes))))
    _, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    assert report.changed
    assert report.verification.ok


def test_b28_a_subclass_is_no_dense():
    """Exact classes only: what a subclass computes is not known, so it is mapped, or stays."""
    @keras.saving.register_keras_serializable(package="tests")
    class Doubling(layers.Dense):
        def call(self, inputs):
            return 2.0 * super().call(inputs)

    x = keras.Input((3, 5))
    model = keras.Model(x, layers.Concatenate()([Doubling(4)(s) for s in slices(x, 3)]))
    fused, _ = assert_fuses(model, gradients=False, xla=False)
    assert "EinsumDense" not in operation_names(fused)


def test_b30_recurrent_dropout_is_equal_in_inference():
    x = keras.Input((6, 9))
    cut = [x[..., 3 * i : 3 * i + 3] for i in range(3)]
    lanes = [layers.LSTM(4, recurrent_dropout=0.3)(part) for part in cut]
    model = keras.Model(x, layers.Concatenate()(lanes))
    assert_fuses(model, layers=(3, 1), gradients=False, xla=False)


def test_b33_a_list_of_convolutions_inside_a_custom_layer():
    """Their weights have equal names: what is copied goes by object, not by name."""
    @keras.saving.register_keras_serializable(package="tests")
    class Several(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.parts = [layers.Conv1D(3, 2, name="conv") for _ in range(3)]

        def call(self, inputs):
            return layers.concatenate([part(inputs) for part in self.parts])

    x = keras.Input((8, 5))
    model = keras.Model(x, Several()(x))
    fused, _ = assert_fuses(model, layers=(3, 1), gradients=False, xla=False)
    assert operation_names(fused).count("Conv1D") == 1


def test_r18_a_block_with_state_of_its_own_stays_and_keeps_it():
    """A block that loops over features and moves its own statistics is opaque."""
    @keras.saving.register_keras_serializable(package="tests")
    class Block(layers.Layer):
        def build(self, shape):
            self.subnets = [layers.Dense(2) for _ in range(shape[-1])]
            for subnet in self.subnets:
                subnet.build((None, 1))
            self.mean = self.add_weight(shape=(2,), trainable=False, name="mean")

        def call(self, inputs):
            parts = [net(inputs[:, i : i + 1]) for i, net in enumerate(self.subnets)]
            return ops.add(parts[0], parts[1]) - self.mean

    x = keras.Input((4,))
    model = randomise(keras.Model(x, Block()(x)))
    fused, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    assert "holds weights of its own" in str(report)
    assert len(fused.non_trainable_weights) == 1
