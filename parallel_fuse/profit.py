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
    before = sum(b.size for b in members) + _slices(graph, found, members, inside)
    after = sum(lowerings[b.index].kernels for b in members)
    after += sum(_gathers(found, row, own) for b in members for row in _rows(b))
    after += sum(_scatters(graph, found, b, inside) for b in members)
    return before / after


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


def _scatters(graph: Graph, found: Match, bundle: Bundle, inside: set[int]) -> float:
    """Nothing inside the region, one transpose into a join, more where lanes are read singly."""
    mine = {v.index for v in bundle.outputs}
    outputs = {v.index for v in graph.outputs}
    single = 0
    joined: set[int] = set()
    for value in bundle.outputs:
        for call in graph.readers(value):
            row = found.joins[call.index][1] if call.index in found.joins else ()
            if call.index in inside:
                continue
            if sum(v.index in mine for v in row) > 1:
                joined.add(call.index)
            else:
                single += 1
        single += value.index in outputs
    return len(joined) + (1 + single / LARGE if single else 0)
