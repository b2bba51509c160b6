"""The joins of a graph and what they join. A chain like `(a + b) + c` is one join of a, b and c."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.joins.base import Join

Row = tuple[Value, ...]


@dataclass(frozen=True)
class Joining:
    """What stands side by side in front of an operation.

    Attributes:
        joins: call index → its rule and operands, for every call that does nothing but join them.
        rows: call index → values that may be siblings; also of calls that broadcast or cast.
        inner: call index of a vanished call → that of the call which takes its result in.
    """

    joins: dict[int, tuple[Join, Row]]
    rows: dict[int, Row]
    inner: dict[int, int]


@dataclass
class Claims:
    """Whether a call that may join lanes does, or is a step of each of them, as a residual sum is.

    Args:
        joining: what was found.
        alike: row of values → how many of them come from towers that are alike.
    """

    joining: Joining
    alike: Callable[[Row], int]
    known: dict[int, int] = field(default_factory=dict)
    opened: set[int] = field(default_factory=set)

    def is_join(self, call: Call, lanes: int, owner: Mapping[int, int]) -> bool:
        """It joins, rather than be one of so many lanes, if as many of its operands are alike, or
        if it vanishes in a join."""
        taken_in_by = self.joining.inner.get(call.index)
        if taken_in_by is not None:
            return taken_in_by not in owner
        if call.index not in self.known:
            self.known[call.index] = self.alike(self.joining.rows.get(call.index, ()))
        return self.known[call.index] >= max(lanes, 2)

    def open(self, calls: Sequence[Call]) -> Row:
        """The operands of joins that stand side by side are one row. Each join is opened once."""
        fresh = [c.index for c in calls if c.index in self.joining.joins]
        fresh = [index for index in fresh if index not in self.opened]
        self.opened.update(fresh)
        return tuple(value for index in fresh for value in self.joining.joins[index][1])


def joins_of(graph: Graph, joins: Sequence[Join]) -> Joining:
    """Every join of a graph; the inner calls of a chain vanish in the last one."""
    rules = {cls: join for join in reversed(joins) for cls in join.handles}
    calls = [call for call in graph.calls if type(call.operation) in rules]
    plain = _plain(rules, calls)
    inner = _inner(graph, plain)
    roots = {i: entry for i, entry in plain.items() if i not in inner}
    found = {i: (join, _flat(row, plain, inner)) for i, (join, row) in roots.items()}
    found = {i: (join, row) for i, (join, row) in found.items() if len(row) > 1}
    rows = {call.index: call.inputs for call in calls if call.index not in inner}
    return Joining(found, {**rows, **{i: row for i, (_, row) in found.items()}}, inner)


def _plain(rules: dict[type, Join], calls: Sequence[Call]) -> dict[int, tuple[Join, Row]]:
    """Calls that only join: nothing beside the operands, no cast, no broadcast."""
    found = {}
    for call in calls:
        join = rules[type(call.operation)]
        operands = join.operands(call)
        broadcasts = any(v.shape != call.output.shape for v in operands)
        if operands and not (join.reduce is not None and broadcasts):
            found[call.index] = (join, operands)
    return found


def _inner(graph: Graph, plain: dict[int, tuple[Join, Row]]) -> dict[int, int]:
    """Calls whose result is read once, and by a call of the same associative join: that one."""
    outputs = {value.index for value in graph.outputs}
    found: dict[int, int] = {}
    for index, (join, operands) in plain.items():
        times = Counter(value.index for value in operands)
        found.update(
            (value.call, index)
            for value in operands
            if value.call in plain
            and times[value.index] == 1 == len(graph.readers(value))
            and value.index not in outputs
            and _continues(join, graph.calls[index], plain[value.call][0], graph.calls[value.call])
        )
    return found


def _continues(join: Join, call: Call, below: Join, inner: Call) -> bool:
    """Whether a join of a join is one join: of the same rule, along the same axis."""
    if join is not below or not join.associative:
        return False
    return join.layout is None or join.layout(call) == join.layout(inner)


def _flat(operands: Row, plain: dict[int, tuple[Join, Row]], inner: dict[int, int]) -> Row:
    flat: list[Value] = []
    waiting = list(reversed(operands))
    while waiting:
        value = waiting.pop()
        if value.call in inner:
            waiting.extend(reversed(plain[value.call][1]))
        else:
            flat.append(value)
    return tuple(flat)
