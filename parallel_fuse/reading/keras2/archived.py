"""Where a `.keras` archive of Keras 2 keeps the weights of a layer.

Under `layers/<class>_<number>`, in the order of the configuration, then by the attributes that
sublayers are kept in. Source: `saving_lib` of tf_keras 2.19.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import h5py
import numpy as np

from parallel_fuse.reading.hdf5_groups import array
from parallel_fuse.reading.refusing import Refused

# The order in which a layer lists the weights of those inside it.
ATTRIBUTES = (
    *("vars", "forward_layer", "backward_layer", "layer", "cell", "cells"),
    *("_query_dense", "_key_dense", "_value_dense", "_output_dense"),
)


def arrays_of(
    config: Mapping[str, Any], file: BinaryIO
) -> Callable[[tuple[str, ...]], list[np.ndarray] | None]:
    """Path of layer names → the layer's weights."""
    places = dict(_places(config, (), ""))
    weights = h5py.File(file, "r")

    def found(path: tuple[str, ...]) -> list[np.ndarray] | None:
        place = places.get(path)
        return None if place is None or place not in weights else list(_arrays(weights[place]))

    return found


def _places(written: Mapping[str, Any], path: tuple, place: str) -> Iterator[tuple[tuple, str]]:
    counted: dict[str, int] = {}
    for one in written["config"]["layers"]:
        kind = _snake(one["class_name"])
        number = counted.get(kind, 0)
        counted[kind] = number + 1
        name = one.get("name") or one["config"]["name"]
        inner = f"{place}layers/{kind}" + (f"_{number}" if number else "")
        yield (*path, name), inner
        if "layers" in one["config"]:
            yield from _places(one, (*path, name), f"{inner}/")
        wrapped = one["config"].get("layer")
        if isinstance(wrapped, Mapping) and "layers" in wrapped["config"]:
            yield from _places(wrapped, (*path, name), f"{inner}/layer/")


def _snake(name: str) -> str:
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def _arrays(group: Any) -> Iterator[np.ndarray]:
    own = group.get("vars")
    for number in range(len(own) if own is not None else 0):
        yield array(own, str(number))
    inside = [name for name in group if name != "vars" and _holds_arrays(group[name])]
    strange = [name for name in inside if name not in ATTRIBUTES]
    if strange and len(inside) > 1:
        raise Refused(
            f"whose layer keeps weights in '{strange[0]}', in an order that is not known",
            "Save the model as .h5.",
        )
    for name in sorted(inside, key=lambda one: ATTRIBUTES.index(one) if not strange else 0):
        yield from _arrays(group[name])


def _holds_arrays(group: Any) -> bool:
    found = group.visititems(lambda name, one: isinstance(one, h5py.Dataset) or None)
    return bool(found)
