"""Names: unique, without a slash, the same for the same model, and outputs keep theirs."""

import keras
import pytest
from keras import layers, ops

from parallel_fuse import fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.rebuilding.names import Names, bundle_name
from tests.builders import randomise, slices


def fuse(model: keras.Model) -> keras.Model:
    """Fuses and verifies; names of operations must be unique and free of slashes."""
    fused, report = fuse_parallel_branches(
        randomise(model), return_report=True, policy=EVERYTHING
    )
    assert report.changed, str(report)
    names = [op.name for op in fused.operations]
    assert len(set(names)) == len(names)
    assert not any("/" in name for name in names)
    assert fused.output_names == model.output_names
    return fused


def branches(x, units=4, **options) -> list:
    return [layers.Dense(units, **options)(s) for s in slices(x, 3)]


def start():
    return keras.Input((3, 7), name="x")


def test_each_name_once():
    names = Names(["kept"])
    assert names.fresh("a") == "a"
    assert names.fresh("a") == "a_1"
    assert names.fresh("a", "inner_a") == "inner_a"
    assert names.fresh("a", "inner_a") == "a_2"
    assert names.fresh("kept") == "kept_1"
    assert names.claim("kept") == "kept"
    assert names.fresh("b03/a") == "b03_a"
    assert bundle_name(["dense", "dense_1", "dense_2"]) == "dense_x3"


def test_a_name_with_a_number_is_not_given_out_twice():
    names = Names([])
    assert [names.fresh(n) for n in ("a_1", "a", "a")] == ["a_1", "a", "a_2"]


def test_layers_that_stay_keep_names_that_look_like_ours():
    x = start()
    h = [layers.Dense(4, name=f"dense_{i}")(s) for i, s in enumerate(slices(x, 3))]
    joined = layers.Concatenate(name="joined")(h)
    outputs = [
        layers.Dense(5, name="dense_0_x3")(joined),
        layers.Dense(2, name="transpose")(x),
        layers.Reshape((3, 4), name="reshape_1")(joined),
    ]
    fused = fuse(keras.Model(x, outputs))
    assert fused.get_layer("dense_0_x3").units == 5
    assert isinstance(fused.get_layer("dense_0_x3_1"), layers.EinsumDense)
    assert fused.get_layer("transpose").units == 2


def test_names_of_a_model_made_elsewhere_meet_ours():
    """Keras numbers new operations by a counter that knows nothing of names read from a file."""
    x = start()
    joined = layers.Concatenate(name="joined")(branches(x))
    for number in ("", "_1", "_2"):
        joined = layers.Rescaling(0.5, name=f"transpose{number}")(joined)
        joined = layers.Rescaling(2.5, name=f"reshape{number}")(joined)
    model = keras.Model(x, layers.Dense(5, name="end")(joined))
    keras.backend.clear_session()
    fuse(model)


def test_the_same_model_gets_the_same_names():
    def build():
        x = start()
        joined = layers.Concatenate(name="joined")(
            [layers.Dense(4, "relu", name=f"d{i}")(s) for i, s in enumerate(slices(x, 3))]
        )
        return keras.Model(x, [layers.Dense(5, name="end")(joined), joined[:, ::2]])

    first, again = (fuse(build()) for _ in range(2))
    sliced = first.output_names[1], again.output_names[1]  # numbered by Keras, in both models
    names = [
        [op.name for op in m.operations if op.name not in sliced] for m in (first, again)
    ]
    assert names[0] == names[1]
    assert "transpose" in names[0]


def test_equal_names_in_nested_models():
    def tower(units, name):
        i = keras.Input((7,), name="in")
        return keras.Model(i, layers.Dense(units, name="same")(i), name=name)

    x = start()
    h = [tower(4, f"m{i}")(s) for i, s in enumerate(slices(x, 3))]
    h += [tower(5, "m3")(x[:, 0]), layers.Dense(6, name="m3_same")(x[:, 1])]
    fused = fuse(keras.Model(x, layers.Concatenate(name="same")(h)))
    assert fused.get_layer("m3_same").units == 6
    assert fused.get_layer("same_x3").name  # the name "same" belongs to the output


def lanes_twice(x):
    a, b, c = branches(x)
    joined = layers.Concatenate(name="joined")([a, b, c])
    return [joined, joined, x, b, b, layers.Dense(5, name="own")(c)]


def nested_output(x):
    i = keras.Input((7,))
    inner = keras.Model(i, [layers.Dense(4)(i), i], name="inner")
    return [*inner(x[:, 0]), *[layers.Dense(4, name=f"d{k}")(x[:, k]) for k in (1, 2)]]


def shared_layer_without_weights(x):
    h, act = branches(x), layers.Activation("tanh", name="act")
    return [act(t) for t in h]


def shared_partly(x):
    act = layers.Activation("tanh", name="act")
    return [*[act(t) for t in branches(x)], act(layers.Dense(5, name="other")(x))]


def several_outputs_of_one_layer(x):
    class Two(layers.Layer):
        def call(self, t):
            return t + 1.0, t * 2.0

    one, two = Two(name="two")(layers.Concatenate(name="joined")(branches(x)))
    return [two, one, two]


def chain_of_additions(x):
    a, b, c = branches(x)
    inner = a + b
    return [inner + c, inner]


OUTPUTS = {
    "lanes, twice, and an input": lanes_twice,
    "lanes by name": lambda x: dict(zip("cab", branches(x))),
    "nested model, one output passed through": nested_output,
    "join": lambda x: layers.Concatenate(name="joined")(branches(x)),
    "sum": lambda x: layers.Add(name="total")(branches(x)),
    "mean": lambda x: [layers.Average(name="mean")(branches(x))],
    "stack": lambda x: {"out": ops.stack(branches(x), axis=1)},
    "slices": lambda x: [x[:, 0], x[:, 1], layers.Concatenate()(branches(x))],
    "part of a join": lambda x: layers.Concatenate()(branches(x))[:, 2:7],
    "split of a join": lambda x: ops.split(layers.Concatenate()(branches(x)), 2, axis=-1)[::-1],
    "softmax lanes": lambda x: branches(x, activation="softmax"),
    "shared layer": shared_layer_without_weights,
    "shared layer, partly fused": shared_partly,
    "several outputs of one layer": several_outputs_of_one_layer,
    "chain of additions": chain_of_additions,
    "nest": lambda x: (branches(x), {"b": {"a": x}}),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_b04_b31_outputs_keep_name_structure_and_order(what):
    x = start()
    model = keras.Model(x, OUTPUTS[what](x))
    fused = fuse(model)
    keras.tree.assert_same_structure(fused.output, model.output)
    forms = [[(tuple(t.shape), t.dtype, t.sparse) for t in m.outputs] for m in (fused, model)]
    assert forms[0] == forms[1]


def test_an_output_keeps_its_type():
    x = start()
    policies = ["float32", "mixed_float16", "float64", "mixed_float16", "float32", "float64"]
    h = [layers.Dense(4, dtype=p)(x[:, i % 3]) for i, p in enumerate(policies)]
    number = keras.Input((2,), dtype="int32", name="number")
    flag = keras.Input((5,), dtype="bool", name="flag")
    fused = fuse(keras.Model([x, number, flag], [*h, number, flag, number > 2]))
    assert [t.dtype for t in fused.outputs] == [
        "float32", "float16", "float64", "float16", "float32", "float64", "int32", "bool", "bool",
    ]  # fmt: skip
