"""Which operations the grouped layers choose on TensorFlow, and how the trial finds out."""

import keras
import numpy as np
import pytest

from tests.layers.separate import Case, Separate, assert_close, grouped_layer, inputs_for

if keras.backend.backend() != "tensorflow":
    pytest.skip("other backends have nothing to choose", allow_module_level=True)

import tensorflow as tf

from parallel_fuse.layers import _grouped_conv_tensorflow as grouped_tf

CASE = Case("2d", (9, 11), 4, 5, 3, (3, 2), {"activation": "relu"})
LINE = Case("1d", (13,), 3, 2, 4, (5,), {"padding": "causal"})
VOLUME = Case("3d", (5, 6, 7), 3, 2, 4, (2, 3, 1))
STRICT = grouped_tf.Window((1, 1), "VALID", (1, 1), channels_first=False)


@pytest.fixture
def fresh_trial():
    grouped_tf._trial.cache_clear()
    yield
    grouped_tf._trial.cache_clear()


def try_2d():
    return grouped_tf._trial.__wrapped__(4, "float32", False, "CPU")


def graph_of(layer, case):
    channels = case.groups * case.channels
    signature = tf.TensorSpec((None, *case.spatial, channels), layer.compute_dtype)
    return tf.function(layer).get_concrete_function(signature).graph


def operations(graph):
    return [operation.type for operation in graph.get_operations()]


@pytest.mark.parametrize("case", [CASE, LINE], ids=lambda case: case.name)
@pytest.mark.parametrize("works", [True, False])
def test_one_operation_or_one_per_group(case, works, monkeypatch):
    monkeypatch.setattr(grouped_tf, "_trial", lambda *key: works)
    found = operations(graph_of(grouped_layer(case), case))
    assert found.count("Conv2D") == (1 if works else case.groups)
    # Neither XLA's wrapper nor a BiasAdd, which breaks a grouped convolution without oneDNN.
    assert not {"PartitionedCall", "StatefulPartitionedCall", "BiasAdd"} & set(found)


def test_layers_follow_the_trial(fresh_trial):
    layers = [grouped_layer(case) for case in (CASE, LINE)]
    counts = [operations(graph_of(f, c)).count("Conv2D") for f, c in zip(layers, (CASE, LINE))]
    assert counts == ([1, 1] if try_2d() else [CASE.groups, LINE.groups])


def test_float64_and_volumes_are_split_where_their_kernel_is_missing(fresh_trial):
    if tf.config.list_logical_devices("GPU"):
        pytest.skip("a GPU has these kernels")
    layer = grouped_layer(CASE, dtype="float64")
    assert operations(graph_of(layer, CASE)).count("Conv2D") == CASE.groups
    assert operations(graph_of(grouped_layer(VOLUME), VOLUME)).count("Conv3D") == VOLUME.groups


def test_trial_within_a_trace_leaves_nothing_in_the_graph(fresh_trial):
    layer = grouped_layer(CASE)
    first = operations(graph_of(layer, CASE))
    assert grouped_tf._trial.cache_info().misses == 1
    assert operations(graph_of(layer, CASE)) == first
    assert grouped_tf._trial.cache_info().misses == 1


@pytest.mark.parametrize("jit_compile", [False, True])
def test_trial_within_a_trace_and_tapes_decides_as_outside(fresh_trial, jit_compile):
    layer = grouped_layer(CASE)
    x = tf.constant(inputs_for(CASE, 2))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        outputs = tf.function(layer, jit_compile=jit_compile)(x)
    assert_close(tape.gradient(outputs, x), tape.gradient(outputs, x), CASE.terms)
    decided = grouped_tf._has_kernel(x, STRICT)
    assert grouped_tf._trial.cache_info().misses == 1
    assert decided == try_2d()


def test_trial_disturbs_no_random_state(fresh_trial):
    layer = grouped_layer(CASE)
    draws = []
    for cached in (False, True):
        keras.utils.set_random_seed(7)
        layer(inputs_for(CASE, 2))
        draws.append((np.random.rand(3), tf.random.normal((2,))))
        assert grouped_tf._trial.cache_info().hits == int(cached)
    for before, after in zip(*draws):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("error", [tf.errors.UnimplementedError(None, None, "no"), ValueError()])
def test_trial_takes_an_error_of_the_kernel_for_a_no(monkeypatch, error):
    results = grouped_tf._trial_results

    def failing(broken):
        def run(convolve, *arguments):
            if convolve is broken:
                raise error
            return results(grouped_tf._convolve_split, *arguments)

        return run

    monkeypatch.setattr(grouped_tf, "_trial_results", failing(grouped_tf._convolve))
    assert not try_2d()
    monkeypatch.setattr(grouped_tf, "_trial_results", failing(None))
    assert try_2d()
    # An error of what would stand in is an error.
    monkeypatch.setattr(grouped_tf, "_trial_results", failing(grouped_tf._convolve_split))
    with pytest.raises(type(error)):
        try_2d()


def swap_groups(outputs):
    return tf.roll(outputs, 3, axis=-1)


@tf.custom_gradient
def swap_gradients(outputs):
    return tf.identity(outputs), swap_groups


@pytest.mark.parametrize("fault", [swap_groups, swap_gradients])
def test_trial_catches_wrong_results_and_wrong_gradients(monkeypatch, fault):
    convolve = grouped_tf._convolve

    def split(inputs, kernel, window):
        slices = zip(tf.split(inputs, 2, axis=-1), tf.split(kernel, 2, axis=-1))
        return tf.concat([convolve(x, w, window) for x, w in slices], axis=-1)

    monkeypatch.setattr(grouped_tf, "_convolve_split", split)
    monkeypatch.setattr(grouped_tf, "_convolve", split)
    assert try_2d()
    monkeypatch.setattr(grouped_tf, "_convolve", lambda *a: fault(split(*a)))
    assert not try_2d()


def test_graph_of_tensorflow_1_is_split():
    layer = grouped_layer(CASE)
    kernel, bias = layer.get_weights()
    x = inputs_for(CASE, 2)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        outputs = grouped_tf.grouped_conv(tf.constant(x), tf.constant(kernel), bias, STRICT)
        found = session.run(tf.nn.relu(outputs))
    assert operations(graph).count("Conv2D") == CASE.groups
    assert_close(found, Separate(CASE, [kernel, bias])(x), CASE.terms)


def test_device_scope_reaches_the_trial(fresh_trial, monkeypatch):
    seen = []
    monkeypatch.setattr(grouped_tf, "_trial", lambda *key: seen.append(key) or True)
    layer = grouped_layer(CASE)

    @tf.function
    def on_cpu(x):
        with tf.device("/CPU:0"):
            return layer(x)

    on_cpu.get_concrete_function(tf.TensorSpec((None, 9, 11, 20)))
    assert seen == [(4, "float32", False, "CPU")]


@pytest.mark.parametrize(
    ("case", "convolutions"),
    [(CASE, CASE.groups), (Case("few", (9, 11), 5, 1, 3, (3, 2)), 1)],
    ids=["one per group", "one dense"],
)
def test_under_xla_on_a_cpu_neither_form_is_grouped(case, convolutions):
    if tf.config.list_logical_devices("GPU"):
        pytest.skip("a GPU has a grouped kernel under XLA too")
    layer = grouped_layer(case)
    x = tf.constant(inputs_for(case, 2))
    compiled = tf.function(layer, jit_compile=True)
    graph = compiled.get_concrete_function(x).graph
    assert operations(graph).count("Conv2D") == convolutions
    np.testing.assert_allclose(compiled(x), layer(x), rtol=1e-4, atol=1e-5)
