"""Bidirectional: both directions of all lanes in one loop."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse.kinds.recurrent import stack, stack_shared, unstack, unstack_shared
from tests.asserts import assert_fuses, assert_rejects, operation_names
from tests.builders import towers

UNITS = 4
SHAPE = (3, 5, 6)  # lanes, steps, features


def both(layer, **options) -> layers.Bidirectional:
    return layers.Bidirectional(layer, **options)


@pytest.mark.parametrize("mode", ["concat", "sum", "mul", "ave"])
def test_merge_modes(mode):
    cls = layers.GRU if mode in ("sum", "ave") else layers.LSTM
    sequences = mode in ("concat", "ave")
    model = towers(
        lambda i, x: both(cls(UNITS, return_sequences=sequences), merge_mode=mode)(x), SHAPE
    )
    expected = ["Transpose", "StackedRNN", "Transpose", "Reshape"]
    assert_fuses(model, layers=(3, 1), operations=expected, xla=mode == "concat")


@pytest.mark.parametrize("state", [False, True], ids=["outputs", "states"])
def test_nothing_merged(state):
    x = keras.Input(SHAPE, name="x")
    layer = [both(layers.LSTM(UNITS, return_sequences=True, return_state=state), merge_mode=None)
             for _ in range(3)]  # fmt: skip
    outputs = [y for i, one in enumerate(layer) for y in one(x[:, i])]
    assert_fuses(keras.Model(x, outputs), layers=(3, 1), xla=False)


def test_states_in_and_out():
    x, h = keras.Input(SHAPE, name="x"), keras.Input((3, 4, UNITS), name="h")
    outputs = []
    for i in range(3):
        states = [h[:, i, k] for k in range(4)]
        outputs += both(layers.LSTM(UNITS, return_state=True))(x[:, i], initial_state=states)
    assert_fuses(keras.Model([x, h], outputs), layers=(3, 1))


def test_one_wide_product_for_a_shared_sequence():
    x = keras.Input((5, 6))
    model = keras.Model(x, [both(layers.SimpleRNN(UNITS))(x) for _ in range(3)])
    fused, report = assert_fuses(model, layers=(3, 1), xla=False)
    assert report.regions[0].lowerings == ("stacked-rnn-shared",)
    layer = next(one for one in fused.layers if type(one).__name__ == "StackedRNN")
    assert layer.kernel.shape[:3] == (6, 3, 2)


def test_a_forward_layer_that_goes_backwards():
    """Keras turns the outputs of the second layer, whichever way it goes."""

    def branch(i, x):
        back = layers.GRU(UNITS, return_sequences=True)
        first = layers.GRU(UNITS, return_sequences=True, go_backwards=True)
        return both(first, backward_layer=back)(x)

    assert_fuses(towers(branch, SHAPE), layers=(3, 1), xla=False)


@pytest.mark.parametrize("sequences", [False, True])
def test_masks_of_each_lane(sequences):
    if not sequences and keras.backend.backend() == "torch":
        pytest.skip("Keras itself cannot run it: unrolled backwards over a mask")
    x = keras.Input((3, 5), dtype="int32")
    outputs = []
    for i in range(3):
        y = layers.Embedding(3, 6, mask_zero=True)(x[:, i])
        # Unrolled, Keras zeroes the wrong steps of masked sequences.
        y = both(layers.LSTM(UNITS, return_sequences=sequences, unroll=not sequences))(y)
        outputs.append(ops.mean(y, axis=1) if sequences else y)
    fused, _ = assert_fuses(keras.Model(x, ops.stack(outputs, axis=1)), xla=False)
    assert "StackedRNN" in operation_names(fused)


def test_dropout_is_exact_in_inference():
    model = towers(lambda i, x: both(layers.GRU(UNITS, dropout=0.5))(x), SHAPE)
    fused, _ = assert_fuses(model, layers=(3, 1), xla=False)
    sample = np.random.default_rng(0).normal(size=(1, *SHAPE)).astype("float32")
    rows = ops.convert_to_numpy(fused(np.repeat(sample, 7, axis=0), training=True))
    assert (rows.std(axis=0) > 0).all()


def _other_backward():
    return both(
        layers.LSTM(UNITS), backward_layer=layers.LSTM(UNITS, "relu", go_backwards=True)
    )


REJECTED = {
    "differ in activation": _other_backward,
    "stateful": lambda: both(layers.LSTM(UNITS, stateful=True)),
    "wraps a RNN": lambda: both(layers.RNN(layers.GRUCell(UNITS))),
    "dtype policies of their own": lambda: both(layers.LSTM(UNITS, dtype="mixed_float16")),
    "seed 7": lambda: both(layers.GRU(UNITS, dropout=0.5, seed=7)),
    "MaxNorm": lambda: both(layers.GRU(UNITS, recurrent_constraint="max_norm")),
    "activity regularizer": lambda: both(layers.GRU(UNITS, activity_regularizer="l2")),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    x = keras.Input(SHAPE, batch_size=3 if reason == "stateful" else None)
    outputs = [REJECTED[reason]()(x[:, i]) for i in range(2)]
    assert_rejects(keras.Model(x, layers.Concatenate()(outputs)), reason)


@pytest.mark.parametrize("cls", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_weights_unstack_exactly(cls):
    members = [both(cls(UNITS, bias_initializer="random_normal")) for _ in range(3)]
    for one in members:
        one.build((None, 5, 6))
    for there, back in ((stack, unstack), (stack_shared, unstack_shared)):
        for one, lane in zip(members, back(there(members), 3), strict=True):
            for mine, theirs in zip(one.get_weights(), lane, strict=True):
                np.testing.assert_array_equal(mine, theirs)
