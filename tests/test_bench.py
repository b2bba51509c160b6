"""Timing: who runs when, how often, and that what is timed is the model's own result."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers

from parallel_fuse import bench


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless a test moves it."""
    clock = {"now": 0.0}
    monkeypatch.setattr(bench.time, "perf_counter", lambda: clock["now"])
    return clock


def spending(clock, seconds, log=None, name=None):
    """A call that takes the next of `seconds`, again and again."""
    turns = itertools.cycle(seconds)

    def call():
        clock["now"] += next(turns)
        if log is not None:
            log.append(name)

    return call


def model_of_two_inputs():
    a, b = keras.Input((3,), name="a"), keras.Input((5,), name="b")
    joined = layers.Concatenate()([layers.Dense(2)(a), layers.Dense(4)(b)])
    return keras.Model({"a": a, "b": b}, {"sum": layers.Dense(1)(joined), "both": joined})


def test_median_of_the_rounds_not_their_mean():
    assert bench.Timing((3.0, 1.0, 100.0)).median == 3.0


def test_candidates_take_turns_and_the_order_alternates(clock):
    log = []
    calls = {name: spending(clock, [1.0], log, name) for name in ("a", "b", "c")}
    bench.interleaved(calls, rounds=3, round_seconds=1.0)
    assert "".join(log[6:]) == "abc" + "cba" + "abc"  # six before: one to warm up, one to size


def test_fast_call_is_repeated_and_reported_per_call(clock):
    calls = {"fast": spending(clock, [0.25]), "slow": spending(clock, [8.0])}
    timings = bench.interleaved(calls, rounds=5, round_seconds=2.0)
    assert timings["fast"].rounds == (0.25,) * 5
    assert timings["slow"].rounds == (8.0,) * 5


def test_first_call_does_not_count(clock):
    timings = bench.interleaved({"a": spending(clock, [50.0, 1.0, 1.0, 1.0])}, rounds=2)
    assert timings["a"].median == 1.0


@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_call_returns_what_the_model_returns(jit_compile):
    model = model_of_two_inputs()
    rng = np.random.default_rng(3)
    inputs = {"a": rng.normal(size=(7, 3)), "b": rng.normal(size=(7, 5))}
    inputs = {name: value.astype("float32") for name, value in inputs.items()}
    expected = model(inputs)
    result = bench.compiled(model, inputs, jit_compile=jit_compile)()
    assert set(result) == {"sum", "both"}
    for name, value in result.items():
        assert isinstance(value, np.ndarray)
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_compiled_call_runs_in_inference_mode():
    x = keras.Input((6,))
    model = keras.Model(x, layers.Dropout(0.5)(x))
    ones = np.ones((4, 6), "float32")
    np.testing.assert_array_equal(bench.compiled(model, ones)(), ones)


def test_compare_times_every_model():
    models = {"one": model_of_two_inputs(), "other": model_of_two_inputs()}
    inputs = {"a": np.ones((2, 3), "float32"), "b": np.ones((2, 5), "float32")}
    timings = bench.compare(models, inputs, rounds=2)
    assert list(timings) == ["one", "other"]
    assert all(len(timing.rounds) == 2 for timing in timings.values())
    assert all(timing.median > 0 for timing in timings.values())


def test_openings_load_anew_in_every_round():
    loaded = []

    def loader(name):
        def load():
            loaded.append(name)
            return model_of_two_inputs()

        return load

    inputs = {"a": np.ones((1, 3), "float32"), "b": np.ones((1, 5), "float32")}
    loads, firsts = bench.openings({n: loader(n) for n in "ab"}, inputs, rounds=2)
    assert "".join(loaded) == "abba"
    assert all(len(timings[name].rounds) == 2 for timings in (loads, firsts) for name in "ab")
