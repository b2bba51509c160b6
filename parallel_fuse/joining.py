"""The joins of a graph and what they join. A chain like `(a + b) + c` is one join of a, b and c."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.joins.base import Join

Row = tuple[Value, ...]


@dataclass(frozen=True)
class Joining:
    """What stands side by side in front of an operation.

    Attributes:
        joins: call index → its rule and operands, for every call that does nothing but join them.
        rows: call index → values that may be siblings; also of calls that broadcast or cast.
    """

    joins: dict[int, tuple[Join, Row]]
    rows: dict[int, Row]


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
    return Joining(found, {**rows, **{i: row for i, (_, row) in found.items()}})


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


def _inner(graph: Graph, plain: dict[int, tuple[Join, Row]]) -> set[int]:
    """Calls whose result is read once, and by a call of the same associative join."""
    outputs = {value.index for value in graph.outputs}
    found: set[int] = set()
    for index, (join, operands) in plain.items():
        times = Counter(value.index for value in operands)
        found.update(
            value.call
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


def _flat(operands: Row, plain: dict[int, tuple[Join, Row]], inner: set[int]) -> Row:
    flat: list[Value] = []
    waiting = list(reversed(operands))
    while waiting:
        value = waiting.pop()
        if value.call in inner:
            waiting.extend(reversed(plain[value.call][1]))
        else:
            flat.append(value)
    return tuple(flat)
