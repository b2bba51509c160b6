"""Lambda layers: their functions, with default arguments as a tuple and the usual names at hand.

Python code stored in a file runs only where the caller allowed it.
"""

import base64
import binascii
import dis
import importlib
import marshal
import math
import opcode
import types
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from parallel_fuse import _keras
from parallel_fuse.command.exits import Exit
from parallel_fuse.reading.refusing import Refused, python_code, unknown
from parallel_fuse.reading.told import Told

# What saved lambdas call their modules by.
_MODULES = {"tf": "tensorflow", "tensorflow": "tensorflow"}


def function_of(
    config: Mapping[str, Any], known: Mapping[str, Any], safe_mode: bool, told: Told
) -> Any:
    """The function of a Lambda layer with this configuration.

    `custom_objects` may name it by the layer's name, or by its own.

    Raises:
        Refused: it is Python code and `safe_mode` is on, or code of another Python, or unknown.
    """
    layer, saved = config["name"], config["function"]
    if layer in known:
        told("function given by name", layer)
        return known[layer]
    code = code_of(saved)
    if code is None:
        return _named(saved, known)
    if safe_mode:
        raise python_code(layer)
    return loaded(*code, layer, told)


def code_of(saved: Any) -> tuple[str, Any, Any] | None:
    """(code, defaults, closure) where a function was saved as such, by any version of Keras."""
    if isinstance(saved, dict) and saved.get("class_name") == "__lambda__":
        config = saved["config"]
        return config["code"], config.get("defaults"), config.get("closure")
    if isinstance(saved, dict) and saved.get("class_name") == "__tuple__":
        saved = saved.get("items") or saved.get("config", {}).get("value")
    if isinstance(saved, (list, tuple)) and len(saved) == 3 and isinstance(saved[0], str):
        return saved[0], saved[1], saved[2]
    return None


def loaded(code: str, defaults: Any, closure: Any, layer: str, told: Told) -> Any:
    """The function that was saved."""
    compiled = _compiled(code, layer)
    if defaults is not None:
        told("default arguments of a Lambda as a tuple", layer)
        defaults = tuple(defaults)
    cells = tuple(types.CellType(value) for value in closure or ())
    if len(cells) != len(compiled.co_freevars):
        raise _lost(layer, f"reads {', '.join(compiled.co_freevars)}, which was not saved with it")
    names = _globals(compiled, layer, told)
    return types.FunctionType(compiled, names, compiled.co_name, defaults, cells)


def _compiled(code: str, layer: str) -> types.CodeType:
    try:
        raw = base64.b64decode(code.encode("ascii"))
    except (UnicodeEncodeError, binascii.Error):
        raw = code.encode("raw_unicode_escape")  # Keras 1
    try:
        found = marshal.loads(raw)
    except Exception as error:  # ValueError, EOFError, TypeError, SystemError: whatever comes first
        raise _lost(layer, f"is byte code of another Python ({error})") from error
    if not isinstance(found, types.CodeType):
        raise _lost(layer, "holds no byte code")
    if not all(map(_is_of_this_python, _codes(found))):
        raise _lost(layer, "is byte code of another Python")
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code and that of the functions inside it."""
    waiting = [code]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += [const for const in one.co_consts if isinstance(const, types.CodeType)]


def _is_of_this_python(code: types.CodeType) -> bool:
    """Whether it reads as code does here. Running that of another Python may end the process.

    Since 3.11 code begins with RESUME; the number of it, and of the slots behind others, changes
    from release to release, so that the code of another one does not end where it should.
    """
    try:
        names = [instruction.opname for instruction in dis.get_instructions(code)]
    except (IndexError, ValueError, KeyError):
        return False
    known = not any(name.startswith("<") for name in names)
    begins = "RESUME" in names[:4]  # cells and free variables come before it
    ends = names[-1] in ("RETURN_VALUE", "RETURN_CONST", "RERAISE")
    return known and begins and ends and _slots_are_empty(code.co_code)


def _slots_are_empty(code: bytes) -> bool:
    """Behind some instructions there are slots that Python fills when it runs; none elsewhere."""
    slots = vars(opcode).get("_inline_cache_entries")  # Python tells it under no public name
    if slots is None:
        return True
    place = 0
    while place < len(code):
        name, number = dis.opname[code[place]], code[place]
        empty = slots.get(name, 0) if isinstance(slots, dict) else slots[number]
        inside = code[place + 2 : place + 2 + 2 * empty : 2]
        if number == 0 or len(inside) < empty or any(inside):
            return False
        place += 2 + 2 * empty
    return True


def _lost(layer: str, why: str) -> Refused:
    return Refused(
        f"whose Lambda '{layer}' {why}",
        f'Write its function down again and name it: --custom-objects "{layer}=module:function".',
        Exit.UNKNOWN_CLASS,
        "functions that can be loaded",
    )


def _globals(code: types.CodeType, layer: str, told: Told) -> dict[str, Any]:
    """The modules that the code names, under the names that people give them."""
    named = {name for one in _codes(code) for name in one.co_names}
    found = {name: _module(name) for name in named & _USUAL}
    for name in sorted(found):
        told(f"'{name}' defined for a Lambda", layer)
    return {"__builtins__": __builtins__, "__name__": "__main__", **found}


_USUAL = frozenset("tf tensorflow K backend keras np numpy math layers ops".split())


def _module(name: str) -> Any:
    if name in ("K", "backend"):
        return _keras.legacy_backend()
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    here = {"keras": keras, "layers": keras.layers, "ops": keras.ops, "math": math}
    return here.get(name, np)


def _named(saved: Any, known: Mapping[str, Any]) -> Any:
    name = saved.get("config") if isinstance(saved, dict) else saved
    found = known.get(name) if isinstance(name, str) else None
    found = found or getattr(keras.activations, str(name), None)
    if found is None:
        raise unknown(str(name))
    return found
