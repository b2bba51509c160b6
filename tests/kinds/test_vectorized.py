"""Layers without a rule, mapped over their stacked weights."""

import keras
import pytest
from keras import layers, ops

from parallel_fuse import explain
from tests.asserts import assert_fuses, assert_rejects, operation_names
from tests.builders import slices, towers
from tests.own_layers import Scaled


@keras.saving.register_keras_serializable(package="tests")
class TwoSteps(layers.Layer):
    """Layers inside a layer."""

    def build(self, shape):
        self.first, self.second = layers.Dense(5, "relu"), layers.Dense(3)
        self.first.build(shape)
        self.second.build((*shape[:-1], 5))

    def call(self, inputs):
        return self.second(self.first(inputs))


def test_slices():
    fused, report = assert_fuses(towers(lambda i, x: Scaled(4)(x)), layers=(5, 1))
    assert operation_names(fused).count("Vectorized") == 1
    assert report.regions[0].lowerings == ("vectorized-map",)


def test_one_tensor_is_not_repeated():
    x = keras.Input((6, 7), name="x")
    model = keras.Model(x, layers.Concatenate()([Scaled(4)(x) for _ in range(5)]))
    _, report = assert_fuses(model, layers=(5, 1))
    assert report.regions[0].lowerings == ("vectorized-map-shared",)


def test_layers_inside_a_layer_that_cannot_be_opened():
    def pick(i, x):
        layer = TwoSteps()
        layer.supports_masking = True
        return layer(x)

    assert_fuses(towers(pick, shape=(5, 6, 7)), layers=(5, 1))


def test_several_operands():
    @keras.saving.register_keras_serializable(package="tests")
    class Bilinear(layers.Layer):
        def build(self, shapes):
            self.kernel = self.add_weight(shape=(shapes[0][-1], shapes[1][-1]), name="kernel")

        def call(self, inputs):
            return ops.sum(ops.matmul(inputs[0], self.kernel) * inputs[1], -1, keepdims=True)

    a, b = keras.Input((5, 7), name="a"), keras.Input((5, 3), name="b")
    lanes = [Bilinear()([p, q]) for p, q in zip(slices(a, 5), slices(b, 5))]
    assert_fuses(keras.Model([a, b], layers.Concatenate()(lanes)), layers=(5, 1))


def test_a_mixed_policy():
    model = towers(lambda i, x: Scaled(4, dtype="mixed_float16")(x))
    assert_fuses(model, layers=(5, 1), gradients=False, control=False, xla=False, verify=False)


@pytest.mark.parametrize("training", [True, False])
def test_a_layer_that_keeps_state(training):
    class Counting(layers.Layer):
        def build(self, shape):
            self.seen = self.add_weight(shape=(), trainable=False, initializer="zeros")

        def call(self, inputs, training=False):
            if training:
                self.seen.assign_add(1.0)
            return inputs + self.seen

    model = towers(lambda i, x: Counting()(x))
    assert_rejects(model, "keeps state or draws random numbers in training")


def test_a_layer_that_draws():
    class Noisy(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.seeds = keras.random.SeedGenerator(3)

        def call(self, inputs, training=False):
            if not training:
                return inputs * 2.0
            return inputs + keras.random.normal(ops.shape(inputs), seed=self.seeds)

    assert_rejects(towers(lambda i, x: Noisy()(x)), "keeps state or draws random numbers")


def test_losses_and_constraints():
    def make(**options):
        class Own(layers.Layer):
            def build(self, shape):
                self.kernel = self.add_weight(shape=(shape[-1], 4), name="kernel", **options)

            def call(self, inputs):
                return ops.matmul(inputs, self.kernel)

        return towers(lambda i, x: Own()(x))

    assert_rejects(make(regularizer="l2"), "a loss or a regularizer of its own")
    assert_rejects(make(constraint="non_neg"), "a constraint on a weight")


def test_a_loss_that_is_added():
    class Penalised(layers.Layer):
        def call(self, inputs):
            self.add_loss(ops.sum(inputs))
            return ops.tanh(inputs)

    model = towers(lambda i, x: Penalised()(x))
    assert_rejects(model, "a loss")


def test_what_cannot_be_made_again():
    class Closed(layers.Layer):
        def __init__(self, thing, **kwargs):
            super().__init__(**kwargs)
            self.thing = thing

        def call(self, inputs):
            return ops.tanh(inputs)

    assert_rejects(towers(lambda i, x: Closed(object())(x)), "no get_config")


def test_by_default_only_many_small_ones():
    few = towers(lambda i, x: Scaled(4)(x))
    many = towers(lambda i, x: Scaled(4)(x), shape=(12, 7))
    assert not explain(few).regions
    assert "5 lanes of 36 parameters, mapped where 8 or more are small" in str(explain(few))
    assert explain(many).regions


@pytest.mark.parametrize("widths", [(4, 3), (4, 4)])
def test_several_outputs(widths):
    @keras.saving.register_keras_serializable(package="tests")
    class Two(layers.Layer):
        def __init__(self, widths, **kwargs):
            super().__init__(**kwargs)
            self.widths = widths

        def build(self, shape):
            self.kernels = [self.add_weight(shape=(shape[-1], w)) for w in self.widths]

        def call(self, inputs):
            first, second = (ops.matmul(inputs, k) for k in self.kernels)
            return first, ops.tanh(second)

        def get_config(self):
            return {**super().get_config(), "widths": self.widths}

    x = keras.Input((5, 7), name="x")
    pairs = [Two(widths)(s) for s in slices(x, 5)]
    joined = layers.Concatenate()([layers.Concatenate()(pair) for pair in pairs])
    assert_fuses(keras.Model(x, joined), layers=(5, 1))
    sums = layers.Add()([second for _, second in pairs])
    firsts = layers.Concatenate()([first for first, _ in pairs])
    assert_fuses(keras.Model(x, [sums, firsts]), layers=(5, 1))


def test_layers_of_keras_without_a_rule_of_their_own():
    model = towers(lambda i, x: layers.TimeDistributed(layers.Dense(4))(x), shape=(5, 6, 7))
    assert_fuses(model, layers=(5, 1))


def test_a_loop_over_time_is_not_mapped():
    x = keras.Input((3, 4, 6, 2), name="x")
    lanes = [layers.ConvLSTM1D(3, 2)(s) for s in slices(x, 3)]
    assert_rejects(keras.Model(x, layers.Concatenate()(lanes)), "no rule for the class ConvLSTM1D")


def test_a_lane_that_keeps_something_of_its_own():
    """Only the first lane's `call` runs: what the third alone does is seen by the trial of all."""

    @keras.saving.register_keras_serializable(package="tests")
    class Turned(layers.Layer):
        sign = 1.0

        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], 4))

        def call(self, inputs):
            return ops.matmul(inputs, self.kernel) * self.sign

    def branch(i, x):
        layer = Turned()
        layer.sign = -1.0 if i == 2 else 1.0
        return layer(x)

    assert_rejects(towers(branch), "mapped, it does not give the same")
    assert_fuses(towers(lambda i, x: Turned()(x)), layers=(5, 1))
