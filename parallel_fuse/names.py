"""Names of operations: unique, without "/", the same for the same model."""

from collections.abc import Iterable, Sequence


class Names:
    """Gives out each name once. Reserved names go only to those who ask for them by right."""

    def __init__(self, reserved: Iterable[str]):
        self.reserved = set(reserved)
        self.used: set[str] = set()

    def claim(self, name: str) -> str:
        """A reserved name, for its owner."""
        self.used.add(name)
        return name

    def fresh(self, *candidates: str) -> str:
        """The first candidate that is free, else the last one with a number."""
        clean = [c.replace("/", "_") for c in candidates]
        taken = self.used | self.reserved
        number = 1
        while clean[0] in taken and len(clean) > 1:
            clean.pop(0)
        name = clean[0]
        while name in taken:
            name = f"{clean[0]}_{number}"
            number += 1
        return self.claim(name)


def bundle_name(names: Sequence[str]) -> str:
    """What the fused layer of these is called."""
    return f"{names[0]}_x{len(names)}"
