"""Where one product of all lanes is left alone, and where not: the rule for each way of running."""

import keras
import pytest
from keras import layers

from parallel_fuse import explain
from parallel_fuse.kinds.product import widest_lane
from parallel_fuse.policy import Policy
from tests.builders import towers
from tests.devices import TENSORFLOW


def regions(lanes: int, width: int, layer, **policy) -> tuple[int, str]:
    model = towers(lambda i, x: layer(width + 2)(x), (lanes, width))
    report = explain(model, policy=Policy(**{"min_gain": 0.0, **policy}))
    return len(report.regions), str(report)


def dense(units):
    return layers.Dense(units, activation="relu")


def einsum(units):
    return layers.EinsumDense("bx,xy->by", output_shape=units, bias_axes="y")


@pytest.mark.parametrize("layer", [dense, einsum])
@pytest.mark.parametrize(("lanes", "width", "policy", "reason"), [
    (11, 5, {}, "11 lanes: one product of fewer than 12"),
    (16, 40, {}, "16 lanes of 41 × 41 weights, batch 128: one product above 32"),
    (12, 5, {"batch": 1024}, "12 lanes of 5.92 × 5.92 weights, batch 1024"),
    (15, 5, {"mode": "onnx"}, "15 lanes: one product of fewer than 16"),
])  # fmt: skip
def test_left_alone_with_the_reason(layer, lanes, width, policy, reason):
    if not TENSORFLOW and "mode" not in policy:
        pytest.skip("a rule for TensorFlow's graphs")
    found, text = regions(lanes, width, layer, **policy)
    assert found == 0
    assert reason in text


@pytest.mark.parametrize("layer", [dense, einsum])
@pytest.mark.parametrize(("lanes", "width", "policy"), [
    (12, 5, {}),
    (16, 28, {}),
    (16, 40, {"batch": 32}),
    (3, 5, {"mode": "jit"}),
    (3, 40, {"mode": "tflite"}),
    (3, 40, {"mode": "eager"}),
    (16, 40, {"mode": "onnx"}),
    (3, 40, {"profitable_only": False}),
])  # fmt: skip
def test_fused(layer, lanes, width, policy):
    assert regions(lanes, width, layer, **policy)[0] == 1


def test_lanes_that_read_one_tensor_need_no_batched_product():
    x = keras.Input((200,))
    model = keras.Model(x, layers.Concatenate()([layers.Dense(n)(x) for n in (3, 5, 7)]))
    assert len(explain(model).regions) == 1


def test_widest_lane_grows_with_the_lanes_and_shrinks_with_the_batch():
    assert widest_lane(16, 128) == 32
    assert widest_lane(32, 128) == 128
    assert widest_lane(16, 256) == 16


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match=r"expected a mode out of graph, jit.*Received: .gpu."):
        Policy(mode="gpu")
