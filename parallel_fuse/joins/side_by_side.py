"""Concatenate and stack: lanes laid side by side are their own result in the right layout.

    y0, y1, y2 ── Concatenate(-1)      →      (batch, …, M, C) ── reshape ── (batch, …, M·C)
    y0, y1, y2 ── stack(axis=1)        →      (batch, M, …, C): nothing to do

A Concatenate of Concatenates along one axis is one join of all their operands.
"""

from keras import layers

from parallel_fuse import _keras
from parallel_fuse.graph import Call
from parallel_fuse.joins.base import Join
from parallel_fuse.lanes import Layout


def concatenated(call: Call) -> Layout:
    rank = len(call.output.shape)
    return Layout(call.operation.axis % rank, folded=True)


def stacked(call: Call) -> Layout:
    return Layout(call.operation.axis % len(call.output.shape))


CONCATENATE = Join(
    handles=(layers.Concatenate, _keras.Concatenate),
    layout=concatenated,
    associative=True,
)
STACK = Join(handles=(_keras.Stack,), layout=stacked)
