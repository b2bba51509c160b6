"""Embedding: tables of many features as one, and ids that stay out of their neighbours' rows."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.kinds.embedding import stack, stack_wide, unstack
from parallel_fuse.kinds.weights import taken_apart
from parallel_fuse.layers import StackedEmbedding
from parallel_fuse.policy import EVERYTHING, Policy
from tests.asserts import assert_fuses, assert_rejects, assert_same_outputs
from tests.builders import randomise
from tests.devices import TENSORFLOW

BACKEND = keras.backend.backend()


def features(branch, count: int = 4, dtype: str = "int32", shape=(), join=None) -> keras.Model:
    """One Input of ids per feature."""
    inputs = [keras.Input(shape, name=f"feature_{i}", dtype=dtype) for i in range(count)]
    outputs = [branch(i, x) for i, x in enumerate(inputs)]
    return keras.Model(inputs, (join or layers.Concatenate())(outputs))


def vocabulary(i: int) -> int:
    return (9, 4, 6, 3)[i % 4]


# --- real models


def test_q13_one_table_for_all_columns():
    model = features(lambda i, x: layers.Embedding(vocabulary(i), 5)(x))
    fused, _ = assert_fuses(model, layers=(4, 1))
    assert fused.count_params() == model.count_params()
    (table,) = (one for one in fused.layers if isinstance(one, StackedEmbedding))
    assert table.embeddings.shape == (22, 5)


INTEGERS = ["int32", "uint8"] if BACKEND == "jax" else ["int32", "int64", "uint8"]


@pytest.mark.parametrize("dtype", [*INTEGERS, "float32"])
def test_q14_fields_of_one_tensor(dtype):
    x = keras.Input((4,), dtype="int32")
    ids = x if dtype == "int32" else ops.cast(x, dtype)
    tables = [layers.Embedding(vocabulary(i), 5)(ids[:, i]) for i in range(4)]
    model = keras.Model(x, ops.stack(tables, axis=1))
    cast = ["Cast"] * (dtype != "int32")
    assert_fuses(model, layers=(4, 1), operations=[*cast, "StackedEmbedding", "Identity"])


def deep_fm() -> keras.Model:
    """Two tables for each feature: k wide for the deep part, 1 wide for the linear part."""
    inputs = [keras.Input((1,), dtype="int32") for i in range(4)]
    deep = [layers.Embedding(vocabulary(i), 5)(x) for i, x in enumerate(inputs)]
    linear = [layers.Embedding(vocabulary(i), 1)(x) for i, x in enumerate(inputs)]
    parts = [layers.Flatten()(layers.Concatenate()(deep)), layers.Flatten()(layers.Add()(linear))]
    return keras.Model(inputs, layers.Concatenate()(parts))


def test_q15_deep_and_linear_tables():
    fused, _ = assert_fuses(deep_fm(), regions=2, layers=(8, 2))
    assert sum(isinstance(one, StackedEmbedding) for one in fused.layers) == 2


def test_r02_regularized_tables_of_two_widths():
    def branch(i, x):
        width = (5, 2)[i % 2]
        return layers.Embedding(vocabulary(i), width, embeddings_regularizer="l2")(x)

    model = features(branch)
    fused, _ = assert_fuses(model, regions=2, layers=(4, 2))
    before, after = (sum(map(ops.convert_to_numpy, one.losses)) for one in (model, fused))
    np.testing.assert_allclose(after, before, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask")
def test_r02_mask_of_some_that_nobody_reads():
    def branch(i, x):
        return layers.Flatten()(layers.Embedding(vocabulary(i), 5, mask_zero=i % 2 > 0)(x))

    assert_fuses(features(branch, shape=(7,)), layers=(8, 2))


def test_r02_masked_sequences_that_are_read_stay():
    def branch(i, x):
        return layers.GlobalAveragePooling1D()(
            layers.Embedding(vocabulary(i), 5, mask_zero=True)(x)
        )

    assert_rejects(features(branch, shape=(7,)), "mask")


def test_r10_widths_that_differ_and_reshapes():
    def branch(i, x):
        width = (6, 2, 6, 6)[i]
        return layers.Reshape((width,))(layers.Embedding(vocabulary(i), width)(x))

    assert_fuses(features(branch, shape=(1,)), layers=(6, 2))


def test_r11_ids_as_floats_are_cut_before_they_are_shifted():
    """R11: categorical ids arrive as floats, and are stacked."""
    join = lambda ys: ops.stack(ys, axis=1)  # noqa: E731
    model = features(lambda i, x: layers.Embedding(vocabulary(i), 5)(x), dtype="float32", join=join)
    fused, report = fuse_parallel_branches(randomise(model), policy=EVERYTHING, return_report=True)
    assert report.regions and report.verification.inputs == "random"
    ids = [np.array([0.9, 2.0, 1.99, -0.5], "float32")] * 4
    assert_same_outputs(model, fused, ids)


# --- shapes


@pytest.mark.parametrize("shape", [(7,), (2, 3)])
def test_sequences_from_separate_inputs(shape):
    model = features(lambda i, x: layers.Embedding(vocabulary(i), 5)(x), shape=shape)
    assert_fuses(model, layers=(4, 1))


def test_sequences_of_unknown_length_and_what_follows():
    x = keras.Input((None, 3), dtype="int32")
    tables = [layers.Embedding(vocabulary(i), 5)(x[..., i]) for i in range(3)]
    dense = [layers.Dense(2)(layers.LayerNormalization()(y)) for y in tables]
    assert_fuses(keras.Model(x, layers.Concatenate()(dense)), layers=(9, 3))


@pytest.mark.parametrize("axis", [1, 2])
def test_sequences_cut_from_one_tensor(axis):
    x = keras.Input((4, 7) if axis == 1 else (7, 4), dtype="int32")
    pieces = [x[:, i] if axis == 1 else x[:, :, i] for i in range(4)]
    tables = [layers.Embedding(vocabulary(i), 5)(piece) for i, piece in enumerate(pieces)]
    dense = [layers.Dense(2)(layers.Flatten()(y)) for y in tables]
    assert_fuses(keras.Model(x, layers.Add()(dense)), layers=(12, 3))


def test_columns_one_wide():
    x = keras.Input((4,), dtype="int32")
    tables = [layers.Embedding(vocabulary(i), 5)(x[:, i : i + 1]) for i in range(4)]
    model = keras.Model(x, layers.Flatten()(layers.Concatenate()(tables)))
    assert_fuses(model, layers=(4, 1))


def test_sequences_of_two_lengths_are_two_groups():
    lengths = (7, 3, 3, 7)
    inputs = [keras.Input((n,), dtype="int32") for n in lengths]
    tables = [layers.Embedding(vocabulary(i), 5)(x) for i, x in enumerate(inputs)]
    model = keras.Model(inputs, layers.Concatenate(axis=1)(tables))
    assert_fuses(model, regions=2, layers=(4, 2))


def test_one_tensor_of_ids_into_tables_of_several_widths():
    x = keras.Input((7,), dtype="int32")
    tables = [layers.Embedding(6, width)(x) for width in (5, 1, 4)]
    model = keras.Model(x, layers.Concatenate()(tables))
    assert_fuses(model, layers=(3, 1), operations=["Embedding", "Identity"])


def test_one_tensor_of_ids_into_tables_of_several_lengths():
    x = keras.Input((7,), dtype="int32")
    model = keras.Model(x, layers.Concatenate()([layers.Embedding(n, 5)(x) for n in (6, 4, 3)]))
    fused, _ = assert_fuses(model, layers=(3, 1))
    assert any(isinstance(one, StackedEmbedding) for one in fused.layers)


def test_only_stock_layers():
    model = features(lambda i, x: layers.Embedding(vocabulary(i), 5)(x))
    fused, _ = assert_fuses(model, layers=(4, 1), portable=True)
    assert sum(type(one) is layers.Embedding for one in fused.layers) == 1


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_half_precision_keeps_ids_apart(dtype):
    """Ids above 2048 are not all float16."""

    def branch(i, x):
        return layers.Embedding(5000 + i, 2, dtype=dtype)(x)

    model = features(branch, dtype="float32", join=layers.Concatenate(dtype=dtype))
    fused, report = fuse_parallel_branches(randomise(model), policy=EVERYTHING, return_report=True)
    assert len(report.regions) == 1
    ids = [np.array([4095, 4097 + i, 4999 + i], "float32") for i in range(4)]
    np.testing.assert_array_equal(*(ops.convert_to_numpy(one(ids)) for one in (fused, model)))


# --- ids outside


def answer(run, ids):
    """What comes of ids, or the kind of error."""
    try:
        return ops.convert_to_numpy(run(ids))
    except Exception as error:  # noqa: BLE001, each backend says no in its own way
        return type(error).__name__


def compiled(model):
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(model, jit_compile=True, autograph=False, reduce_retracing=True)
    if BACKEND == "jax":
        import jax

        return jax.jit(model)
    return model


OUTSIDE = (-1, -3, -4, -7, -100, 3, 4, 5, 9, 21, 22, 100, -(2**31), 2**31 - 1)


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("xla", [False, True])
def test_an_id_outside_its_table_does_what_it_did(xla, portable):
    x = keras.Input((4,), dtype="int32")
    tables = [layers.Embedding(vocabulary(i), 5)(x[:, i]) for i in range(4)]
    model = randomise(keras.Model(x, ops.stack(tables, axis=1)))
    fused = fuse_parallel_branches(model, policy=EVERYTHING, portable=portable)
    run, again = (compiled(m) if xla else m for m in (model, fused))
    outcomes = set()
    for lane in range(4):
        for outside in OUTSIDE:
            ids = np.array([[2, 1, 0, 2], [0, 2, 1, 1]], "int32")
            ids[1, lane] = outside
            expected, found = answer(run, ids), answer(again, ids)
            np.testing.assert_array_equal(found, expected)
            outcomes.add(isinstance(expected, str))
    raises = BACKEND == "torch" or (TENSORFLOW and not xla)
    assert outcomes == ({True, False} if raises else {False})


def test_gradients_reach_the_rows_that_were_read():
    if not TENSORFLOW:
        pytest.skip("gradients are taken with TensorFlow")
    import tensorflow as tf

    x = keras.Input((4,), dtype="int32")
    tables = [layers.Embedding(vocabulary(i), 5)(x[:, i]) for i in range(4)]
    model = randomise(keras.Model(x, ops.stack(tables, axis=1)))
    fused = fuse_parallel_branches(model, policy=EVERYTHING)
    ids = np.array([[2, 1, 0, 2], [8, 1, 5, -1]], "int32")
    grown = []
    for one in (model, fused):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(one(ids)))
        grown.append(tape.gradient(loss, [w.value for w in one.trainable_weights]))
    expected = np.concatenate([tf.convert_to_tensor(g) for g in grown[0]])
    np.testing.assert_allclose(tf.convert_to_tensor(grown[1][0]), expected, rtol=1e-6)
    assert np.count_nonzero(np.abs(expected).sum(axis=-1)) == 6


# --- what stays


REJECTED = {
    "output_dim 5, its siblings 7": lambda i: layers.Embedding(9, 5 + 2 * i),
    "embeddings_regularizer": lambda i: layers.Embedding(
        9, 5, embeddings_regularizer=keras.regularizers.L2(0.1 * i + 0.1)
    ),
    "MaxNorm": lambda i: layers.Embedding(9, 5, embeddings_constraint="max_norm"),
    "trainable": lambda i: layers.Embedding(9, 5, trainable=i > 0),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_rejected(reason):
    model = features(lambda i, x: REJECTED[reason](i)(x), 2, shape=(3,))
    assert_rejects(model, reason)


def test_one_tensor_into_tables_that_differ_in_all():
    x = keras.Input((7,), dtype="int32")
    tables = [layers.Embedding(9 - n, n)(x) for n in (5, 1, 4)]
    model = keras.Model(x, layers.Concatenate()(tables))
    assert_rejects(model, "input_dim 4 and 8: tables of different length")
    assert_rejects(model, "output_dim 1 and 5: tables of different width")


def test_by_default_two_tables_stay_and_eight_become_one():
    two, eight = (
        features(lambda i, x: layers.Embedding(vocabulary(i), 5)(x), count) for count in (2, 8)
    )
    assert_rejects(two, "fewer kernels", policy=Policy())
    assert_fuses(eight, layers=(8, 1), policy=Policy())


# --- weights


def test_weights_are_taken_apart_exactly():
    members = [layers.Embedding(6, 4) for _ in range(3)]
    for one in members:
        one.build((None,))
    for one, lane in zip(members, unstack(stack(members), 3), strict=True):
        np.testing.assert_array_equal(one.get_weights(), lane)
    for one, lane in zip(members, taken_apart(stack_wide(members), 3), strict=True):
        np.testing.assert_array_equal(one.get_weights(), lane)


def test_the_layer_of_the_package_keeps_its_configuration():
    layer = StackedEmbedding(
        [3, 5], 4, 1, embeddings_regularizer="l1", embeddings_constraint="non_neg", name="tables"
    )
    twin = StackedEmbedding.from_config(layer.get_config())
    assert twin.get_config() == layer.get_config()
    assert twin(np.zeros((7, 2, 3), "int32")).shape == (7, 2, 3, 4)
