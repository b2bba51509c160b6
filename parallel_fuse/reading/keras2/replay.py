"""A model of Keras 1 or 2, made again: its layers, then their calls in order."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.reading.keras2.layers import (
    Making,
    class_of,
    is_model,
    layer_of,
    refuse_ragged,
)
from parallel_fuse.reading.keras2.naming import name_operations, named
from parallel_fuse.reading.keras2.nodes import Call, calls_of, filled, first_numbers, referred
from parallel_fuse.reading.keras2.operations import thresholded, translated
from parallel_fuse.reading.keras2.traced import operations_of
from parallel_fuse.reading.refusing import Refused
from parallel_fuse.reading.repairs.names import without_slashes

OPERATIONS = ("TFOpLambda", "SlicingOpLambda")
PASSING = ("AddLoss", "AddMetric")  # they hand their input on


def model_of(written: Mapping[str, Any], making: Making, path: tuple[str, ...] = ()) -> Any:
    """The model that a configuration of Keras 1 or 2 describes, without its weights."""
    config = written["config"]
    if isinstance(config, list) or written["class_name"] == "Sequential":
        return _sequential(written, making, path)
    if "layers" not in config:
        raise Refused(
            f"which holds a model of the class {written['class_name']}, without a graph",
            "Only functional and Sequential models can be read.",
        )
    return _functional(written, making, path)


def _named(written: Mapping[str, Any]) -> dict[str, Any]:
    """The layer with its name in one place. Keras 1 left it out here or there."""
    config = written["config"]
    name = written.get("name") or (isinstance(config, dict) and config.get("name")) or "sequential"
    return {**written, "name": name}


def _renamed(written: Mapping[str, Any], name: str) -> dict[str, Any]:
    if isinstance(written["config"], list):
        return {**written, "config": {"name": name, "layers": written["config"]}}
    return {**written, "config": {**written["config"], "name": name}}


def _made(written: dict[str, Any], new: str, making: Making, path: tuple[str, ...]) -> Any:
    inner = (*path, written["name"])
    before = len(making.leaves)
    layer = layer_of(_renamed(written, new), making, lambda nested: model_of(nested, making, inner))
    if len(making.leaves) == before:  # or they are those of the model inside
        making.leaves.append((inner, layer))
    return layer


def _sequential(written: Mapping[str, Any], making: Making, path: tuple[str, ...]) -> Any:
    config = written["config"]
    listed = config if isinstance(config, list) else config["layers"]
    listed = [_named(one) for one in listed]
    names = without_slashes([one["name"] for one in listed], making.told)
    name = "sequential" if isinstance(config, list) else config.get("name", "sequential")
    model = keras.Sequential(name=_plain(name, making))
    shape = _input_shape(listed[0], config)
    if shape is not None:
        model.add(keras.Input(batch_shape=shape, dtype=_input_dtype(listed[0])))
    for one in listed:
        if one["class_name"] == "InputLayer":
            refuse_ragged(one["config"])
        else:
            model.add(_made(one, names[one["name"]], making, path))
    return model


def _input_shape(first: Mapping[str, Any], config: Any) -> tuple | None:
    inner = first["config"]
    while is_model(first) and not isinstance(inner, list) and inner.get("layers"):
        first = inner["layers"][0]
        inner = first["config"]
    built = None if isinstance(config, list) else config.get("build_input_shape")
    shape = inner.get("batch_input_shape") or inner.get("batch_shape") or built
    return tuple(shape) if shape is not None else None


def _input_dtype(first: Mapping[str, Any]) -> str | None:
    if first["class_name"] in ("InputLayer", "Embedding"):
        dtype = first["config"].get("dtype") if first["class_name"] == "InputLayer" else None
        return dtype if isinstance(dtype, str) else None
    return None


def _functional(written: Mapping[str, Any], making: Making, path: tuple[str, ...]) -> Any:
    config = written["config"]
    listed = [_named(one) for one in config["layers"]]
    layers = {one["name"] for one in listed}
    ends = [referred(config[end], layers) for end in ("input_layers", "output_layers")]
    calls = [call for one in listed for call in _calls(one, layers)]
    names = without_slashes([one["name"] for one in listed], making.told)
    values = _inputs(listed, names)
    made = {
        one["name"]: _maker(one, names[one["name"]], making, path)
        for one in listed
        if one["class_name"] != "InputLayer"
    }
    _run(calls, made, values, first_numbers(calls, ends))
    inputs, outputs = (_unwrapped(end) for end in _ends(ends, values, names))
    cls = _model_class(written["class_name"], making)
    return cls(inputs=inputs, outputs=outputs, name=_plain(config.get("name"), making))


def _ends(ends: list, values: dict, names: Mapping[str, str]) -> tuple[Any, Any]:
    """The inputs and outputs, under the names that they have in the file."""
    name_operations(tuple(filled(end, lambda r: _value(values, r)) for end in ends), values, names)
    outputs: dict[Any, Any] = {}

    def output(reference: Any) -> Any:
        if reference not in outputs:
            outputs[reference] = named(_value(values, reference), names[reference.layer])
        return outputs[reference]

    return filled(ends[0], lambda r: _value(values, r)), filled(ends[1], output)


def _calls(written: Mapping[str, Any], layers: set[str]) -> list[Call]:
    unwrap = written["class_name"] not in OPERATIONS
    return calls_of(written["name"], written.get("inbound_nodes") or [], layers, unwrap)


def _inputs(listed: list[dict], names: Mapping[str, str]) -> dict[tuple[str, int], list]:
    found = {}
    for one in listed:
        if one["class_name"] != "InputLayer":
            continue
        config = one["config"]
        refuse_ragged(config)
        shape = config.get("batch_input_shape") or config.get("batch_shape")
        found[one["name"], 0] = [
            keras.Input(
                batch_shape=tuple(shape),
                dtype=config.get("dtype") or config.get("input_dtype"),
                sparse=bool(config.get("sparse")),
                name=names[one["name"]],
            )
        ]
    return found


def _maker(one: dict, new: str, making: Making, path: tuple[str, ...]) -> Any:
    """What a call of this layer calls: a layer, or a function in place of one."""
    if one["class_name"] in OPERATIONS:
        function = one["config"]["function"]
        making.told("TensorFlow operations as Keras operations", one["name"])
        return lambda first, **others: translated(function, first, others, one["name"])
    if one["class_name"] in PASSING:
        return lambda first, **others: first
    if one["class_name"] == "ThresholdedReLU":  # Keras 3 has no such layer
        return lambda first: thresholded(first, float(one["config"]["theta"]))
    layer = _made(one, new, making, path)
    if one["class_name"] == "Lambda":
        return lambda first, **others: _opened(layer, first, others, making)
    return lambda first, **others: _called(layer, first, others)


def _opened(layer: Any, first: Any, others: dict[str, Any], making: Making) -> Any:
    outputs = operations_of(layer, first)
    if outputs is None:
        return _called(layer, first, others)
    making.told("Lambda layers as Keras operations", layer.name)
    return outputs


def _called(layer: Any, first: Any, others: dict[str, Any]) -> Any:
    given = {key: value for key, value in others.items() if value is not None}
    recurrent = isinstance(layer, (keras.layers.RNN, keras.layers.Bidirectional))
    if recurrent and isinstance(first, list):
        first, *states = first  # Keras 2 handed states on as further inputs
        given["initial_state"] = states
    return layer(first, **given)


def _run(calls: list[Call], made: dict, values: dict, starts: dict[str, int]) -> None:
    """Runs every call once what it needs is there."""
    waiting = calls
    while waiting:
        later = []
        for call in waiting:
            if all(need in values for need in call.needs()):
                first, others = (
                    filled(nest, lambda r: _value(values, r)) for nest in (call.first, call.others)
                )
                outputs = made[call.layer](first, **others)
                values[call.layer, call.number + starts[call.layer]] = _listed(outputs)
            else:
                later.append(call)
        if len(later) == len(waiting):
            raise Refused(
                f"whose layer '{later[0].layer}' reads what nothing computes",
                "Save the model again.",
            )
        waiting = later


def _listed(outputs: Any) -> list:
    """The outputs of a call; a shape is one, though Keras has a tuple for it."""
    flat = tree.flatten(outputs)
    tensors = any(isinstance(one, keras.KerasTensor) for one in flat)
    return flat if tensors or not isinstance(outputs, tuple) else [outputs]


def _value(values: dict, reference: Any) -> Any:
    return values[reference.layer, reference.call][reference.output]


def _unwrapped(nest: Any) -> Any:
    return nest[0] if isinstance(nest, list) and len(nest) == 1 else nest


def _plain(name: str | None, making: Making) -> str | None:
    return name and without_slashes([name], making.told)[name]


def _model_class(kind: str, making: Making) -> type:
    if kind in ("Functional", "Model", "Container"):
        return keras.Model
    cls = class_of(kind, making.known)
    return cls if _keras.takes_inputs_and_outputs(cls) else keras.Model
