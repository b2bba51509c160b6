"""The read-only view: text, nesting, shared layers, structures, depth; models without a graph."""

import sys

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import UnsupportedModelError, fuse_parallel_branches
from parallel_fuse.deciding.decide import decide
from parallel_fuse.graph import Graph
from parallel_fuse.joins import JOINS
from parallel_fuse.kinds import KINDS
from parallel_fuse.matching.search import match
from parallel_fuse.policy import EVERYTHING, Policy
from parallel_fuse.splits import SPLITS
from tests.asserts import assert_fuses, assert_same_outputs, assert_unchanged, snapshot
from tests.builders import inputs_for, randomise, slices
from tests.splits.checks import assert_fuses_cheaply

DESTROYED = pytest.mark.filterwarnings("ignore:Layer 'nested'.*destroy the mask:UserWarning")


def names(graph: Graph) -> list[str]:
    return [call.name for call in graph.calls]


def test_text_is_stable():
    x = keras.Input((3, 7), name="x")
    lanes = [layers.Dense(4, name=f"d{i}")(piece) for i, piece in enumerate(slices(x, 2))]
    model = keras.Model(x, layers.Concatenate(name="joined")([lanes[1], lanes[0]]))
    graph = Graph.of(model)
    items = [call.name for call in graph.calls if call.name.startswith("get_item")]
    assert str(graph).splitlines() == [
        "inputs: %0[None, 3, 7]",
        f"%1 = GetItem {items[0]}(%0)",
        "%2 = Dense d1(%1)",
        f"%3 = GetItem {items[1]}(%0)",
        "%4 = Dense d0(%3)",
        "%5 = Concatenate joined(%2, %4)",
        "outputs: %5[None, 8]",
    ]
    assert str(Graph.of(model)) == str(graph)


def test_operations_with_several_outputs():
    x = keras.Input((6, 7), name="x")
    first, second = ops.split(x, 2, axis=1)
    sequence, hidden, _ = layers.LSTM(4, return_sequences=True, return_state=True)(first)
    graph = Graph.of(keras.Model(x, [second, sequence, hidden]))
    split, lstm = graph.calls
    assert [v.shape for v in split.outputs] == [(None, 3, 7)] * 2
    assert [v.position for v in lstm.outputs] == [0, 1, 2]
    assert [graph.producer(v).name for v in graph.outputs] == [split.name, lstm.name, lstm.name]


def inner_model(name, *, units=4, training=None):
    x = keras.Input((7,), name=f"{name}_x")
    y = layers.Dense(units, name=f"{name}_dense")(x)
    y = layers.BatchNormalization(name=f"{name}_norm")(y, training=training)
    y = layers.Activation("tanh", name=f"{name}_tanh")(y)
    return keras.Model(x, y, name=name)


def wrapped(model, name):
    x = keras.Input((7,))
    return keras.Model(x, model(x), name=name)


def test_nested_models_are_inlined_at_any_depth():
    model = inner_model("innermost")
    for depth in range(5):
        model = wrapped(model, f"level{depth}")
    graph = Graph.of(model)
    assert names(graph) == ["innermost_dense", "innermost_norm", "innermost_tanh"]
    assert graph.calls[0].scope == ("level3", "level2", "level1", "level0", "innermost")
    assert graph.depths == (1, 2, 3)


def test_a_nested_sequential_of_models_is_inlined():
    model = keras.Sequential([
        keras.Input((7,)),
        keras.Sequential([layers.Dense(5, name="a"), layers.Dense(7, name="b")], name="s"),
        inner_model("m"),
    ])  # fmt: skip
    assert names(Graph.of(model)) == ["a", "b", "m_dense", "m_norm", "m_tanh"]


def test_a_very_deep_nest_does_not_recurse():
    model = inner_model("deep")
    for depth in range(60):
        model = wrapped(model, f"level{depth}")
    with recursion_limit(_depth() + 60):
        graph = Graph.of(model)
    assert len(graph.calls) == 3


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame:
        frame, depth = frame.f_back, depth + 1
    return depth


class recursion_limit:  # noqa: N801 - reads as a function
    def __init__(self, limit):
        self.limit = limit

    def __enter__(self):
        self.kept = sys.getrecursionlimit()
        sys.setrecursionlimit(self.limit)

    def __exit__(self, *error):
        sys.setrecursionlimit(self.kept)


def test_a_shared_layer_is_seen_once_per_call():
    x = keras.Input((3, 7))
    shared = layers.Dense(4, name="shared")
    lanes = [shared(piece) for piece in slices(x, 3)]
    graph = Graph.of(keras.Model(x, lanes))
    calls = [call for call in graph.calls if call.operation is shared]
    assert len(calls) == 3
    assert graph.uses[id(shared)] == 3
    assert len({call.output.index for call in calls}) == 3


def test_q02_a_shared_nested_model_is_seen_once_per_call_and_stays_shared():
    a, b = keras.Input((7,), name="a"), keras.Input((7,), name="b")
    tower = inner_model("tower")
    model = keras.Model([a, b], layers.Concatenate()([tower(a), tower(b)]))
    graph = Graph.of(model)
    assert names(graph).count("tower_dense") == 2
    fused, report = fuse_parallel_branches(
        randomise(model), return_report=True, policy=EVERYTHING
    )
    assert any("calls →" in region.text for region in report.regions)
    assert sum(isinstance(op, layers.Dense) for op in fused.operations) == 1


def test_only_the_calls_that_lead_to_an_output_are_seen():
    x = keras.Input((7,))
    layer = layers.Dense(4, name="used_twice")
    layer(x)
    layers.Dense(3)(x)
    model = keras.Model(x, layer(x))
    assert names(Graph.of(model)) == ["used_twice"]


def test_a_model_that_begins_inside_another():
    x = keras.Input((3, 7))
    y = layers.Dense(5, name="before")(x)
    z = layers.Dense(4, name="after")(y)
    assert names(Graph.of(keras.Model(y, z))) == ["after"]


def test_an_input_that_is_an_output():
    x = keras.Input((7,), name="x")
    inner = keras.Model(x, [x, layers.Dense(4, name="d")(x)], name="inner")
    y = keras.Input((7,), name="y")
    same, other = inner(y)
    model = keras.Model(y, [same, layers.Dense(3, name="e")(other)])
    graph = Graph.of(model)
    assert names(graph) == ["d", "e"]
    assert graph.outputs[0] is graph.inputs[0]
    fused = fuse_parallel_branches(model, policy=EVERYTHING)
    assert_same_outputs(model, fused, inputs_for(model, 3, seed=0))


def test_training_is_handed_down():
    x = keras.Input((7,))
    frozen = inner_model("frozen")(x, training=False)
    graph = Graph.of(keras.Model(x, inner_model("free")(x) + frozen))
    by_name = {call.name: call.kwargs.get("training") for call in graph.calls}
    assert by_name["frozen_norm"] is False
    assert by_name["free_norm"] is None
    assert by_name["frozen_tanh"] is None, "an Activation takes no training argument"


def test_the_outermost_training_wins():
    x = keras.Input((7,))
    model = inner_model("m", training=True)
    graph = Graph.of(keras.Model(x, wrapped(model, "w")(x, training=False)))
    assert {c.name: c.kwargs for c in graph.calls}["m_norm"] == {"training": False}


def test_training_false_inside_survives_training_outside():
    x = keras.Input((7,))
    model = randomise(keras.Model(x, inner_model("m")(x, training=False)))
    fused = fuse_parallel_branches(model, verify=False)
    array = np.random.default_rng(0).normal(size=(5, 7)).astype("float32")
    for training in (False, True):
        expected = model(array, training=training)
        np.testing.assert_allclose(fused(array, training=training), expected, rtol=1e-6)


def test_b12_dict_inputs_keep_their_keys():
    inputs = {name: keras.Input(shape, name=name) for name, shape in
              {"before": (5, 3), "after": (4,), "between": (2,)}.items()}  # fmt: skip
    outputs = {"sum": ops.sum(inputs["before"], axis=1), "id": ops.sin(inputs["after"]),
               "first": inputs["between"][:, 0]}  # fmt: skip
    model = keras.Model(inputs, outputs)
    graph = Graph.of(model)
    assert {v.shape for v in graph.inputs} == {(None, 5, 3), (None, 4), (None, 2)}
    fused = fuse_parallel_branches(model)
    assert list(fused.input) == list(model.input)
    assert list(fused.output) == list(model.output)


def test_nested_model_with_list_and_dict_inputs():
    a, b = keras.Input((7,), name="a"), keras.Input((5,), name="b")
    as_dict = keras.Model({"b": b, "a": a}, layers.Dense(4, name="da")(a) + layers.Dense(4)(b))
    as_list = keras.Model([b, a], layers.Dense(4, name="la")(a) + layers.Dense(4)(b))
    x, y = keras.Input((7,), name="x"), keras.Input((5,), name="y")
    model = keras.Model([x, y], [as_dict({"a": x, "b": y}), as_list([y, x])])
    graph = Graph.of(model)
    read = {call.name: call.inputs[0] for call in graph.calls if call.name in ("da", "la")}
    assert read == {"da": graph.inputs[0], "la": graph.inputs[0]}
    assert_fuses_cheaply(randomise(model), layers=(6, 3))


class Doubling(layers.Layer):
    def call(self, inputs, scale=2.0, beside=None):
        return inputs * scale + beside


def test_calls_keep_their_exact_arguments():
    x, y = keras.Input((7,), name="x"), keras.Input((7,), name="y")
    model = keras.Model([x, y], Doubling()(x, scale=3.0, beside=y))
    (call,) = Graph.of(model).calls
    assert call.args[0].index == 0
    assert call.kwargs["scale"] == 3.0
    assert call.kwargs["beside"].index == 1
    assert [v.index for v in call.inputs] == [0, 1]


def recurrent():
    x = keras.Input((6, 7))
    return keras.Model(x, layers.LSTM(4, name="inside")(x), name="nested")


@DESTROYED
def test_b13_a_nested_model_that_receives_a_mask_stays_whole():
    ids = keras.Input((6,), dtype="int32", name="ids")
    embedded = layers.Embedding(9, 7, mask_zero=True)(ids)
    model = keras.Model(ids, layers.Dense(3)(recurrent()(embedded)))
    graph = Graph.of(model)
    assert "nested" in names(graph)
    assert [name for name, _ in graph.opaque] == ["nested"]
    fused = fuse_parallel_branches(randomise(model))
    assert_same_outputs(model, fused, inputs_for(model, 3, seed=0))


@DESTROYED
@pytest.mark.parametrize("explicit", [False, True])
def test_siblings_beside_a_nested_model_that_receives_a_mask_fuse(explicit):
    x = keras.Input((6, 7), name="x")
    masked = layers.Masking()(x)
    options = {"mask": ops.any(ops.not_equal(x, 0.0), axis=-1)} if explicit else {}
    heads = [layers.Dense(5)(x[:, i]) for i in range(3)]
    model = keras.Model(x, layers.Concatenate()([*heads, recurrent()(masked, **options)]))
    assert_fuses_cheaply(randomise(model), layers=(3, 1))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs)


class OwnCall(keras.Model):
    """A functional model whose class computes something else."""

    def call(self, inputs, training=None, mask=None):
        return 2 * super().call(inputs)


def own_call():
    x = keras.Input((7,))
    return OwnCall(x, layers.Dense(3)(x))


UNSUPPORTED = {
    "subclassed": (Subclassed, "the subclassed model Subclassed; rebuild it as keras.Model("),
    "functional with a call of its own": (own_call, "the subclassed model OwnCall"),
    "unbuilt Sequential": (lambda: keras.Sequential([layers.Dense(3)]), "never built; call it"),
    "a layer": (lambda: layers.Dense(3), "Expected a functional keras.Model"),
    "a path": (lambda: "model.keras", "Received: builtins.str"),
    "nothing": (lambda: None, "Received: builtins.NoneType"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_models_without_a_graph(name):
    build, text = UNSUPPORTED[name]
    with pytest.raises(UnsupportedModelError) as error:
        fuse_parallel_branches(build())
    message = str(error.value)
    assert text in message
    assert "\n" not in message


def test_a_subclassed_model_inside_stays_whole():
    x = keras.Input((3, 7))
    lanes = [layers.Dense(7)(piece) for piece in slices(x, 3)]
    odd = Subclassed()
    model = keras.Model(x, [odd(lane) for lane in lanes])
    graph = Graph.of(model)
    assert sum(call.operation is odd for call in graph.calls) == 3
    fused, report = fuse_parallel_branches(randomise(model), return_report=True, policy=EVERYTHING)
    assert_same_outputs(model, fused, inputs_for(model, 3, seed=0))
    assert report.changed


def test_a_functional_model_of_a_class_that_adds_nothing_is_inlined():
    class Named(keras.Model):
        pass

    x = keras.Input((7,))
    inner = Named(x, layers.Dense(4, name="inside")(x))
    y = keras.Input((7,))
    assert names(Graph.of(keras.Model(y, inner(y)))) == ["inside"]


def chain(count: int) -> keras.Model:
    """Activations one after the other; nothing fuses, everything is rebuilt."""
    x = y = keras.Input((3,), name="x")
    for _ in range(count):
        y = layers.Activation("tanh")(y)
    return keras.Model(x, y)


def test_a_chain_of_2000_layers_does_not_recurse():
    with recursion_limit(20_000):  # Keras itself recurses when it makes a model
        model = chain(2000)
    graph = Graph.of(model)
    plan = decide(graph, match(graph, KINDS, JOINS, SPLITS), Policy())
    assert len(graph.calls) == 2000
    assert max(graph.depths) == 2000
    assert plan.bundles == ()
    before = snapshot(model)
    with recursion_limit(20_000):
        fused = fuse_parallel_branches(model, verify=False)
    assert_unchanged(model, before)
    assert_same_outputs(model, fused, inputs_for(model, 2, seed=0))


def ladder(count: int) -> keras.Model:
    """A chain of dense layers, each also read by a join: siblings that depend on one another."""
    x = y = keras.Input((4,), name="x")
    steps = []
    for _ in range(count):
        y = layers.Dense(4)(y)
        steps.append(y)
    return keras.Model(x, layers.Concatenate()(steps))


def fan(count: int) -> keras.Model:
    x = keras.Input((count, 3), name="x")
    lanes = [layers.Dense(2)(layers.Dense(4, "relu")(piece)) for piece in slices(x, count)]
    return keras.Model(x, layers.Concatenate()(lanes))


def python_calls(function, *args) -> int:
    """How many Python functions a call runs: a measure of work that no other process disturbs."""
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("build", [chain, fan])
def test_work_grows_in_proportion_to_the_model(build):
    def fuse(model):
        fuse_parallel_branches(model, verify=False)

    fuse(build(20))
    small, large = (python_calls(fuse, build(n)) for n in (60, 180))
    assert large < 3.3 * small


def test_dependent_siblings_do_not_explode():
    graph = Graph.of(ladder(120))
    found = match(graph, KINDS, JOINS, SPLITS)
    assert found.bundles == ()


def test_long_towers_fuse():
    x = keras.Input((3, 4), name="x")
    lanes = []
    for piece in slices(x, 3):
        for _ in range(40):
            piece = layers.Dense(4)(piece)
        lanes.append(piece)
    model = keras.Model(x, layers.Concatenate()(lanes))
    # 40 products of random matrices overflow any useful scale: keep the weights Keras drew
    fused, report = fuse_parallel_branches(
        model, return_report=True, verify=False, policy=EVERYTHING
    )
    assert report.regions[0].layers_after == 40
    assert_same_outputs(model, fused, inputs_for(model, 3, seed=0))


def test_nested_towers_fuse_and_the_original_is_untouched():
    def tower(i):
        return keras.Sequential([
            keras.Input((7,)),
            layers.Dense(5, "relu"),
            keras.Sequential([layers.Dense(3, "tanh")]),
        ], name=f"tower{i}")  # fmt: skip

    x = keras.Input((3, 7))
    lanes = [tower(i)(piece) for i, piece in enumerate(slices(x, 3))]
    assert_fuses(keras.Model(x, layers.Concatenate()(lanes)), layers=(6, 2))
