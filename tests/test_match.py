"""Where siblings are looked for, which of them are grouped, and which must not be."""

import keras
import pytest
from keras import layers, ops

from parallel_fuse.deciding.decide import decide
from parallel_fuse.graph import Graph
from parallel_fuse.joins import JOINS
from parallel_fuse.kinds import KINDS
from parallel_fuse.matching.search import match
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.splits import SPLITS
from tests.asserts import assert_fuses, operation_names
from tests.builders import randomise, slices
from tests.splits.checks import assert_fuses_cheaply


def bundles(model: keras.Model) -> list[list[str]]:
    """The names of the layers of each bundle that is found."""
    graph = Graph.of(model)
    found = match(graph, KINDS, JOINS, SPLITS)
    return [[call.name for call in bundle.calls] for bundle in found.bundles]


def groups(model: keras.Model) -> list[list[str]]:
    return sorted(sorted(names) for names in bundles(model))


def dense(name: str, units: int = 4, activation: str | None = "tanh"):
    return layers.Dense(units, activation, name=name)


def inputs(count: int, width: int = 7) -> list:
    return [keras.Input((width,), name=f"i{n}") for n in range(count)]


# --- the three places ---------------------------------------------------------------------------


def test_operands_of_a_join_backwards():
    xs = inputs(3)
    towers = [dense(f"b{i}", 3)(dense(f"a{i}")(x)) for i, x in enumerate(xs)]
    model = keras.Model(xs, layers.Concatenate()(towers))
    assert groups(model) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


def test_readers_of_one_tensor_forwards():
    """Queries, keys and values: their ways part at once, no join has more than one of them."""
    x = keras.Input((5, 7), name="x")
    q, k, v = (dense(name, 6)(x) for name in "qkv")
    scores = ops.softmax(ops.einsum("btf,bsf->bts", q, k), axis=-1)
    model = keras.Model(x, ops.einsum("bts,bsf->btf", scores, v))
    assert groups(model) == [["k", "q", "v"]]
    assert_fuses(model, layers=(3, 1))


def test_readers_of_slices_forwards():
    x = keras.Input((3, 7), name="x")
    a, b, c = (dense(f"d{i}")(piece) for i, piece in enumerate(slices(x, 3)))
    model = keras.Model(x, ops.sin(a) * 2.0 + ops.abs(b - c))
    assert ["d0", "d1", "d2"] in groups(model)
    assert_fuses_cheaply(randomise(model))


def test_towers_forwards_without_any_join():
    x = keras.Input((3, 7), name="x")
    towers = [dense(f"b{i}", 3)(dense(f"a{i}")(piece)) for i, piece in enumerate(slices(x, 3))]
    tails = [ops.mean(towers[0]), ops.max(towers[1], axis=-1), ops.square(towers[2])]
    assert groups(keras.Model(x, tails))[:2] == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


def test_model_outputs():
    xs = inputs(4)
    outputs = [dense(f"b{i}", 3)(dense(f"a{i}")(x)) for i, x in enumerate(xs)]
    model = keras.Model(xs, outputs)
    assert groups(model) == [["a0", "a1", "a2", "a3"], ["b0", "b1", "b2", "b3"]]
    fused, _ = assert_fuses(model, layers=(8, 2))
    assert fused.output_names == ["b0", "b1", "b2", "b3"]


def test_model_outputs_in_a_dict():
    xs = inputs(3)
    outputs = {name: dense(name)(x) for name, x in zip(("left", "right", "above"), xs)}
    model = keras.Model(xs, outputs)
    fused, _ = assert_fuses(model, layers=(3, 1))
    assert list(fused.output) == list(model.output)
    assert fused.output_names == model.output_names


def test_q03_q19_r09_output_heads_on_one_trunk():
    x = keras.Input((7,), name="x")
    trunk = dense("trunk", 6)(x)
    heads = [dense(f"h{i}", n)(dense(f"m{i}", 5)(trunk)) for i, n in enumerate((3, 2, 3, 4))]
    model = keras.Model(x, heads)
    assert ["m0", "m1", "m2", "m3"] in groups(model)
    assert_fuses(model, layers=(6, 2))


def test_r03_siblings_fed_by_the_outputs_of_one_layer():
    class Experts(layers.Layer):
        def call(self, inputs):
            return [ops.sin(inputs), ops.cos(inputs), inputs]

        def compute_output_shape(self, shape):
            return [shape] * 3

    x = keras.Input((7,), name="x")
    tasks = [dense(f"t{i}")(value) for i, value in enumerate(Experts()(x))]
    model = keras.Model(x, [dense(f"o{i}", n)(t) for i, (n, t) in enumerate(zip((3, 2, 3), tasks))])
    assert groups(model) == [["o0", "o2"], ["t0", "t1", "t2"]]
    assert_fuses(model, layers=(5, 2), reload=False)  # the class is not registered


# --- partial groups -----------------------------------------------------------------------------


def test_foreign_branches_and_a_permuted_order():
    x = keras.Input((6, 7), name="x")
    s = slices(x, 6)
    b = [dense(f"b{i}")(s[i]) for i in range(4)]
    g, h = layers.Dense(5, name="g")(s[4]), ops.sin(s[5])
    model = keras.Model(x, layers.Concatenate()([g, b[3], b[0], b[1], h, b[2]]))
    assert groups(model) == [["b0", "b1", "b2", "b3"]]
    assert_fuses(model, layers=(4, 1))


def test_two_widths_make_two_groups():
    x = keras.Input((6, 7), name="x")
    lanes = [dense(f"d{i}", 4 + i % 2)(piece) for i, piece in enumerate(slices(x, 6))]
    model = keras.Model(x, layers.Concatenate()(lanes))
    assert groups(model) == [["d0", "d2", "d4"], ["d1", "d3", "d5"]]
    assert_fuses(model, regions=2, layers=(6, 2))


def test_two_sorts_of_towers_that_end_alike_make_two_groups():
    xs = inputs(5)
    towers = [dense(f"b{i}", 3)(dense(f"a{i}", 5 + i % 2)(x)) for i, x in enumerate(xs)]
    for i in (1, 3):
        towers[i] = dense(f"c{i}", 3)(layers.Dense(6, name=f"z{i}")(xs[i]))
    model = keras.Model(xs, layers.Concatenate()(towers))
    assert groups(model) == [["a0", "a2", "a4"], ["b0", "b2", "b4"], ["c1", "c3"], ["z1", "z3"]]
    assert_fuses_cheaply(randomise(model), layers=(10, 4))


def test_deeplc_branches_whose_early_layers_differ_meet_where_they_are_alike():
    x, y = keras.Input((9, 5), name="x"), keras.Input((9, 3), name="y")
    first = [layers.Conv1D(6, 2, padding="same", name="p0")(x),
             layers.Conv1D(6, 4, padding="same", name="p1")(y)]  # fmt: skip
    towers = [layers.Conv1D(4, 3, name=f"q{i}")(v) for i, v in enumerate(first)]
    towers = [dense(f"r{i}", 2)(layers.Flatten()(v)) for i, v in enumerate(towers)]
    model = keras.Model([x, y], layers.Concatenate()(towers))
    found = groups(model)
    assert ["q0", "q1"] in found
    assert ["r0", "r1"] in found
    assert not any("p0" in names for names in found)


def test_one_branch_that_differs_further_up_joins_the_others():
    xs = inputs(4)
    towers = [dense(f"b{i}", 3)(dense(f"a{i}")(x)) for i, x in enumerate(xs[:3])]
    towers.append(dense("b3", 3)(layers.Dense(4, "relu", name="odd")(ops.sin(xs[3]))))
    towers[3] = dense("b4", 3)(ops.sin(layers.Dense(4, name="odd2")(xs[3])))
    model = keras.Model(xs, layers.Concatenate()(towers))
    assert ["b0", "b1", "b2", "b4"] in groups(model)
    assert ["a0", "a1", "a2"] in groups(model)
    assert_fuses_cheaply(randomise(model))


def test_a_sum_of_some_lanes_does_not_keep_the_others_from_the_group():
    xs = inputs(4)
    b = [dense(f"b{i}")(x) for i, x in enumerate(xs)]
    model = keras.Model(xs, [layers.Concatenate()(b), b[0] + b[1] + b[2]])
    assert groups(model) == [["b0", "b1", "b2", "b3"]]
    assert_fuses_cheaply(randomise(model), layers=(4, 1))


def test_a_hierarchy_of_joins_groups_across_the_inner_ones():
    """Two towers to a sensor, joined there; then one layer to a sensor, joined at the end."""
    x = keras.Input((5, 7), name="x")
    sensors = []
    for i, piece in enumerate(slices(x, 5)):
        pair = layers.Concatenate()([dense(f"a{i}")(piece), dense(f"b{i}", 3, "relu")(piece)])
        sensors.append(dense(f"c{i}", 2)(pair))
    model = keras.Model(x, layers.Concatenate()(sensors))
    found = groups(model)
    for level in "abc":
        assert [f"{level}{i}" for i in range(5)] in found
    assert_fuses_cheaply(randomise(model), layers=(20, 4))


# --- taps ---------------------------------------------------------------------------------------


def tapped(use) -> keras.Model:
    x = keras.Input((4, 7), name="x")
    inner = [dense(f"a{i}")(piece) for i, piece in enumerate(slices(x, 4))]
    outer = [dense(f"b{i}", 3)(value) for i, value in enumerate(inner)]
    joined = layers.Concatenate(name="joined")(outer)
    return keras.Model(x, use(joined, inner, outer))


TAPS = {
    "an inner lane read elsewhere": lambda j, a, b: [j, ops.sin(a[2])],
    "an inner lane as an output": lambda j, a, b: [j, a[1]],
    "an outer lane as an output": lambda j, a, b: [j, b[3]],
    "every inner lane as an output": lambda j, a, b: [j, *a],
    "one lane twice": lambda j, a, b: [j, a[0], ops.sin(a[0])],
    "an inner lane into the join": lambda j, a, b: layers.Concatenate()([*b, a[2]]),
    "the residual of one lane": lambda j, a, b: layers.Concatenate()(
        [*b[:3], layers.Dense(3)(a[3] + ops.sin(a[3]))]),
}  # fmt: skip


@pytest.mark.parametrize("name", TAPS)
def test_r05_taps_keep_the_group(name):
    model = tapped(TAPS[name])
    found = groups(model)
    assert ["a0", "a1", "a2", "a3"] in found
    assert any(set(names) >= {"b0", "b1", "b2"} for names in found)
    assert_fuses_cheaply(randomise(model))


def test_a_tap_from_every_side():
    assert_fuses(tapped(TAPS["an inner lane read elsewhere"]), layers=(8, 2))


# --- what must not be fused ---------------------------------------------------------------------


def test_q24_a_chain_into_one_join_is_not_fused():
    x = keras.Input((4,), name="x")
    h, steps = x, []
    for i in range(4):
        h = layers.Dense(4, name=f"h{i}")(h)
        steps.append(h)
    model = keras.Model(x, layers.Concatenate()(steps))
    assert groups(model) == []
    _, report = assert_fuses_cheaply(randomise(model), layers=(0, 0))
    assert any("depends on its siblings" in str(miss) for miss in report.rejections)


def test_q24_two_chains_fuse_step_by_step():
    x = keras.Input((2, 4), name="x")
    ends = []
    for lane, h in enumerate(slices(x, 2)):
        for i in range(3):
            h = layers.Dense(4, name=f"h{lane}{i}")(h)
            ends.append(h)
    model = keras.Model(x, layers.Concatenate()(ends))
    assert groups(model) == [["h00", "h10"], ["h01", "h11"], ["h02", "h12"]]
    assert_fuses(model, layers=(6, 3))


def crossed() -> keras.Model:
    """a1 → b2 and b1 → a2: each pair is independent, both together are not."""
    x, y = inputs(2, 4)
    a1, b1 = layers.Dense(4, name="a1")(x), layers.Dense(4, "relu", name="b1")(y)
    b2, a2 = layers.Dense(4, "relu", name="b2")(a1), layers.Dense(4, name="a2")(b1)
    a = layers.Concatenate(name="a")([a1, a2])
    return keras.Model([x, y], [a, layers.Concatenate(name="b")([b1, b2])])


def test_groups_that_depend_on_one_another_are_not_both_fused():
    def signature(call):
        config = call.operation.get_config()
        return {"units": config["units"], "activation": str(config["activation"])}

    from dataclasses import replace

    from parallel_fuse.kinds.dense import DENSE

    # Dense kinds of the package merge activations: here they are kept apart, to get the cross
    kinds = (replace(DENSE, signature=signature),)
    model = randomise(crossed())
    graph = Graph.of(model)
    found = match(graph, kinds, JOINS, SPLITS)
    names = sorted(sorted(c.name for c in b.calls) for b in found.bundles)
    assert names == [["a1", "a2"], ["b1", "b2"]]
    plan = decide(graph, found, EVERYTHING)
    assert len(plan.bundles) == 1
    assert any("a cycle" in rejection.reason for rejection in plan.rejections)
    assert_fuses_cheaply(model, layers=(2, 1), kinds=kinds)


def test_a_long_cycle_of_groups_is_broken():
    """Group k holds one layer of each level of a rotating ladder."""
    xs = inputs(3, 4)
    units = (4, 5, 6)
    values = dict(enumerate(xs))
    made: dict[int, list] = {0: [], 1: [], 2: []}
    for level in range(3):
        for lane in range(3):
            sort = (level + lane) % 3
            value = layers.Dense(units[sort], name=f"l{level}{lane}")(values[lane])
            made[sort].append(value)
            values[lane] = layers.Dense(4, "relu", name=f"r{level}{lane}")(value)
    outputs = [*(layers.Concatenate()(v) for v in made.values()), *values.values()]
    model = keras.Model(xs, outputs)
    assert_fuses_cheaply(randomise(model))


def test_the_calls_of_one_layer_are_siblings():
    x = keras.Input((3, 7), name="x")
    shared = dense("shared")
    model = keras.Model(x, layers.Concatenate()([shared(piece) for piece in slices(x, 3)]))
    assert groups(model) == [["shared"] * 3]


def test_a_layer_called_twice_is_a_group_apart_from_its_siblings():
    x = keras.Input((5, 7), name="x")
    s, shared = slices(x, 5), dense("shared")
    lanes = [shared(s[0]), dense("d1")(s[1]), shared(s[2]), dense("d3")(s[3]), dense("d4")(s[4])]
    model = keras.Model(x, layers.Concatenate()(lanes))
    assert groups(model) == [["d1", "d3", "d4"], ["shared", "shared"]]


def test_a_model_without_siblings():
    x = keras.Input((7,), name="x")
    model = keras.Model(x, dense("b", 3)(dense("a")(x)))
    assert groups(model) == []
    assert_fuses_cheaply(randomise(model), layers=(0, 0))


def test_unequal_unknown_lengths_are_not_stacked():
    """Both have the shape (None, None, 3), but nothing says that their lengths are equal."""
    a, b = keras.Input((None, 3), name="a"), keras.Input((None, 3), name="b")
    lanes = [layers.Dense(4, name=f"d{i}")(x) for i, x in enumerate((a, b))]
    model = randomise(keras.Model([a, b], layers.Concatenate(axis=1)(lanes)))
    fused, _ = assert_fuses_cheaply(model)
    import numpy as np

    arrays = [np.ones((2, 5, 3), "float32"), np.ones((2, 8, 3), "float32")]
    np.testing.assert_allclose(fused(arrays), model(arrays), rtol=1e-5)


# --- chains of two-operand additions ------------------------------------------------------------


def chained(tap: bool) -> keras.Model:
    xs = inputs(4)
    a, b, c, d = (dense(f"d{i}")(x) for i, x in enumerate(xs))
    inner = a + b
    total = (inner + c) + d
    return keras.Model(xs, [total, ops.sin(inner)] if tap else total)


def test_a_chain_of_additions_is_one_row():
    model = chained(tap=False)
    assert groups(model) == [["d0", "d1", "d2", "d3"]]
    fused, _ = assert_fuses(model, layers=(4, 1))
    assert operation_names(fused).count("Sum") == 1


def test_a_tap_in_the_chain_keeps_the_branches_together():
    model = chained(tap=True)
    assert sum(len(names) for names in groups(model)) == 4
    assert_fuses_cheaply(randomise(model))
