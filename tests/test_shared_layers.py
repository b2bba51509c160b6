"""Layers with weights that are called several times: merged calls, merged layers, tied weights."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_fuses, assert_rejects, operation_names
from tests.builders import inputs_for, randomise, slices


def pair(*shape):
    return keras.Input(shape, name="a"), keras.Input(shape, name="b")


def misses(report) -> str:
    return "\n".join(str(miss) for miss in report.rejections)


def test_q05_one_dense_on_many_slices_is_one_call_of_it():
    """A Dense takes the axis of the slices as one more axis: nothing is moved."""
    x = keras.Input((30, 7), name="x")
    shared, last = layers.Dense(4, "relu", name="shared"), layers.Dense(3, name="last")
    model = keras.Model(x, layers.Concatenate()([last(shared(s)) for s in slices(x, 30)]))
    fused, report = assert_fuses(model, layers=(60, 2), operations=["Dense", "Dense", "Reshape"])
    assert len(fused.weights) == 4
    assert "60 calls → 2" in report.regions[0].text


def test_q02_a_siamese_tower_runs_once_on_the_samples_of_both():
    a, b = pair(9, 8, 2)
    conv, dense = layers.Conv2D(3, (3, 2), activation="relu"), layers.Dense(4)

    def tower(x):
        return dense(layers.Flatten()(layers.MaxPooling2D(2)(conv(x))))

    model = keras.Model([a, b], layers.Subtract()([tower(a), tower(b)]))
    fused, _ = assert_fuses(model, layers=(8, 4))
    assert operation_names(fused).count("Conv2D") == operation_names(fused).count("Dense") == 1


def test_samples_of_unknown_sizes():
    a, b = pair(None, None, 2)
    conv = layers.Conv2D(3, (3, 2), padding="same")
    model = keras.Model([a, b], [conv(a), conv(b)])
    assert_rejects(model, "run-time sizes")
    x = keras.Input((None, 5, 2))
    cut = [x[:, :, i] for i in range(5)]
    conv = layers.Conv1D(3, 2, padding="same")
    assert_fuses(keras.Model(x, layers.Concatenate()([conv(s) for s in cut])), layers=(5, 1))


def test_one_layer_twice_on_one_tensor_runs_once():
    x = keras.Input((7,), name="x")
    shared = layers.Dense(4, name="shared")
    model = keras.Model(x, layers.Multiply()([shared(x), shared(x)]))
    fused, _ = assert_fuses(model, layers=(2, 1))
    assert len(fused.get_layer("shared")._inbound_nodes) == 1


def test_trainable_batch_statistics_stay_apart():
    """In training each call takes its own; frozen, or in inference only, they are the same."""
    a, b = pair(7)
    norm = layers.BatchNormalization(name="norm")
    model = keras.Model([a, b], layers.Concatenate()([norm(a), norm(b)]))
    assert_rejects(model, "takes statistics of each call")
    norm.trainable = False
    assert_fuses(model, layers=(2, 1))


def test_layers_called_on_two_tensors_become_one_layer_called_twice():
    a, b = pair(5, 7)
    dense = [layers.Dense(3, "tanh", name=f"d{i}") for i in range(5)]

    def join(x, order):
        return layers.Concatenate()([dense[i](x[:, i]) for i in order])

    model = keras.Model([a, b], [join(a, (0, 1, 2, 3, 4)), join(b, (3, 0, 4, 2, 1))])
    fused, _ = assert_fuses(model, regions=2, layers=(10, 2))
    assert operation_names(fused).count("EinsumDense") == 1
    assert len(fused.weights) == 2


def test_wide_where_all_calls_share_their_input():
    a, b = pair(7)
    dense = [layers.Dense(2 + i) for i in range(4)]
    outputs = [layers.Concatenate()([d(x) for d in dense]) for x in (a, b)]
    fused, _ = assert_fuses(keras.Model([a, b], outputs), regions=2, layers=(8, 2))
    assert operation_names(fused).count("Dense") == 1


def test_a_common_lowering_where_one_call_shares_its_input_and_one_does_not():
    a, b = keras.Input((7,), name="a"), keras.Input((4, 7), name="b")
    dense = [layers.Dense(3) for _ in range(4)]
    first = layers.Concatenate()([d(a) for d in dense])
    second = layers.Concatenate()([d(s) for d, s in zip(dense, slices(b, 4))])
    fused, _ = assert_fuses(keras.Model([a, b], [first, second]), regions=2, layers=(8, 2))
    assert len(fused.weights) == 2


def test_a_call_outside_the_siblings_keeps_them_apart():
    a, b = pair(5, 7)
    dense = [layers.Dense(3, name=f"d{i}") for i in range(5)]
    joined = layers.Concatenate()([d(s) for d, s in zip(dense, slices(a, 5))])
    model = keras.Model([a, b], [joined, dense[2](b)])
    assert_rejects(model, "weights shared: called 2 times, 1 of them beside the same siblings")


def test_calls_in_other_company_keep_them_apart():
    a, b = pair(4, 7)
    dense = [layers.Dense(3, name=f"d{i}") for i in range(5)]
    first = layers.Concatenate()([d(s) for d, s in zip(dense[:4], slices(a, 4))])
    second = layers.Concatenate()([d(s) for d, s in zip(dense[1:], slices(b, 4))])
    assert_rejects(keras.Model([a, b], [first, second]), "beside the same siblings")


def test_calls_on_other_shapes_do_not_fit_one_batched_product():
    a, b = keras.Input((4, 7), name="a"), keras.Input((4, 3, 7), name="b")
    dense = [layers.Dense(2, name=f"d{i}") for i in range(4)]
    outputs = [layers.Concatenate()([d(s) for d, s in zip(dense, slices(x, 4))]) for x in (a, b)]
    assert_rejects(keras.Model([a, b], outputs), "its calls do not fit one common lowering")


def test_one_layer_among_others_is_a_group_of_its_own():
    x = keras.Input((5, 7), name="x")
    s, shared = slices(x, 5), layers.Dense(4, name="shared")
    own = [layers.Dense(4) for _ in range(3)]
    lanes = [shared(s[0]), own[0](s[1]), shared(s[2]), own[1](s[3]), own[2](s[4])]
    fused, report = assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), regions=2)
    assert [r.layers_after for r in report.regions] == [1, 1]
    assert len(fused.weights) == 4


def test_r04_two_heads_over_five_levels():
    """Two submodels read every level; four convolutions are alike, the last ones are not."""
    levels = [keras.Input((None, None, 3), name=f"p{i}") for i in range(5)]

    def head(name, last):
        x = keras.Input((None, None, 3))
        y = x
        for i in range(4):
            y = layers.Conv2D(5, 3, padding="same", activation="relu", name=f"{name}_{i}")(y)
        y = layers.Conv2D(last, 3, padding="same", name=f"{name}_last")(y)
        return keras.Model(x, layers.Reshape((-1, last // 2))(y), name=name)

    heads = head("classes", 12), head("boxes", 8)
    outputs = [layers.Concatenate(axis=1)([h(p) for p in levels]) for h in heads]
    model = keras.Model(levels, outputs)
    fused, report = assert_fuses(model, regions=5, layers=(40, 20), xla=False, gradients=False)
    names = operation_names(fused)
    assert names.count("GroupedConv2D") == 3 and names.count("Conv2D") == 3, names
    assert fused.get_layer("classes_last").filters == 12 and "classes_last" in misses(report)


def test_q18_models_that_all_read_two_inputs():
    """Three models, each on two inputs: three layers a level, tied over both."""
    a, b = pair(7)

    def member():
        x = keras.Input((7,))
        return keras.Model(x, layers.Dense(3)(layers.Dense(5, "relu")(x)))

    members = [member() for _ in range(3)]
    outputs = [layers.Average()([m(x) for m in members]) for x in (a, b)]
    fused, _ = assert_fuses(keras.Model([a, b], outputs), regions=2, layers=(12, 4))
    assert len(fused.weights) == 4


def test_q24_a_roll_out_depends_on_itself():
    x = keras.Input((7,), name="x")
    step, seen = layers.Dense(7, "tanh", name="step"), [x]
    for _ in range(4):
        seen.append(step(seen[-1]))
    model = keras.Model(x, layers.Concatenate()(seen[1:]))
    fused, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    assert not report.regions
    assert operation_names(fused) == operation_names(model)


def test_tied_weights_stay_tied_in_training():
    a, b = pair(7)
    shared = layers.Dense(4)
    model = randomise(keras.Model([a, b], layers.Add()([shared(a), shared(b)])))
    model.compile("sgd", "mse")
    fused = fuse_parallel_branches(model, policy=EVERYTHING)
    x = inputs_for(model, 6, seed=1)
    y = np.random.default_rng(2).normal(size=(6, 4)).astype("float32")
    for one in (model, fused):
        one.train_on_batch(x, y)
    for old, new in zip(model.get_weights(), fused.get_weights(), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cut", ["slice", "activation"])
def test_r16_equal_steps_on_one_tensor_are_one(cut):
    """Dense layers of unequal width behind equal steps read one tensor: one wide layer."""
    x = keras.Input((6, 7), name="x")
    step = {"slice": lambda: x[:, 2], "activation": lambda: layers.Activation("relu")(x[:, 2])}
    heads = [layers.Dense(2 + i)(step[cut]()) for i in range(3)]
    model = keras.Model(x, layers.Concatenate()(heads))
    fused, _ = assert_fuses(model)
    assert operation_names(fused).count("Dense") == 1


def test_equal_steps_with_other_settings_are_not_one():
    x = keras.Input((7,), name="x")
    steps = [layers.LeakyReLU(s)(x) for s in (0.1, 0.1, 0.2)]
    model = keras.Model(x, layers.Concatenate()([layers.Dense(4)(s) for s in steps]))
    fused, _ = assert_fuses(model)
    assert fused.count_params() == model.count_params()


def test_arrays_that_differ_in_the_middle_are_two():
    x = keras.Input((2000,), name="x")
    scales = np.ones((2, 2000), "float32")
    scales[1, 1000] = 5.0
    steps = [layers.Rescaling(s)(x) for s in scales]
    model = keras.Model(x, layers.Concatenate()([layers.Dense(3)(s) for s in steps]))
    assert_fuses(model, gradients=False, xla=False)  # sums of 2,000 terms


def test_a_mean_of_one_shared_layer():
    x = keras.Input((4, 7), name="x")
    shared = layers.Dense(3, "softmax")
    lanes = [shared(s) for s in slices(x, 4)]
    model = keras.Model(x, ops.sum(ops.stack(lanes, axis=1), axis=1))
    assert_fuses(model, layers=(4, 1))


def test_layers_that_became_one_are_not_put_together_along_the_lanes():
    """Fused again, the two calls of the fused layer were taken for calls on more samples."""
    shared = [layers.Dense(4) for _ in range(3)]
    x, z = keras.Input((3, 5), name="x"), keras.Input((3, 5), name="z")
    outputs = [
        layers.Concatenate()([one(s) for one, s in zip(shared, slices(t, 3))]) for t in (x, z)
    ]
    model = randomise(keras.Model([x, z], outputs))
    fused = fuse_parallel_branches(model, policy=EVERYTHING)
    again, report = fuse_parallel_branches(fused, return_report=True, policy=EVERYTHING)
    assert report.verification.ok
    assert "axis 0 has weights of its own" in str(report)
    assert operation_names(again).count("EinsumDense") == 1


def test_reshapes_save_little():
    """Two normalizations, both called on two tensors: what was fused fused once more."""
    inputs = [keras.Input((8, 5), name=name) for name in ("a", "b")]
    lanes = [(layers.Cropping1D((0, 4)), layers.GroupNormalization(1)) for _ in range(2)]
    add = layers.Add()
    outputs = [add([norm(crop(x)) for crop, norm in lanes]) for x in inputs]
    fused = fuse_parallel_branches(keras.Model(inputs, outputs))
    _, report = fuse_parallel_branches(fused, return_report=True)
    assert not report.changed
