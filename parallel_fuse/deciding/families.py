"""Families: bundles of the same layers, which were called several times.

Their lanes hold the same weights, so that they must become one layer too, called as often. That
asks for every call of every one of these layers, and for a lowering that all the bundles accept.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Graph
from parallel_fuse.kinds.base import Lowering
from parallel_fuse.plan import Bundle

Family = tuple[Bundle, ...]
Key = frozenset[int]


def key_of(bundle: Bundle) -> Key:
    """Equal for bundles of the same layers."""
    return frozenset(id(layer) for layer in bundle.layers)


def families_of(graph: Graph, bundles: Iterable[Bundle]) -> dict[Key, Family]:
    """The bundles that share weights with each other, or with calls that stayed alone."""
    found: dict[Key, list[Bundle]] = {}
    for bundle in bundles:
        shares = any(layer_has_more(graph, layer) for layer in bundle.layers)
        if shares and not bundle.one_layer:
            found.setdefault(key_of(bundle), []).append(bundle)
    return {key: tuple(members) for key, members in found.items()}


def layer_has_more(graph: Graph, layer) -> bool:
    return bool(getattr(layer, "weights", ())) and graph.uses[id(layer)] > 1


def check_complete(graph: Graph, family: Family) -> None:
    """Raises Reject where a layer is called elsewhere too, or in other company."""
    for layer in family[0].layers:
        calls = graph.uses[id(layer)]
        if calls != len(family):
            raise Reject(f"weights shared: called {calls} times, {len(family)} of them beside "
                         "the same siblings")  # fmt: skip


def in_one_order(family: Family) -> Family:
    """The bundles with their lanes in the order of the first one's layers."""
    place = {id(layer): i for i, layer in enumerate(family[0].layers)}
    return tuple(_sorted(b, [place[id(layer)] for layer in b.layers]) for b in family)


def _sorted(bundle: Bundle, places: Sequence[int]) -> Bundle:
    order = sorted(range(bundle.size), key=places.__getitem__)
    return replace(
        bundle,
        calls=tuple(bundle.calls[i] for i in order),
        inputs=tuple(tuple(row[i] for i in order) for row in bundle.inputs),
    )


def common_lowering(family: Family, options: Callable[[Bundle], Sequence[Lowering]]) -> Lowering:
    """The first lowering that every bundle accepts.

    Raises:
        Reject: there is none, or the layer made by it takes one shape only and they differ.
    """
    accepted = [options(bundle) for bundle in family]
    shapes = {(tuple(row[0].shape for row in b.inputs), b.out_shapes[0]) for b in family}
    for lowering in accepted[0]:
        fits = lowering.any_shape or len(shapes) == 1
        if fits and all(lowering in others for others in accepted):
            return lowering
    raise Reject("weights shared: its calls do not fit one common lowering")
