"""Models that once went wrong, each as small as it could be made."""

import re

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import explain, fuse_parallel_branches, verify_equivalence
from parallel_fuse.policy import EVERYTHING, Policy
from tests.asserts import assert_close, operation_names
from tests.builders import randomise, slices
from tests.splits.checks import assert_fuses_cheaply


def test_single_tensors_of_mixed_origin_stay_in_order():
    """Two results of operations around a slice: the slice was gathered last."""
    x = keras.Input((2, 7))
    lanes = [ops.sin(x[:, 0]), x[:, 1], ops.cos(x[:, 0])]
    outputs = [layers.Dense(4)(lane) for lane in lanes]
    model = randomise(keras.Model(x, layers.Concatenate()(outputs)))
    assert_fuses_cheaply(model, layers=(3, 1))


def test_the_layout_wanted_of_a_result_with_more_axes():
    """The join is along an axis that the inputs of `expand_dims` do not have."""
    inputs = [keras.Input((5,)) for _ in range(3)]
    lanes = [ops.expand_dims(x, axis=1) for x in inputs]
    model = keras.Model(inputs, layers.Concatenate(axis=-1)(lanes))
    assert_fuses_cheaply(model)


@pytest.mark.parametrize("number", [0.0, 1.5])
def test_a_number_in_a_chain_is_not_lost(number):
    x = keras.Input((3, 7))
    a, b, c = (layers.Dense(4)(piece) for piece in slices(x, 3))
    total = ((a + number) + b) + c
    product = ((a * number) * b) * c
    highest = ops.maximum(ops.maximum(a, number), ops.maximum(b, c))
    model = randomise(keras.Model(x, [total, product, highest]))
    assert_fuses_cheaply(model)


def test_a_join_that_casts_keeps_its_type():
    x = keras.Input((3, 7))
    lanes = [layers.Dense(4)(piece) for piece in slices(x, 3)]
    model = keras.Model(x, [layers.Add(dtype="float16")(lanes), layers.Concatenate()(lanes)])
    fused, _ = assert_fuses_cheaply(randomise(model))
    assert [np.dtype(v.dtype) for v in fused.outputs] == [np.float16, np.float32]


def test_sums_of_lanes_of_unequal_widths():
    """Lanes that are no view of one tensor had no axis to sum over."""
    x = keras.Input((7,))
    heads = [layers.Dense(n, "softmax")(x) for n in (3, 5, 3)]
    model = keras.Model(x, [layers.Add()([heads[0], heads[2]]), heads[1]])
    assert_fuses_cheaply(randomise(model))


@pytest.mark.parametrize("join", [layers.Maximum, layers.Minimum, layers.Multiply, layers.Add])
@pytest.mark.parametrize("foreign", [False, True])
def test_joins_that_pass_over_masked_steps(join, foreign):
    """They look at the masks of their operands by themselves, without an argument for them."""
    x = keras.Input((6, 4))
    masked = layers.Masking()(x)
    lanes = [layers.Dense(4)(masked if not foreign else x) for _ in range(2)]
    if foreign:
        lanes.append(masked)
    model = randomise(keras.Model(x, ops.reshape(join()(lanes), (-1, 24))))
    fused = fuse_parallel_branches(model, verify=False, policy=EVERYTHING)
    array = np.random.default_rng(0).normal(size=(3, 6, 4)).astype("float32")
    array[:, 2:4] = 0
    assert_close(fused(array), model(array))


def _gated_experts(x):
    """A gate whose softmax stands among the experts, and a sum weighted by it."""
    experts = [layers.Dense(4)(layers.Dense(8, "relu")(x)) for _ in range(3)]
    gate = layers.Dense(3, "softmax")(x)
    return layers.Add()([one * gate[:, i : i + 1] for i, one in enumerate(experts)])


def test_wide_lanes_of_one_function_stay_together():
    """Beside a gate of another width each expert had an Activation of its own."""
    x = keras.Input((7,))
    fused, _ = assert_fuses_cheaply(randomise(keras.Model(x, _gated_experts(x))))
    assert operation_names(fused).count("Activation") == 3  # one expert, the gate, two experts
    assert operation_names(fused).count("Stack") == 1


def test_lanes_that_each_have_a_function_are_taken_apart_once():
    """Every lane was picked, put back and picked again: 30 operations in place of 13."""
    x = keras.Input((7,))
    functions = ["relu", "tanh", "sigmoid", "gelu"]
    lanes = [layers.Dense(3, f)(layers.Dense(4, f)(x)) for f in functions]
    fused, _ = assert_fuses_cheaply(randomise(keras.Model(x, layers.Concatenate()(lanes))))
    apart = ["Dense", "Split", "Stack", "EinsumDense", "Unstack", "Concatenate"]
    assert sorted(operation_names(fused)) == sorted(apart + ["Activation"] * 8)


def test_a_product_of_single_tensors_stays_what_it_was():
    """tanh × sigmoid: lanes already apart were stacked, and multiplied along the new axis."""
    x = keras.Input((9, 4))
    pair = [layers.Conv1D(5, 2, activation=f)(x) for f in ("tanh", "sigmoid")]
    fused, _ = assert_fuses_cheaply(randomise(keras.Model(x, layers.Multiply()(pair))))
    assert "Multiply" in operation_names(fused) and "Stack" not in operation_names(fused)


def test_slices_read_by_several_layers_are_gathered_once():
    """A highway block reads its slice four times; each reader transposed it anew."""
    x = keras.Input((3, 5))

    def branch(piece):
        gate = layers.Dense(5, "sigmoid")(piece)
        return gate * layers.Dense(5, "relu")(piece) + (1 - gate) * piece

    lanes = [branch(piece) for piece in slices(x, 3)]
    fused, _ = assert_fuses_cheaply(randomise(keras.Model(x, layers.Concatenate()(lanes))))
    assert operation_names(fused).count("Transpose") == 2


def _dilated(x):
    for rate in (1, 2):
        pair = [layers.Conv1D(6, 2, dilation_rate=rate, activation=f, padding="causal")(x)
                for f in ("tanh", "sigmoid")]  # fmt: skip
        x = x + layers.Conv1D(6, 1)(layers.Multiply()(pair))
    return x


def _mixed_order(x):
    first = layers.Dense(3)(x)
    lanes = [layers.Dense(3)(x[:, i : i + 1]) for i in range(4)]
    return layers.Concatenate()([lanes[3], layers.Dense(3)(first), lanes[0], lanes[1], lanes[2]])


def _mixed_functions(x):
    functions = ["relu", "tanh", "sigmoid", None, "gelu"]
    return layers.Add()([layers.Dense(3, f)(layers.Dense(4, f)(x)) for f in functions])


@pytest.mark.parametrize(("tail", "shape"), [
    (_dilated, (9, 6)),
    (_mixed_order, (7,)),
    (_mixed_functions, (7,)),
])  # fmt: skip
def test_what_would_run_more_operations_is_left_alone(tail, shape):
    """The estimate forgot cuts around activations, and joins of lanes with other tensors."""
    x = keras.Input(shape)
    report = explain(keras.Model(x, tail(x)), policy=Policy(mode="jit"))
    assert not report.regions
    assert any("times fewer kernels" in miss.reason for miss in report.rejections)


def test_a_reason_compares_with_the_siblings_that_fused():
    """Those left over were compared with one another."""
    x = keras.Input((7,))
    options = [{}, {}, {"momentum": 0.9}, {"epsilon": 1e-5}, {"center": False}]
    lanes = [layers.BatchNormalization(**o, name=f"bn{i}")(layers.Dense(3)(x))
             for i, o in enumerate(options)]  # fmt: skip
    report = explain(keras.Model(x, layers.Concatenate()(lanes)), policy=EVERYTHING)
    assert [str(miss) for miss in report.rejections] == [
        "bn2: momentum 0.9, its siblings 0.99",
        "bn3: epsilon 1e-05, its siblings 0.001",
        "bn4: center False, its siblings True",
    ]


def test_an_attribute_of_grouped_branches_is_no_difference_of_its_own():
    x = keras.Input((9, 4))
    lanes = [layers.Conv1D(n, 3, groups=g, name=f"c{n}_{i}")(x)
             for i, (n, g) in enumerate([(6, 1), (6, 1), (8, 4)])]  # fmt: skip
    report = explain(keras.Model(x, layers.Concatenate()(lanes)), policy=EVERYTHING)
    assert [str(miss) for miss in report.rejections] == ["c8_2: groups 4, its siblings 1"]


def test_a_region_that_does_not_pay_is_one_line_and_never_rounded_up():
    """glu: "1.5 times fewer kernels, expected at least 1.5", once for each level."""
    x = keras.Input((6,))
    lanes = [layers.Dense(3)(t) * ops.sigmoid(layers.Dense(3)(t)) for t in ops.split(x, 3, -1)]
    model = keras.Model(x, layers.Concatenate()(lanes))
    (miss,) = explain(model, policy=Policy(mode="jit")).rejections
    gain, wanted = (float(n) for n in re.findall(r"[0-9.]+", miss.reason))
    assert len(miss.layers) == 12 and gain < wanted


def test_a_deep_tower_is_named_once():
    x = keras.Input((3, 5))
    lanes = slices(x, 3)
    for _ in range(6):
        lanes = [layers.Dense(5, "tanh")(lane) for lane in lanes]
    report = explain(keras.Model(x, layers.Concatenate()(lanes)), policy=EVERYTHING)
    assert "3 × (Dense(5, tanh), 6 levels) on slices" in str(report)


def test_a_single_missing_bias_is_spoken_of_as_one():
    x = keras.Input((3, 5))
    lanes = [layers.Dense(4, use_bias=i > 0)(piece) for i, piece in enumerate(slices(x, 3))]
    _, report = assert_fuses_cheaply(randomise(keras.Model(x, layers.Concatenate()(lanes))))
    assert report.notes == ("1 bias that was missing is zero now; further training would move it",)


@pytest.mark.parametrize(("optimizer", "says"), [
    (keras.optimizers.SGD(clipnorm=0.1), "clipnorm"),
    (keras.optimizers.Lamb(), "Lamb"),
    (keras.optimizers.SGD(global_clipnorm=0.1), None),
    (keras.optimizers.Adam(), None),
])  # fmt: skip
def test_steps_by_the_norm_of_a_weight_are_spoken_of(optimizer, says):
    """Three kernels that become one are clipped together: training went another way in silence."""
    x = keras.Input((3, 5))
    model = keras.Model(x, layers.Add()([layers.Dense(4)(piece) for piece in slices(x, 3)]))
    model.compile(optimizer=optimizer, loss="mse")
    _, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    found = [note for note in report.notes if "norm of each weight" in note]
    assert [note.split()[0] for note in found] == ([says] if says else [])


def test_a_report_of_many_reasons_stays_readable():
    """250 branches of 250 widths filled 500 lines."""
    x = keras.Input((30,))
    lanes = [layers.Dense(2)(layers.Dense(3 + i)(x[:, i : i + 1])) for i in range(30)]
    report = explain(keras.Model(x, layers.Add()(lanes)))
    assert len(report.rejections) > 30
    assert f"and {len(report.rejections) - 24} more: see to_dict()" in report.to_text()
    assert len(report.to_dict()["rejections"]) == len(report.rejections)


def test_outputs_that_are_zero_for_all_inputs_are_spoken_of():
    """A dead ReLU at the end hid that two lanes were swapped."""
    x = keras.Input((3, 5))
    lanes = [layers.Dense(4, "relu")(piece) for piece in slices(x, 3)]
    model = randomise(keras.Model(x, layers.Concatenate(name="joined")(lanes)))
    assert "zero for all inputs" not in str(verify_equivalence(model, model))
    for layer in model.layers:
        if isinstance(layer, layers.Dense):
            layer.bias.assign([-1000.0] * 4)
    assert "ok, but zero for all inputs" in str(verify_equivalence(model, model))
