"""The rebuilt model: inputs, flags, types, regularizers, nested models, masks."""

import sys

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import _keras, fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_close, assert_same_outputs
from tests.builders import inputs_for, randomise, slices
from tests.photograph import photograph


def fuse(model: keras.Model, layers_fused: int | None = None, **options):
    """Fuses, verifies, and looks at the original before and after."""
    before = photograph(randomise(model))
    fused, report = fuse_parallel_branches(
        model, return_report=True, policy=EVERYTHING, **options
    )
    assert photograph(model) == before
    found = sum(len(region.layers) for region in report.regions)
    if layers_fused is not None:
        assert found == layers_fused, str(report)
    return fused, report


def branches(x, units=4, **options) -> list:
    return [layers.Dense(units, **options)(s) for s in slices(x, 3)]


def join(tensors):
    return layers.Concatenate(name="joined")(tensors)


def three(shape=(3, 7), name="x", **options):
    return keras.Input(shape, name=name, **options)


# --- inputs


def test_b12_dict_inputs_in_any_order_of_keys():
    b, a = three(name="b"), keras.Input((12,), name="a")
    model = keras.Model({"b": b, "a": a}, join([*branches(b), a]))
    fused, _ = fuse(model, 3)
    assert list(fused.input) == ["b", "a"]
    assert [t.name for t in fused.inputs] == ["a", "b"]
    x = inputs_for(model, 5, seed=0)
    assert_same_outputs(model, fused, x)
    turned = {key: x[key] for key in reversed(x)}
    assert_close(fused(turned), model(x))
    extra = {**x, "unused": np.zeros((5, 2), "float32")}
    with pytest.warns(UserWarning, match="structure of `inputs`"):
        fused(extra)
    with pytest.warns(UserWarning, match="structure of `inputs`"):
        model(extra)


def nested_inputs():
    a, b, c = keras.Input((12,), name="a"), three(name="b"), keras.Input((2,), name="c")
    return {"q": [b, (a,)], "c": c}, [join([*branches(b), a]), {"c": c}]


def list_of_one():
    x = three()
    return [x], [join(branches(x))]


def tuple_of_two():
    a, b = three(name="a"), keras.Input((5,), name="b")
    return (b, a), (join(branches(a)), b)


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict")
@pytest.mark.parametrize("make", [nested_inputs, list_of_one, tuple_of_two])
def test_nests_of_inputs_and_outputs(make):
    model = keras.Model(*make())
    fused, _ = fuse(model, 3)
    for mine, theirs in ((model.input, fused.input), (model.output, fused.output)):
        names = [keras.tree.map_structure(lambda t: t.shape, nest) for nest in (mine, theirs)]
        assert names[0] == names[1]
    assert_same_outputs(model, fused, inputs_for(model, 2, seed=1))


def test_optional_inputs_stay_optional():
    class Maybe(layers.Layer):
        def call(self, x, y):
            return x if y is None else x + y

    x, extra = three(), keras.Input((12,), name="extra", optional=True)
    model = keras.Model([x, extra], Maybe(name="maybe")(join(branches(x)), extra))
    fused, _ = fuse(model, 3)
    assert fused.get_layer("extra").optional
    given = inputs_for(model, 3, seed=2)
    for second in (given[1], None):
        assert_close(fused([given[0], second]), model([given[0], second]))


def test_sparse_inputs_stay_sparse():
    x = keras.Input((9,), name="x", sparse=True)
    fused, _ = fuse(keras.Model(x, join([layers.Dense(n)(x) for n in (3, 4, 5)])), 3)
    assert fused.inputs[0].sparse


def test_a_fixed_batch_size_stays_known_to_the_end():
    x = three(None, batch_shape=(6, 3, 7))
    model = keras.Model(x, join(branches(x)))
    fused, _ = fuse(model, 3)
    assert fused.inputs[0].shape == (6, 3, 7)
    assert fused.outputs[0].shape == model.outputs[0].shape == (6, 12)


def test_unknown_sizes_stay_unknown():
    x = three((3, None, 7))
    model = keras.Model(x, join(branches(x)))
    fused, _ = fuse(model, 3)
    assert fused.inputs[0].shape == (None, 3, None, 7)
    assert fused.outputs[0].shape == (None, None, 12)
    for length in (2, 5):
        x = np.random.default_rng(length).normal(size=(4, 3, length, 7)).astype("float32")
        assert_same_outputs(model, fused, x)


def test_integer_boolean_and_string_inputs():
    x, ids = three(), keras.Input((4,), dtype="int32", name="ids")
    flag = keras.Input((5,), dtype="bool", name="flag")
    word = keras.Input((2,), dtype="string", name="word")
    outputs = [join(branches(x)), ids * 2, ops.logical_not(flag), word]
    model = keras.Model([x, ids, flag, word], outputs)
    rows = [
        np.random.default_rng(3).normal(size=(3, 3, 7)).astype("float32"),
        np.arange(12, dtype="int32").reshape(3, 4),
        np.eye(3, 5) > 0,
        np.array([["a", "b"], ["c", "a"], ["", "b"]]),
    ]
    fused, _ = fuse(model, 3, verify_inputs=[ops.convert_to_tensor(row) for row in rows])
    assert [t.dtype for t in fused.inputs] == ["float32", "int32", "bool", "string"]


# --- flags, types, regularizers


def trainable(model) -> int:
    return sum(int(np.prod(v.shape)) for v in model.trainable_variables)


def test_b24_trainable_flags_layer_by_layer():
    x = keras.Input((5, 7), name="x")
    h = [layers.Dense(4, name=f"d{i}")(s) for i, s in enumerate(slices(x, 5))]
    end = layers.Dense(2, name="end")(join(h))
    model = keras.Model(x, layers.Dense(3, name="top")(end))
    for name in ("d0", "d3", "end"):
        model.get_layer(name).trainable = False
    fused, report = fuse(model, 5)
    assert len(report.regions) == 2
    assert {one.name: one.trainable for one in fused.layers if one.weights} == {
        "d0_x2": False, "d1_x3": True, "end": False, "top": True,
    }  # fmt: skip
    assert trainable(fused) == trainable(model) > 0


def test_a_model_not_trainable_as_a_whole():
    x = three()
    model = keras.Model(x, layers.Dense(2, name="end")(join(branches(x))))
    model.trainable = False
    model.get_layer("end").trainable = True  # seen by nobody while the model itself is frozen
    fused, _ = fuse(model, 3)
    assert not fused.trainable
    assert fused.get_layer("end").trainable
    assert trainable(fused) == trainable(model) == 0
    fused.trainable = True
    assert trainable(fused) > 0


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64", "bfloat16"])
def test_dtype_policies(policy):
    x = three()
    model = keras.Model(x, layers.Dense(2, dtype="float32")(join(branches(x, dtype=policy))))
    fused, _ = fuse(model, 3)
    (layer,) = [one for one in fused.layers if isinstance(one, layers.EinsumDense)]
    assert layer.dtype_policy.name == policy
    assert layer.kernel.dtype == model.layers[1].kernel.dtype
    assert fused.outputs[0].dtype == "float32"


def test_siblings_of_two_policies_are_two_groups():
    x = keras.Input((4, 7), name="x")
    policies = ["float32", "mixed_bfloat16"] * 2
    h = [layers.Dense(5, dtype=p)(s) for p, s in zip(policies, slices(x, 4))]
    model = keras.Model(x, [*h, join(h)])
    fused, report = fuse(model, 4)
    assert [region.lanes for region in report.regions] == [2, 2]
    assert [t.dtype for t in fused.outputs] == [t.dtype for t in model.outputs]


def test_regularizers_and_constraints():
    x = three()
    h = branches(
        x, activation="relu", kernel_constraint="non_neg", bias_regularizer="l1",
        kernel_regularizer=keras.regularizers.L1L2(0.125, 0.25),
    )  # fmt: skip
    model = keras.Model(x, layers.Dense(2, kernel_regularizer="l2", name="end")(join(h)))
    fused, _ = fuse(model, 3)
    losses = [float(sum(m.losses)) for m in (model, fused)]
    assert losses[0] > 1.0
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    (layer,) = [one for one in fused.layers if isinstance(one, layers.EinsumDense)]
    assert isinstance(layer.kernel_constraint, keras.constraints.NonNeg)
    assert isinstance(layer.kernel.constraint, keras.constraints.NonNeg)


# --- nested models


def tower(name, make=None, shape=(7,)):
    i = keras.Input(shape)
    return keras.Model(i, (make or layers.Dense(4))(layers.Dense(5, "relu")(i)), name=name)


def test_nested_models_sequentials_and_bare_layers_meet():
    x = three()
    dense = layers.Dense
    outer_in = keras.Input((7,))
    outer = keras.Model(outer_in, tower("inner")(outer_in), name="outer")
    sequential = keras.Sequential([dense(5, "relu"), dense(4)], name="sequential")
    h = [outer(x[:, 0]), sequential(x[:, 1]), dense(4)(dense(5, "relu")(x[:, 2]))]
    model = keras.Model(x, join(h))
    fused, report = fuse(model, 6)
    assert len(report.regions) == 1
    assert not any(isinstance(one, keras.Model) for one in fused.operations)


def test_deeply_nested():
    i = keras.Input((3, 7))
    inner = keras.Model(i, join(branches(i)), name="level0")
    for level in range(1, 6):
        i = keras.Input((3, 7))
        inner = keras.Model(i, inner(i), name=f"level{level}")
    model = keras.Sequential([keras.Input((3, 7), name="x"), inner, layers.Dense(2, name="end")])
    fused, _ = fuse(model, 3)
    assert [type(op).__name__ for op in fused.operations][-1] == "Dense"
    assert fused.output_names == ["end"]


def test_nested_models_of_several_inputs_and_outputs():
    def pair(name):
        a, b = keras.Input((7,), name="a"), keras.Input((5,), name="b")
        total = layers.Dense(4)(a) + layers.Dense(4)(b)
        return keras.Model({"a": a, "b": b}, [total, layers.Dense(2, name="c")(total)], name=name)

    x, y = three(), keras.Input((3, 5), name="y")
    pairs = [pair(f"p{i}")({"a": x[:, i], "b": y[:, i]}) for i in range(3)]
    model = keras.Model([x, y], [join([p[0] for p in pairs]), *[p[1] for p in pairs]])
    fused, _ = fuse(model)
    kinds = [type(op) for op in fused.operations]
    assert kinds.count(layers.EinsumDense) == 3
    assert layers.Dense not in kinds
    assert fused.output_names == model.output_names


def test_training_handed_to_a_nested_model():
    def normed(i):
        a = keras.Input((7,))
        return keras.Model(a, layers.BatchNormalization()(layers.Dense(4)(a)), name=f"n{i}")

    x = three()
    model = keras.Model(x, join([normed(i)(s, training=True) for i, s in enumerate(slices(x, 3))]))
    rows = inputs_for(model, 5, seed=5)
    for training in (None, False, True):  # Keras lets the outermost value win
        randomise(model)
        again, _ = fuse(model, 6, verify=False)
        assert_close(again(rows, training=training), model(rows, training=training))
    assert np.abs(model(rows) - model(rows, training=False)).max() > 0.1


def test_q02_q05_r04_a_model_called_several_times_runs_once():
    shared, x = tower("shared"), three()
    model = keras.Model(x, join([shared(s) for s in slices(x, 3)]))
    fused, _ = fuse(model, 6)
    assert len(fused.weights) == len(model.weights) == 4


@pytest.mark.filterwarnings("ignore:Layer 'inner' .* was passed an input with a mask")
def test_a_nested_model_that_stays_closed_is_copied():
    ids = keras.Input((5,), dtype="int32", name="ids")
    embedded = layers.Embedding(3, 7, mask_zero=True)(ids)
    i = keras.Input((5, 7))
    inner = keras.Model(i, layers.LSTM(2)(layers.Dense(4, lambda t: t * 2.0)(i)), name="inner")
    model = keras.Model(ids, layers.Dense(6, name="end")(inner(embedded)))
    fused, report = fuse(model, 0)
    closed = fused.get_layer("inner")
    assert not {id(v) for v in closed.variables} & {id(v) for v in inner.variables}
    assert not report.notes


def test_a_chain_of_any_length():
    x = three()
    y = join(branches(x))
    for _ in range(2000):
        y = ops.negative(y)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(30_000)  # Keras needs it to make such a model
    model = keras.Model(x, y)
    sys.setrecursionlimit(limit)
    fused, _ = fuse(model, 3, verify=False)
    assert len(fused.operations) > 2000
    assert sys.getrecursionlimit() == limit


# --- masks


def masks(model, rows) -> list:
    outputs = keras.tree.flatten(model(rows))
    found = [_keras.mask_of(t) for t in outputs]
    return [None if mask is None else ops.convert_to_numpy(mask).tolist() for mask in found]


def masked(source: str):
    """(input, masked tensor, rows of which some steps are masked)"""
    if source == "embedding":
        ids = keras.Input((5,), dtype="int32", name="ids")
        rows = np.array([[1, 2, 1, 0, 0], [2, 0, 0, 0, 0], [1, 1, 2, 2, 1]], "int32")
        return ids, layers.Embedding(3, 7, mask_zero=True, name="table")(ids), rows
    x = keras.Input((5, 7), name="x")
    rows = np.random.default_rng(6).normal(size=(3, 5, 7)).astype("float32")
    rows[:, 3:] = 0.0
    return x, layers.Masking(name="hide")(x), rows


def heads(y) -> list:
    return [layers.Dense(4, name=f"d{i}")(y) for i in range(3)]


SOURCES = pytest.mark.parametrize("source", ["embedding", "masking"])


@SOURCES
def test_b13_masks_written_into_the_graph_are_used_behind_fused_lanes(source):
    x, y, rows = masked(source)
    model = keras.Model(x, [layers.LSTM(2 + i)(h) for i, h in enumerate(heads(y))])
    fused, _ = fuse(model, 3)
    assert_same_outputs(model, fused, rows)
    unmasked = np.where(rows == 0, 1, rows).astype(rows.dtype)
    wrong = [np.abs(a - b).max() for a, b in zip(model(rows), model(unmasked))]
    assert min(wrong) > 1e-3  # the rows do show a mask that is lost


@SOURCES
def test_masks_of_joined_lanes(source):
    x, y, rows = masked(source)
    model = keras.Model(x, layers.LSTM(2)(join(heads(y))))
    fused, report = fuse(model, 3)
    assert_same_outputs(model, fused, rows)
    assert not any("logical_or" in str(miss) for miss in report.rejections)


@SOURCES
@pytest.mark.parametrize("end", ["heads", "join", "norm of heads"])
def test_an_output_that_carries_a_mask_keeps_it(source, end):
    """The loss of such an output counts only the steps that the mask leaves."""
    x, y, rows = masked(source)
    outputs = {
        "heads": lambda: heads(y),
        "join": lambda: layers.Concatenate(axis=1, name="joined")(heads(y)),
        "norm of heads": lambda: [layers.LayerNormalization()(h) for h in heads(y)],
    }[end]()
    model = keras.Model(x, outputs)
    fused, report = fuse(model, 0)
    assert masks(fused, rows) == masks(model, rows)
    assert None not in masks(model, rows)
    assert "d0, d1, d2: its mask is picked up by output" in str(report)


@SOURCES
def test_an_output_without_a_mask_gets_none(source):
    """Operations drop masks, layers hand them on: the fused layer must not hand on too much."""
    x, y, rows = masked(source)
    joined = ops.concatenate([layers.Dense(4, name=f"d{i}")(y) for i in range(3)], axis=-1)
    model = keras.Model(x, layers.Dense(2, name="end")(joined))
    fused, _ = fuse(model, 3)
    assert masks(model, rows) == masks(fused, rows) == [None]
    bare = keras.Model(x, joined)
    fused, _ = fuse(bare, 3)
    assert masks(bare, rows) == masks(fused, rows) == [None]


@SOURCES
def test_a_mask_that_keras_leaves_to_the_running_model(source):
    """With an argument beside it, Keras does not write the mask into the graph."""
    x, y, rows = masked(source)
    model = keras.Model(x, [layers.LSTM(2)(h, training=False) for h in heads(y)])
    fused, report = fuse(model, 0)
    assert_same_outputs(model, fused, rows)
    assert "d0, d1, d2: its mask is picked up by layer" in str(report)


def test_slices_of_a_masked_tensor_have_no_mask():
    x, y, rows = masked("embedding")
    parts = [layers.Dense(4)(y[:, :, i : i + 2]) for i in (0, 2, 4)]
    model = keras.Model(x, layers.LSTM(2)(join(parts)))
    fused, _ = fuse(model, 3)
    assert_same_outputs(model, fused, rows)


def test_a_loss_weighted_by_a_mask_is_the_same_after_fusing():
    x, y, rows = masked("masking")
    trunk = layers.Dense(6, name="trunk")(y)
    free = join([layers.Dense(4)(s) for s in slices(ops.multiply(y, 1.0), 3, axis=2)])
    model = keras.Model(x, [layers.Dense(2, name="out")(trunk), free])
    fused, _ = fuse(model)
    targets = [np.ones((3, 5, 2)), np.ones((3, 5, 12))[:, 0]]
    losses = []
    for one in (model, fused):
        one.compile(loss=["mse", "mse"])
        losses.append(one.evaluate(rows, targets, verbose=0, return_dict=True))
    np.testing.assert_allclose(losses[0]["loss"], losses[1]["loss"], rtol=1e-5)
