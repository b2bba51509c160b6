"""Finding siblings: from seeds to bundles.

Siblings are looked for in three places: the operands of a join and the model's outputs, growing
backwards in lock-step, and the readers of one tensor or of its slices, growing forwards. Each step
takes a row of values, one per lane, groups the calls around them by signature, and hands the rows of
the new bundles on. Every call enters at most one bundle, so the work is linear in the graph.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.grouping import Grouping
from parallel_fuse.joins.base import Join
from parallel_fuse.masks import mask_calls
from parallel_fuse.pieces import pieces_of
from parallel_fuse.plan import Bundle, Piece, Rejection
from parallel_fuse.signature import Signatures
from parallel_fuse.splits.base import Split

Row = tuple[Value, ...]


@dataclass(frozen=True)
class Match:
    """Everything found: bundles, joins with their operands, selections, and near misses."""

    bundles: tuple[Bundle, ...]
    joins: dict[int, tuple[Join, Row]]
    pieces: dict[int, Piece]
    rejections: tuple[Rejection, ...]


def match(graph: Graph, kinds: Sequence, joins: Sequence[Join], splits: Sequence[Split]) -> Match:
    """All bundles of a graph, before anyone has asked whether they pay."""
    pieces = pieces_of(graph, splits)
    found_joins = _joins_of(graph, joins)
    masks = mask_calls(graph)
    passive = _passive(graph, joins, splits) | masks
    grouping = Grouping(graph, Signatures(graph, kinds, masks), pieces, passive)
    search = _Search(graph, grouping, pieces)
    for call in reversed(graph.calls):
        if call.index in found_joins:
            search.backward(found_joins[call.index][1])
    search.backward(graph.outputs)
    for row in _rows_forward(graph, pieces):
        search.forward(row)
    rejections = search.grouping.rejections(set(search.owner))
    return Match(tuple(search.bundles), found_joins, pieces, rejections)


@dataclass
class _Search:
    """The state of one search: which call belongs to which bundle, which rows wait."""

    graph: Graph
    grouping: Grouping
    pieces: dict[int, Piece]
    bundles: list[Bundle] = field(default_factory=list)
    owner: dict[int, int] = field(default_factory=dict)
    waiting: deque = field(default_factory=deque)

    def backward(self, row: Row) -> None:
        self.waiting.append((row, False))
        self._drain()

    def forward(self, row: Row) -> None:
        self.waiting.append((row, True))
        self._drain()

    def _drain(self) -> None:
        while self.waiting:
            row, onward = self.waiting.popleft()
            for calls in self._readers(row) if onward else [self._makers(row)]:
                self._bundle(calls)

    def _makers(self, row: Row) -> list[Call]:
        """The calls that made a row, each once, in the order of the row."""
        free = (v for v in row if v.call is not None and v.index not in self.pieces)
        calls = {v.call: self.graph.calls[v.call] for v in free if v.call not in self.owner}
        return list(calls.values())

    def _readers(self, row: Row) -> list[list[Call]]:
        """Rows of calls that read a row: alike, one per value, or all readers of a single value."""
        rows: dict = {}
        values = dict.fromkeys(row)
        for value in values:
            ordinals: dict = {}
            for call in self.graph.readers(value):
                if call.index in self.owner or self.grouping.is_passive(call):
                    continue
                place = (type(call.operation), call.inputs.index(value))
                ordinal = ordinals[place] = ordinals.get(place, -1) + (len(values) > 1)
                rows.setdefault((place, ordinal), []).append(call)
        return [list(dict.fromkeys(calls)) for calls in rows.values()]

    def _bundle(self, calls: Iterable[Call]) -> None:
        for group in self.grouping.groups(calls):
            self.owner.update((call.index, len(self.bundles)) for call in group.calls)
            bundle = Bundle(len(self.bundles), group.kind, group.calls, group.inputs,
                            group.shared, group.attributes)  # fmt: skip
            self.bundles.append(bundle)
            self.waiting.extend((row, False) for row in bundle.inputs if not bundle.shared)
            self.waiting.append((bundle.outputs, True))


def _joins_of(graph: Graph, joins: Sequence[Join]) -> dict[int, tuple[Join, Row]]:
    """call index → its join and operands; the inner calls of an associative chain vanish in it."""
    rules = {cls: join for join in reversed(joins) for cls in join.handles}
    calls = [c for c in graph.calls if type(c.operation) in rules]
    found: dict[int, tuple[Join, Row]] = {}
    for call in calls:
        join = rules[type(call.operation)]
        operands = join.operands(call)
        if join.reduce is not None and any(v.shape != call.output.shape for v in operands):
            continue
        found[call.index] = (join, operands)
        if join.associative:
            found[call.index] = (join, _flattened(graph, call, operands, found))
    inner = {v.call for c in calls for v in c.inputs if _absorbed(graph, v, c, found)}
    return {i: entry for i, entry in found.items() if i not in inner and len(entry[1]) > 1}


def _flattened(graph: Graph, call: Call, operands: Row, found: dict) -> Row:
    flat: list[Value] = []
    for value in operands:
        absorbed = _absorbed(graph, value, call, found)
        flat.extend(found[value.call][1] if absorbed else (value,))
    return tuple(flat)


def _absorbed(graph: Graph, value: Value, call: Call, found: dict) -> bool:
    """Whether a value is the inner result of a chain like (a + b) + c, read by nobody else."""
    maker = graph.producer(value)
    if maker is None or type(maker.operation) is not type(call.operation):
        return False
    join, _ = found.get(maker.index, (None, ()))
    alone = len(graph.readers(value)) == 1 and value not in graph.outputs
    return join is not None and join.associative and alone and call.index in found


def _passive(graph: Graph, joins: Sequence[Join], splits: Sequence[Split]) -> set[int]:
    """Calls that only hand lanes on: nobody misses a kind for them."""
    classes = {cls for rule in (*joins, *splits) for cls in rule.handles}
    return {call.index for call in graph.calls if type(call.operation) in classes}


def _rows_forward(graph: Graph, pieces: dict[int, Piece]) -> list[Row]:
    """For each tensor: the tensor itself, and the row of its selections."""
    selections: dict[int, list[Value]] = {}
    values = [v for call in graph.calls for v in call.outputs]
    for value in values:
        if value.index in pieces:
            selections.setdefault(pieces[value.index].source.index, []).append(value)
    single = [(v,) for v in (*graph.inputs, *values) if len(graph.readers(v)) > 1]
    return [tuple(row) for row in selections.values()] + single
