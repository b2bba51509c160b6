"""A script: opens a `.keras` file with nothing but Keras and runs it. See `fresh.py`.

It imports nothing of this package, so that a file of stock layers is proven to need none of it.
"""

import functools
import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main(place: Path) -> None:
    request = json.loads((place / "request.json").read_text(encoding="utf-8"))
    sys.path += [entry for entry in request["sys_path"] if entry not in sys.path]
    import keras
    import numpy as np

    known = {name: _found(*where) for name, where in request["custom_objects"].items()}
    model = keras.saving.load_model(
        request["path"], custom_objects=known, compile=False, safe_mode=request["safe_mode"]
    )
    with np.load(place / "inputs.npz") as inputs:
        feeds = [
            [inputs[f"{i}_{k}"] for k in range(count)] for i, count in enumerate(request["feeds"])
        ]
    results = [_run(keras, model, feed) for feed in feeds]
    arrays = {
        f"{i}_{k}": array for i, one in enumerate(results) for k, (array, _) in enumerate(one)
    }
    np.savez(place / "outputs.npz", **arrays)
    dtypes = [[dtype for _, dtype in one] for one in results]
    (place / "dtypes.json").write_text(json.dumps(dtypes), encoding="utf-8")


def _found(module: str, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def _run(keras: Any, model: Any, feed: list[Any]) -> list[tuple[Any, str]]:
    nest = keras.tree.pack_sequence_as(model.input, feed)
    outputs = keras.tree.flatten(model(nest, training=False))
    return [_number(keras, output) for output in outputs]


def _number(keras: Any, output: Any) -> tuple[Any, str]:
    """Every float as float64: NumPy's files know neither bfloat16 nor float8."""
    dtype = keras.backend.standardize_dtype(output.dtype)
    array = keras.ops.convert_to_numpy(output)
    return (array.astype("float64") if "float" in dtype else array), dtype


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except Exception as error:  # noqa: BLE001 - the last line is what the caller shows
        lines = str(error).strip().splitlines() or [""]
        sys.exit(f"{type(error).__name__}: {lines[0]}")
