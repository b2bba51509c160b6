"""Custom layers that loop over layers of their own."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import explain, fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_fuses, operation_names
from tests.builders import inputs_for, randomise

on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="calls TensorFlow functions"
)


@keras.saving.register_keras_serializable(package="tests")
class PerFeature(layers.Layer):
    """A Dense for each column, joined by a Concatenate."""

    def __init__(self, count, units, **kwargs):
        super().__init__(**kwargs)
        self.count, self.units = count, units
        self.dense = [layers.Dense(units) for _ in range(count)]
        self.join = layers.Concatenate()

    def call(self, inputs):
        return self.join([self.dense[i](inputs[:, i]) for i in range(self.count)])

    def get_config(self):
        return {**super().get_config(), "count": self.count, "units": self.units}


@keras.saving.register_keras_serializable(package="tests")
class Contraction(layers.Layer):
    """A one-dimensional kernel and an offset, by TensorFlow's own functions."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 1), name="kernel")
        self.offset = self.add_weight(shape=(1,), name="offset")

    def call(self, inputs):
        import tensorflow as tf

        return tf.tensordot(inputs, self.kernel, 1) + self.offset


@keras.saving.register_keras_serializable(package="tests")
class ManyContractions(layers.Layer):
    def __init__(self, count, **kwargs):
        super().__init__(**kwargs)
        self.count = count
        self.parts = [Contraction() for _ in range(count)]

    def call(self, inputs):
        import tensorflow as tf

        return tf.concat([part(inputs) for part in self.parts], axis=-1)

    def get_config(self):
        return {**super().get_config(), "count": self.count}


def around(layer, shape):
    x = keras.Input(shape, name="x")
    return keras.Model(x, layers.Dense(3, name="end")(layer(x)))


def test_sixty_four_dense_layers_in_a_loop():
    fused, report = assert_fuses(around(PerFeature(64, 5), (64, 7)), layers=(64, 1))
    assert len(fused.operations) <= 7
    assert "PerFeature" not in operation_names(fused)
    assert any("opened" in note and "per_feature" in note for note in report.notes)


@on_tensorflow
def test_many_small_layers_on_one_tensor_joined_by_tensorflow():
    fused, _ = assert_fuses(around(ManyContractions(12), (9,)), layers=(12, 1))
    assert len(fused.operations) <= 6
    assert operation_names(fused).count("Vectorized") == 1


@on_tensorflow
def test_r12_tensorflow_functions_between_layers():
    import tensorflow as tf

    @keras.saving.register_keras_serializable(package="tests")
    class Mixed(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.first = [layers.Dense(6) for _ in range(4)]
            self.second = [layers.Dense(3) for _ in range(4)]

        def call(self, inputs):
            batch = tf.shape(inputs)[0]
            x = tf.transpose(tf.reshape(inputs, [batch, 4, 5]), [1, 0, 2])
            lanes = tf.unstack(x, axis=0)
            lanes = [tf.nn.relu(d(lane)) for d, lane in zip(self.first, lanes)]
            lanes = [tf.nn.softmax(d(lane) * 0.5) for d, lane in zip(self.second, lanes)]
            stacked = tf.stack(lanes, axis=1)
            return tf.reduce_sum(stacked, axis=1) + tf.reduce_mean(tf.concat(lanes, 1), 1, True)

    fused, _ = assert_fuses(around(Mixed(), (20,)))
    assert sum(isinstance(op, layers.EinsumDense) for op in fused.operations) == 2


def test_layers_within_layers_within_layers():
    @keras.saving.register_keras_serializable(package="tests")
    class Outer(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.inner = PerFeature(5, 3)
            self.end = layers.Dense(2)

        def call(self, inputs):
            return self.end(self.inner(inputs))

    fused, _ = assert_fuses(around(Outer(), (5, 7)), layers=(5, 1))
    assert "Outer" not in operation_names(fused)


def test_a_layer_that_is_called_twice_stays_one_set_of_weights():
    a, b = keras.Input((5, 7), name="a"), keras.Input((5, 7), name="b")
    shared = PerFeature(5, 3)
    model = keras.Model([a, b], layers.Add()([shared(a), shared(b)]))
    fused, _ = assert_fuses(model, regions=2, layers=(10, 2))
    assert len(fused.weights) == 2


def test_training_reaches_the_layers_inside():
    @keras.saving.register_keras_serializable(package="tests")
    class Dropping(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = [layers.Dense(4) for _ in range(5)]
            self.drop = [layers.Dropout(0.5) for _ in range(5)]
            self.join = layers.Concatenate()

        def call(self, inputs, training=False):
            lanes = [d(inputs[:, i]) for i, d in enumerate(self.dense)]
            return self.join([d(x, training=training) for d, x in zip(self.drop, lanes)])

    model = around(Dropping(), (5, 7))
    fused, _ = assert_fuses(model, layers=(10, 2))
    x = np.ones((4, 5, 7), "float32")
    assert not np.allclose(fused(x, training=True), fused(x, training=True))


def stays_closed(layer, shape, reason):
    model = randomise(around(layer, shape))
    fused, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    assert type(layer).__name__ in operation_names(fused)
    assert reason in str(report), str(report)
    x = inputs_for(model, 3, seed=1)
    np.testing.assert_allclose(fused(x), model(x), rtol=1e-5, atol=1e-6)


def looping(call, **methods):
    """A custom layer of five Dense layers with this `call`."""

    def init(self, **kwargs):
        layers.Layer.__init__(self, **kwargs)
        self.dense = [layers.Dense(4) for _ in range(5)]

    return type("Looping", (layers.Layer,), {"__init__": init, "call": call, **methods})()


def lanes_of(self, inputs):
    return [d(inputs[:, i]) for i, d in enumerate(self.dense)]


def test_another_graph_in_training():
    def call(self, inputs, training=False):
        lanes = lanes_of(self, inputs)
        return ops.concatenate(lanes[::-1] if training else lanes, axis=-1)

    stays_closed(looping(call), (5, 7), "does something else in training")


def test_weights_of_its_own():
    def build(self, shape):
        self.scale = self.add_weight(shape=(20,), name="scale")

    def call(self, inputs):
        return ops.concatenate(lanes_of(self, inputs), axis=-1) * self.scale

    layer = looping(call, build=build)
    stays_closed(layer, (5, 7), "holds weights of its own beside those of the layers inside")


def test_a_loss_added_in_the_loop():
    def call(self, inputs):
        lanes = lanes_of(self, inputs)
        self.add_loss(ops.sum(lanes[0]))
        return ops.concatenate(lanes, axis=-1)

    stays_closed(looping(call), (5, 7), "not opened")


@on_tensorflow
def test_a_function_without_a_translation_is_named():
    import tensorflow as tf

    def call(self, inputs):
        return tf.cumsum(tf.concat(lanes_of(self, inputs), -1), axis=-1)

    stays_closed(looping(call), (5, 7), "TensorFlow's cumsum has no translation")


def test_numbers_drawn_in_the_call():
    def call(self, inputs):
        lanes = lanes_of(self, inputs)
        return ops.concatenate(lanes, axis=-1) + keras.random.normal((20,))

    model = around(looping(call), (5, 7))
    report = explain(model, policy=EVERYTHING)
    assert not report.regions
    assert "opened, it does not give the same" in str(report)


def test_nothing_gained_nothing_opened():
    @keras.saving.register_keras_serializable(package="tests")
    class Chain(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.first, self.second = layers.Dense(5), layers.Dense(3)

        def call(self, inputs):
            return self.second(self.first(inputs))

    model = randomise(around(Chain(name="chain"), (7,)))
    fused, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    assert operation_names(fused) == ["Chain", "Dense"]
    assert not report.notes


def test_the_users_layers_get_no_new_calls():
    model = randomise(around(PerFeature(5, 3, name="per"), (5, 7)))
    inside = model.get_layer("per").dense
    before = [len(d._inbound_nodes) for d in inside]
    fused = fuse_parallel_branches(model, policy=EVERYTHING)
    assert [len(d._inbound_nodes) for d in inside] == before
    assert not {id(w) for w in model.weights} & {id(w) for w in fused.weights}
