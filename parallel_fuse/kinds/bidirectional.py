"""Bidirectional: M loops forward and M loops backward become one loop of 2·M lanes.

    x0 ── Bidirectional ── y0
    x1 ── Bidirectional ── y1   →   (M, batch, time, n) ── StackedRNN ── (M, batch, …, 2·units)
    x2 ── Bidirectional ── y2

The backward lanes read reversed time. Assumes two directions that are alike but for that, as they
are unless a `backward_layer` of its own was given.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, config_signature
from parallel_fuse.kinds.recurrent import (
    HISTORY,
    RECURRENT,
    SHARED,
    STACKED,
    check_call,
    functions,
    template,
)
from parallel_fuse.lanes import Layout
from parallel_fuse.layers.recurrent import StackedRNN, directions_of
from parallel_fuse.plan import Bundle


def signature(call: Call) -> dict:
    """That of its two layers, who must be alike, and how their outputs are merged."""
    check_call(call)
    wrapper = call.operation
    forward, backward = (_of_direction(call, one) for one in directions_of(wrapper))
    differing = [name for name in forward if forward[name] != backward.get(name)]
    if differing:
        raise Reject(f"forward and backward layer differ in {', '.join(differing)}")
    if any(one.dtype_policy != wrapper.dtype_policy for one in directions_of(wrapper)):
        raise Reject("the layers inside have dtype policies of their own")
    return {**forward, "merge_mode": wrapper.merge_mode, "go_backwards": _backwards(wrapper)}


def _of_direction(call: Call, one: Any) -> dict:
    if type(one) not in RECURRENT.handles:
        raise Reject(f"wraps a {type(one).__name__}, expected LSTM, GRU or SimpleRNN")
    if one.activity_regularizer is not None:
        raise Reject("activity regularizer: its loss depends on the batch axis")
    config = config_signature(replace(call, operation=one), drop=(*HISTORY, "go_backwards"))
    return {"class": type(one), "trainable inside": one.trainable, **config, **functions(one)}


def _backwards(wrapper: layers.Bidirectional) -> tuple[bool, ...]:
    return tuple(one.go_backwards for one in directions_of(wrapper))


def build(bundle: Bundle, layout: Layout, common: dict, shared: bool = False) -> StackedRNN:
    return StackedRNN(whole_template(bundle, common), bundle.size, shared=shared, **common)


def whole_template(bundle: Bundle, common: dict) -> layers.Bidirectional:
    first = bundle.layers[0]
    forward, backward = (template(one, common) for one in directions_of(first))
    return layers.Bidirectional(
        forward, first.merge_mode, backward_layer=backward, **{**common, "name": first.name}
    )


BIDIRECTIONAL = Kind(
    handles=(layers.Bidirectional,),
    signature=signature,
    lowerings=(replace(SHARED, build=partial(build, shared=True)), replace(STACKED, build=build)),
    keywords=("mask", "initial_state"),
    several=True,
)
