"""`x[…]` and cropping of each lane: what fuses, what stays a split."""

import keras
import pytest
from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Graph
from parallel_fuse.kinds.selecting import SELECT, written_out
from tests.asserts import assert_fuses, operation_names
from tests.builders import channel_towers, towers

KEYS = {
    "one step": (slice(None), -1),
    "a run of steps": (slice(None), slice(2, 5)),
    "one channel": (Ellipsis, 1),
    "some channels": (Ellipsis, slice(1, None)),
    "a step of some channels": (slice(None), 3, slice(None, 3)),
    "a new axis in front": (slice(None), None),
    "a new axis behind": (Ellipsis, None),
    "everything at once": (slice(None), None, slice(1, 6, 2), None, 2),
}


@pytest.mark.parametrize("case", KEYS)
def test_lanes_in_front(case):
    key = KEYS[case]
    model = towers(lambda i, x: layers.Dense(4)(x)[key], shape=(3, 8, 7))
    fused, _ = assert_fuses(model)
    assert operation_names(fused)[:3] == ["Transpose", "EinsumDense", "GetItem"]
    assert operation_names(fused).count("GetItem") == 1


@pytest.mark.parametrize("case", KEYS)
def test_lanes_folded_into_the_channels(case):
    key = KEYS[case]
    model = channel_towers(lambda i, x: layers.Conv1D(4, 2)(x)[key], shape=(9, 6))
    fused, _ = assert_fuses(model)
    assert operation_names(fused).count("GetItem") == 1


@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.Cropping2D(((1, 0), (2, 1))),
        lambda: layers.Cropping2D(((1, 0), (2, 1)), data_format="channels_first"),
    ],
)
def test_cropping_between_convolutions(layer):
    first = layer().data_format == "channels_first"

    def branch(i, x):
        x = layers.Conv2D(4, 2)(x)
        x = layers.Permute((3, 1, 2))(x) if first else x
        return layers.Flatten()(layer()(x))

    fused, _ = assert_fuses(channel_towers(branch, shape=(9, 8, 6)))
    assert operation_names(fused).count("Cropping2D") == 1


def test_slices_of_one_tensor_stay_lanes():
    x = keras.Input((7,))
    hidden = layers.Dense(6)(x)
    outputs = [layers.Dense(2)(hidden[:, i : i + 2]) for i in (0, 2, 4)]
    fused, _ = assert_fuses(keras.Model(x, layers.Concatenate()(outputs)), layers=(3, 1))
    assert "GetItem" not in operation_names(fused)


def test_slices_of_separate_inputs_are_taken_before_they_are_stacked():
    inputs = [keras.Input((9,)) for _ in range(3)]
    outputs = [layers.Dense(2)(x[:, :4]) for x in inputs]
    fused, _ = assert_fuses(keras.Model(inputs, layers.Concatenate()(outputs)), layers=(3, 1))
    assert operation_names(fused)[:4] == ["GetItem", "GetItem", "GetItem", "Stack"]


def test_different_keys_make_no_group():
    model = towers(lambda i, x: layers.Dense(4)(x)[:, i : i + 2], shape=(2, 8, 7))
    _, report = assert_fuses(model, layers=(2, 1))
    assert "key" in str(report.rejections[0])


def test_a_key_that_selects_from_the_batch_is_rejected():
    x = keras.Input((5, 7))
    call = Graph.of(keras.Model(x, x[0])).calls[-1]
    with pytest.raises(Reject, match="selects from the batch"):
        SELECT.signature(call)


@pytest.mark.parametrize(
    "entry", [True, [0, 2], keras.KerasTensor(()), slice(keras.KerasTensor(()))]
)
def test_a_key_that_is_not_written_in_numbers_is_rejected(entry):
    with pytest.raises(Reject, match="more than numbers, slices and new axes"):
        written_out((slice(None), entry), 3)
