"""The model around the layers: its class, name, flags and compile configuration."""

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.rebuilding.clone import twin_of

logger = logging.getLogger("parallel_fuse")

# Optimizers whose step for one entry of a weight depends on its other entries.
BY_NORM = frozenset("Adafactor Lamb Muon".split())
_SET_BY_COMPILE = frozenset("optimizer loss stop_training".split())


def like(
    model: keras.Model, inputs: Any, outputs: Any, calls: int
) -> tuple[keras.Model, list[str]]:
    """A model of the same class and name around other layers, and notes on what was lost.

    A user's own class is kept where it is made from inputs and outputs, as functional models are:
    then its methods (`train_step`, …) are kept too. `calls` bounds the depth of the graph.
    """
    frozen = {} if model.trainable else {"trainable": False}
    with _room_to_recurse(calls):
        fused = _of_own_class(model, inputs, outputs, frozen)
        fused = fused or keras.Model(inputs, outputs, name=model.name, **frozen)
    fused.dtype_policy = model.dtype_policy
    return fused, _notes(model, fused)


def _of_own_class(model: keras.Model, inputs: Any, outputs: Any, frozen: dict) -> Any:
    if _keras.is_plain_model(model) or not _keras.takes_inputs_and_outputs(type(model)):
        return None
    try:
        return type(model)(inputs, outputs, name=model.name, **frozen)
    except Exception as error:  # noqa: BLE001 - it may want arguments that nobody knows
        logger.debug("%s is not made from inputs and outputs: %s", type(model).__name__, error)
        return None


@contextmanager
def _room_to_recurse(depth: int) -> Iterator[None]:
    """Keras walks the graph of a new model by recursion, a few frames for each layer."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 10 * depth)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _notes(model: keras.Model, fused: keras.Model) -> list[str]:
    if _keras.is_plain_model(model):
        return []
    name = type(model).__name__
    if type(fused) is not type(model):
        own = [c for c in type(model).__mro__ if issubclass(c, keras.Model) and not _of_keras(c)]
        methods = dict.fromkeys(n for c in own for n in vars(c) if not n.startswith("_"))
        lost = f", without its {_listing(methods)}" if methods else ""
        return [f"a plain keras.Model, not a {name}{lost}"]
    extra = vars(model).keys() - vars(fused).keys() - _SET_BY_COMPILE
    lost = sorted(n for n in extra if not n.startswith("_"))
    return [f"attributes set on the {name} are not carried over: {_listing(lost)}"] if lost else []


def _of_keras(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "keras"


def _listing(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def recompile(model: keras.Model, fused: keras.Model) -> list[str]:
    """Compiles `fused` as `model` is; says what could not be carried over.

    Losses keep no state, so that both models may use one; the optimizer and the metrics are new.
    The optimizer's accumulated state belongs to weights that no longer exist one by one.
    """
    if not model.compiled:
        return []
    if type(fused).compile is not keras.Model.compile:
        return [f"not compiled: {type(fused).__name__} has a compile() of its own"]
    try:
        fused.compile(**_arguments(model))
    except Exception as error:  # noqa: BLE001 - custom metrics and optimizers can fail in any way
        return [f"not compiled: the compile configuration could not be rebuilt ({error})"]
    started = "compiled as the original; the optimizer starts without its accumulated state"
    return [started, *_step_notes(model.optimizer)]


def _step_notes(optimizer: Any) -> list[str]:
    """What a step takes from the norm of a whole weight, which is that of all branches now."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    name = type(inner).__name__
    clips = getattr(inner, "clipnorm", None) is not None
    if not clips and name not in BY_NORM:
        return []
    return [
        f"{'clipnorm' if clips else name} looks at the norm of each weight, and fused branches "
        "share one: further training will differ"
    ]


def _arguments(model: keras.Model) -> dict[str, Any]:
    arguments = _keras.compile_arguments(model)
    if arguments is None:
        raise ValueError("expected a configuration from compile(). Received: none")
    stateful = (keras.optimizers.Optimizer, keras.metrics.Metric)
    swap = lambda x: twin_of(x) if isinstance(x, stateful) else x  # noqa: E731
    renewed = ("optimizer", "metrics", "weighted_metrics")
    made = {k: tree.map_structure(swap, v) if k in renewed else v for k, v in arguments.items()}
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    return {**made, "auto_scale_loss": scaled}
