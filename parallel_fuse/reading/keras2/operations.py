"""TFOpLambda and SlicingOpLambda of TensorFlow 2.4 to 2.15: the same by Keras operations."""

import inspect
from collections.abc import Mapping
from typing import Any

from keras import ops

from parallel_fuse.command.exits import Exit
from parallel_fuse.inlining.tensorflow_functions import FUNCTIONS
from parallel_fuse.reading.refusing import Refused

# TensorFlow's name of a function, by the last part of the name that the file has for it.
OTHER_NAMES = {"concat_v2": "concat", "reduce_sum_v1": "reduce_sum", "truediv": "truediv"}
# Arguments without an effect on the result.
SILENT = ("name", "validate_indices", "conjugate", "keep_dims", "axis_")


def _clip(t, clip_value_min, clip_value_max):
    return ops.clip(t, clip_value_min, clip_value_max)


def _l2_normalize(x, axis=None, epsilon=1e-12):
    total = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.maximum(total, epsilon))


def _argmax(input, axis=None, output_type="int64"):
    return ops.cast(ops.argmax(input, axis=axis or 0), output_type)


def _strided_slice(input_, begin, end, strides=None, **masks):
    if any(masks.values()):
        raise TypeError("masks")
    steps = strides or [1] * len(begin)
    return input_[tuple(slice(*one) for one in zip(begin, end, steps))]


def _boolean_mask(tensor, mask, axis=0):
    places = [place for place, kept in enumerate(mask) if kept]
    return ops.take(tensor, places, axis=axis or 0)


def _logsumexp(input_tensor, axis=None, keepdims=False):
    return ops.logsumexp(input_tensor, axis=axis, keepdims=keepdims)


def thresholded(x: Any, theta: float) -> Any:
    """What the layer ThresholdedReLU computed."""
    return ops.where(x > theta, x, ops.zeros_like(x))


FURTHER = {
    "argmax": _argmax,
    "boolean_mask": _boolean_mask,
    "broadcast_to": lambda input, shape: ops.broadcast_to(input, shape),
    "clip_by_value": _clip,
    "cumsum": lambda x, axis=0: ops.cumsum(x, axis=axis),
    "flip_left_right": lambda image: ops.flip(image, axis=-2),
    "l2_normalize": _l2_normalize,
    "reduce_logsumexp": _logsumexp,
    "sort": lambda values, axis=-1: ops.sort(values, axis=axis),
    "stop_gradient": lambda input: ops.stop_gradient(input),
    "sinh": lambda x: ops.sinh(x),
    "cosh": lambda x: ops.cosh(x),
    "strided_slice": _strided_slice,
    "logical_not": lambda x: ops.logical_not(x),
}


def translated(function: str, first: Any, others: Mapping[str, Any], layer: str) -> Any:
    """What the TensorFlow function of this name gives, made by `keras.ops`.

    Raises:
        Refused: no translation is known.
    """
    name = function.rpartition(".")[2]
    if name == "getitem":
        key = _key(others["slice_spec"])
        return first[key[0]] if isinstance(first, tuple) else first[key]
    known = FURTHER.get(name) or FUNCTIONS.get(OTHER_NAMES.get(name, name))
    if known is None or function.startswith("keras."):
        raise Refused(
            f"whose layer '{layer}' calls tf.{function}, which has no translation",
            "Save the model again without this operation.",
            Exit.UNTRANSLATED,
        )
    given = {key: value for key, value in others.items() if key not in SILENT and value is not None}
    try:
        return _called(known, first, given)
    except (TypeError, ValueError) as error:
        raise Refused(
            f"whose layer '{layer}' calls tf.{function} in a way that has no translation ({error})",
            "Save the model again without this operation.",
            Exit.UNTRANSLATED,
        ) from error


def _called(known: Any, first: Any, given: Mapping[str, Any]) -> Any:
    parameters = inspect.signature(known).parameters.values()
    if all(p.kind is p.KEYWORD_ONLY for p in parameters):
        return known(**{next(iter(parameters)).name: first}, **given)
    return known(first, **given)


def _key(spec: Any) -> tuple:
    return tuple(map(_part, spec if isinstance(spec, (list, tuple)) else [spec]))


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if part.get("class_name") == "__ellipsis__":
        return Ellipsis
    if "config" in part:
        part = part["config"]
    return slice(part.get("start"), part.get("stop"), part.get("step"))
