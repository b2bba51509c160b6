"""Layers that stay as they are: their twins, and the user's own objects left alone."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches, verify_equivalence
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_same_outputs
from tests.builders import inputs_for, randomise, slices
from tests.photograph import photograph


def beside_branches(make, shape=(3, 7), policy=None) -> keras.Model:
    """Three Dense branches that fuse, and behind them whatever `make` puts there."""
    x = keras.Input(shape, name="x")
    joined = layers.Concatenate(name="joined")([layers.Dense(4)(s) for s in slices(x, 3)])
    return randomise(keras.Model(x, make(joined)))


def fused_beside(model, **options):
    """Fuses; the branches must have fused, the original must be as it was."""
    before = photograph(model)
    fused, report = fuse_parallel_branches(
        model, return_report=True, policy=EVERYTHING, **options
    )
    assert photograph(model) == before
    assert report.changed, str(report)
    shared = {id(v) for v in model.variables} & {id(v) for v in fused.variables}
    assert bool(shared) == any("both models hold" in note for note in report.notes)
    return fused, report


class Scale(layers.Layer):
    """Takes plain arguments, writes nothing down: Keras notes the arguments by itself."""

    def __init__(self, factor, offset=0.0):
        super().__init__(name="scale")
        self.factor = factor
        self.offset = offset

    def build(self, shape):
        self.gain = self.add_weight(shape=(shape[-1],), name="gain")
        self.seen = self.add_weight(shape=(), name="seen", trainable=False)
        self.bias = self.add_weight(shape=(shape[-1],), name="bias")

    def call(self, x):
        return x * self.gain * self.factor + self.bias + self.offset + self.seen


class Around(layers.Layer):
    """Holds another layer, handed in from outside and not written down."""

    def __init__(self, inner, **kwargs):
        super().__init__(**{"name": "around", **kwargs})
        self.inner = inner

    def call(self, x):
        return x + self.inner(x)

    def get_config(self):
        return {**super().get_config(), "inner": self.inner}


class Opaque(layers.Layer):
    """Cannot be made again: its argument is no plain value."""

    def __init__(self, function):
        super().__init__(name="opaque")
        self.function = function
        self.dense = layers.Dense(5)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.function(self.dense(x))


class Tied(layers.Layer):
    """Uses the weights of another layer of the model."""

    def __init__(self, to, **kwargs):
        super().__init__(**{"name": "tied", **kwargs})
        self.to = to

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.to.kernel))

    def get_config(self):
        return {**super().get_config(), "to": self.to}


class Forgetful(layers.Layer):
    """Its configuration leaves out what decides the shape."""

    def __init__(self, units=3, **kwargs):
        super().__init__(**{"name": "forgetful", **kwargs})
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units))

    def call(self, x):
        return ops.matmul(x, self.kernel)

    def get_config(self):
        return super().get_config()


class Cell(layers.Layer):
    """A recurrent cell of the user's own."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.state_size = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units))

    def call(self, x, states):
        new = ops.tanh(ops.matmul(x, self.kernel) + states[0])
        return new, [new]

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def double_square(x):
    return 2.0 * x * x


class Half(keras.regularizers.Regularizer):
    def __call__(self, x):
        return 0.5 * ops.sum(ops.square(x))

    def get_config(self):
        return {}


def relu(x):
    """Not what Keras calls relu."""
    return ops.relu(x) + 1.0


CLONED = {
    "plain arguments, no get_config": lambda y: Scale(1.5, offset=0.25)(y),
    "layer handed in": lambda y: Around(layers.Dense(12))(y),
    "layer handed in to one handed in": lambda y: Around(Around(layers.Dense(12)))(y),
    "own activation function": lambda y: layers.Dense(5, double_square)(y),
    "lambda activation": lambda y: layers.Dense(5, lambda t: t * 3.0)(y),
    "function of a Keras name": lambda y: layers.Dense(5, relu)(y),
    "own regularizer": lambda y: layers.Dense(5, kernel_regularizer=Half())(y),
    "wrapped activation": lambda y: layers.TimeDistributed(layers.Dense(2, double_square))(
        layers.Reshape((4, 3))(y)
    ),
    "own recurrent cell": lambda y: layers.RNN(Cell(5))(layers.Reshape((4, 3))(y)),
    "bidirectional": lambda y: layers.Bidirectional(layers.GRU(5))(layers.Reshape((4, 3))(y)),
    "attention": lambda y: layers.MultiHeadAttention(2, 5)(*[layers.Reshape((4, 3))(y)] * 2),
    "batch normalization": lambda y: layers.BatchNormalization()(y),
    "raw operation": lambda y: ops.add(y, 1.0),
}


@pytest.mark.parametrize("what", CLONED)
def test_twins_have_weights_of_their_own(what):
    _, report = fused_beside(beside_branches(CLONED[what]))
    assert not any("both models hold" in note for note in report.notes), report.notes


def test_b06_q06_lambda_layers_are_made_from_their_live_functions():
    scale = 3.0

    def chained(y):
        y = layers.Lambda(lambda t: t * scale, name="closure")(y)
        y = layers.Lambda(lambda t, k=0.5: t + k, name="default")(y)
        y = layers.Lambda(lambda t, k: t - k, arguments={"k": 0.75}, name="arguments")(y)
        # All three read the last i when they run: the model as it runs is the truth.
        late = [layers.Lambda(lambda t: t[:, i : i + 2]) for i in range(3)]  # noqa: B023
        return layers.Concatenate(name="late")([one(y) for one in late])

    model = beside_branches(chained)
    fused, _ = fused_beside(model)
    assert_same_outputs(model, fused, inputs_for(model, 5, seed=1))
    assert [type(op) for op in fused.operations].count(layers.Lambda) == 6


def test_a_layer_that_cannot_be_made_again_shares_its_weights_and_says_so():
    calls = []
    model = beside_branches(lambda y: Opaque(lambda t: calls.append(1) or t * 2.0)(y))
    fused, report = fused_beside(model)
    (note,) = [n for n in report.notes if "could not be cloned" in n]
    assert "'opaque'" in note
    assert "both models hold the same weights" in note
    mine, theirs = model.get_layer("opaque"), fused.get_layer("opaque")
    assert mine is not theirs
    assert mine.variables == theirs.variables
    assert mine.output.shape == (None, 5)  # still one call: `output` would raise after a second


def test_a_configuration_that_leaves_something_out_is_found_out():
    _, report = fused_beside(beside_branches(lambda y: Forgetful(5)(y)))
    assert any("'forgetful' could not be cloned" in n for n in report.notes)
    _, report = fused_beside(beside_branches(lambda y: Forgetful()(y)))
    assert not report.notes


def test_shared_layers_stay_shared_and_a_sharing_twin_too():
    def make(y):
        shared, opaque = layers.Dense(5, name="shared"), Opaque(ops.tanh)
        z = layers.Dense(12, name="between")(y)
        return [shared(y), shared(z), opaque(y), opaque(z)]

    fused, _ = fused_beside(beside_branches(make))
    names = [op.name for op in fused.operations]
    assert names.count("shared") == names.count("opaque") == 1
    assert len(fused.get_layer("shared")._inbound_nodes) == 1  # on the samples of both


def test_tied_weights_stay_tied():
    def make(y):
        down = layers.Dense(5, name="down")
        return Tied(down)(down(y))

    model = beside_branches(make)
    fused, report = fused_beside(model)
    assert not report.notes
    assert fused.get_layer("tied").to is fused.get_layer("down")
    assert len(fused.weights) == 2 + 2


def test_quantized_and_lora_layers_keep_every_weight():
    def make(y):
        return [layers.Dense(8, name="whole")(y), layers.Dense(6, name="adapted")(y)]

    model = beside_branches(make)
    model.get_layer("whole").quantize("int8")
    model.get_layer("adapted").enable_lora(2)
    randomise(model)
    fused, report = fused_beside(model)
    assert not report.notes
    for name in ("whole", "adapted"):
        mine, theirs = model.get_layer(name), fused.get_layer(name)
        for one, other in zip(mine.weights, theirs.weights, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.trainable == other.trainable


def test_a_policy_of_the_day_reaches_layers_that_do_not_write_it_down():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = beside_branches(lambda y: Scale(1.5)(y))
    finally:
        keras.config.set_dtype_policy("float32")
    fused, _ = fused_beside(model)
    assert fused.get_layer("scale").compute_dtype == "float16"
    assert keras.config.dtype_policy().name == "float32"


def test_flags_inside_a_layer_are_kept():
    model = beside_branches(lambda y: [Scale(1.5)(y), Around(layers.Dense(12))(y)])
    model.get_layer("scale").trainable = False
    model.get_layer("around").inner.trainable = False
    fused, _ = fused_beside(model)
    assert not fused.get_layer("scale").trainable
    assert fused.get_layer("around").trainable
    assert not fused.get_layer("around").inner.trainable
    assert len(fused.trainable_variables) == 2  # those of the fused branches


def vocabularies():
    words = layers.StringLookup(output_mode="one_hot", name="words")
    words.adapt(["b", "a", "b", "c"])
    numbers = layers.IntegerLookup(vocabulary=[5, 3, 9], name="numbers")
    text = layers.TextVectorization(output_sequence_length=5, name="text")
    text.adapt(["one two", "two three"])
    bins = layers.Discretization(num_bins=3, name="bins")
    bins.adapt(np.arange(40.0))
    scale = layers.Normalization(name="scale")
    scale.adapt(np.random.default_rng(0).normal(3.0, 2.0, (50, 12)))
    return words, numbers, text, bins, scale


def test_layers_with_vocabularies_and_statistics():
    words, numbers, text, bins, scale = vocabularies()
    x = keras.Input((3, 7), name="x")
    word = keras.Input((2,), dtype="string", name="word")
    number = keras.Input((4,), dtype="int64", name="number")
    line = keras.Input((1,), dtype="string", name="line")
    y = layers.Concatenate(name="joined")([layers.Dense(4)(s) for s in slices(x, 3)])
    outputs = [scale(y), words(word[:, 0]), numbers(number), text(line), bins(y)]
    model = keras.Model([x, word, number, line], outputs)
    rows = [
        np.random.default_rng(1).normal(size=(3, 3, 7)).astype("float32"),
        np.array([["a", "b"], ["zzz", "a"], ["c", "a"]]),
        np.array([[5, 3, 9, 1]] * 3),
        np.array([["one two"], ["three one"], ["four"]]),
    ]
    rows = [ops.convert_to_tensor(r) for r in rows]
    fused, report = fused_beside(model, verify_inputs=rows)
    assert not report.notes
    for name in ("words", "numbers", "text"):
        mine, theirs = model.get_layer(name), fused.get_layer(name)
        assert mine is not theirs
        assert mine.get_vocabulary() == theirs.get_vocabulary()
    verify_equivalence(model, fused, rows)


def test_state_beyond_weights():
    class Stateful(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.noise = keras.random.SeedGenerator(17)
            self.mean = keras.metrics.Mean(name="mean")

        def call(self, x, training=False):
            self.add_loss(0.1 * ops.mean(ops.square(x)))
            if training:
                self.mean.update_state(x)
                x = x + keras.random.normal(ops.shape(x), seed=self.noise)
            return x

    model = beside_branches(lambda y: layers.BatchNormalization()(Stateful(name="s")(y)))
    keras.random.uniform((), seed=model.get_layer("s").noise)  # moves its state
    fused, _ = fused_beside(model)
    mine, theirs = model.get_layer("s"), fused.get_layer("s")
    np.testing.assert_array_equal(mine.noise.state, theirs.noise.state)
    assert mine.mean is not theirs.mean
    x = inputs_for(model, 5, seed=2)
    outputs, losses = [m(x, training=True) for m in (model, fused)], []
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-5)  # the same noise was drawn
    for m in (model, fused):
        m(x)
        losses.append(float(sum(m.losses)))
    np.testing.assert_allclose(*losses, rtol=1e-6)
    for one, other in zip(model.layers[-1].weights, fused.layers[-1].weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)  # moved alike in training


def test_the_original_is_left_alone_when_fusing_fails():
    class Fails(layers.Layer):
        healthy = True

        def call(self, x):
            if not Fails.healthy:
                raise RuntimeError("fails on purpose")
            return x

    model = beside_branches(lambda y: Fails()(y))
    model.compile("sgd", "mse")
    before = photograph(model)
    Fails.healthy = False
    with pytest.raises(RuntimeError, match="on purpose"):
        fuse_parallel_branches(model, policy=EVERYTHING)
    assert photograph(model) == before


def test_the_original_is_left_alone_when_fused_twice():
    model = beside_branches(lambda y: Opaque(ops.tanh)(y))
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(inputs_for(model, 4, seed=0), np.zeros((4, 5)), verbose=0)
    fused_beside(model)
    fused_beside(model)


def test_a_photograph_notices():
    """The negative control of this file."""
    model = beside_branches(lambda y: Scale(1.5)(y))
    before = photograph(model)
    model.get_layer("scale")(model.get_layer("joined").output)
    assert photograph(model) != before
    before = photograph(model)
    model.get_layer("scale").gain.assign_add(model.get_layer("scale").bias)
    assert photograph(model) != before


def test_what_get_config_leaves_out_is_not_lost():
    """A number set from outside: the clone computed something else, and nothing came of it all."""
    class Times(layers.Layer):
        factor = 1.0

        def call(self, inputs):
            return inputs * self.factor

    def make(x):
        layer = Times()
        layer.factor = 3.0
        return layer(x)

    model = beside_branches(make)
    _, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    assert report.verification.ok
    assert any("leaves out 'factor'" in note for note in report.notes)
