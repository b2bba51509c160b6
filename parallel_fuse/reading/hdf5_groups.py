"""Groups and attributes of the HDF5 files that Keras writes."""

from typing import Any

import h5py
import numpy as np

from parallel_fuse.reading.refusing import Refused


def text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def listed(group: Any, attribute: str) -> list[str]:
    """An attribute of names; Keras cuts long ones into `names0`, `names1`, …"""
    if attribute in group.attrs:
        return [text(one) for one in group.attrs[attribute]]
    found, number = [], 0
    while f"{attribute}{number}" in group.attrs:
        found += [text(one) for one in group.attrs[f"{attribute}{number}"]]
        number += 1
    return found


def array(group: Any, name: str) -> np.ndarray:
    """The numbers at a path in the group.

    Raises:
        Refused: they lie outside the file.
    """
    link = group.get(name, getlink=True)
    found = group[name]
    outside = isinstance(link, h5py.ExternalLink) or found.file.filename != group.file.filename
    if outside or not isinstance(found, h5py.Dataset) or found.external:
        raise Refused(f"whose weight '{name}' lies in another file", "Save the model again.")
    return np.asarray(found)
