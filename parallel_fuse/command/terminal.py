"""What the commands share: errors as one line, model-file options, a spinner, a quiet start."""

import functools
import importlib
import os
import signal
import sys
import traceback as tracebacks
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console

from parallel_fuse.command.exits import Exit, FileError, code_of
from parallel_fuse.errors import ParallelFuseError


@dataclass(frozen=True)
class Opening:
    """How model files are opened, as the user wrote it."""

    custom_objects: tuple[str, ...]
    unsafe_lambda: bool

    def __call__(self) -> dict[str, Any]:
        """As arguments. Called once Keras is there, for modules of custom classes import it."""
        known = dict(map(_custom_object, self.custom_objects))
        return {"custom_objects": known, "safe_mode": not self.unsafe_lambda}


def reporting(function: Callable[..., None]) -> Callable[..., None]:
    """Turn an error into one line on stderr and its exit code; --traceback shows all of it."""

    @click.option("--traceback", is_flag=True, help="Show where an error comes from.")
    @functools.wraps(function)
    def command(*, traceback: bool, **options: Any) -> None:
        try:
            function(**options)
        except click.ClickException:
            raise
        except Exception as error:  # noqa: BLE001 - whatever fails, the user reads one line
            if traceback:
                tracebacks.print_exception(error)
            click.echo(f"error: {one_line(error)}", err=True)
            sys.exit(code_of(error))

    return command


def opening(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how model files are opened, given on as `opened`."""

    @click.option(
        "--custom-objects",
        multiple=True,
        metavar="[KEY=]MODULE:NAME",
        help="A custom class or function in the file and where it is defined; repeatable. KEY is "
        "what the file calls it, if not NAME (for example '<lambda>').",
    )
    @click.option(
        "--unsafe-lambda",
        is_flag=True,
        help="Run the Python code of Lambda layers stored in the file. Only for files you trust.",
    )
    @functools.wraps(function)
    def command(*, custom_objects: tuple[str, ...], unsafe_lambda: bool, **options: Any) -> None:
        function(opened=Opening(custom_objects, unsafe_lambda), **options)

    return command


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show a spinner and the running stage on stderr, if that is a terminal."""
    # A descriptor of its own, for start_keras silences number 2 while the spinner turns.
    stream = os.fdopen(os.dup(2), "w")
    with stream, Console(file=stream).status("starting") as status:
        yield lambda text: status.update(f"{text} …")


def start_keras(stage: Callable[[str], None]) -> None:
    """Import Keras and its backend without the lines that TensorFlow's C++ writes on the way."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stage("starting Keras")
    try:
        with silenced():
            importlib.import_module("keras").ops.zeros(1)  # the first tensor looks for a GPU, aloud
    except ImportError as error:
        raise FileError(
            Exit.MISSING_PACKAGE,
            f"expected a backend for Keras. Received: {error}. "
            f'pip install "parallel-fuse[tensorflow]", or set KERAS_BACKEND to one you have.',
        ) from error


@contextmanager
def tidy_end() -> Iterator[None]:
    """A request to end the process is an error like any other: what was begun is removed."""

    def leave(number: int, frame: Any) -> None:
        sys.exit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not the main thread, which alone hears signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def silenced() -> Iterator[None]:
    """Nothing reaches the standard error stream: converters write there what concerns nobody."""
    kept = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(silence, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(silence)


def _custom_object(text: str) -> tuple[str, Any]:
    """Return (name in the file, object) for `module:Name` or `key=module:Name`."""
    key, _, place = text.rpartition("=")
    module, _, name = place.partition(":")
    if not module or not name:
        raise FileError(
            Exit.USAGE,
            f"expected --custom-objects module:Name or key=module:Name. Received: {text}. "
            f"Add the missing part.",
        )
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a custom class usually lives beside the model
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise FileError(
            Exit.UNKNOWN_CLASS,
            f"expected --custom-objects to name something that can be imported. "
            f"Received: {text}: {error}. Check the spelling and the current folder.",
        ) from error
    return key or name.rpartition(".")[2], found


def one_line(error: BaseException) -> str:
    """What the user reads of an error."""
    text = " ".join(str(error).split())
    if isinstance(error, ParallelFuseError):
        return text
    return f"unexpected {type(error).__name__}: {text} --traceback shows where it comes from."
