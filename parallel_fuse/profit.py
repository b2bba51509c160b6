"""How many kernels a region saves: the static estimate of what fusing is worth.

A small kernel costs its launch, whatever it computes. Counted are the layers, the slices and the
join that vanish, against the fused layers and the gathers and scatters that appear.
"""

from collections.abc import Mapping, Sequence

from parallel_fuse.graph import Graph, Value
from parallel_fuse.kinds.base import Lowering
from parallel_fuse.match import Match
from parallel_fuse.plan import Bundle

LARGE = 64  # a gather or scatter of this many tensors costs as much as another kernel


def gain(
    graph: Graph, found: Match, lowerings: Mapping[int, Lowering], members: Sequence[Bundle]
) -> float:
    """Kernels before, divided by kernels after."""
    own = {v.index for b in members for v in b.outputs}
    inside = {c.index for b in members for c in b.calls}
    exits = [_exits(graph, found, b, inside) for b in members]
    joins = sum(count for count, _ in exits)
    before = sum(b.size for b in members if lowerings[b.index].kernels) + joins
    before += _slices(graph, found, members, inside)
    after = sum(lowerings[b.index].kernels for b in members) + joins
    after += sum(_gathers(found, row, own) for b in members for row in _rows(b))
    after += sum(1 + single / LARGE for _, single in exits if single)
    return before / max(after, 1)


def _rows(bundle: Bundle) -> Sequence[tuple[Value, ...]]:
    return () if bundle.shared else bundle.inputs


def _slices(graph: Graph, found: Match, members: Sequence[Bundle], inside: set[int]) -> int:
    """Selections that nobody else reads."""
    values = {v.index: v for b in members for row in b.inputs for v in row}
    return sum(
        v.index in found.pieces and all(c.index in inside for c in graph.readers(v))
        for v in values.values()
    )


def _gathers(found: Match, row: tuple[Value, ...], own: set[int]) -> float:
    """One transpose for slices or lanes that stand elsewhere, more for single tensors."""
    if all(v.index in own for v in row):
        return 0
    if all(v.index in found.pieces for v in row):
        return 1
    return 1 + len(row) / LARGE


def _exits(graph: Graph, found: Match, bundle: Bundle, inside: set[int]) -> tuple[int, int]:
    """(joins that take several of the lanes, reads of a single lane) outside the region."""
    mine = {v.index for v in bundle.outputs}
    outputs = {v.index for v in graph.outputs}
    joins: set[int] = set()
    single = sum(v.index in outputs for v in bundle.outputs)
    for call in (c for v in bundle.outputs for c in graph.readers(v)):
        row = found.joins[call.index][1] if call.index in found.joins else ()
        if call.index in inside:
            continue
        if sum(v.index in mine for v in row) > 1:
            joins.add(call.index)
        else:
            single += 1
    return len(joins), single
