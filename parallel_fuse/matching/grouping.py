"""Grouping calls that stand side by side into bundles: alike and independent.

Whole towers that are alike down to their sources are grouped first, then what is left by its own
signature, so that two sorts of towers behind one join become two groups and yet branches whose
early layers differ still meet where they become alike.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.kinds.base import Kind
from parallel_fuse.matching.places import Place
from parallel_fuse.matching.signature import Signature, Signatures, differences, most_common
from parallel_fuse.plan import Piece, Rejection
from parallel_fuse.wording import shown


@dataclass(frozen=True)
class Group:
    kind: Kind
    calls: tuple[Call, ...]
    inputs: tuple[tuple[Value, ...], ...]
    shared: bool
    attributes: dict[str, Hashable]


class Grouping:
    """Groups rows of calls, and remembers why some stayed alone."""

    def __init__(
        self,
        graph: Graph,
        signatures: Signatures,
        pieces: dict[int, Piece],
        places: dict[int, Place],
        passive: set[int],
    ):
        self.graph = graph
        self.pieces = pieces
        self.places = places
        self.passive = passive
        self.signatures = signatures
        self.towers = _tower_hashes(graph, signatures, pieces)
        self.misses: dict[int, tuple[int, str]] = {}

    def is_passive(self, call: Call) -> bool:
        """Whether a call only hands lanes on (a join, a split) and no kind knows it."""
        signed = isinstance(self.signatures.of(call), Signature)
        return call.index in self.passive and not signed

    def _joins_or_splits(self, call: Call) -> bool:
        """Whether nobody misses a kind for a call. `x + 1` is no join, though of its class."""
        return self.is_passive(call) or (call.index in self.passive and len(call.inputs) > 1)

    def alike(self, row: Iterable[Value]) -> int:
        """How many different values of a row come from towers that are alike, at most."""
        values = dict.fromkeys(row)
        counts = Counter(_above(value, self.pieces, self.towers) for value in values)
        shared = Counter(filter(None, map(self._heads_of, values)))
        return max((*counts.values(), *shared.values()), default=0)

    def _heads_of(self, value: Value) -> Hashable:
        """Equal for values made by layers that may differ in width, for they read one tensor."""
        call = self.graph.producer(value)
        if call is None or not self.signatures.knows(call):
            return None
        keys = self._keys(call, exact=False)
        return keys[0] if len(keys) > 1 else None

    def groups(self, calls: Iterable[Call]) -> list[Group]:
        calls = list(calls)
        signed = [c for c in calls if isinstance(self.signatures.of(c), Signature)]
        found: list[list[Call]] = []
        taken: set[int] = set()
        for exact in (True, False):
            for group in self._candidates(signed, exact, taken):
                found += [part for one in self._independent(group) for part in by_layer(one)]
            taken.update(c.index for group in found for c in group)
        found = [self._with_strays(group, signed, taken) for group in found]
        self._remember(calls, taken)
        return [self._group(group) for group in found]

    def _with_strays(self, group: list[Call], row: list[Call], taken: set[int]) -> list[Call]:
        """The group and what stayed alone though it is alike: its branch differs further up."""
        shared = len({self._place(v) for c in group for v in c.inputs}) == 1
        key = self.signatures.of(group[0]).key
        alike = [c for c in row if c.index not in taken and self.signatures.of(c).key == key]
        if shared or not alike:
            return group
        members = {c.index for c in (*group, *alike)}
        first = next(iter(self._independent([c for c in row if c.index in members])), ())
        if len(by_layer(first)) != 1:
            return group
        if not {c.index for c in group} <= {c.index for c in first}:
            return group
        taken.update(c.index for c in first)
        return first

    def _candidates(self, calls: Sequence[Call], exact: bool, taken: set) -> list[list[Call]]:
        """Disjoint groups of two or more, the largest first."""
        buckets: dict[Hashable, list[Call]] = {}
        for call in calls:
            if call.index not in taken:
                for key in self._keys(call, exact):
                    buckets.setdefault(key, []).append(call)
        found, used = [], set()
        for bucket in sorted(buckets.values(), key=len, reverse=True):
            group = [c for c in bucket if c.index not in used]
            if len(group) > 1:
                used.update(c.index for c in group)
                found.append(group)
        return found

    def _keys(self, call: Call, exact: bool) -> list[Hashable]:
        """The shared key stands first: of two groups of equal size the shared one is cheaper."""
        signature = self.signatures.of(call)
        tower = self.towers[call.index] if exact else None
        own = (signature.key, tower)
        if not signature.kind.shared_free or len(call.inputs) != 1:
            return [own]
        return [(signature.shared_key, "of", self._place(call.inputs[0])), own]

    def _place(self, value: Value) -> Hashable:
        """What tells one tensor from another: equal slices of one tensor are one."""
        return self.places[value.index]

    def _independent(self, calls: list[Call]) -> list[list[Call]]:
        """Groups in which no call depends on another: topological order, first fit."""
        if len({self.graph.depths[c.index] for c in calls}) == 1:
            return [calls]
        members = {c.index for c in calls}
        parts: list[list[Call]] = []
        for call in sorted(calls, key=lambda c: c.index):
            above = self._ancestors(call, members)
            part = next((p for p in parts if not any(c.index in above for c in p)), None)
            if part is None:
                parts.append([call])
            else:
                part.append(call)
        place = {c.index: i for i, c in enumerate(calls)}
        return [sorted(p, key=lambda c: place[c.index]) for p in parts if len(p) > 1]

    def _ancestors(self, call: Call, members: set[int]) -> set[int]:
        """Which members the call depends on."""
        lowest = min(self.graph.depths[i] for i in members)
        seen, waiting = set(), [call]
        while waiting:
            for value in waiting.pop().inputs:
                maker = self.graph.producer(value)
                if maker is None or maker.index in seen or self.graph.depths[maker.index] < lowest:
                    continue
                seen.add(maker.index)
                waiting.append(maker)
        return seen & members

    def _group(self, calls: list[Call]) -> Group:
        signature = self.signatures.of(calls[0])
        inputs = tuple(zip(*(call.inputs for call in calls)))
        shared = all(len({self._place(v) for v in row}) == 1 for row in inputs)
        return Group(signature.kind, tuple(calls), inputs, shared, signature.attributes)

    def _remember(self, calls: list[Call], taken: set[int]) -> None:
        """Writes down why calls stayed alone, where a sibling of the same class stood beside."""
        by_class: dict[type, list[Call]] = {}
        for call in (c for c in calls if not self._joins_or_splits(c)):
            by_class.setdefault(type(call.operation), []).append(call)
        for siblings in by_class.values():
            alone = [c for c in siblings if c.index not in taken]
            for call in alone if len(siblings) > 1 else ():
                # Leftovers are compared again among themselves; the row of most siblings says why.
                if len(siblings) > self.misses.get(call.index, (0, ""))[0]:
                    self.misses[call.index] = len(siblings), self._reason(call, siblings)

    def _reason(self, call: Call, siblings: list[Call]) -> str:
        signature = self.signatures.of(call)
        if signature is None:
            return f"no rule for the class {type(call.operation).__name__}"
        if isinstance(signature, Reject):
            return signature.reason
        signed = [self.signatures.of(c) for c in siblings if c is not call]
        others = [s for s in signed if isinstance(s, Signature)]
        if not others:
            return "its siblings cannot be fused"
        common = most_common(s.key for s in others)
        return _difference(signature, next(s for s in others if s.key == common))

    def rejections(self, fused: set[int]) -> tuple[Rejection, ...]:
        """The near misses of calls that no bundle took in the end, one entry per reason."""
        by_reason: dict[str, list[str]] = {}
        for index, (_, reason) in sorted(self.misses.items()):
            if index not in fused:
                by_reason.setdefault(reason, []).append(self.graph.calls[index].name)
        return tuple(Rejection(tuple(names), reason) for reason, names in by_reason.items())


def by_layer(calls: list[Call]) -> list[list[Call]]:
    """The calls of a group cut so that every lane is a layer of its own, or all are one layer.

    Of layers called equally often, more layers than calls, the first calls are lanes of one bundle,
    the second calls of the next; else the calls of each layer are a bundle.
    """
    times = Counter(id(c.operation) for c in calls if getattr(c.operation, "weights", None))
    most = max(times.values(), default=1)
    if most == 1 or len(times) == 1:
        return [calls]
    if set(times.values()) == {most} and most <= len(times):
        return _by_turn(calls)
    alone = [c for c in calls if times.get(id(c.operation), 1) == 1]
    several = ([c for c in calls if id(c.operation) == i] for i, n in times.items() if n > 1)
    return [part for part in (alone, *several) if len(part) > 1]


def _by_turn(calls: list[Call]) -> list[list[Call]]:
    turns: list[list[Call]] = []
    seen: Counter = Counter()
    for call in calls:
        turn = seen[id(call.operation)]
        seen[id(call.operation)] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(call)
    return turns


def _difference(one: Signature, other: Signature) -> str:
    parts = [
        f"{name} {shown(name, mine)}, its siblings {shown(name, theirs)}"
        for name, mine, theirs in differences(one, other)
    ]
    return "; ".join(parts) or "depends on its siblings"


def _tower_hashes(
    graph: Graph, signatures: Signatures, pieces: dict[int, Piece]
) -> list[int | None]:
    """Per call with a rule, a hash of everything above it, down to where the rules end."""
    hashes: list[int | None] = []
    for call in graph.calls:
        signature = signatures.of(call)
        known = isinstance(signature, Signature)
        above = (_above(value, pieces, hashes) for value in call.inputs)
        hashes.append(hash((signature.key, *above)) if known else None)
    return hashes


def _above(value: Value, pieces: dict[int, Piece], hashes: Sequence[int | None]) -> Hashable:
    own = value.call is None or value.index in pieces or hashes[value.call] is None
    return ("source", value.shape) if own else hashes[value.call]
