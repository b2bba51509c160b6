"""MultiHeadAttention: M of them become one, the lanes beside the heads.

    x0 ── MultiHeadAttention ── y0
    x1 ── MultiHeadAttention ── y1  →  (M, batch, time, n) ── StackedMultiHeadAttention ── (M, …)
    x2 ── MultiHeadAttention ── y2

Query, value and key are lanes of their own. Assumes attention over one axis of sequences, without
masks and without dropout.
"""

import math

from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.kinds.product import product_pays
from parallel_fuse.kinds.weights import stacked, unstacked
from parallel_fuse.lanes import LEADING, Layout
from parallel_fuse.layers.stacked_attention import StackedMultiHeadAttention
from parallel_fuse.plan import Bundle
from parallel_fuse.policy import Policy

OPTIONS = ("kernel_regularizer", "bias_regularizer", "kernel_constraint", "bias_constraint")


def signature(call: Call) -> dict:
    layer, config = call.operation, config_signature(call)
    if any(len(value.shape) != 3 for value in call.inputs):
        raise Reject("attention over more than one axis")
    if layer.dropout:
        raise Reject(f"dropout {layer.dropout}: a fused attention draws none")
    if call.kwargs.get("use_causal_mask"):
        raise Reject("a causal mask")
    if any(config.get(name) is not None for name in OPTIONS):
        raise Reject("a regularizer or a constraint on the weights of an attention")
    if isinstance(config.get("output_shape"), tuple) and len(config["output_shape"]) > 1:
        raise Reject("attention over more than one axis")
    _check_weights(layer)
    return {**config, "key": len(call.inputs)}


def _check_weights(layer: layers.MultiHeadAttention) -> None:
    """The projections inside may have been adapted or frozen one by one."""
    expected = 8 if layer.use_bias else 4
    if len(layer.weights) != expected or len(layer.trainable_weights) not in (0, expected):
        raise Reject("projections that were adapted or frozen one by one")


def build(bundle: Bundle, layout: Layout, common: dict) -> StackedMultiHeadAttention:
    first = bundle.layers[0]
    template = twin_of(first, {**common, "name": first.name})
    return StackedMultiHeadAttention(template, bundle.size, **common)


def stack(members) -> list:
    return stacked(one.get_weights() for one in members)


def pays(bundle: Bundle, policy: Policy) -> None:
    product_pays(bundle, policy, math.prod(bundle.layers[0].weights[0].shape))


STACKED = Lowering(
    name="stacked-attention",
    layouts=lambda bundle: (LEADING,),
    build=build,
    stack=stack,
    unstack=unstacked,
    pays=pays,
    kernels=8,
    portable=False,
)

ATTENTION = Kind(
    handles=(layers.MultiHeadAttention,),
    signature=signature,
    lowerings=(STACKED,),
    keywords=("value", "key"),
)
