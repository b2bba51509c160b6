"""The report: what became what, and why not, for people, programs and pages."""

import json

import keras
import numpy as np
import pytest
from keras import layers, ops

from parallel_fuse import UnsupportedModelError, explain, fuse_parallel_branches
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.report import Counts, NearMiss, RegionReport, Report
from parallel_fuse.wording import shown
from tests.builders import randomise, slices
from tests.photograph import photograph


def price_model(branches=100) -> keras.Model:
    prices = keras.Input((branches, 8), name="prices")
    h = [layers.Dense(1)(layers.Dense(32, "relu")(s)) for s in slices(prices, branches)]
    return keras.Model(prices, layers.Concatenate()(h), name="stocks")


def small_model(make=lambda i: layers.Dense(4), count=3, name="small") -> keras.Model:
    x = keras.Input((count, 7), name="x")
    h = [make(i)(s) for i, s in enumerate(slices(x, count))]
    return keras.Model(x, layers.Concatenate(name="joined")(h), name=name)


def region(model, **options) -> str:
    (found,) = explain(model, policy=EVERYTHING, **options).regions
    return found.text


def test_the_line_of_a_tower():
    model = price_model()
    report = explain(model)
    assert [r.text for r in report.regions] == [
        "100 × (Dense(32, relu) → Dense(1)) on slices of 'prices' → Concatenate: 200 layers → 2"
    ]
    (found,) = report.regions
    assert (found.lanes, found.layers_before, found.layers_after) == (100, 200, 2)
    assert len(found.layers) == 200
    assert found.lowerings == ("batched-matmul", "batched-matmul")
    assert report.before == Counts(operations=302, layers=201, parameters=100 * (9 * 32 + 33))
    assert report.after is None
    assert "1 region(s) would fuse" in str(report)


def test_explain_builds_nothing_and_changes_nothing():
    model = small_model()
    model.compile("sgd", "mse")
    before, made = photograph(model), []
    add_weight = layers.Layer.add_weight
    layers.Layer.add_weight = lambda *args, **kwargs: made.append(1) or add_weight(*args, **kwargs)
    try:
        explain(model, policy=EVERYTHING)
    finally:
        layers.Layer.add_weight = add_weight
    assert not made
    assert photograph(model) == before


def test_the_lines_of_other_regions():
    x = keras.Input((7,), name="x")
    heads = keras.Model(x, [layers.Dense(n, "softmax")(x) for n in (3, 5, 2)])
    assert region(heads) == "3 × (Dense(units 3/5/2, softmax)) on 'x' → 3 outputs: 3 layers → 1"
    many = keras.Model(x, [layers.Dense(n)(x) for n in range(2, 9)])
    assert "units 2/3/4/5/…" in region(many)
    inputs = [keras.Input((5,), name=f"i{k}") for k in range(3)]
    apart = keras.Model(inputs, layers.Add()([layers.Dense(4)(i) for i in inputs]))
    assert region(apart) == "3 × (Dense(4)) on 3 tensors → Add: 3 layers → 1"
    mixed = small_model(lambda i: layers.Dense(4, ["relu", "tanh", None][i]))
    assert "Dense(4, relu/tanh/linear)" in region(mixed)


def test_a_region_of_operations_does_not_call_them_layers():
    x = keras.Input((3, 7), name="x")
    h = [ops.tanh(layers.Dense(4)(s)) for s in slices(x, 3)]
    line = region(keras.Model(x, layers.Concatenate()(h)))
    assert line.endswith("6 operations → 2"), line


def test_nested_models_are_counted_by_what_is_in_them():
    def tower(i):
        a = keras.Input((7,))
        return keras.Model(a, layers.Dense(4)(layers.Dense(5)(a)), name=f"tower{i}")

    report = explain(small_model(tower), policy=EVERYTHING)
    assert report.before.layers == 3 * 2 + 1
    assert report.regions[0].layers_before == 6


MISSES = {
    "units 5, its siblings 4": lambda i: layers.Dense(4 + (i == 1)),
    "kernel_regularizer L2(l2=0.01), its siblings None": lambda i: layers.Dense(
        4, kernel_regularizer="l2" if i == 1 else None
    ),
    "kernel_constraint NonNeg(), its siblings None": lambda i: layers.Dense(
        4, kernel_constraint="non_neg" if i == 1 else None
    ),
    "trainable False, its siblings True": lambda i: layers.Dense(4, trainable=i != 1),
    "dtype policy float64, its siblings float32": lambda i: layers.Dense(
        4, dtype="float64" if i == 1 else "float32"
    ),
}


@pytest.mark.parametrize("reason", MISSES)
def test_near_misses_name_layer_attribute_and_siblings(reason):
    model = small_model(MISSES[reason])
    report = explain(model, policy=EVERYTHING)
    odd = model.layers[2].name
    (line,) = [str(miss) for miss in report.rejections if odd in miss.layers]
    assert line.endswith(f": {reason}"), line
    assert line.startswith(odd) or reason.startswith("no rule")


def test_near_miss_of_an_argument_of_the_call():
    x = keras.Input((3, 7), name="x")
    odd = [layers.BatchNormalization(name=f"n{i}") for i in range(3)]
    h = [n(s, training=True) if i == 1 else n(s) for i, (n, s) in enumerate(zip(odd, slices(x, 3)))]
    report = explain(keras.Model(x, layers.Concatenate()(h)), policy=EVERYTHING)
    assert "n1: call arguments training=True, its siblings none" in str(report)


def test_values_as_a_person_would_write_them():
    assert shown("input shape", ((None, 3, 7),)) == "(None, 3, 7)"
    assert shown("input shape", ((None, 3), (None, "any"))) == "((None, 3), (None, any))"
    assert shown("rate", 0.009999999776482582) == "0.01"
    assert shown("strides", (1, 2)) == "(1, 2)"
    l1 = (("class_name", "L1L2"), ("config", (("l1", 0.1), ("l2", 0.2))), ("module", "keras"))
    assert shown("kernel_regularizer", l1) == "L1L2(l1=0.1, l2=0.2)"
    assert shown("call arguments", ()) == "none"
    assert shown("call arguments", (("·", 2), (("mode", "nearest"),))) == "2, mode=nearest"


def test_many_layers_of_one_reason_are_one_line():
    x = keras.Input((9, 7), name="x")
    h = [layers.Flatten()(layers.ConvLSTM1D(2, 1)(s[:, None, None])) for s in slices(x, 9)]
    report = explain(keras.Model(x, layers.Concatenate()(h)))
    (line,) = [str(miss) for miss in report.rejections if "LSTM" in miss.reason]
    assert line.endswith(", …: no rule for the class ConvLSTM1D")


def test_strict_raises_with_a_reason():
    with pytest.raises(UnsupportedModelError, match=r"'small'.*units 5, its siblings 4"):
        fuse_parallel_branches(small_model(lambda i: layers.Dense(4 + i), 2), strict=True)
    x = keras.Input((7,))
    lonely = keras.Model(x, layers.Dense(3)(x), name="lonely")
    with pytest.raises(UnsupportedModelError, match="No layers of one class stand side by side"):
        fuse_parallel_branches(lonely, strict=True)
    _, report = fuse_parallel_branches(lonely, return_report=True)
    assert not report.changed
    assert str(report).startswith("lonely: nothing to fuse (2 operations)")


def test_text_of_a_fusion():
    model = randomise(small_model())
    _, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    text = str(report)
    assert text.startswith("small: operations 8 → 5, layers 4 → 1, parameters 96 → 96\n")
    assert "equivalent (batch sizes 1, 2, 7" in text
    _, report = fuse_parallel_branches(
        model, return_report=True, policy=EVERYTHING, verify=False
    )
    assert "not verified: verify=False" in str(report)


def test_a_dict_for_programs():
    model = randomise(small_model(lambda i: layers.Dense(4, use_bias=i > 0)))
    model.compile("sgd", "mse")
    fused, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    read = json.loads(json.dumps(report.to_dict()))
    assert read["changed"] is True
    assert read["before"]["parameters"] + 4 == read["after"]["parameters"] == fused.count_params()
    assert read["regions"][0]["padded_parameters"] == 4
    assert read["verification"]["ok"] is True
    assert len(read["notes"]) == 2
    assert json.loads(json.dumps(explain(model).to_dict()))["verification"] is None


def test_a_page_escapes_what_users_chose():
    report = Report(
        model="<script>alert(1)</script>",
        regions=(RegionReport("2 × Dense on '<b>&'", (), ("a", "b"), 2, 2, 1),),
        rejections=(NearMiss(("<i>",), "a < b"),),
        before=Counts(9, 5, 70),
        after=Counts(8, 4, 70),
        notes=("note & more",),
    )
    page = report.to_html()
    for raw in ("<script>", "<b>", "<i>", "a < b", "& more"):
        assert raw not in page
    for escaped in ("&lt;script&gt;", "&lt;b&gt;&amp;", "&lt;i&gt;", "a &lt; b", "note &amp; more"):
        assert escaped in page
    assert page.startswith("<!doctype html>")
    assert "http" not in page


def test_parameters_reconcile():
    widths = (4, 3, 6)
    x = keras.Input((7,), name="x")
    h = [layers.Dense(n, use_bias=n != 3)(x) for n in widths]
    model = randomise(keras.Model(x, layers.Concatenate()(h)))
    _, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    padded = sum(r.padded_parameters for r in report.regions)
    assert report.after.parameters == report.before.parameters + padded
    assert padded == 3
    assert report.before.parameters == sum(int(np.prod(w.shape)) for w in model.weights)
