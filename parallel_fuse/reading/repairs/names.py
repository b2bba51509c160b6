"""Layer names with `/`, which Keras 3 refuses: `_` in its place, unique, the same on every run."""

from collections.abc import Iterable

from parallel_fuse.reading.told import Told


def without_slashes(names: Iterable[str], told: Told) -> dict[str, str]:
    """Old name → new one, for all names of one model."""
    names = list(names)
    taken = {name for name in names if "/" not in name}
    found = {}
    for name in names:
        found[name] = name if "/" not in name else _free(name.replace("/", "_"), taken)
        taken.add(found[name])
        if found[name] != name:
            told.renamed[name] = found[name]
            told("layer names hold no '/' in Keras 3", f"'{name}' is now '{found[name]}'")
    return found


def _free(name: str, taken: set[str]) -> str:
    number, found = 0, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
