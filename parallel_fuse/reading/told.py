"""What was repaired on the way in, told once for all layers that it concerns."""

from dataclasses import dataclass, field

SHOWN = 3


@dataclass
class Told:
    """Collects repairs; `lines` has one line for each kind, with the layers.

    Attributes:
        layers: repair → the layers, or whatever else it concerns.
        renamed: old name → new one, of the layers that got one.
    """

    layers: dict[str, list[str]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def __call__(self, repair: str, layer: str = "") -> None:
        names = self.layers.setdefault(repair, [])
        if layer and layer not in names:
            names.append(layer)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(_line(repair, names) for repair, names in self.layers.items())


def _line(repair: str, names: list[str]) -> str:
    if not names:
        return f"repaired: {repair}"
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" * (len(names) > SHOWN))
    return f"repaired: {repair}: {shown}"
