"""From what was found to what will be done: lowerings, profit, order.

A bundle needs a lowering that fits. A region (bundles that hand lanes to one another) must pay. All
bundles together must be emittable: each contracted to one vertex, the graph must have an order.
"""

from collections.abc import Callable, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from math import floor

from parallel_fuse.deciding.families import (
    Family,
    check_complete,
    common_lowering,
    families_of,
    in_one_order,
    key_of,
)
from parallel_fuse.deciding.one_layer import ONE_LAYER
from parallel_fuse.deciding.profit import gain
from parallel_fuse.deciding.regions import regions_of
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.kinds.base import Lowering
from parallel_fuse.masks import mask_readers
from parallel_fuse.matching.search import Match
from parallel_fuse.plan import Bundle, Plan, Rejection
from parallel_fuse.policy import Policy


def decide(graph: Graph, found: Match, policy: Policy) -> Plan:
    """The plan: what to fuse and how, and every reason why not."""
    choice = _Choice(graph, found, policy)
    choice.choose_lowerings()
    choice.drop_what_does_not_pay()
    order = choice.order()
    return choice.plan(order)


class _Choice:
    """The bundles still standing, and why the others fell."""

    def __init__(self, graph: Graph, found: Match, policy: Policy):
        self.graph = graph
        self.found = found
        self.policy = policy
        self.families = {
            key: in_one_order(family) for key, family in families_of(graph, found.bundles).items()
        }
        sharing = {b.index: b for family in self.families.values() for b in family}
        self.standing = {b.index: sharing.get(b.index, b) for b in found.bundles}
        self.lowerings: dict[int, Lowering] = {}
        self.mask_readers = mask_readers(graph)
        self.rejections: list[Rejection] = list(found.rejections)

    def drop(self, reason: str, *bundles: Bundle) -> None:
        """Bundles that share weights with a dropped one fall with it."""
        keys = {key_of(bundle) for bundle in bundles if key_of(bundle) in self.families}
        mates = [b for key in keys for b in self.families.pop(key)]
        fallen = {b.index: b for b in (*bundles, *mates) if b.index in self.standing}
        for index in fallen:
            del self.standing[index]
        names = dict.fromkeys(call.name for bundle in fallen.values() for call in bundle.calls)
        self.rejections.append(Rejection(tuple(names), reason))

    def choose_lowerings(self) -> None:
        for bundle in list(self.standing.values()):
            if key_of(bundle) not in self.families:
                self._settle((bundle,), lambda family: next(self._lowerings(family[0])))
        for family in list(self.families.values()):
            self._settle(family, self._for_family)

    def _settle(self, family: Family, choose: Callable[[Family], Lowering]) -> None:
        """One lowering for these bundles, or the reason why there is none."""
        try:
            lowering = choose(family)
        except Reject as reject:
            self.drop(reject.reason, *family)
            return
        self.lowerings.update((bundle.index, lowering) for bundle in family)

    def _for_family(self, family: Family) -> Lowering:
        check_complete(self.graph, family)
        return common_lowering(family, lambda bundle: list(self._lowerings(bundle)))

    def _lowerings(self, bundle: Bundle) -> Iterator[Lowering]:
        """Those that fit, the preferred first. Asked one by one: to accept may take a trial.

        Raises:
            Reject: there is none.
        """
        reader = self._mask_reader(bundle)
        if reader:
            raise Reject(f"its mask is picked up by {reader}")
        if bundle.size < self.policy.min_lanes:
            raise Reject(f"{bundle.size} lanes, the policy asks for {self.policy.min_lanes}")
        found, reasons = False, []
        for lowering in (ONE_LAYER,) if bundle.one_layer else bundle.kind.lowerings:
            if lowering.shared and not bundle.shared:
                continue
            try:
                self._check(lowering, bundle)
            except Reject as reject:
                reasons.append(f"{lowering.name}: {reject.reason}")
                continue
            found = True
            yield lowering
        if not found:
            raise Reject("; ".join(reasons) or "no lowering for these lanes")

    def _check(self, lowering: Lowering, bundle: Bundle) -> None:
        if self.policy.portable and not lowering.portable:
            raise Reject("not a stock Keras layer, and portable was asked")
        lowering.accepts(bundle)
        if self.policy.profitable_only:
            lowering.pays(bundle, self.policy)

    def _mask_reader(self, bundle: Bundle) -> str | None:
        readers = (self.mask_readers.get(value.index) for value in bundle.outputs)
        return next(filter(None, readers), None)

    def drop_what_does_not_pay(self) -> None:
        """Regions that would run too many kernels of their own for those they save."""
        bundles = list(self.standing.values())
        for members in regions_of(self.graph, bundles, self.families.values()):
            found = gain(self.graph, self.found, self.lowerings, members)
            # Layers without arithmetic have nothing to save but kernels, whatever the policy.
            light = all(b.kind.light for b in members)
            wanted = max(self.policy.min_gain, 1.0 if light else 0.0)
            if not found or found < wanted:
                self.drop(_too_little(found, wanted), *members)

    def order(self) -> tuple[Bundle | Call, ...]:
        """Producers first, each bundle one vertex; a bundle that closes a cycle is dropped."""
        while True:
            sorter, vertices = self._contracted()
            try:
                return tuple(vertices[v] for v in sorter.static_order())
            except CycleError as error:
                on_cycle = [self.standing[-v - 1] for v in set(error.args[1]) if v < 0]
                smallest = min(on_cycle, key=lambda b: (b.size, b.index))
                self.drop("depends on another group that depends on it (a cycle)", smallest)

    def _contracted(self) -> tuple[TopologicalSorter, dict[int, Bundle | Call]]:
        """Vertices: call indices, and -1 - index for bundles."""
        vertex = {c.index: c.index for c in self.graph.calls}
        vertices: dict[int, Bundle | Call] = {c.index: c for c in self.graph.calls}
        for bundle in self.standing.values():
            vertices[-bundle.index - 1] = bundle
            vertex.update((call.index, -bundle.index - 1) for call in bundle.calls)
        sorter: TopologicalSorter = TopologicalSorter()
        for call in self.graph.calls:
            above = {vertex[v.call] for v in self._reads(call) if v.call is not None}
            sorter.add(vertex[call.index], *above)
        return sorter, vertices

    def _reads(self, call: Call) -> Iterable[Value]:
        joined = self.found.joins.get(call.index)
        return call.inputs if joined is None else (*call.inputs, *joined[1])

    def plan(self, order: tuple[Bundle | Call, ...]) -> Plan:
        standing = tuple(self.standing.values())
        lowerings = {b.index: self.lowerings[b.index] for b in standing}
        members = {call.index for bundle in standing for call in bundle.calls}
        joins = {i: join for i, join in self.found.joins.items() if i not in members}
        return Plan(standing, lowerings, joins, self.found.pieces, self.found.places, order,
                    tuple(self.rejections))  # fmt: skip


def _too_little(gain: float, wanted: float) -> str:
    shown = floor(gain * 100) / 100  # never rounded up to what was expected
    return f"{shown:g} times fewer kernels, expected at least {wanted:g}"
