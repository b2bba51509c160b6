"""Lanes that read one tensor, without weights or noise: they all have one result.

    x ── ReLU ── y0
    x ── ReLU ── y1      →      x ── ReLU ── y0 = y1 = y2
    x ── ReLU ── y2
"""

from typing import Any

from keras import layers

from parallel_fuse import _keras
from parallel_fuse.kinds.base import Lowering, twin_of
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle


def copy_of(bundle: Bundle, layout: Layout, common: dict) -> Any:
    """The first lane's layer or operation, under its new name."""
    first = bundle.layers[0]
    if isinstance(first, layers.Layer):
        return twin_of(first, common)
    return _keras.fresh_operation(first, common["name"])


ONCE = Lowering("once", layouts=lambda bundle: None, build=copy_of, shared=True, once=True)
