"""Verification: an honest twin passes, every wrong one is caught, the models stay as they were."""

import itertools
import json

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import _keras
from parallel_fuse.errors import (
    InvalidInputsError,
    NotEquivalentError,
    NotVerifiedError,
    UnsupportedModelError,
)
from parallel_fuse.verification import ids, interpret, precision, reference, sampling
from parallel_fuse.verification.precision import EPSILON, precision_of
from parallel_fuse.verification.rounding import shaken_runs
from parallel_fuse.verification.verify import verify_equivalence
from tests.builders import randomise

LANES, WIDTH = 5, 3


def dense_weights(seed=0, units=4, depth=2, scale=1.0):
    """[kernel (M, in, out), bias (M, out)] for each level, biases of the size of the sums."""
    random = np.random.default_rng(seed)
    sizes = [WIDTH, *(units + level for level in range(depth))]
    return [
        [random.normal(size=(LANES, a, b)) * scale / a**0.5, random.normal(size=(LANES, b))]
        for a, b in itertools.pairwise(sizes)
    ]


def branches(weights, keys=None, activation="relu", join=None, name="x"):
    """One Dense tower on each slice, as a user writes it; `keys` says which slice a lane reads."""
    x = keras.Input((LANES * WIDTH,), dtype=keras.config.dtype_policy().variable_dtype, name=name)
    keys = keys or [slice(m * WIDTH, (m + 1) * WIDTH) for m in range(LANES)]
    outputs, filled = [], []
    for m, key in enumerate(keys):
        h = x[:, key]
        for kernel, bias in weights:
            layer = layers.Dense(kernel.shape[2], activation)
            h = layer(h)
            filled.append((layer, [kernel[m], bias[m]]))
        outputs.append(h)
    model = keras.Model(x, (join or layers.Concatenate(name="joined"))(outputs))
    for layer, values in filled:
        layer.set_weights(values)
    return model


def batched(weights, activation="relu", join=None, name="x", window=lambda x: x):
    """The same towers as one batched product for each level, written by hand."""
    x = keras.Input((LANES * WIDTH,), dtype=keras.config.dtype_policy().variable_dtype, name=name)
    h = ops.transpose(ops.reshape(window(x), (-1, LANES, WIDTH)), (1, 0, 2))
    filled = []
    for kernel, bias in weights:
        shape = (None, kernel.shape[2])
        layer = layers.EinsumDense("mnl,mlk->mnk", shape, bias_axes="mk", activation=activation)
        h = layer(h)
        filled.append((layer, [kernel, bias[:, None]]))
    model = keras.Model(x, (join or layers.Concatenate(name="joined"))(ops.unstack(h, LANES)))
    for layer, values in filled:
        layer.set_weights(values)
    return model


def swapped(weights, what, first=1, second=3):
    """A copy with two lanes exchanged, in every level or in one array only."""
    copies = [[kernel.copy(), bias.copy()] for kernel, bias in weights]
    arrays = {
        "lanes": [array for pair in copies for array in pair],
        "first bias": [copies[0][1]],
        "last bias": [copies[-1][1]],
        "kernel": [copies[0][0]],
    }
    for array in arrays[what]:
        array[[first, second]] = array[[second, first]]
    return copies


def twin(model):
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


def single(layer, shape=(4,), dtype=None, **options):
    x = keras.Input(shape, dtype=dtype, name="x", **options)
    return keras.Model(x, layer(x))


def plus(model, change, name="joined"):
    """The model with its output changed by a function, under the same output name."""
    return keras.Model(model.input, keras.layers.Lambda(change, name=name)(model.output))


# --- honest twins


def test_reordered_sums_pass():
    weights = dense_weights(units=50)
    found = verify_equivalence(branches(weights), batched(weights))
    assert found.ok
    assert found.batch_sizes == (1, 2, 7)
    assert found.inputs == "random"
    (check,) = found.outputs
    assert (check.name, check.shape, check.dtype) == ("joined", (None, LANES * 51), "float32")
    assert check.max_abs_error <= check.tolerance < 1e-5 * check.scale


@pytest.mark.parametrize("seed", range(8))
def test_random_towers_pass(seed):
    """Depth, fan-in, weights and activation vary; no figure may come near the edge."""
    random = np.random.default_rng(seed)
    depth, units = int(random.integers(1, 5)), int(random.choice([2, 17, 60]))
    weights = dense_weights(seed, units, depth, float(random.choice([0.5, 1, 2])))
    activation = str(random.choice(["relu", "tanh", "gelu", "linear"]))
    join = (layers.Concatenate, layers.Add, layers.Maximum, layers.Multiply)[seed % 4]
    found = verify_equivalence(
        branches(weights, activation=activation, join=join(name="joined")),
        batched(weights, activation, join=join(name="joined")),
    )
    assert found.outputs[0].max_abs_error < 0.7 * found.outputs[0].tolerance


def test_twenty_levels_pass():
    weights = dense_weights(units=3, depth=20, scale=1.4)
    assert verify_equivalence(branches(weights), batched(weights)).ok


def nearly_equal_branches(order):
    """The small difference of two large dot products; `order` permutes the hidden units."""
    random = np.random.default_rng(3)
    x = keras.Input((40,), name="x")
    values = [random.normal(size=(40, 31)), random.normal(size=31), random.normal(size=(31, 6))]
    outputs, hidden = [], layers.Dense(31)
    h = hidden(x)
    hidden.set_weights([values[0][:, order], values[1][order]])
    for nudge in (0.0, 1e-5):
        last = layers.Dense(6, use_bias=False)
        outputs.append(last(h))
        last.set_weights([(values[2] * (1 + nudge * random.normal(size=(31, 6))))[order]])
    return keras.Model(x, layers.Subtract(name="difference")(outputs))


def test_b32_cancellation_widens_the_tolerance_and_only_there():
    """B32: eps times the output's own size would be far too strict here."""
    random = np.random.default_rng(8)
    a, b = nearly_equal_branches(np.arange(31)), nearly_equal_branches(random.permutation(31))
    (check,) = verify_equivalence(a, b).outputs
    eps = EPSILON["float32"]
    assert check.max_abs_error > 4 * eps * (31 * 2) ** 0.5 * check.scale
    assert check.max_abs_error < 0.7 * check.tolerance


def test_rounding_is_measured_again_before_condemning(monkeypatch):
    """Few disturbed runs may miss how far rounding goes; more of them settle a narrow case."""
    random = np.random.default_rng(8)
    a, b = nearly_equal_branches(np.arange(31)), nearly_equal_branches(random.permutation(31))
    monkeypatch.setattr(reference, "PAIRS", 0)
    assert verify_equivalence(a, b).ok
    monkeypatch.setattr(reference, "MORE_PAIRS", 0)
    with pytest.raises(NotEquivalentError):
        verify_equivalence(a, b)


def test_a_large_bias_hides_inside_a_layer():
    """The sum cancels against the bias before anyone sees it."""
    x = keras.Input((50,), name="x")
    layer = layers.Dense(3, name="out")
    a = keras.Model(x, layer(x))
    layer.set_weights([np.full((50, 3), 20.0), np.array([-1000.0, -999.0, -1001.0])])
    b = twin(a)
    order = np.random.default_rng(1).permutation(50)
    x = keras.Input((50,), name="x")
    b = keras.Model(x, b.layers[-1](ops.take(x, order, axis=1)))
    rows = 1 + 1e-3 * np.random.default_rng(2).normal(size=(7, 50))
    assert verify_equivalence(a, b, rows.astype("float32")).ok


def test_one_small_output_beside_a_large_one_is_still_checked():
    """Figures are kept for each position: a large neighbour must not widen the tolerance."""
    weights = dense_weights()
    for array in weights[-1]:
        array[0] *= 1e6
    with pytest.raises(NotEquivalentError):
        verify_equivalence(branches(weights), batched(swapped(weights, "last bias")))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_other_precisions(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        weights = dense_weights()
        a, b, wrong = branches(weights), batched(weights), batched(swapped(weights, "lanes"))
    finally:
        keras.config.set_dtype_policy(before)
    found = verify_equivalence(a, b)
    assert policy.removeprefix("mixed_") in found.tolerance_rule
    assert found.outputs[0].dtype == policy.removeprefix("mixed_")
    with pytest.raises(NotEquivalentError, match="differs by"):
        verify_equivalence(a, wrong)


def test_coarse_float32_products_are_measured(monkeypatch):
    """An accelerator that rounds its factors to ten bits (TF32) has errors of that size."""
    precision._float32_epsilon.cache_clear()
    exact = ops.matmul

    def rounded(a, b):
        a, b = (np.asarray(x, "float32").view("uint32") & 0xFFFFE000 for x in (a, b))
        return exact(a.view("float32"), b.view("float32"))

    assert precision._float32_epsilon("exact") == EPSILON["float32"]
    monkeypatch.setattr(keras.ops, "matmul", rounded)
    assert precision._float32_epsilon("rounded") == precision.TF32_EPSILON
    precision._float32_epsilon.cache_clear()


# --- negative controls


@pytest.mark.parametrize("what", ["lanes", "first bias", "last bias", "kernel"])
@pytest.mark.parametrize("join", [layers.Concatenate, layers.Multiply])
def test_exchanged_weights_are_caught(what, join):
    weights = dense_weights()
    a, b = (
        branches(weights, join=join(name="joined"), activation="tanh"),
        batched(swapped(weights, what), join=join(name="joined"), activation="tanh"),
    )
    with pytest.raises(NotEquivalentError) as caught:
        verify_equivalence(a, b)
    (check,) = caught.value.verification.outputs
    assert check.max_abs_error > 100 * check.tolerance
    assert not caught.value.verification.ok


def test_a_slice_off_by_one_is_caught():
    weights = dense_weights()
    keys = [slice(m * WIDTH, (m + 1) * WIDTH) for m in range(LANES)]
    keys[2] = slice(2 * WIDTH - 1, 3 * WIDTH - 1)
    with pytest.raises(NotEquivalentError, match="output 'joined': differs by"):
        verify_equivalence(branches(weights), branches(weights, keys))


def test_a_window_rolled_by_one_is_caught():
    weights = dense_weights()
    with pytest.raises(NotEquivalentError):
        verify_equivalence(
            branches(weights), batched(weights, window=lambda x: ops.roll(x, 1, axis=1))
        )


def test_the_message_says_what_where_and_how_much():
    weights = dense_weights()
    with pytest.raises(NotEquivalentError) as caught:
        verify_equivalence(branches(weights), batched(swapped(weights, "lanes")))
    message = str(caught.value)
    assert "\n" not in message
    assert "output 'joined': differs by" in message
    assert "tolerance" in message
    assert "at index (" in message
    assert "batch size" in message
    assert " became " in message


def test_a_failure_can_be_returned():
    weights = dense_weights()
    found = verify_equivalence(
        branches(weights), batched(swapped(weights, "lanes")), raise_on_failure=False
    )
    assert not found.ok
    assert "NOT EQUIVALENT" in str(found)


class WrongWhen(layers.Layer):
    """Right but for one circumstance."""

    def __init__(self, when, **options):
        super().__init__(**options)
        self.when = when

    def call(self, x):
        return x + 1 if self.when(x) else x


@pytest.mark.parametrize("size", [1, 2, 7])
def test_every_batch_size_counts(size):
    """B14: a batch of one may be right where two rows are wrong."""
    a = single(layers.Identity(name="out"))
    b = single(WrongWhen(lambda x: x.shape[0] == size, name="out"))
    with pytest.raises(NotEquivalentError, match=rf"\(batch size {size}, eager\)"):
        verify_equivalence(a, b)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="asks TensorFlow for its mode")
def test_the_compiled_graph_counts():
    """B14: right when called, wrong in the graph that predict runs."""
    import tensorflow as tf

    a = single(layers.Identity(name="out"))
    b = single(WrongWhen(lambda x: not tf.executing_eagerly(), name="out"))
    with pytest.raises(NotEquivalentError, match="compiled"):
        verify_equivalence(a, b)
    assert verify_equivalence(a, twin(a)).modes == ("eager", "compiled")


def test_a_twin_that_fails_to_run_is_no_twin():
    def fail(x):
        if x.shape[0] == 2:
            raise RuntimeError("grouped convolution is not supported")
        return x

    a, b = (single(layers.Lambda(f, name="out")) for f in (lambda x: x, fail))
    with pytest.raises(NotEquivalentError, match=r"cannot be run \(batch size 2, eager\)"):
        verify_equivalence(a, b)


# --- interface


def interface(name="x", output="y", shape=(4,), dtype="float32", units=3, **options):
    x = keras.Input(shape, dtype=dtype, name=name, **options)
    return keras.Model(x, layers.Dense(units, name=output)(x))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"name": "z"}, "expected input 'x'. Received: 'z'"),
        ({"output": "z"}, "expected output 'y'. Received: 'z'"),
        ({"shape": (5,)}, "expected input 'x' of shape (None, 4)"),
        ({"batch_size": 7}, "Received: (7, 4) float32"),
        ({"dtype": "float64"}, "Received: (None, 4) float64"),
        ({"units": 2}, "expected output 'y' of shape (None, 3)"),
    ],
)
def test_interfaces_must_agree(other, message):
    with pytest.raises(NotEquivalentError) as caught:
        verify_equivalence(interface(), interface(**other))
    assert message in str(caught.value)
    assert caught.value.verification.outputs == ()


def two_inputs(nest, outputs=lambda p, q: [p, q]):
    p, q = keras.Input((3,), name="p"), keras.Input((3,), name="q")
    first, second = layers.Dense(2, name="first"), layers.Dense(2, name="second")
    model = keras.Model(nest(p, q), outputs(first(p), second(q)))
    return randomise(model)


def test_b12_nests_must_agree():
    as_list, as_dict = (
        two_inputs(nest) for nest in (lambda p, q: [p, q], lambda p, q: dict(p=p, q=q))
    )
    with pytest.raises(NotEquivalentError, match="expected inputs nested as"):
        verify_equivalence(as_list, as_dict)
    reordered = two_inputs(lambda p, q: [q, p])
    with pytest.raises(NotEquivalentError, match=r"expected input 'p'. Received: 'q'"):
        verify_equivalence(as_list, reordered)
    named = two_inputs(lambda p, q: [p, q], lambda p, q: {"a": p, "b": q})
    with pytest.raises(NotEquivalentError, match="expected outputs nested as"):
        verify_equivalence(as_list, named)


def test_b12_dict_inputs_and_outputs():
    model = two_inputs(lambda p, q: {"q": q, "p": p}, lambda p, q: {"z": p, "a": q})
    found = verify_equivalence(model, twin(model))
    assert [check.name for check in found.outputs] == list(_keras.names(model)[1])
    exchanged = two_inputs(lambda p, q: {"q": q, "p": p}, lambda p, q: {"z": p, "a": q})
    exchanged.get_layer("first").set_weights(model.get_layer("second").get_weights())
    exchanged.get_layer("second").set_weights(model.get_layer("first").get_weights())
    with pytest.raises(NotEquivalentError):
        verify_equivalence(model, exchanged)


def test_sequential_and_nested_models():
    inner = keras.Sequential([keras.Input((6,)), layers.Dense(4, "tanh"), layers.Dense(3)])
    x = keras.Input((6,), name="x")
    nested = randomise(keras.Model(x, layers.Dense(2, name="out")(inner(x))))
    y = keras.Input((6,), name="x")
    h = y
    for layer in (*inner.layers, nested.layers[-1]):
        h = layer(h)
    assert verify_equivalence(nested, keras.Model(y, h)).ok
    assert verify_equivalence(inner, twin(inner)).ok


# --- values that must be equal


def test_integers_and_booleans_must_be_equal():
    def heads(shift):
        x = keras.Input((6,), name="x")
        parts = [ops.argmax(x, axis=-1) + shift, x > 0]
        return keras.Model(x, [layers.Identity(name=n)(y) for n, y in zip("pq", parts)])

    a, b = heads(0), heads(1)
    with pytest.raises(NotEquivalentError, match=r"output 'p': expected \d. Received: \d"):
        verify_equivalence(a, b)
    assert verify_equivalence(a, twin(a)).ok


def special(x, value, where):
    return ops.where(ops.arange(4) == where, value, x)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_must_stand_in_the_same_places(value):
    a, same, moved, other = (
        single(layers.Lambda(lambda x, v=v, w=w: special(x, v, w), name="out"))
        for v, w in ((value, 1), (value, 1), (value, 2), (-5.0 if np.isnan(value) else -value, 1))
    )
    found = verify_equivalence(a, same)
    assert found.outputs[0].max_abs_error == 0
    for wrong in (moved, other):
        with pytest.raises(NotEquivalentError, match="expected"):
            verify_equivalence(a, wrong)


def test_numbers_beside_nan_are_compared():
    a, b = (
        single(layers.Lambda(lambda x, d=d: special(x, np.nan, 1) + d, name="out"))
        for d in (0.0, 0.01)
    )
    with pytest.raises(NotEquivalentError, match=r"differs by 0.01"):
        verify_equivalence(a, b)


def test_shape_and_type_at_run_time():
    class Lies(layers.Layer):
        def __init__(self, change, **options):
            super().__init__(**options)
            self.change = change

        def compute_output_spec(self, x):
            return keras.KerasTensor(x.shape, dtype="float32")

        def call(self, x):
            return self.change(x)

    a = single(Lies(lambda x: x, name="out"))
    for change, message in (
        (lambda x: ops.cast(x, "float16"), "expected type float32. Received: float16"),
        (lambda x: x[:, :3], r"expected shape \(\d, 4\). Received: \(\d, 3\)"),
    ):
        with pytest.raises(NotEquivalentError, match=message):
            verify_equivalence(a, single(Lies(change, name="out")))


# --- random inputs


def limits(model, *shapes):
    return ids.id_limits(model, shapes)


def test_ids_stay_inside_the_embedding_they_reach():
    """Two tables on columns of one input: each column gets its own range."""
    x = keras.Input((3,), dtype="int32", name="x")
    parts = [layers.Embedding(n, 2)(x[:, i]) for i, n in ((0, 5), (1, 50))]
    model = randomise(keras.Model(x, layers.Concatenate(name="out")(parts)))
    np.testing.assert_array_equal(limits(model, (1, 3))[0], [5, 50, 0])
    (*_, sample) = next(sampling.candidates(model, (1, 2, 400), seed=0))
    drawn = ops.convert_to_numpy(sample.values[0])
    np.testing.assert_array_equal(drawn[:, :2].min(axis=0), [0, 0])
    np.testing.assert_array_equal(drawn[:, :2].max(axis=0), [4, 49])
    assert verify_equivalence(model, twin(model)).ok


def test_ids_are_found_through_casts_reshapes_lambdas_and_nested_models():
    """Floats that become ids, mixed with floats that stay."""
    inner_x = keras.Input((2, 2), dtype="int32")
    inner = keras.Model(inner_x, layers.Embedding(9, 3)(layers.Flatten()(inner_x)))
    x = keras.Input((6,), name="x")
    as_ids = layers.Reshape((2, 2))(layers.Lambda(lambda t: t[:, 1:5])(x))
    looked_up = layers.Flatten()(inner(ops.cast(as_ids, "int32")))
    model = keras.Model(x, layers.Concatenate(name="out")([looked_up, layers.Dense(2)(x[:, 4:])]))
    randomise(model)
    np.testing.assert_array_equal(limits(model, (1, 6))[0], [0, 9, 9, 9, 9, 0])
    assert verify_equivalence(model, model).ok


def test_more_elements_than_one_digit_can_number():
    x = keras.Input((3, 71), dtype="int16", name="x")
    model = keras.Model(x, layers.Embedding(300, 2)(x[:, 2, 60:]))
    expected = np.zeros((3, 71), int)
    expected[2, 60:] = 300
    np.testing.assert_array_equal(limits(model, (1, 3, 71))[0], expected)


def test_changed_ids_are_not_claimed_but_the_model_still_runs():
    x = keras.Input((2,), dtype="int32", name="x")
    model = keras.Model(x, layers.Embedding(4, 3, name="out")(x + 1))
    np.testing.assert_array_equal(limits(model, (1, 2))[0], [0, 0])
    randomise(model)
    assert verify_equivalence(model, twin(model)).ok


def test_a_row_missing_from_the_table_is_caught():
    """Only the last id shows it."""
    a, b = (single(layers.Embedding(1000, 3, name="out"), (2,), "int32") for _ in range(2))
    table = np.random.default_rng(0).normal(size=(1000, 3))
    a.set_weights([table])
    table[-1] = 0
    b.set_weights([table])
    with pytest.raises(NotEquivalentError):
        verify_equivalence(a, b)


def test_unknown_sizes_are_tried_until_the_model_runs():
    """Two poolings and an upsampling that must meet again: not every size fits."""
    x = keras.Input((None, None, 2), name="x")
    h = layers.UpSampling2D(4)(layers.MaxPooling2D(4)(x))
    model = keras.Model(x, layers.Concatenate(name="out")([x, h]))
    found = verify_equivalence(model, twin(model))
    assert found.ok
    assert found.outputs[0].shape == (None, None, None, 4)


class TokenAndPosition(layers.Layer):
    """Ids are looked up inside, and a table of positions ends early."""

    def __init__(self, **options):
        super().__init__(**options)
        self.token, self.position = layers.Embedding(11, 3), layers.Embedding(5, 3)

    def build(self, shape):
        self.token.build(shape)
        self.position.build(shape)

    def call(self, x):
        return self.token(x) + self.position(ops.arange(x.shape[1] or 2))


def test_short_sequences_are_tried_too():
    model = single(TokenAndPosition(name="out"), (None,), "int32")
    randomise(model)
    np.testing.assert_array_equal(limits(model, (1, 4))[0], [5] * 4)
    assert verify_equivalence(model, model).ok


def test_boolean_inputs():
    model = single(layers.Lambda(lambda x: ops.where(x, 1.0, 2.0), name="out"), dtype="bool")
    assert verify_equivalence(model, model).ok
    (*_, sample) = next(sampling.candidates(model, (30,), seed=0))
    assert set(np.unique(ops.convert_to_numpy(sample.values[0]))) == {False, True}


def test_a_fixed_batch_size_is_the_only_one_used():
    model = randomise(single(layers.Dense(3, name="out"), batch_size=5))
    assert verify_equivalence(model, twin(model)).batch_sizes == (5,)


class AddIfGiven(layers.Layer):
    def __init__(self, factor, **options):
        super().__init__(**options)
        self.factor = factor

    def call(self, x, extra=None):
        return x * self.factor if extra is None else x + extra


def optional_model(factor):
    x, extra = keras.Input((3,), name="x"), keras.Input((3,), name="extra", optional=True)
    return keras.Model([x, extra], AddIfGiven(factor, name="out")(x, extra))


def test_optional_inputs_are_given_and_left_out():
    assert verify_equivalence(optional_model(2.0), optional_model(2.0)).ok
    with pytest.raises(NotEquivalentError):
        verify_equivalence(optional_model(2.0), optional_model(2.5))
    rows = np.ones((4, 3), "float32")
    given = [rows, None]
    with pytest.raises(NotEquivalentError):
        verify_equivalence(optional_model(2.0), optional_model(2.5), given)
    assert verify_equivalence(optional_model(2.0), optional_model(2.5), [rows, rows]).ok


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="only TensorFlow has strings")
def test_string_inputs_ask_for_real_ones():
    layer = layers.StringLookup(vocabulary=["red", "green", "blue"], name="out")
    model = single(layer, (1,), "string")
    with pytest.raises(NotVerifiedError, match=r"'x'.*`inputs=` here"):
        verify_equivalence(model, model)
    words = np.array([["red"], ["blue"], ["pink"]])
    found = verify_equivalence(model, model, words)
    assert found.ok
    assert found.inputs == "given"


# --- given inputs


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"x": x}])
def test_given_inputs_in_any_nest_the_model_takes(wrap):
    weights = dense_weights()
    rows = np.random.default_rng(0).normal(size=(11, LANES * WIDTH))
    found = verify_equivalence(branches(weights), batched(weights), wrap(rows))
    assert found.batch_sizes == (1, 2, 7, 11)
    with pytest.raises(NotEquivalentError):
        verify_equivalence(branches(weights), batched(swapped(weights, "lanes")), wrap(rows))


def test_given_inputs_by_name_reach_the_right_input():
    model = two_inputs(lambda p, q: [q, p])
    random = np.random.default_rng(0)
    p, q = random.normal(size=(2, 3, 3)).astype("float32")
    by_name = verify_equivalence(model, twin(model), {"p": p, "q": q})
    by_position = verify_equivalence(model, twin(model), [q, p])
    assert by_name.outputs == by_position.outputs


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([np.zeros((2, 3))], r"Expected inputs as .*p.*\(None, 3\).*Received: .*\(2, 3\)"),
        ({"p": np.zeros((2, 3)), "r": np.zeros((2, 3))}, "Expected inputs as"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], r"shape \(None, 3\).*'q'. Received: \(2, 4\)"),
        ([np.zeros((2, 3)), np.zeros((4, 3))], "equally many rows"),
        ([np.zeros((0, 3)), np.zeros((0, 3))], "at least one"),
        ([np.zeros((2, 3)), None], "Received: NoneType"),
        ([np.zeros((2, 3)), np.full((2, 3), "a")], "type float32 for input 'q'"),
    ],
)
def test_wrong_inputs_are_one_line(inputs, message):
    model = two_inputs(lambda p, q: [p, q])
    with pytest.raises(InvalidInputsError, match=message) as caught:
        verify_equivalence(model, twin(model), inputs)
    assert "\n" not in str(caught.value)


def test_fractions_are_no_ids():
    model = single(layers.Embedding(5, 2, name="out"), (2,), "int32")
    assert verify_equivalence(model, model, np.array([[1.0, 4.0]])).ok
    with pytest.raises(InvalidInputsError, match="type int32"):
        verify_equivalence(model, model, np.array([[1.5, 4.0]]))


# --- no answer


def test_b18_an_original_that_cannot_run_here():
    def fail(x):
        raise NotImplementedError("The Conv2D op currently only supports the NHWC format\non CPU")

    model = single(layers.Lambda(fail, output_shape=(4,), name="out"))
    with pytest.raises(NotVerifiedError, match="cannot be run on this machine: NotImpl") as caught:
        verify_equivalence(model, model)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_random_original_is_named_as_such():
    noise = np.random.default_rng(0)
    model = single(layers.Lambda(lambda x: x + noise.normal(), output_shape=(4,), name="out"))
    with pytest.raises(NotVerifiedError, match=r"not deterministic.*'out'"):
        verify_equivalence(model, model)


class Sample(layers.Layer):
    def __init__(self, seed, **options):
        super().__init__(**options)
        self.seed = keras.random.SeedGenerator(seed)

    def call(self, x):
        return x + keras.random.normal(ops.shape(x), seed=self.seed)


def test_random_draws_are_compared_from_equal_seeds_only():
    a, same, other = (single(Sample(seed, name="out")) for seed in (1, 1, 2))
    assert verify_equivalence(a, same).ok
    with pytest.raises(NotVerifiedError, match="draws random numbers or keeps state"):
        verify_equivalence(a, other)


def test_inactive_random_layers_are_fine():
    x = keras.Input((5,), name="x")
    h = layers.GaussianNoise(0.3)(layers.Dropout(0.5)(layers.Dense(4)(x)))
    model = randomise(keras.Model(x, layers.SpatialDropout1D(0.2, name="out")(h[:, :, None])))
    assert verify_equivalence(model, twin(model)).ok


def test_nothing_but_nan_is_no_proof():
    model = single(layers.Lambda(lambda x: ops.log(-1 - x * x), name="out"))
    with pytest.raises(NotVerifiedError, match="NaN or infinity everywhere"):
        verify_equivalence(model, model)


def test_a_useless_tolerance_is_no_proof():
    model = single(layers.Lambda(lambda x: ops.sin(x * 1e9), name="out"))
    with pytest.raises(NotVerifiedError, match="too sensitive to rounding"):
        verify_equivalence(model, model)


def test_models_without_a_graph():
    class Subclassed(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(UnsupportedModelError, match="functional"):
        verify_equivalence(interface(), Subclassed())
    with pytest.raises(ValueError, match="batch sizes"):
        verify_equivalence(interface(), interface(), batch_sizes=(0,))


# --- what the check leaves behind and gives back


def test_the_models_stay_as_they_were():
    def build():
        x = keras.Input((6,), name="x")
        h = layers.BatchNormalization()(layers.Dense(4, activity_regularizer="l2")(x))
        h = layers.Dropout(0.5)(layers.Dense(3)(h))
        return randomise(keras.Model(x, Sample(3, name="out")(h)))

    a, b = build(), build()
    a.compile("adam", "mse")
    calls = [len(operation._inbound_nodes) for operation in a.operations]
    state = [v.numpy().copy() for v in a.variables]
    predict, train, losses = a.predict_function, a.train_function, len(a.losses)
    verify_equivalence(a, b)
    assert calls == [len(operation._inbound_nodes) for operation in a.operations]
    for before, after in zip(state, a.variables, strict=True):
        np.testing.assert_array_equal(before, after.numpy())
    assert (a.predict_function, a.train_function, len(a.losses)) == (predict, train, losses)
    assert a.compiled
    a.fit(np.ones((4, 6), "float32"), np.ones((4, 3), "float32"), verbose=0)


def test_stateful_layers_keep_their_state():
    x = keras.Input((3, 4), batch_size=2, name="x")
    model = randomise(keras.Model(x, layers.SimpleRNN(5, stateful=True, name="out")(x)))
    model(np.ones((2, 3, 4), "float32"))
    other = twin(model)
    state = model.layers[1].states[0]
    other.layers[1].states[0].assign(state)
    before = state.numpy().copy()
    assert np.any(before)
    assert verify_equivalence(model, other).ok
    np.testing.assert_array_equal(state.numpy(), before)


def test_the_same_seed_gives_the_same_figures():
    weights = dense_weights()
    a, b = branches(weights), batched(weights)
    first, again, other = (verify_equivalence(a, b, seed=seed).outputs for seed in (4, 4, 5))
    assert first == again
    assert first != other


def test_text_and_json():
    weights = dense_weights()
    found = verify_equivalence(branches(weights), batched(weights))
    headline, _, line, rule = str(found).splitlines()
    assert headline.startswith("equivalent (batch sizes 1, 2, 7; ")
    assert line.split()[:2] == ["joined", "float32"]
    assert rule.startswith("tolerance: 2 x (eps x scale + sensitivity)")
    assert "1.19e-07 (float32)" in rule
    assert "at most 4 terms" in rule
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["outputs"][0]["max_abs_error"] == found.outputs[0].max_abs_error


def test_the_interpreter_runs_what_the_model_runs():
    """Masks, nested models, `training` and keyword tensors included: to the bit."""
    inner_x = keras.Input((None, 3))
    inner = keras.Model(
        inner_x, layers.Dropout(0.9)(layers.LSTM(4, return_sequences=True)(inner_x))
    )
    x = keras.Input((7,), dtype="int32", name="x")
    h = layers.SimpleRNN(3, return_sequences=True)(layers.Embedding(6, 5, mask_zero=True)(x))
    h = layers.GRU(3, return_sequences=True)(h)
    h = inner(layers.Activation("tanh")(ops.multiply(h, 2)), training=True)
    h = layers.MultiHeadAttention(2, 3)(h, value=h, key=h)
    model = randomise(keras.Model(x, layers.GlobalAveragePooling1D(name="out")(h)))
    rows = ops.convert_to_tensor(np.array([[1, 2, 3, 4, 5, 0, 0], [5, 4, 0, 0, 0, 0, 0]], "int32"))
    (result,) = interpret.run(
        _keras.functional_inside(model),
        [rows],
        lambda node, args, kwargs, tensors: interpret.infer(node.operation, args, kwargs),
    )
    expected = model(rows, training=False)
    np.testing.assert_array_equal(ops.convert_to_numpy(result), ops.convert_to_numpy(expected))
    shaken = shaken_runs(model, [rows], precision_of(model), seed=0, pairs=2)
    for (moved,) in shaken:
        change = np.abs(ops.convert_to_numpy(moved) - ops.convert_to_numpy(expected)).max()
        assert 0 < change < 1e-4
    assert reference.measure(model, None, (1, 2), 0).bounds[0] is not None
