"""Configurations of Keras 3: functions saved as Python code, and activations without a name."""

from typing import Any

from parallel_fuse.command.exits import Exit
from parallel_fuse.reading import nests
from parallel_fuse.reading.refusing import Refused
from parallel_fuse.reading.repairs.lambdas import code_of, function_of, loaded
from parallel_fuse.reading.request import Request

ACTIVATION = "<lambda>"


def prepared(config: dict[str, Any], request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration with each function's code replaced by a name, and all known names.

    Raises:
        Refused: there is Python code and `safe_mode` is on.
    """
    known = dict(request.known)

    def change(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        if part.get("class_name") == "Lambda":
            return _lambda(part, known, request)
        if set(part) == {"value"} and code_of(part["value"]) is not None:
            return _activation(part["value"], known, request)
        inner = part.get("config") if part.get("class_name") == "__lambda__" else None
        return inner if isinstance(inner, dict) and "class_name" in inner else part

    return nests.replaced(config, change), known


def _lambda(part: dict[str, Any], known: dict[str, Any], request: Request) -> dict[str, Any]:
    config = part["config"]
    if code_of(config["function"]) is None and config["name"] not in request.known:
        return part
    function = function_of(config, request.known, request.safe_mode, request.told)
    shape = None if code_of(config.get("output_shape")) else config.get("output_shape")
    key = f"function of {config['name']}"
    known[key] = function
    return {**part, "config": {**config, "function": _reference(key), "output_shape": shape}}


def _activation(saved: Any, known: dict[str, Any], request: Request) -> dict[str, Any]:
    """Keras 3 writes the function's code, and does not read it again."""
    if ACTIVATION in request.known:
        request.told(f"activation '{ACTIVATION}' given by name")
        return _reference(ACTIVATION)
    if request.safe_mode:
        raise Refused(
            "one of whose functions was saved from a Python lambda",
            f'Name it: --custom-objects "{ACTIVATION}=module:Name"; or, if you trust where the '
            f"file comes from, pass --unsafe-lambda (safe_mode=False), which runs the code in it.",
            Exit.UNKNOWN_CLASS,
            "named functions",
        )
    key = f"function {len(known)}"
    known[key] = loaded(*code_of(saved), "activation", request.told)
    return _reference(key)


def _reference(name: str) -> dict[str, Any]:
    return {"module": "builtins", "class_name": "function", "config": name, "registered_name": name}
