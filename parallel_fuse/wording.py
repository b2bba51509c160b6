"""Configuration values and errors as a person would write them, for the reasons in a report."""

from typing import Any


def shown(attribute: str, value: Any) -> str:
    """The value of one attribute of a signature."""
    return _arguments(value) if attribute == "call arguments" else _shown(value)


def first_line(error: Exception) -> str:
    """Of its message, or its class where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _shown(value: Any) -> str:
    if not isinstance(value, tuple):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    if len(value) == 1:
        return _shown(value[0])
    fields = _fields(value)
    if "class_name" in fields:
        options = (f"{key}={_shown(option)}" for key, option in _fields(fields["config"]).items())
        return f"{fields['class_name']}({', '.join(options)})"
    return f"({', '.join(map(_shown, value))})"


def _fields(value: Any) -> dict[str, Any]:
    """A frozen dict as a dict again; empty for anything else."""
    pairs = isinstance(value, tuple) and all(
        isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in value
    )
    return dict(value) if pairs else {}


def _arguments(value: Any) -> str:
    """Arguments of a call beside its tensors."""
    args, kwargs = value or ((), ())
    given = [_shown(arg) for arg in args if arg != "·"]
    given += [f"{key}={_shown(option)}" for key, option in _fields(kwargs).items()]
    return ", ".join(given) or "none"
