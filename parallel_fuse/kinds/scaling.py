"""Gammas and betas of M layers as one vector each; what some lanes lack is filled in.

A missing gamma is ones, a missing beta zeros: the layer computes the same.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import config_signature
from parallel_fuse.kinds.weights import Arrays, side_by_side


def scaled_signature(call: Call, drop: Sequence[str] = ()) -> dict[str, Hashable]:
    """The configuration, with `scale` and `center` free where filling in changes nothing.

    Raises:
        Reject: whole numbers, which the layers round in ways of their own.
    """
    layer, dtype = call.operation, call.inputs[0].dtype
    if "float" not in dtype:
        raise Reject(f"normalizes {dtype}, expected floats")
    found = config_signature(call, drop=drop)
    found["scale or center"] = bool(layer.scale or layer.center)
    # A regularizer is zero of zeros, not of ones.
    free = ("center",) if layer.gamma_regularizer is not None else ("center", "scale")
    return {key: value for key, value in found.items() if key not in free}


def present(members: Sequence[Any]) -> dict[str, bool]:
    """Which of `scale` and `center` any lane has."""
    return {name: any(getattr(one, name) for one in members) for name in ("scale", "center")}


def stack(members: Sequence[Any]) -> Arrays:
    """Gamma and beta, whichever any lane has: each one vector, lane after lane."""
    wanted = present(members)
    return side_by_side(_gamma_and_beta(one, **wanted) for one in members)


def _gamma_and_beta(one: Any, scale: bool, center: bool) -> Iterable[np.ndarray]:
    weights = [array.reshape(-1) for array in one.get_weights()]
    if not weights:
        return []
    gamma = weights[0] if one.scale else np.ones_like(weights[0])
    beta = weights[-1] if one.center else np.zeros_like(weights[0])
    return [gamma] * scale + [beta] * center
