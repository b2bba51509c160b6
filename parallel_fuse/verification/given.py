"""The caller's own inputs, checked against the model's."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.errors import InvalidInputsError
from parallel_fuse.verification.sampling import Sample, cut


def samples(model: keras.Model, inputs: Any, batch_sizes: Sequence[int]) -> tuple[Sample, ...]:
    """The rows given, all in one batch, and their first rows in each smaller batch size.

    Args:
        inputs: arrays or tensors in the nest that the model takes, or a dict by input name; None
            for an optional input that is left out.

    Raises:
        InvalidInputsError: another nest, shape or number type than the model takes.
    """
    specs = _keras.functional_inside(model).inputs
    values = [_value(t, x) for t, x in zip(specs, _flat(model, inputs))]
    rows = {x.shape[0] for x in values if x is not None and len(x.shape)}
    if len(rows) != 1 or 0 in rows:
        raise InvalidInputsError(
            "Expected inputs with equally many rows, at least one. "
            f"Received: {sorted(rows)} rows. Give each input the same samples."
        )
    return cut(model, Sample(rows.pop(), tuple(values)), batch_sizes)


def _flat(model: keras.Model, inputs: Any) -> list[Any]:
    """The values in the order of the model's inputs."""
    expected, names = _keras.structures(model)[0], _keras.names(model)[0]
    if isinstance(inputs, dict) and not isinstance(expected, dict) and set(inputs) == set(names):
        return [inputs[name] for name in names]
    if not _same_nest(inputs, expected):
        raise InvalidInputsError(
            f"Expected inputs as {_describe(expected, names)}. Received: {_describe(inputs)}. "
            "Give the values in the nest that the model takes, or as a dict by input name."
        )
    return tree.flatten(inputs)


def _same_nest(inputs: Any, expected: Any) -> bool:
    inputs, expected = (_without_lists(nest) for nest in (inputs, expected))
    try:
        tree.assert_same_structure(inputs, expected)
    except (TypeError, ValueError):
        return False
    return True


def _without_lists(nest: Any) -> Any:
    """Leaves as True, lists as tuples, a single element as itself: Keras tells none of these."""
    marks = tree.lists_to_tuples(tree.map_structure(lambda _: True, nest))
    return marks[0] if isinstance(marks, tuple) and len(marks) == 1 else marks


def _describe(nest: Any, names: Sequence[str] = ()) -> str:
    """A nest with "shape dtype" for every leaf."""
    labels = iter(f"{name}: " for name in names)

    def leaf(x):
        shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", "")
        text = type(x).__name__ if shape is None else f"{tuple(shape)} {dtype}".strip()
        return f"<{next(labels, '')}{text}>"

    return str(tree.map_structure(leaf, nest)).replace("'<", "<").replace(">'", ">")


def _value(spec: Any, x: Any) -> Any:
    layer = _keras.input_layer_of(spec)
    if x is None and layer.optional:
        return None
    shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
    if shape is None or not _fits(shape, spec.shape) or not _converts(x, spec.dtype):
        received = type(x).__name__ if shape is None else f"{tuple(shape)} {dtype}"
        raise InvalidInputsError(
            f"Expected an array of shape {tuple(spec.shape)} and type {spec.dtype} for input "
            f"'{layer.name}'. Received: {received}."
        )
    return keras.ops.convert_to_tensor(x, dtype=spec.dtype)


def _fits(shape: Sequence, expected: Sequence) -> bool:
    return len(shape) == len(expected) and all(
        want is None or int(have) == want for have, want in zip(shape, expected)
    )


def _converts(x: Any, dtype: str) -> bool:
    """Whether the type change loses nothing but precision."""
    if dtype == "string":
        return True
    numbers = np.asarray(keras.ops.convert_to_numpy(x))
    if numbers.dtype.kind in "OSU":
        return False
    return keras.backend.is_float_dtype(dtype) or np.array_equal(numbers.astype(dtype), numbers)
