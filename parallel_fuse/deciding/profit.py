"""How many kernels a region saves: the static estimate of what fusing is worth.

A small kernel costs its launch, whatever it computes. Counted are the layers, the slices and the
joins that vanish, against the fused layers and all that moves lanes: gathers, scatters, changes of
layout, and the cuts around activations that differ between the lanes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from parallel_fuse.activations import LINEAR, activation_of
from parallel_fuse.graph import Graph, Value
from parallel_fuse.kinds.base import Lowering
from parallel_fuse.matching.search import Match
from parallel_fuse.plan import Bundle

Row = tuple[int, int]  # a bundle, and which of its results
LARGE = 64  # a gather or scatter of this many tensors costs as much as another kernel


def gain(
    graph: Graph, found: Match, lowerings: Mapping[int, Lowering], members: Sequence[Bundle]
) -> float:
    """Kernels before, divided by kernels after."""
    region = _Region(graph, found, lowerings, members)
    layers = sum(b.size * min(1, lowerings[b.index].kernels) for b in members)
    if not layers:
        return 0.0
    before = layers + region.slices() + sum(region.chain(join) for join in region.joins)
    after = sum(lowerings[b.index].kernels + region.activations[b.index][0] for b in members)
    after += sum(region.gather(row) for b in members for row in _rows(b))
    after += sum(region.merge(join) for join in region.joins)
    after += sum(1 + single / LARGE for single in map(region.singles, members) if single)
    return before / max(after, 1)


def _rows(bundle: Bundle) -> Sequence[tuple[Value, ...]]:
    return () if bundle.shared else bundle.inputs


def _activations(bundle: Bundle, lowering: Lowering) -> tuple[int, bool]:
    """What differing activations cost beside the layer, and whether they leave the lanes apart."""
    if not bundle.kind.activation:
        return 0, False
    found = [activation_of(layer.activation) for layer in bundle.layers]
    groups, runs = len(set(found)), [one for one, _ in groupby(found)]
    if groups == 1 or lowering.once:
        inside = found[0].elementwise or lowering.sizes is None
        return groups - inside, lowering.once
    apart = 1 + sum(one is not LINEAR for one in (runs if lowering.sizes else found))
    together = 2 * groups + 1 + (len(runs) > groups)
    return min((apart, True), (together, False))


@dataclass(frozen=True)
class _Region:
    """What is read from and written to a region."""

    graph: Graph
    found: Match
    lowerings: Mapping[int, Lowering]
    members: Sequence[Bundle]

    @cached_property
    def places(self) -> dict[int, tuple[Row, int]]:
        """Value index → the row of a bundle's results it is in, and which of its lanes it is."""
        rows = [((b.index, k), row) for b in self.members for k, row in enumerate(b.rows)]
        return {v.index: (name, i) for name, row in rows for i, v in enumerate(row)}

    @cached_property
    def sizes(self) -> dict[int, int]:
        return {b.index: b.size for b in self.members}

    @cached_property
    def activations(self) -> dict[int, tuple[int, bool]]:
        return {b.index: _activations(b, self.lowerings[b.index]) for b in self.members}

    @cached_property
    def inside(self) -> set[int]:
        return {c.index for b in self.members for c in b.calls}

    @cached_property
    def joins(self) -> dict[int, set[Row]]:
        """Joins outside → the rows of which they take several lanes."""
        readers = (c.index for b in self.members for v in b.outputs for c in self.graph.readers(v))
        outside = [i for i in dict.fromkeys(readers) if i not in self.inside]
        known = {i: self._joined(self.found.joins[i][1]) for i in outside if i in self.found.joins}
        return {i: rows for i, rows in known.items() if rows}

    def _joined(self, row: Sequence[Value]) -> set[Row]:
        owners = Counter(self._owners(row))
        return {name for name, times in owners.items() if name is not None and times > 1}

    def _owners(self, row: Sequence[Value]) -> list[Row | None]:
        makers = (self.places.get(v.index) for v in row)
        return [None if made is None else made[0] for made in makers]

    def slices(self) -> int:
        """Selections that nobody else reads."""
        values = {v.index: v for b in self.members for row in b.inputs for v in row}
        return sum(
            v.index in self.found.pieces
            and all(c.index in self.inside for c in self.graph.readers(v))
            for v in values.values()
        )

    def chain(self, call: int) -> int:
        """How many calls a join is: `a + b + c` is two."""
        operands, given = len(self.found.joins[call][1]), len(self.graph.calls[call].inputs)
        return 1 if operands <= given else max(1, (operands - 1) // max(given - 1, 1))

    def merge(self, call: int) -> int:
        """A join of whole bundles is one kernel; parts of bundles and other tensors cost more."""
        join, row = self.found.joins[call]
        owners = self._owners(row)
        several = self.joins[call]
        picked = sum(not self._whole(row, owner) for owner in several)
        if join.layout is None:
            others = sum(owner not in several for owner in owners)
            return len(several) + (len(several) + others > 1) + picked
        runs = [owner for owner, _ in groupby(owners)]
        mixed = len(runs) > len(set(runs)) or picked
        return 1 + (len(runs) > 1) + bool(mixed)

    def _whole(self, row: Sequence[Value], owner: Row) -> bool:
        """Whether a row has all lanes of a bundle's row, in their order."""
        made = [self.places[v.index] for v in row if v.index in self.places]
        numbers = [i for name, i in made if name == owner]
        return numbers == list(range(self.sizes[owner[0]]))

    def gather(self, row: tuple[Value, ...]) -> float:
        """Nothing where lanes come as they go; a transpose for slices; more for single tensors."""
        owners = set(self._owners(row))
        if len({self.found.places[v.index] for v in row}) == 1 and len(row) > 1:
            return 2
        if owners == {None}:
            sliced = all(v.index in self.found.pieces for v in row)
            return 1 if sliced else 1 + len(row) / LARGE
        if len(owners) > 1:
            return len(owners) + len(row) / LARGE
        (owner,) = owners
        return int(self.activations[owner[0]][1] or not self._whole(row, owner))

    def singles(self, bundle: Bundle) -> int:
        """Reads of a single lane outside, model outputs among them; nothing if they are apart."""
        outputs = {v.index for v in self.graph.outputs}
        found = sum(v.index in outputs for v in bundle.outputs) + sum(self._alone(bundle))
        return 0 if self.activations[bundle.index][1] else found

    def _alone(self, bundle: Bundle) -> Iterator[bool]:
        for value in bundle.outputs:
            for call in self.graph.readers(value):
                joined = self.places[value.index][0] in self.joins.get(call.index, ())
                yield call.index not in self.inside and not joined
