"""What every split must satisfy: its pieces are what the operation computes."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
import pytest
from keras import layers, ops, tree

from parallel_fuse import NotEquivalentError, fuse_parallel_branches, verify_equivalence
from parallel_fuse.graph import Graph
from parallel_fuse.pieces import pieces_of
from parallel_fuse.plan import Piece
from parallel_fuse.policy import EVERYTHING
from parallel_fuse.splits import SPLITS
from tests.asserts import assert_same_outputs, assert_unchanged, snapshot
from tests.builders import inputs_for, randomise


def pieces_found(shape: Sequence[int | None], select: Callable) -> list[Piece | None]:
    """The piece of each output of `select(x)`, None for an output that is no selection."""
    x = keras.Input(tuple(shape), name="x")
    graph = Graph.of(keras.Model(x, select(x)))
    found = pieces_of(graph, SPLITS)
    return [found.get(value.index) for value in graph.outputs]


def cut(array: np.ndarray, piece: Piece) -> np.ndarray:
    """A piece of an array, by NumPy."""
    for axis, picked in reversed(list(enumerate(piece.picks))):
        if picked is not None:
            array = np.take(array, picked, axis=axis)
    for insert in sorted(piece.inserts):
        array = np.expand_dims(array, insert)
    return array


def assert_selects(shape: Sequence[int], select: Callable) -> list[Piece]:
    """Every output of `select(x)` is a piece of x, and the piece holds the output's values."""
    pieces = pieces_found(shape, select)
    assert None not in pieces
    array = np.random.default_rng(0).normal(size=(2, *shape)).astype("float32")
    outputs = tree.flatten(select(ops.convert_to_tensor(array)))
    for piece, output in zip(pieces, outputs, strict=True):
        np.testing.assert_array_equal(cut(array, piece), ops.convert_to_numpy(output))
    return pieces


def assert_left_alone(shape: Sequence[int | None], select: Callable) -> None:
    assert pieces_found(shape, select) == [None]


def dense_towers(shape: Sequence[int | None], cuts: Callable, units: int = 4) -> keras.Model:
    """`cuts(x)` → one Dense each → Concatenate, with random weights that a seed fixes."""
    x = keras.Input(tuple(shape), name="x")
    outputs = [layers.Dense(units, name=f"d{i}")(lane) for i, lane in enumerate(cuts(x))]
    return randomise(keras.Model(x, layers.Concatenate(name="joined")(outputs)), seed=1)


def assert_fuses_cheaply(
    model: keras.Model,
    *,
    layers: tuple[int, int] | None = None,
    batches: Sequence[int] = (1, 3),
    **options,
):
    """Fuses and compares eagerly: for tests that differ only in where lanes come from or go.

    Args:
        layers: layers before and after, summed over the regions; not looked at if None.
        batches: batch sizes to compare.

    Returns:
        (fused model, report)
    """
    before = snapshot(model)
    options.setdefault("policy", EVERYTHING)
    fused, report = fuse_parallel_branches(model, return_report=True, verify=False, **options)
    assert_unchanged(model, before)
    found = (sum(r.layers_before for r in report.regions),
             sum(r.layers_after for r in report.regions))  # fmt: skip
    assert layers in (found, None), f"layers {found}, expected {layers}\n{report}"
    for batch in batches:
        assert_same_outputs(model, fused, inputs_for(model, batch, seed=batch))
    return fused, report


def assert_shift_is_caught(
    shape: Sequence[int], cuts: Callable, shifted: Callable, layers: tuple[int, int]
) -> None:
    """Negative control: with one slice moved by one in the original, verification fails."""
    fused, _ = assert_fuses_cheaply(dense_towers(shape, cuts), layers=layers)
    verify_equivalence(dense_towers(shape, cuts), fused)
    with pytest.raises(NotEquivalentError):
        verify_equivalence(dense_towers(shape, shifted), fused)
