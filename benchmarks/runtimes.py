"""How each runtime opens a file and answers; what a call returns has been computed to the end."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from parallel_fuse.bench import compiled

Feed = Mapping[str, np.ndarray]
Call = Callable[[Feed], object]


def in_keras(path: Path, known: Mapping[str, Any]) -> Call:
    """One compiled function of the running backend, traced by the first call."""
    model = keras.saving.load_model(path, custom_objects=dict(known), compile=False)
    found: list[Callable[[], object]] = []

    def call(feed: Feed) -> object:
        if not found:
            inputs = [feed[t.name] for t in model.inputs]
            found.append(compiled(model, inputs if len(inputs) > 1 else inputs[0]))
        return found[0]()

    return call


def in_tensorflow(path: Path, known: Mapping[str, Any]) -> Call:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))  # the functions do not keep the variables alive
    serve = loaded.signatures["serving_default"]
    return lambda feed: (loaded, _arrays(serve(**{k: tf.constant(v) for k, v in feed.items()})))


def in_litert(path: Path, known: Mapping[str, Any]) -> Call:
    from ai_edge_litert.interpreter import Interpreter

    serve = Interpreter(model_path=str(path)).get_signature_runner()
    return lambda feed: serve(**feed)


def in_onnx_runtime(path: Path, known: Mapping[str, Any]) -> Call:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, dict(feed))


def _arrays(outputs: Mapping[str, Any]) -> list[np.ndarray]:
    return [value.numpy() for value in outputs.values()]


OPENERS: dict[str, Callable[[Path, Mapping[str, Any]], Call]] = {
    "keras": in_keras,
    "savedmodel": in_tensorflow,
    "tflite": in_litert,
    "onnx": in_onnx_runtime,
}
