"""Several layers in a row, in the place of one fused layer."""

from dataclasses import dataclass
from functools import reduce
from typing import Any


@dataclass(frozen=True)
class Chain:
    """Calls its layers one after the other; its weights are theirs, in that order."""

    layers: tuple[Any, ...]

    @property
    def weights(self) -> list:
        return [weight for layer in self.layers for weight in layer.weights]

    def __call__(self, inputs: Any) -> Any:
        return reduce(lambda x, layer: layer(x), self.layers, inputs)
