"""The public face: what may be imported, what is kept, what is refused."""

import configparser
import inspect
import logging
import os
import re
import subprocess
import sys
import types
from dataclasses import replace
from importlib import metadata, resources
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers, ops

import parallel_fuse
from parallel_fuse import (
    JOINS,
    KINDS,
    SPLITS,
    UnsupportedModelError,
    explain,
    fuse_parallel_branches,
    verify_equivalence,
)
from parallel_fuse.errors import Reject
from parallel_fuse.kinds.base import Kind
from parallel_fuse.policy import EVERYTHING, Policy
from tests.asserts import assert_same_outputs, operation_names
from tests.builders import inputs_for, randomise, slices
from tests.devices import since
from tests.photograph import photograph

ROOT = Path(__file__).parent.parent


def three_branches(cls=keras.Model, end=True, **options) -> keras.Model:
    x = keras.Input((3, 7), name="x")
    h = [layers.Dense(4, "relu")(s) for s in slices(x, 3)]
    joined = layers.Concatenate(name="joined")(h)
    outputs = layers.Dense(2, name="end", **options)(joined) if end else joined
    return randomise(cls(x, outputs))


def fuse(model, **options):
    before = photograph(model)
    fused, report = fuse_parallel_branches(
        model, return_report=True, **{"policy": EVERYTHING, **options}
    )
    assert photograph(model) == before
    assert report.changed, str(report)
    return fused, report


def data(outputs=((2,),), rows=8):
    random = np.random.default_rng(0)
    targets = [random.normal(size=(rows, *shape)).astype("float32") for shape in outputs]
    return random.normal(size=(rows, 3, 7)).astype("float32"), targets


# --- what may be imported


def test_public_names():
    assert parallel_fuse.__all__ == [
        "JOINS", "KINDS", "SPLITS", "ConversionError", "NotEquivalentError", "ParallelFuseError",
        "UnsupportedModelError", "convert", "explain", "fuse_parallel_branches", "load_model",
        "verify_equivalence",
    ]  # fmt: skip
    for name in parallel_fuse.__all__:
        assert getattr(parallel_fuse, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'fuse'"):
        parallel_fuse.fuse  # noqa: B018


@pytest.mark.parametrize("function", [fuse_parallel_branches, explain, verify_equivalence])
def test_public_functions_say_what_they_do(function):
    documentation = inspect.getdoc(function)
    assert "Raises:" in documentation
    parameters = list(inspect.signature(function).parameters.values())
    models = 2 if function is verify_equivalence else 1
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[models + (models == 2) :])
    if function is fuse_parallel_branches:
        assert all(p.name in documentation for p in parameters)
    assert all(p.annotation is not p.empty for p in parameters)


def test_errors_are_one_family():
    from parallel_fuse import errors

    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if "Error" in c.__name__]
    assert len(classes) >= 5
    assert all(issubclass(c, parallel_fuse.ParallelFuseError) for c in classes)
    assert all(inspect.getdoc(c) for c in classes)


def test_rules_are_plain_tuples():
    for rules in (KINDS, JOINS, SPLITS):
        assert isinstance(rules, tuple)
        assert rules
        handled = [cls for rule in rules for cls in rule.handles]
        assert len(handled) == len(set(handled)), "a class with two rules"


def test_types_and_version_are_shipped():
    assert resources.files("parallel_fuse").joinpath("py.typed").is_file()
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert config["options.package_data"]["parallel_fuse"] == "py.typed"
    version = config["metadata"]["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    try:
        installed = metadata.version("parallel-fuse")
    except metadata.PackageNotFoundError:
        pytest.skip("run from a checkout that is not installed")
    assert installed == version


# --- what is refused


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="subclassed")
        self.dense = layers.Dense(3)

    def call(self, x):
        return self.dense(x)


class CallsItself(keras.Model):
    """Made like a functional model, but computes something else."""

    def call(self, inputs, training=None):
        return 2.0 * super().call(inputs, training=training)


def foreign():
    module = types.ModuleType("tf_keras")
    module.__version__ = "2.18.0"
    sys.modules.setdefault("tf_keras", module)
    cls = type("Functional", (), {"__module__": "tf_keras.src.engine.functional"})
    return cls()


REFUSED = {
    "subclassed model Subclassed": Subclassed,
    "subclassed model CallsItself": lambda: three_branches(CallsItself),
    "a Sequential that was never built": lambda: keras.Sequential([layers.Dense(3)]),
    "builtins.str": lambda: "model.keras",
    "builtins.NoneType": lambda: None,
    "keras.src.layers.core.dense.Dense": lambda: layers.Dense(3),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_graph_is_refused(words):
    model = REFUSED[words]()
    for function in (fuse_parallel_branches, explain):
        with pytest.raises(UnsupportedModelError, match="Received: ") as caught:
            function(model)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_b22_a_model_of_another_keras_is_refused_with_module_and_version():
    with pytest.raises(UnsupportedModelError) as caught:
        fuse_parallel_branches(foreign())
    message = str(caught.value)
    assert f"Keras {keras.__version__}" in message
    assert "tf_keras.src.engine.functional.Functional" in message
    assert "2.18.0" in message


# --- what is kept around the layers


def test_b25_compile_configuration():
    model = three_branches()
    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.5)
    optimizer = keras.optimizers.Adam(schedule, clipnorm=0.5)
    model.compile(optimizer, "huber", metrics=["mae"], jit_compile=True, steps_per_execution=3)
    fused, report = fuse(model)
    assert fused.get_compile_config() == model.get_compile_config()
    assert fused.jit_compile is True
    assert fused.steps_per_execution == 3
    assert fused.optimizer is not model.optimizer
    assert "compiled as the original" in str(report)


def test_b04_b25_losses_and_metrics_keyed_by_output_names():
    x = keras.Input((3, 7), name="x")
    h = [layers.Dense(4, name=f"h{i}")(s) for i, s in enumerate(slices(x, 3))]
    model = randomise(keras.Model(x, [layers.Concatenate(name="all")(h), h[1]]))
    model.compile(
        "sgd", loss={"all": "mse", "h1": "mae"}, loss_weights={"all": 0.25, "h1": 3.0},
        metrics={"h1": [keras.metrics.MeanSquaredError(name="own")]},
        weighted_metrics={"all": ["mae"]},
    )  # fmt: skip
    fused, _ = fuse(model)
    rows, targets = data([(12,), (4,)])
    results = [m.evaluate(rows, targets, verbose=0, return_dict=True) for m in (model, fused)]
    assert results[0].keys() == results[1].keys()
    assert "h1_own" in results[0]
    for key, value in results[0].items():
        np.testing.assert_allclose(results[1][key], value, rtol=1e-5)


def own_loss(y, p):
    return ops.mean(ops.square(y - p), axis=-1) + 0.5


class OwnLoss(keras.losses.Loss):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, y, p):
        return self.function(y, p)


class OwnOptimizer(keras.optimizers.SGD):
    pass


class OwnSchedule(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.125

    def get_config(self):
        return {}


class OwnMetric(keras.metrics.Mean):
    def __init__(self, key=None, **kwargs):
        super().__init__(**kwargs)
        self.key = key

    def update_state(self, y, p, sample_weight=None):
        return super().update_state(p, sample_weight)


OWN = {
    "function": lambda: {"loss": own_loss},
    "lambda": lambda: {"loss": lambda y, p: ops.mean(y - p)},
    "object without a config": lambda: {"loss": OwnLoss(own_loss)},
    "metrics": lambda: {"loss": "mse", "metrics": [OwnMetric(name="own"), own_loss]},
    "optimizer": lambda: {"loss": "mse", "optimizer": OwnOptimizer(OwnSchedule())},
    "scaled": lambda: {
        "loss": "mse", "optimizer": keras.optimizers.LossScaleOptimizer(OwnOptimizer(0.125)),
    },
}  # fmt: skip


@pytest.mark.parametrize("what", OWN)
def test_losses_metrics_and_optimizers_of_the_users_own(what):
    model = three_branches()
    model.compile(**OWN[what]())
    fused, report = fuse(model)
    assert fused.compiled, report.notes
    rows, (targets,) = data()
    results = [m.evaluate(rows, targets, verbose=0, return_dict=True) for m in (model, fused)]
    assert results[0].keys() == results[1].keys()
    np.testing.assert_allclose(*[list(r.values()) for r in results], rtol=1e-5)
    assert type(fused.optimizer) is type(model.optimizer)


@pytest.mark.parametrize("scaled", [True, False])
def test_the_scaling_of_the_loss_is_kept(scaled):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = three_branches(dtype="float32")
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile("adam", "mse", auto_scale_loss=scaled)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) is scaled
    fused, _ = fuse(model)
    assert type(fused.optimizer) is type(model.optimizer)
    assert fused.dtype_policy == model.dtype_policy


def test_a_metric_that_cannot_be_made_again_is_said():
    class Fails(OwnMetric):
        def get_config(self):
            raise NotImplementedError("not written down")

    model = three_branches()
    model.compile("sgd", "mse", metrics=[Fails(name="own")])
    fused, report = fuse_parallel_branches(model, return_report=True, policy=EVERYTHING)
    assert not fused.compiled
    (note,) = report.notes
    assert note.startswith("not compiled: the compile configuration could not be rebuilt")
    assert "not written down" in note


def test_b26_the_optimizer_starts_anew_and_the_note_says_so():
    model = three_branches()
    model.compile("adam", "mse")
    rows, (targets,) = data()
    model.fit(rows, targets, verbose=0)
    fused, report = fuse(model)
    assert int(model.optimizer.iterations) == 1
    assert int(fused.optimizer.iterations) == 0
    assert "the optimizer starts without its accumulated state" in str(report)
    fused.fit(rows, targets, verbose=0)
    assert len(fused.optimizer.variables) < len(model.optimizer.variables)


def test_an_uncompiled_model_stays_uncompiled():
    fused, report = fuse(three_branches())
    assert not fused.compiled
    assert report.notes == ()


class Trains(keras.Model):
    """The usual recipe: a functional model with a training step of its own."""

    def train_step(self, batch):
        return {"loss": 0.0, "own": self.answer()}

    def answer(self):
        return 42.0


class Backbone(keras.Model):
    """Makes its own inputs and outputs."""

    def __init__(self, units=4, **kwargs):
        x = keras.Input((3, 7), name="x")
        h = [layers.Dense(units)(s) for s in slices(x, 3)]
        super().__init__(x, layers.Concatenate(name="joined")(h), **kwargs)
        self.units = units

    def embed(self, x):
        return self(x)


def test_a_class_made_from_inputs_and_outputs_is_kept():
    model = three_branches(Trains)
    model.compile("sgd", "mse")
    fused, report = fuse(model)
    assert type(fused) is Trains
    assert fused.compiled
    rows, (targets,) = data()
    assert fused.train_on_batch(rows, targets, return_dict=True)["own"] == 42.0
    assert not any("lost" in note or "not carried" in note for note in report.notes)


class Strict(keras.Model):
    def __init__(self, inputs, outputs, name=None):
        super().__init__(inputs, outputs, name=name)


class Wants(keras.Model):
    def __init__(self, *args, must, **kwargs):
        super().__init__(*args, **kwargs)


@since("3.15")
def test_classes_with_constructors_of_their_own():
    fused, report = fuse(three_branches(Strict))
    assert type(fused) is Strict
    assert report.notes == ()
    fused, report = fuse(three_branches(lambda x, y: Wants(x, y, must=1)))
    assert not isinstance(fused, Wants)
    assert report.notes == ("a plain keras.Model, not a Wants",)


def test_attributes_of_the_object_are_not_carried_over_and_the_note_says_so():
    model = three_branches(Trains)
    model.temperature = 3.0
    _, report = fuse(model)
    assert report.notes == ("attributes set on the Trains are not carried over: temperature",)


def test_a_class_that_makes_its_own_graph_is_lost_and_the_note_says_so():
    model = randomise(type("Larger", (Backbone,), {"predict_step": None})(name="backbone"))
    fused, report = fuse(model)
    assert isinstance(fused, keras.Model)
    assert not isinstance(fused, Backbone)
    assert report.notes == ("a plain keras.Model, not a Larger, without its predict_step, embed",)


def test_a_compile_method_of_the_users_own_is_left_to_the_user():
    class Own(keras.Model):
        def compile(self, optimizer, extra):
            super().compile(optimizer, "mse")
            self.extra = extra

    model = three_branches(Own)
    model.compile("sgd", extra=3)
    fused, report = fuse(model)
    assert type(fused) is Own
    assert not fused.compiled
    assert any("compile() of its own" in note for note in report.notes)


def test_a_sequential_as_the_whole_model():
    inner = three_branches(end=False)
    model = keras.Sequential([keras.Input((3, 7)), inner, layers.Dense(5, name="end")], name="seq")
    fused, _ = fuse(randomise(model))
    assert fused.name == "seq"
    assert_same_outputs(model, fused, inputs_for(inner, 4, seed=0))


# --- options


def test_nothing_to_fuse_gives_an_equal_copy():
    x = keras.Input((7,), name="x")
    model = randomise(keras.Model(x, layers.Dense(3, name="only")(x)))
    fused, report = fuse_parallel_branches(model, return_report=True)
    assert fused is not model
    assert operation_names(fused) == operation_names(model)
    assert not {id(v) for v in fused.weights} & {id(v) for v in model.weights}
    assert not report.changed
    assert report.verification.ok
    verify_equivalence(model, fused)


def test_fusing_twice_changes_nothing_the_second_time():
    fused, _ = fuse(three_branches())
    again, report = fuse_parallel_branches(fused, return_report=True, policy=EVERYTHING)
    assert not report.changed
    assert [op.name for op in again.operations] == [op.name for op in fused.operations]


def test_an_unverified_model_is_reported_as_such():
    fused, report = fuse(three_branches(), verify=False)
    assert isinstance(fused, keras.Model)
    assert report.verification is None
    assert "not verified" in str(report)


def test_the_report_is_logged(caplog):
    with caplog.at_level(logging.INFO, "parallel_fuse"):
        fuse(three_branches())
    assert "3 × (Dense(4, relu))" in caplog.text


def test_a_policy_and_rules_are_taken():
    model = three_branches()
    assert explain(model, policy=EVERYTHING).changed
    report = explain(model, policy=Policy(min_lanes=4, min_gain=0.0))
    assert not report.changed
    assert "3 lanes, the policy asks for 4" in str(report)
    assert not explain(model, policy=EVERYTHING, kinds=()).changed
    assert "on 3 tensors" in str(explain(model, policy=EVERYTHING, splits=()))


def test_a_rule_of_the_users_own_goes_first():
    def never(call):
        raise Reject(f"{call.name} is sacred")

    mine = Kind(handles=(layers.Dense,), signature=never, lowerings=())
    report = explain(three_branches(), policy=EVERYTHING, kinds=(mine, *KINDS))
    assert "is sacred" in str(report)
    assert not report.changed


# --- a fresh process


FRESH = """
import sys
import warnings
warnings.simplefilter("ignore")
sys.modules["parallel_fuse"] = None  # not to be had
import keras
import numpy as np

folder = sys.argv[1]
given = dict(np.load(folder + "/rows.npz"))
model = keras.saving.load_model(folder + "/fused.keras")
assert [type(op).__name__ for op in model.operations].count("EinsumDense") == 2
assert model.output_names == ["all", "h1"], model.output_names
found = model.predict(given["x"], verbose=0)
for name, expected in zip(("all", "h1"), found):
    np.testing.assert_allclose(expected, given[name], rtol=1e-5, atol=1e-5)
result = model.evaluate(given["x"], [given["all"], given["h1"]], verbose=0, return_dict=True)
assert result["loss"] < 1e-6 and "h1_mae" in result, result
history = model.fit(given["x"], [given["all"] + 1, given["h1"] - 1], epochs=2, verbose=0).history
assert history["loss"][1] < history["loss"][0], history
print("fresh process: fine")
"""


def test_b31_a_fused_model_lives_in_a_fresh_process_without_the_package(tmp_path):
    x = keras.Input((3, 7), name="x")
    h = [layers.Dense(5, "tanh", name=f"g{i}")(s) for i, s in enumerate(slices(x, 3))]
    h = [layers.Dense(4, name=f"h{i}")(t) for i, t in enumerate(h)]
    model = randomise(keras.Model(x, [layers.Concatenate(name="all")(h), h[1]]))
    model.compile("adam", {"all": "mse", "h1": "mse"}, metrics={"h1": "mae"})
    fused, _ = fuse(model, portable=True, policy=replace(EVERYTHING, portable=True))
    fused.save(tmp_path / "fused.keras")
    rows, _ = data()
    named = dict(zip(("all", "h1"), model.predict(rows, verbose=0)))
    np.savez(tmp_path / "rows.npz", x=rows, **named)
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path)],
        capture_output=True, text=True, check=False, env=os.environ, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "fresh process: fine" in done.stdout
