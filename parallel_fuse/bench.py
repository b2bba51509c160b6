"""Honest timing: the candidates take turns, the order alternates, and the median is reported.

A machine drifts (clock speed, other programs), so timing one model and then the other compares two
moments. Here every round times each candidate once, next to the others, and only figures of the
same call are meant to be compared.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import keras

Call = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one candidate, one figure a round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds per call, the median over the rounds."""
        return median(self.rounds)


def interleaved(
    calls: Mapping[str, Call], *, rounds: int = 9, round_seconds: float = 0.05
) -> dict[str, Timing]:
    """Time callables that each block until their result is there.

    Each is first called once, untimed. A round repeats a callable as often as fits into about
    `round_seconds`, so that a fast one is not lost in the clock's resolution.
    """
    repeats = {name: _repeats(call, round_seconds) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for name in _turns(list(calls), rounds):
        seconds[name].append(_time(calls[name], repeats[name]))
    return _timings(seconds)


def openings(
    loaders: Mapping[str, Callable[[], keras.Model]], inputs: Any, *, rounds: int = 3
) -> tuple[dict[str, Timing], dict[str, Timing]]:
    """Time what a fresh process pays for a model: loading it, and its first call, tracing included.

    Args:
        loaders: label → function that loads the model anew.
        inputs: what the models take, as for `compare`.
        rounds: how many times each model is loaded.

    Returns:
        Seconds to load and seconds of the first call, by label. The running process is assumed
        to have loaded some model before, so that no candidate pays for the imports.
    """
    loads: dict[str, list[float]] = {name: [] for name in loaders}
    firsts: dict[str, list[float]] = {name: [] for name in loaders}
    for name in _turns(list(loaders), rounds):
        start = time.perf_counter()
        model = loaders[name]()
        loaded = time.perf_counter()
        compiled(model, inputs)()
        loads[name].append(loaded - start)
        firsts[name].append(time.perf_counter() - loaded)
    return _timings(loads), _timings(firsts)


def compare(
    models: Mapping[str, keras.Model], inputs: Any, *, jit_compile: bool = False, rounds: int = 9
) -> dict[str, Timing]:
    """Time models on the same inputs, each as one compiled function of the running backend.

    Args:
        models: label → model; all take `inputs`.
        inputs: one array of shape (batch, …), or the list or dict of them that the models take.
        jit_compile: under TensorFlow, compile with XLA. JAX always does; PyTorch runs eagerly.
        rounds: how many times each model is timed.
    """
    calls = {
        label: compiled(model, inputs, jit_compile=jit_compile) for label, model in models.items()
    }
    return interleaved(calls, rounds=rounds)


def compiled(model: keras.Model, inputs: Any, *, jit_compile: bool = False) -> Call:
    """Return a callable that runs `model` on `inputs`, in inference mode, to the last value."""
    tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
    function = _function(model, tensors, jit_compile)

    def call() -> object:
        return keras.tree.map_structure(keras.ops.convert_to_numpy, function(tensors))

    return call


def _function(model: keras.Model, inputs: Any, jit_compile: bool) -> Callable[[Any], Any]:
    def forward(tensors: Any) -> Any:
        return model(tensors, training=False)

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        function = tf.function(forward, jit_compile=jit_compile)
        # Traced here: TensorFlow takes many functions traced by a call for one that retraces.
        function.get_concrete_function(inputs)
        return function
    if backend == "jax":
        import jax

        return jax.jit(forward)
    return _without_gradients(forward)


def _without_gradients(forward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import torch

    return torch.inference_mode()(forward)


def _timings(seconds: Mapping[str, Sequence[float]]) -> dict[str, Timing]:
    return {name: Timing(tuple(figures)) for name, figures in seconds.items()}


def _repeats(call: Call, round_seconds: float) -> int:
    call()
    return max(1, int(round_seconds / max(_time(call, 1), 1e-9)))


def _turns(names: Sequence[str], rounds: int) -> list[str]:
    forth, back = list(names), list(reversed(names))
    return [name for index in range(rounds) for name in (back if index % 2 else forth)]


def _time(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
