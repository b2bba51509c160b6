"""Finding siblings: from seeds to bundles.

Siblings are looked for in three places: the operands of a join and the model's outputs, growing
backwards in lock-step, and the readers of one tensor or of its slices, growing forwards. Each step
takes a row of values, one per lane, groups the calls around them by signature, and hands the rows
of the new bundles on. Every call enters at most one bundle, so the work is linear in the graph.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.joins.base import Join
from parallel_fuse.masks import mask_calls
from parallel_fuse.matching.grouping import Grouping
from parallel_fuse.matching.joining import Claims, joins_of
from parallel_fuse.matching.places import Place, places_of
from parallel_fuse.matching.signature import Signatures
from parallel_fuse.pieces import pieces_of, without_steps
from parallel_fuse.plan import Bundle, Piece, Rejection
from parallel_fuse.splits.base import Split

Row = tuple[Value, ...]


@dataclass(frozen=True)
class Match:
    """Everything found: bundles, joins with their operands, selections, which values are equal, and
    near misses."""

    bundles: tuple[Bundle, ...]
    joins: dict[int, tuple[Join, Row]]
    pieces: dict[int, Piece]
    places: dict[int, Place]
    rejections: tuple[Rejection, ...]


def match(graph: Graph, kinds: Sequence, joins: Sequence[Join], splits: Sequence[Split]) -> Match:
    """All bundles of a graph, before anyone has asked whether they pay."""
    pieces = pieces_of(graph, splits)
    joined = joins_of(graph, joins)
    masks = mask_calls(graph)
    passive = _passive(graph, joins, splits, pieces) | masks
    signatures = Signatures(graph, kinds, pieces, masks)
    pieces = without_steps(graph, pieces, signatures.knows)
    places = places_of(graph, pieces, masks)
    grouping = Grouping(graph, signatures, pieces, places, passive)
    search = _Search(graph, grouping, pieces, Claims(joined, grouping.alike))
    search.grow(_seeds(graph, joined.rows, pieces))
    rejections = search.grouping.rejections(set(search.owner))
    return Match(tuple(search.bundles), joined.joins, pieces, places, rejections)


@dataclass
class _Search:
    """The state of one search: which call belongs to which bundle, which rows wait."""

    graph: Graph
    grouping: Grouping
    pieces: dict[int, Piece]
    claims: Claims
    bundles: list[Bundle] = field(default_factory=list)
    owner: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    waiting: list[tuple[int, int, Row, bool]] = field(default_factory=list)

    def grow(self, seeds: Iterable[tuple[Row, bool]]) -> None:
        """Bundles the makers of a row (or, onward, its readers), and goes on from there.

        The longest row is taken first: a group of few must not take calls out of one of many.
        """
        for row, onward in seeds:
            self._wait(row, onward)
        while self.waiting:
            *_, row, onward = heappop(self.waiting)
            for calls in self._readers(row) if onward else [self._makers(row)]:
                self._bundle(calls)

    def _wait(self, row: Row, onward: bool) -> None:
        alone = onward and len(row) == 1
        siblings = len(self.graph.readers(row[0])) if alone else len(row)
        self.rows += 1
        if siblings > 1:
            heappush(self.waiting, (-siblings, self.rows, row, onward))

    def _makers(self, row: Row) -> list[Call]:
        """The calls that made a row, each once, in the order of the row."""
        free = (v for v in row if v.call is not None and v.index not in self.pieces)
        calls = {v.call: self.graph.calls[v.call] for v in free if v.call not in self.owner}
        return self._without_joins(calls.values())

    def _without_joins(self, calls: Collection[Call]) -> list[Call]:
        """The calls that may be lanes; what the others join is a row of its own."""
        joins = [c for c in calls if self.claims.is_join(c, len(calls), self.owner)]
        self._wait(self.claims.open(joins), onward=False)
        apart = {c.index for c in joins}
        return [c for c in calls if c.index not in apart]

    def _readers(self, row: Row) -> list[list[Call]]:
        """Rows of calls that read a row: alike, one per value, or all readers of a single value."""
        rows: dict = {}
        values = dict.fromkeys(row)
        for value in values:
            ordinals: dict = {}
            for call in self.graph.readers(value):
                if call.index in self.owner or self.grouping.is_passive(call):
                    continue
                if call.outputs[0].index in self.pieces:
                    continue
                if self.claims.is_join(call, len(values), self.owner):
                    continue
                place = (type(call.operation), call.inputs.index(value))
                ordinal = ordinals[place] = ordinals.get(place, -1) + (len(values) > 1)
                rows.setdefault((place, ordinal), []).append(call)
        return [list(dict.fromkeys(calls)) for calls in rows.values()]

    def _bundle(self, calls: Iterable[Call]) -> None:
        for group in self.grouping.groups(calls):
            if len(self._without_joins(group.calls)) < len(group.calls):
                continue
            self.owner.update((call.index, len(self.bundles)) for call in group.calls)
            bundle = Bundle(len(self.bundles), group.kind, group.calls, group.inputs,
                            group.shared, group.attributes)  # fmt: skip
            self.bundles.append(bundle)
            for row in bundle.inputs if not bundle.shared else ():
                self._wait(row, onward=False)
            for row in bundle.rows:
                self._wait(row, onward=True)


def _passive(
    graph: Graph, joins: Sequence[Join], splits: Sequence[Split], pieces: dict[int, Piece]
) -> set[int]:
    """Calls that only hand lanes on: nobody misses a kind for them."""
    classes = {cls for rule in (*joins, *splits) for cls in rule.handles}
    by_class = {call.index for call in graph.calls if type(call.operation) in classes}
    return by_class | {c.index for c in graph.calls if any(v.index in pieces for v in c.outputs)}


def _seeds(
    graph: Graph, joined: dict[int, Row], pieces: dict[int, Piece]
) -> Iterable[tuple[Row, bool]]:
    """The rows to begin with, and whether to grow onward from them."""
    made = [value for call in graph.calls for value in call.outputs]
    backward = [joined.get(call.index, call.inputs) for call in reversed(graph.calls)]
    yield from ((row, True) for row in _selections(made, pieces))
    yield from ((row, False) for row in (*backward, graph.outputs, *_repeats(graph)))
    yield from ((call.outputs, True) for call in graph.calls if len(call.outputs) > 1)
    yield from (((value,), True) for value in (*graph.inputs, *made))


def _repeats(graph: Graph) -> list[Row]:
    """For each layer that is called several times, the row of what it makes."""
    rows: dict[int, list[Value]] = {}
    for call in graph.calls:
        if graph.uses[id(call.operation)] > 1:
            rows.setdefault(id(call.operation), []).append(call.output)
    return [tuple(row) for row in rows.values()]


def _selections(values: Iterable[Value], pieces: dict[int, Piece]) -> list[Row]:
    """For each tensor, the row of its selections."""
    rows: dict[int, list[Value]] = {}
    for value in values:
        if value.index in pieces:
            rows.setdefault(pieces[value.index].source.index, []).append(value)
    return [tuple(row) for row in rows.values()]
