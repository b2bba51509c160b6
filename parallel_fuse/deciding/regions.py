"""Regions: bundles that hand lanes to one another, from their split to their join."""

from collections.abc import Iterable, Sequence

from parallel_fuse.graph import Graph
from parallel_fuse.plan import Bundle


def regions_of(
    graph: Graph, bundles: Sequence[Bundle], families: Iterable[Sequence[Bundle]] = ()
) -> list[list[Bundle]]:
    """The connected groups of bundles, each from its inputs to its outputs. The bundles of a family
    stand or fall together, and so do their regions.
    """
    owner = {v.index: b.index for b in bundles for v in b.outputs}
    parent = {b.index: b.index for b in bundles}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    for bundle in bundles:
        for row in bundle.inputs:
            for value in row:
                if value.index in owner:
                    parent[root(bundle.index)] = root(owner[value.index])
    for family in families:
        for bundle in family:
            parent[root(bundle.index)] = root(family[0].index)
    groups: dict[int, list[Bundle]] = {}
    for bundle in sorted(bundles, key=lambda b: (_level(graph, b), b.calls[0].index)):
        groups.setdefault(root(bundle.index), []).append(bundle)
    return list(groups.values())


def _level(graph: Graph, bundle: Bundle) -> int:
    return max(graph.depths[call.index] for call in bundle.calls)
