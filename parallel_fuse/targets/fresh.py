"""Runs a `.keras` file in a Python process of its own, as whoever receives the file would."""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import tree

from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.targets.base import Feed, Options
from parallel_fuse.verification.compare import Result

SCRIPT = Path(__file__).with_name("opener.py")


def run(
    model: keras.Model, path: Path, feeds: Sequence[Feed], options: Options
) -> list[list[Result]]:
    """Loads the file and runs it on every feed, in a fresh process if its classes can get there.

    Raises:
        FileError: the process could not open or run the file.
    """
    if _homeless(path, options):
        return _run_here(path, feeds, options)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        arrays = {f"{i}_{k}": x for i, feed in enumerate(feeds) for k, x in enumerate(feed)}
        np.savez(place / "inputs.npz", **arrays)
        request = {
            "path": str(path.absolute()),
            "custom_objects": {name: _home(one) for name, one in _known(path, options).items()},
            "safe_mode": options.safe_mode,
            "sys_path": [entry or os.getcwd() for entry in sys.path],
            "feeds": [len(feed) for feed in feeds],
        }
        (place / "request.json").write_text(json.dumps(request), encoding="utf-8")
        _execute(place, path)
        return _results(place)


def place(path: Path, options: Options) -> str:
    """Where `run` opens the file, in words."""
    if homeless := _homeless(path, options):
        return f"in this process, for {homeless[0]} cannot be imported in another"
    return "in a fresh process"


def own_layers(path: Path) -> list[str]:
    """The classes of this package that the file needs."""
    return sorted(name for name in _registered(path) if name.startswith("parallel_fuse>"))


def _known(path: Path, options: Options) -> dict[str, Any]:
    """What Keras must be told of: the caller's, and what is registered and in the file."""
    given = options.custom_objects or {}
    by_own_name = {getattr(one, "__name__", name): one for name, one in given.items()}
    return _registered(path) | by_own_name | dict(given)


def _registered(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        config = archive.read("config.json").decode()
    registered: Mapping[str, Any] = keras.saving.get_custom_objects()
    return {name: one for name, one in registered.items() if f'"{name}"' in config}


def _home(one: Any) -> tuple[str, str]:
    return getattr(one, "__module__", None) or "", getattr(one, "__qualname__", "")


def _homeless(path: Path, options: Options) -> list[str]:
    homes = {name: _home(one) for name, one in _known(path, options).items()}
    return [
        name
        for name, (module, qualified) in homes.items()
        if module in ("", "__main__") or not qualified or "<" in qualified
    ]


def _execute(place: Path, path: Path) -> None:
    environment = os.environ | {
        "KERAS_BACKEND": keras.config.backend(),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    # -P: the folder of the script holds a module that is called keras, too.
    command = [sys.executable, "-P", str(SCRIPT), str(place)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    raise FileError(
        Exit.WRITTEN_DIFFERS,
        f"expected a fresh Python process to open and run {path.name}. Received: {lines[-1]} "
        f"Define custom classes in a module that can be imported.",
    )


def _results(place: Path) -> list[list[Result]]:
    dtypes: list[list[str]] = json.loads((place / "dtypes.json").read_text(encoding="utf-8"))
    with np.load(place / "outputs.npz") as outputs:
        return [
            [Result(outputs[f"{i}_{k}"], dtype) for k, dtype in enumerate(of_feed)]
            for i, of_feed in enumerate(dtypes)
        ]


def _run_here(path: Path, feeds: Sequence[Feed], options: Options) -> list[list[Result]]:
    model = keras.saving.load_model(
        path,
        custom_objects=_known(path, options),
        compile=False,
        safe_mode=options.safe_mode,
    )
    nests = (tree.pack_sequence_as(model.input, list(feed)) for feed in feeds)
    return [[Result.of(y) for y in tree.flatten(model(nest, training=False))] for nest in nests]
