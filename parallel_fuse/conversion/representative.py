"""Real inputs from a `.npy` or `.npz` file: to quantize with, and to prove on."""

from pathlib import Path

import keras
import numpy as np
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.errors import InvalidInputsError
from parallel_fuse.verification import given


def read(path: Path, model: keras.Model) -> tuple[np.ndarray, ...]:
    """One array of shape (rows, …) for each of the model's inputs, in their order.

    An `.npz` holds them by input name, or a single one under any name; an `.npy` is for a model of
    one input.

    Raises:
        FileError: the file cannot be read, or its arrays do not fit the model's inputs.
    """
    arrays, names = _loaded(path), _keras.names(model)[0]
    if len(names) == 1 == len(arrays):
        arrays = {names[0]: next(iter(arrays.values()))}
    if set(arrays) != set(names):
        raise _misfit(path, names, list(arrays))
    nest = tree.pack_sequence_as(_keras.structures(model)[0], [arrays[name] for name in names])
    try:
        (whole,) = given.samples(model, nest, ())
    except InvalidInputsError as error:
        raise FileError(Exit.USAGE, f"{path}: {_lowered(str(error))}") from error
    return tuple(keras.ops.convert_to_numpy(x) for x in whole.values)


def first_rows(arrays: tuple[np.ndarray, ...], rows: int) -> tuple[np.ndarray, ...]:
    """So many rows, the first ones repeated where there are fewer."""
    return tuple(np.resize(x, (rows, *x.shape[1:])) for x in arrays)


def _loaded(path: Path) -> dict[str, np.ndarray]:
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(
            Exit.MISSING_FILE,
            f"expected a .npy or .npz file of real inputs. Received: {path}: {error} "
            f"Write one with numpy.savez(path, input_name=array).",
        ) from error
    if isinstance(found, np.ndarray):
        return {"": found}
    with found:
        return dict(found)


def _misfit(path: Path, expected: list[str], received: list[str]) -> FileError:
    return FileError(
        Exit.USAGE,
        f"expected arrays {', '.join(expected)} in {path}. "
        f"Received: {', '.join(received) or 'one without a name'}. "
        f"Write them with numpy.savez(path, input_name=array).",
    )


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
