"""LSTM, GRU, SimpleRNN: M loops become one, with masks, states and noise of each lane's own."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import explain, fuse_parallel_branches
from parallel_fuse.kinds.recurrent import stack, stack_shared, unstack, unstack_shared
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_close, assert_fuses, assert_rejects, operation_names
from tests.builders import randomise, towers

CLASSES = (layers.LSTM, layers.GRU, layers.SimpleRNN)
SHAPE = (3, 5, 6)  # lanes, steps, features
UNITS = 4

on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="XLA and tapes of TensorFlow"
)


def lanes_of(make, shape=SHAPE) -> keras.Model:
    return towers(lambda i, x: make()(x), shape=shape)


VARIANTS = {
    "lstm": lambda: layers.LSTM(UNITS, return_sequences=True),
    "gru": lambda: layers.GRU(UNITS),
    "gru-reset-before": lambda: layers.GRU(UNITS, reset_after=False, return_sequences=True),
    "simple": lambda: layers.SimpleRNN(UNITS),
}


@pytest.mark.parametrize("make", VARIANTS.values(), ids=VARIANTS)
def test_fuses(make):
    expected = ["Transpose", "StackedRNN", "Transpose", "Reshape"]
    assert_fuses(lanes_of(make), layers=(3, 1), operations=expected)


OPTIONS = {
    "backwards": lambda: layers.LSTM(UNITS, go_backwards=True, return_sequences=True),
    "unrolled-backwards": lambda: layers.SimpleRNN(UNITS, unroll=True, go_backwards=True),
    "no-bias": lambda: layers.GRU(UNITS, use_bias=False, unroll=True),
}


@pytest.mark.parametrize("make", OPTIONS.values(), ids=OPTIONS)
def test_options(make):
    assert_fuses(lanes_of(make), layers=(3, 1), xla=False)  # see test_fuses


@pytest.mark.parametrize("cls", [layers.LSTM, layers.GRU])
def test_one_wide_product_for_a_shared_sequence(cls):
    x = keras.Input((5, 6))
    outputs = [cls(UNITS, return_sequences=True)(x) for _ in range(3)]
    fused, report = assert_fuses(keras.Model(x, outputs), layers=(3, 1), xla=False)
    assert report.regions[0].lowerings == ("stacked-rnn-shared",)
    layer = next(one for one in fused.layers if type(one).__name__ == "StackedRNN")
    assert layer.kernel.shape[:3] == (6, 3, 1)


def test_separate_inputs_and_outputs():
    inputs = [keras.Input((5, 6), name=f"x{i}") for i in range(3)]
    outputs = [layers.LSTM(UNITS, name=f"y{i}")(x) for i, x in enumerate(inputs)]
    assert_fuses(keras.Model(inputs, outputs), layers=(3, 1), xla=False)


@pytest.mark.parametrize("activation", [None, "softmax", keras.ops.sin])
def test_other_activations(activation):
    model = lanes_of(lambda: layers.GRU(UNITS, activation, "hard_sigmoid"))
    # A function of no name that Keras knows cannot be read from a file again.
    assert_fuses(model, layers=(3, 1), xla=False, reload=not callable(activation))


def test_different_gates_make_two_groups():
    def branch(i, x):
        return layers.LSTM(UNITS, recurrent_activation=["sigmoid", "hard_sigmoid"][i % 2])(x)

    assert_fuses(towers(branch, shape=(4, 5, 6)), regions=2, layers=(4, 2), xla=False)


def test_with_and_without_bias_make_two_groups():
    model = towers(lambda i, x: layers.LSTM(UNITS, use_bias=i < 2)(x), shape=(4, 5, 6))
    assert str(explain(model, policy=EVERYTHING)).count("2 layers → 1") == 2


def test_how_a_bias_began_does_not_matter():
    def branch(i, x):
        return layers.LSTM(UNITS, unit_forget_bias=i == 0, recurrent_initializer="zeros")(x)

    assert "3 layers → 1" in str(explain(towers(branch, shape=SHAPE), policy=EVERYTHING))


def test_unknown_number_of_steps():
    x = keras.Input((None, 6 * 3))
    pieces = [x[..., i * 6 : i * 6 + 6] for i in range(3)]
    outputs = [layers.LSTM(UNITS, return_sequences=True)(piece) for piece in pieces]
    assert_fuses(keras.Model(x, layers.Concatenate()(outputs)), layers=(3, 1))


def test_two_levels_hand_lanes_on():
    def branch(i, x):
        x = layers.GRU(UNITS, return_sequences=True)(x)
        return layers.Dense(2)(layers.LSTM(7)(x))

    expected = ["Transpose", "StackedRNN", "StackedRNN", "EinsumDense", "Transpose", "Reshape"]
    assert_fuses(towers(branch, shape=SHAPE), layers=(9, 3), operations=expected)


@pytest.mark.parametrize("cls", [layers.LSTM, layers.GRU])
def test_twenty_steps_stay_within_the_tolerance(cls):
    """Rounding errors go through twenty steps; verification allows for what the original shows."""
    assert_fuses(lanes_of(lambda: cls(UNITS), (2, 20, 6)), layers=(2, 1), xla=False)


@pytest.mark.parametrize("cls", [layers.LSTM, layers.GRU])
def test_states_in_and_out(cls):
    x = keras.Input((3, 5, 6), name="x")
    count = 2 if cls is layers.LSTM else 1
    outputs = []
    for i in range(3):
        states = [layers.Dense(UNITS)(x[:, i, k]) for k in range(count)]
        outputs += cls(UNITS, return_state=True)(x[:, i], initial_state=states)
    assert_fuses(keras.Model(x, outputs), regions=1, xla=cls is layers.LSTM)


def test_a_state_that_all_lanes_share():
    x, h = keras.Input((3, 5, 6), name="x"), keras.Input((UNITS,), name="h")
    outputs = [layers.GRU(UNITS)(x[:, i], initial_state=h) for i in range(3)]
    assert_fuses(keras.Model([x, h], layers.Concatenate()(outputs)), layers=(3, 1), xla=False)


def test_states_and_sequence_all_shared():
    x, h = keras.Input((5, 6), name="x"), keras.Input((UNITS,), name="h")
    outputs = [layers.GRU(UNITS)(x, initial_state=h) for _ in range(3)]
    model = keras.Model([x, h], layers.Concatenate()(outputs))
    _, report = assert_fuses(model, layers=(3, 1), xla=False)
    assert report.regions[0].lowerings == ("stacked-rnn-shared",)


MASKED = {
    "last": lambda: layers.LSTM(UNITS),
    "sequences": lambda: layers.GRU(UNITS, return_sequences=True),
    "zeros": lambda: layers.LSTM(UNITS, return_sequences=True, zero_output_for_mask=True),
    "backwards": lambda: layers.SimpleRNN(UNITS, go_backwards=True),
    "unrolled": lambda: layers.GRU(UNITS, unroll=True),
}


@pytest.mark.parametrize("make", MASKED.values(), ids=MASKED)
def test_masks_of_each_lane(make):
    """Ids of 0 are masked; the next operation takes a mean over the steps, and sees no mask."""
    x = keras.Input((3, 5), dtype="int32")
    outputs = []
    for i in range(3):
        y = make()(layers.Embedding(3, 6, mask_zero=True)(x[:, i]))
        outputs.append(ops.mean(y, axis=1) if len(y.shape) == 3 else y)
    model = keras.Model(x, ops.stack(outputs, axis=1))
    fused, _ = assert_fuses(model, regions=1, xla=make is MASKED["zeros"])
    assert "StackedRNN" in operation_names(fused)


def test_unrolled_zeros_are_left_to_keras():
    """Backwards it zeroes the wrong steps on TensorFlow, and none on JAX."""
    x, outputs = keras.Input((3, 5), dtype="int32"), []
    for i in range(3):
        y = layers.Embedding(3, 6, mask_zero=True)(x[:, i])
        y = layers.GRU(UNITS, unroll=True, return_sequences=True, zero_output_for_mask=True)(y)
        outputs.append(ops.mean(y, axis=1))
    assert "Keras zeroes other steps" in str(explain(keras.Model(x, ops.stack(outputs, axis=1))))


def test_a_mask_that_all_lanes_share():
    x = keras.Input((5,), dtype="int32")
    y = layers.Embedding(3, 6, mask_zero=True)(x)
    model = keras.Model(x, layers.Concatenate()([layers.LSTM(UNITS)(y) for _ in range(3)]))
    _, report = assert_fuses(model, layers=(3, 1), xla=False)
    assert report.regions[0].lowerings == ("stacked-rnn-shared",)


def test_mixed_precision():
    model = lanes_of(lambda: layers.LSTM(UNITS, dtype="mixed_bfloat16", return_sequences=True))
    randomise(model)
    fused, report = fuse_parallel_branches(model, policy=EVERYTHING, return_report=True)
    assert len(report.regions) == 1
    assert fused.output.dtype == model.output.dtype == "float32"
    (layer,) = (one for one in fused.layers if type(one).__name__ == "StackedRNN")
    assert (layer.compute_dtype, layer.variable_dtype) == ("bfloat16", "float32")


def test_regularizers_add_up_to_the_same_loss():
    def branch(i, x):
        options = {f"{name}_regularizer": "l2" for name in ("kernel", "recurrent", "bias")}
        return layers.GRU(UNITS, recurrent_constraint="non_neg", **options)(x)

    model = towers(branch, shape=SHAPE)
    fused, _ = assert_fuses(model, layers=(3, 1), xla=False)
    assert_close(sum(fused.losses), sum(model.losses))
    layer = next(one for one in fused.layers if type(one).__name__ == "StackedRNN")
    assert isinstance(layer.recurrent_kernel.constraint, keras.constraints.NonNeg)
    assert layer.kernel.constraint is None


def running_sum(x):
    return ops.cumsum(x, axis=-1)


REJECTED = {
    "stateful": lambda: layers.LSTM(UNITS, stateful=True),
    "activity regularizer": lambda: layers.LSTM(UNITS, activity_regularizer="l2"),
    "MaxNorm": lambda: layers.LSTM(UNITS, recurrent_constraint="max_norm"),
    "Orthogonal": lambda: layers.GRU(UNITS, kernel_regularizer="orthogonal_regularizer"),
    "not known to work on each element": lambda: layers.GRU(UNITS, running_sum),
    "seed 7": lambda: layers.SimpleRNN(UNITS, dropout=0.5, seed=7),
    "implementation 1": lambda: layers.GRU(UNITS, dropout=0.5, implementation=1),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    x = keras.Input((3, 5, 6), batch_size=3 if reason == "stateful" else None)
    outputs = [REJECTED[reason]()(x[:, i]) for i in range(2)]
    assert_rejects(keras.Model(x, layers.Concatenate()(outputs)), reason)


def test_other_units_are_another_layer():
    model = towers(lambda i, x: layers.LSTM(UNITS + i)(x), shape=SHAPE)
    assert_rejects(model, "units 4")


def test_a_subclass_is_left_alone():
    class Own(layers.LSTM):
        pass

    assert_rejects(lanes_of(lambda: Own(UNITS)), "no rule for the class Own")


@pytest.mark.parametrize("cls", CLASSES)
def test_weights_unstack_exactly(cls):
    members = [cls(UNITS, use_bias=True, bias_initializer="normal") for _ in range(3)]
    for one in members:
        one.build((None, 5, 6))
    for there, back in ((stack, unstack), (stack_shared, unstack_shared)):
        for one, lane in zip(members, back(there(members), 3), strict=True):
            for mine, theirs in zip(one.get_weights(), lane, strict=True):
                np.testing.assert_array_equal(mine, theirs)


DROPOUTS = {
    "inputs": {"dropout": 0.5},
    "states": {"recurrent_dropout": 0.5},
    "both": {"dropout": 0.25, "recurrent_dropout": 0.5},
}


def test_dropout_is_exact_in_inference():
    model = lanes_of(lambda: layers.LSTM(UNITS, **DROPOUTS["both"]))
    assert_fuses(model, layers=(3, 1), xla=False)


@pytest.mark.parametrize("options", DROPOUTS.values(), ids=DROPOUTS)
@pytest.mark.parametrize(
    ("cls", "more", "shared"),
    [
        (layers.LSTM, {}, True),
        (layers.GRU, {}, False),
        (layers.GRU, {"reset_after": False}, False),
        (layers.SimpleRNN, {}, True),
    ],
    ids=["lstm", "gru", "gru-reset-before", "simple"],
)
def test_dropout_has_the_same_distribution_in_training(cls, more, shared, options):
    """Mean and spread over many samples of one; lanes draw apart from each other."""
    count = 4000
    x = keras.Input((5, 6))
    sources = [x] * 2 if shared else [x + 0.0, x * 1.0]
    model = keras.Model(x, [cls(3, **more, **options)(source) for source in sources])
    randomise(model)
    fused = fuse_parallel_branches(model, policy=EVERYTHING, verify=False)
    assert "StackedRNN" in operation_names(fused)
    sample = np.random.default_rng(0).normal(size=(1, 5, 6)).astype("float32")
    many = np.repeat(sample, count, axis=0)
    keras.utils.set_random_seed(0)
    old, new = ([ops.convert_to_numpy(y) for y in one(many, training=True)]
                for one in (model, fused))  # fmt: skip
    for mine, theirs in zip(new, old, strict=True):
        spread = theirs.std(axis=0)
        assert spread.min() > 1e-3
        # Five standard errors of a difference of means; a spread is known to a few per cent.
        off = np.abs(mine.mean(axis=0) - theirs.mean(axis=0))
        assert (off < 5 * spread * (2 / count) ** 0.5).all()
        np.testing.assert_allclose(mine.std(axis=0), spread, rtol=0.15)
    apart = np.corrcoef(new[0][:, 0], new[1][:, 0])[0, 1]
    assert abs(apart) < 5 / count**0.5


@on_tensorflow
@pytest.mark.parametrize("length", [5, None])
def test_gradients_under_xla(length):
    import tensorflow as tf

    x = keras.Input((length, 6))
    model = keras.Model(x, layers.Add()([layers.LSTM(UNITS)(x) for _ in range(3)]))
    randomise(model)
    fused = fuse_parallel_branches(model, policy=EVERYTHING)
    data = tf.constant(np.random.default_rng(1).normal(size=(2, 5, 6)), "float32")

    def slope(one, given):
        with tf.GradientTape() as tape:
            tape.watch(given)
            loss = tf.reduce_sum(tf.sin(one(given)))
        return tape.gradient(loss, given)

    run = tf.function(lambda given: slope(fused, given), jit_compile=True, autograph=False)
    assert_close(run(data), slope(model, data))


def test_large_lanes_are_left_alone_by_default():
    x = keras.Input((5, 6))
    model = keras.Model(x, [layers.LSTM(48)(x) for _ in range(8)])
    assert "units 48: above 32" in str(explain(model))


def test_q16_lstms_on_split_features_then_one_lstm():
    x = keras.Input((5, 24))
    parts = [layers.LSTM(UNITS, return_sequences=True)(y) for y in ops.split(x, 4, axis=-1)]
    model = keras.Model(x, layers.LSTM(7)(layers.Concatenate()(parts)))
    fused, _ = assert_fuses(model, layers=(4, 1), xla=False)
    assert sorted(set(operation_names(fused)) & {"LSTM", "StackedRNN"}) == ["LSTM", "StackedRNN"]


def test_q22_one_feature_passes_the_lstm_by():
    x = keras.Input((5, 6))
    y = layers.LSTM(UNITS)(x[:, :, :4])
    model = keras.Model(x, layers.Concatenate()([y, x[:, :, -1]]))
    randomise(model)
    fused, report = fuse_parallel_branches(model, policy=EVERYTHING, return_report=True)
    assert not report.regions
    assert operation_names(fused) == operation_names(model)
