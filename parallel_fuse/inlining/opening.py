"""Which layers of a model are opened: those in which branches fuse. The others stay as they are."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import layers, tree

from parallel_fuse import _keras
from parallel_fuse.errors import Reject
from parallel_fuse.inlining.tracing import trace


@dataclass
class Opener:
    """Opens layers for the reader of a graph; each is traced once.

    Attributes:
        only: names of the layers to open; any if None.
        models: (layer id, shapes) → the layer as a functional model, or the reason why not.
        twins: layer id → the copy that was traced.
    """

    only: Collection[str] | None = None
    models: dict[Any, keras.Model | Reject] = field(default_factory=dict)
    twins: dict[int, layers.Layer] = field(default_factory=dict)

    def __call__(self, layer: Any, tensors: Any) -> keras.Model | Reject | None:
        """The functional model inside a layer that is called on these tensors, or why it stays
        closed; None where nothing is looked for.
        """
        if not may_hold_branches(layer):
            return None
        specs = tree.map_structure(lambda t: keras.KerasTensor(t.shape, t.dtype), tensors)
        key = (id(layer), str(specs))
        if key not in self.models:
            self.models[key] = self._open(layer, specs)
        found = self.models[key]
        wanted = self.only is None or layer.name in self.only or isinstance(found, Reject)
        return found if wanted else None

    def _open(self, layer: Any, specs: Any) -> keras.Model | Reject:
        try:
            return trace(layer, specs, self.twins)
        except Reject as reject:
            return reject

    def keep(self, names: Collection[str]) -> "Opener":
        """One that opens these only, from what has been traced already."""
        return Opener(names, self.models, self.twins)


def may_hold_branches(layer: Any) -> bool:
    """A custom class with two layers or more inside."""
    if not isinstance(layer, layers.Layer) or type(layer).__module__.startswith("keras."):
        return False
    if _keras.functional_inside(layer) is not None:
        return False
    inside = [x for x in _keras.sublayers(layer) if x is not layer]
    return len(inside) > 1
