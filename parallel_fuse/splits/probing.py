"""Selections recognised by what they do: Lambda layers and a user's own slicing layers.

    Lambda(lambda t: t[:, 3])                      Piece(x, (None, 3))
    Lambda(lambda t: tf.split(t, 5, axis=2))       output m: Piece(x, (None, None, (m,)))
    Columns([4, 0, 4])                             Piece(x, (None, (4, 0, 4)))

The layer runs once on a tensor in which every element holds its own number. A selection gives
numbers back, and they say which elements it takes. It is believed if it takes the same of other
values too, of samples in any number, in training or not; then it is a `Piece` if the elements it
takes are a grid: some entries of each axis, in the order of the axes. A layer written for the last
index of a loop is taken as it runs, not as it is named. Sizes that are unknown are tried small and
large, and must be taken whole.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import layers, ops, tree

from parallel_fuse import _keras
from parallel_fuse.apart import call_apart
from parallel_fuse.graph import Call, Value
from parallel_fuse.plan import Piece
from parallel_fuse.splits.base import Split

ROWS = 3
LARGEST = 2**24  # float32 holds whole numbers up to here
FEW, MANY = 13, 2**21  # an unknown size; elements of a trial in which unknown sizes are large
Array = np.ndarray
Shape = tuple[int, ...]


def may_select(call: Call) -> bool:
    """Whether a call is worth a trial: a layer of no rule, without state, of one tensor."""
    layer = call.operation
    if not isinstance(layer, layers.Layer) or len(call.inputs) != 1:
        return False
    own = type(layer) is layers.Lambda or not type(layer).__module__.startswith("keras.")
    plain = not layer.variables and not _keras.sublayers(layer)[1:] and len(call.args) == 1
    source = call.inputs[0]
    fits = all(np.prod(shape, dtype="int64") <= LARGEST for shape in _shapes(source))
    return own and plain and fits and not source.masked and layer.activity_regularizer is None


def _shapes(source: Value) -> list[Shape]:
    """The shapes to try: small and large where sizes are unknown. A layer that takes the first 500
    steps, or whole groups of 8, takes them all of some lengths only.
    """
    known = [size for size in source.shape[1:] if size is not None]
    unknown = len(source.shape) - 1 - len(known)
    if not unknown:
        return [(ROWS, *known)]
    room = MANY / max(ROWS * int(np.prod(known)), 1)
    large = max(int(room ** (1 / unknown)), 2 * FEW) | 1
    fill = lambda n: (ROWS, *(n if s is None else s for s in source.shape[1:]))  # noqa: E731
    return [fill(FEW), fill(large)]


def pieces(call: Call) -> dict[int, Piece]:
    if not may_select(call):
        return {}
    first, *others = (_pieces_of(call, shape) for shape in _shapes(call.inputs[0]))
    return {i: piece for i, piece in first.items() if all(o.get(i) == piece for o in others)}


def _pieces_of(call: Call, shape: Shape) -> dict[int, Piece]:
    source = call.inputs[0]
    numbers = np.arange(np.prod(shape)).reshape(shape)
    taken = _run(call, numbers, "float32" if "float" in source.dtype else "int32")
    if taken is None or not _believable(call, taken[1], shape):
        return {}
    found = {i: _grid(array.astype("int64"), source, shape) for i, array in enumerate(taken[1])}
    return {i: piece for i, piece in found.items() if piece is not None}


def _run(
    call: Call, array: Array, dtype: str, training: bool = False
) -> tuple[Array, list[Array]] | None:
    """One input as the backend holds it, and the layer's outputs for it.

    None where the layer does not run, makes something else, or keeps a state or a loss. `call`
    itself, not the layer: it would cast the numbers to half precision.
    """
    kwargs = {k: v for k, v in call.kwargs.items() if k not in ("training", "mask")}
    if _keras.takes_training(call.operation):
        kwargs["training"] = training
    try:
        given = _tensor(array, dtype)
        arguments = tree.map_structure(lambda value: given, call.args[0])
        outcome = call_apart(call.operation.call, arguments, **kwargs)
        found = [ops.convert_to_numpy(x) for x in tree.flatten(outcome.outputs)]
    except Exception:  # noqa: BLE001 - a user's code may fail in any way; then it is no selection
        return None
    if outcome.leaves or len(found) != len(call.outputs):
        return None
    fits = all(x.ndim and x.size and len(x) == len(array) for x in found)
    given = ops.convert_to_numpy(given)
    return (given, found) if fits and all(x.dtype == given.dtype for x in found) else None


def _tensor(array: Array, dtype: str) -> Any:
    if dtype == "bfloat16":  # NumPy has none
        return ops.convert_to_tensor(array, dtype=dtype)
    return ops.convert_to_tensor(array.astype(dtype))  # JAX warns of a float64 that is asked for


def _believable(call: Call, taken: Sequence[Array], shape: Shape) -> bool:
    """Whether the numbers that came back are where the values come from, for any values."""
    size = int(np.prod(shape))
    places = [array.astype("int64") for array in taken]
    if any((p != a).any() or p.min() < 0 or p.max() >= size for p, a in zip(places, taken)):
        return False
    return all(_same(call, places, values, training) for values, training in _trials(call, shape))


def _trials(call: Call, shape: Shape) -> Iterator[tuple[Array, bool]]:
    """Values of every sort, for the same samples and for one sample alone."""
    random, real = np.random.default_rng(0), "float" in call.inputs[0].dtype
    values = random.integers(0, 99, shape)
    if real:
        values = random.normal(size=shape) * 10.0 ** random.uniform(-6, 4, shape)
        for start, special in enumerate((np.nan, np.inf, -np.inf, -0.0)):
            values.flat[start :: max(values.size // 7, 4)] = special
    yield values, False
    yield values, True
    yield values[:1], False


def _same(call: Call, places: Sequence[Array], values: Array, training: bool) -> bool:
    run = _run(call, values, call.inputs[0].dtype, training)
    if run is None:
        return False
    flat = run[0].reshape(-1)
    if any(place[: len(values)].max() >= flat.size for place in places):
        return False  # it takes from another sample
    wanted = [flat[place[: len(values)]] for place in places]
    # To the bit: a NaN is no number that could be compared.
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(run[1], wanted))


def _grid(places: Array, source: Value, shape: Shape) -> Piece | None:
    """The piece that takes exactly these elements, if one does, and every size that is unknown."""
    indices = np.unravel_index(places, shape)
    runs = _runs(indices, places.shape)
    if runs is None or runs.get(0) != 0:
        return None
    runs |= _axes_of_one(runs, places.shape, len(shape))
    picks: list[Any] = [int(index.flat[0]) for index in indices]
    for axis, origin in runs.items():
        line = np.moveaxis(indices[origin], axis, 0).reshape(places.shape[axis], -1)[:, 0]
        picks[origin] = tuple(line.tolist())
    picks = [None if p == tuple(range(n)) else p for p, n in zip(picks, shape)]
    if any(size is None and pick is not None for size, pick in zip(source.shape, picks)):
        return None
    new = (axis for axis in range(places.ndim) if axis not in runs)
    piece = Piece(source, tuple(picks), tuple(new))
    return piece if np.array_equal(_taken(piece, shape), places) else None


def _runs(indices: Sequence[Array], shape: Shape) -> dict[int, int] | None:
    """Axis of the result → the axis of the source it runs along; None if it is no such grid."""
    runs: dict[int, int] = {}
    for axis in (a for a in range(len(shape)) if shape[a] > 1):
        moved = [o for o, index in enumerate(indices) if (np.diff(index, axis=axis) != 0).any()]
        # An entry that is taken again and again runs along no axis.
        if len(moved) != 1 or moved[0] <= max(runs.values(), default=-1):
            return None
        runs[axis] = moved[0]
    return runs


def _axes_of_one(runs: dict[int, int], shape: Shape, rank: int) -> dict[int, int]:
    """Axes of size 1 that may be entries kept of the source: `x[:, 2:3]`, not `x[:, 2][:, None]`.
    Both take the same; the first is a part of a tensor, as its neighbours are.
    """
    found: dict[int, int] = {}
    for axis in (a for a in range(len(shape)) if a not in runs):
        known = runs | found
        below = max((o for a, o in known.items() if a < axis), default=-1)
        above = min((o for a, o in runs.items() if a > axis), default=rank)
        found.update({axis: below + 1} if below + 1 < above else {})
    return found


def _taken(piece: Piece, shape: Shape) -> Array:
    array = np.arange(int(np.prod(shape))).reshape(shape)
    for axis in reversed(range(len(shape))):
        pick = piece.picks[axis]
        if pick is not None:
            array = np.take(array, pick, axis)
    for insert in sorted(piece.inserts):
        array = np.expand_dims(array, insert)
    return array


PROBED = Split(handles=(), pieces=pieces, takes=may_select)
