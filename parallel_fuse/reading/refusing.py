"""Why a file is not opened, each reason as one line with its exit code and the remedy."""

import json
import re
import zipfile
import zlib
from pathlib import Path

from parallel_fuse.command.exits import Exit, FileError

_LAMBDA = re.compile(r"Requested the deserialization of a .{0,3}lambda", re.IGNORECASE)
_UNKNOWN = re.compile(
    r"(?:Could not locate (?:class|function)|Unknown \w+(?: function)?:?) '?([^'\s]+)'?"
    r"|Could not interpret [\w ]+ identifier: '?([^\s'{]+)'?"
)


class Refused(Exception):  # noqa: N818 - the path is known further out, where it becomes an error
    """Something in the file that cannot be read: what it is, the exit code, and the remedy."""

    def __init__(
        self,
        what: str,
        remedy: str,
        code: Exit = Exit.NOT_A_MODEL,
        expected: str = "a model that can be read",
    ) -> None:
        super().__init__(what)
        self.what, self.remedy, self.code, self.expected = what, remedy, code, expected


# What a file that is cut short makes its reader raise.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    json.JSONDecodeError,
    UnicodeDecodeError,
    EOFError,
    OSError,
)


def not_a_model(path: Path, problem: str, code: Exit = Exit.NOT_A_MODEL) -> FileError:
    return FileError(
        code,
        f"expected a whole Keras model. Received: {path}, {problem}. "
        f"Save the model again with model.save().",
    )


def unknown(name: str) -> Refused:
    return Refused(
        f"which needs '{name}'",
        f'Name where it is defined: --custom-objects "{name}=module:Name" '
        f"(custom_objects={{'{name}': ...}}).",
        Exit.UNKNOWN_CLASS,
        "classes that Keras knows",
    )


def python_code(layer: str) -> Refused:
    return Refused(
        f"which holds a Lambda layer ({layer}), and loading it runs the code stored in the file",
        "Pass --unsafe-lambda (safe_mode=False) if you trust where the file comes from.",
        Exit.UNSAFE_LAMBDA,
        "a file without Python code",
    )


def explained(error: Exception, path: Path) -> FileError:
    """Whatever was raised while the file was read, as the user sees it."""
    if isinstance(error, FileError):
        return error
    if isinstance(error, Refused):
        return FileError(
            error.code,
            f"expected {error.expected}. Received: {path}, {error.what}. {error.remedy}",
        )
    text = str(error)
    if isinstance(error, ImportError):
        return FileError(
            Exit.MISSING_PACKAGE,
            f"expected what the code in the file imports. Received: {path}: {text}. Install it.",
        )
    if isinstance(error, _DAMAGE):
        what = f"which is cut short or damaged ({_innermost(text)})"
        return not_a_model(path, what, Exit.DAMAGED)
    if _LAMBDA.search(text):
        return explained(python_code("a function"), path)
    if found := _UNKNOWN.search(text):
        return explained(unknown(found[1] or found[2]), path)
    return FileError(
        Exit.NOT_A_MODEL,
        f"expected a model that the installed Keras opens. Received: {path}, which fails "
        f"with {type(error).__name__}: {_innermost(text)} Open it where it was saved, and save "
        f"it again.",
    )


def _innermost(text: str) -> str:
    """Keras nests the message of each level around the one that says what happened."""
    lines = text.rpartition("Exception encountered: ")[2].strip().splitlines()
    first = lines[0].strip() if lines else "no message."
    return first if len(first) <= 200 else f"{first[:200]}…"
