"""Finds out whether a converter took a fused layer apart again."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from parallel_fuse.report import RegionReport
from parallel_fuse.targets import Operation

# Operations that do the work of a layer, in the spelling of all formats, without "_" and case.
ARITHMETIC = re.compile(
    r"(flex)?(batch)?(matmul|gemm|fullyconnected|einsum|(depthwise)?(transpose)?conv)\w*", re.I
)
FUSED_NAME = re.compile(r"(.+)_x(\d+)(?:_\d+)?")


def undone(
    regions: Sequence[RegionReport], layers: Iterable[str], operations: Iterable[Operation]
) -> tuple[str, ...]:
    """Says which regions a written graph computes lane by lane again.

    An operation bears the name of the layer that it came from. A fused layer of M lanes that left
    M products or convolutions behind has been taken apart.

    Args:
        regions: what was fused.
        layers: the names of the fused model's layers.
        operations: what the written graph holds.
    """
    lanes = dict(_fused(regions, layers))
    found: Counter[tuple[str, str]] = Counter()
    for operation in operations:
        owner = _owner(operation.name, lanes)
        if owner is not None and ARITHMETIC.fullmatch(operation.kind.replace("_", "")):
            found[owner, operation.kind] += 1
    return tuple(
        f"the target undid region {lanes[layer][0]}: '{layer}' became {times} {kind}"
        for (layer, kind), times in found.items()
        if times >= lanes[layer][1]
    )


def _fused(
    regions: Sequence[RegionReport], layers: Iterable[str]
) -> Iterator[tuple[str, tuple[int, int]]]:
    """(fused layer, (number of its region, its lanes)); a layer is named after its first lane."""
    homes = {_clean(name): i for i, region in enumerate(regions, 1) for name in region.layers}
    for layer in layers:
        named = FUSED_NAME.fullmatch(layer)
        if named and named[1] in homes:
            yield layer, (homes[named[1]], int(named[2]))


def _owner(name: str, lanes: dict[str, tuple[int, int]]) -> str | None:
    """The fused layer of an operation called `model_1/layer_1/Conv2D;…`."""
    for segment in re.split(r"[/;]", name):
        layer = segment if segment in lanes else re.sub(r"_\d+$", "", segment)
        if layer in lanes:
            return layer
    return None


def _clean(name: str) -> str:
    return name.replace("/", "_")
