"""Embedding: M tables become one, M lookups one lookup.

    i0 ── Embedding(v0, n) ── y0
    i1 ── Embedding(v1, n) ── y1   →   (…, M) ── StackedEmbedding([v0, v1, v2], n) ── (…, M, n)
    i2 ── Embedding(v2, n) ── y2

    i ── Embedding(v, n0) ── y0
    i ── Embedding(v, n1) ── y1    →   i ── Embedding(v, n0 + n1) ── (…, n0 + n1)

Tables of one width stand one below the other, ids are shifted, and an id outside its own table does
what it did before. Lanes that read the same ids from tables of equal length have their rows side by
side, and these may differ in width. A mask is no part of the result: the machine leaves lanes alone
whose mask is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.kinds.weights import side_by_side, taken_apart
from parallel_fuse.lanes import Layout
from parallel_fuse.layers.stacked_embedding import StackedEmbedding, rows_of
from parallel_fuse.plan import Bundle


def signature(call: Call) -> dict:
    return config_signature(call, drop=("input_dim", "mask_zero"))


def vocabularies(bundle: Bundle) -> list[int]:
    return [one.input_dim for one in bundle.layers]


def widths(bundle: Bundle) -> tuple[int, ...]:
    return tuple(one.output_dim for one in bundle.layers)


def equal_vocabularies(bundle: Bundle) -> None:
    found = set(vocabularies(bundle))
    if len(found) > 1:
        raise Reject(f"input_dim {min(found)} and {max(found)}: tables of different length")


def equal_widths(bundle: Bundle) -> None:
    found = set(widths(bundle))
    if len(found) > 1:
        raise Reject(f"output_dim {min(found)} and {max(found)}: tables of different width")


def apart(bundle: Bundle) -> tuple[Layout, ...]:
    """Lanes with an axis of their own, wherever; behind the batch if nobody has a wish."""
    rank = len(bundle.in_shape)
    return tuple(Layout(axis) for axis in (*range(1, rank + 1), 0))


def build_stacked(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    first = bundle.layers[0]
    return StackedEmbedding(
        vocabularies(bundle),
        first.output_dim,
        layout.axis,
        embeddings_regularizer=first.embeddings_regularizer,
        embeddings_constraint=first.embeddings_constraint,
        **common,
    )


@dataclass(frozen=True)
class ShiftedLookup:
    """A stock Embedding behind the operations that turn ids of M tables into rows of one."""

    layer: layers.Embedding
    vocabularies: list[int]
    axis: int

    @property
    def weights(self) -> list:
        return self.layer.weights

    def __call__(self, ids: Any) -> Any:
        return self.layer(rows_of(ids, self.vocabularies, self.axis))


def build_stock(bundle: Bundle, layout: Layout, common: dict) -> ShiftedLookup:
    found = vocabularies(bundle)
    table = twin_of(bundle.layers[0], common, input_dim=sum(found), mask_zero=False)
    return ShiftedLookup(table, found, layout.axis)


def build_wide(bundle: Bundle, layout: Layout, common: dict) -> layers.Layer:
    changes = {"output_dim": sum(widths(bundle)), "mask_zero": False}
    return twin_of(bundle.layers[0], common, **changes)


def stack(members: Sequence[Any]) -> list[np.ndarray]:
    return [np.concatenate([table for one in members for table in one.get_weights()])]


def unstack(arrays: Sequence[np.ndarray], count: int) -> list[list[np.ndarray]]:
    """M tables of equal length."""
    return [[table] for table in np.split(arrays[0], count)]


def stack_wide(members: Sequence[Any]) -> list[np.ndarray]:
    return side_by_side(one.get_weights() for one in members)


WIDE = Lowering(
    name="wide",
    layouts=lambda bundle: None,
    build=build_wide,
    stack=stack_wide,
    unstack=taken_apart,
    makes=lambda bundle, layout: Layout(len(bundle.in_shape), folded=True),
    accepts=equal_vocabularies,
    shared=True,
    sizes=widths,
    any_shape=True,
)

STACKED = Lowering(
    name="one-table",
    layouts=apart,
    build=build_stacked,
    stack=stack,
    unstack=unstack,
    accepts=equal_widths,
    kernels=2,  # a stock lookup runs five small operations, this one twice as many
    portable=False,
)

STOCK = Lowering(
    name="one-table-of-stock-layers",
    layouts=apart,
    build=build_stock,
    stack=stack,
    unstack=unstack,
    accepts=equal_widths,
    kernels=2,
)

EMBEDDING = Kind(
    handles=(layers.Embedding,),
    signature=signature,
    lowerings=(WIDE, STACKED, STOCK),
    shared_free=("output_dim",),
    any_rank=True,
)
