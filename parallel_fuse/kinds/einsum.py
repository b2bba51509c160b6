"""EinsumDense: M contractions become one, with a letter for the lanes in front of every operand.

x0 ── "abc,cd->abd" ── y0
x1 ── "abc,cd->abd" ── y1   →   (M, …) ── "mabc,mcd->mabd" ── (M, …)
x2 ── "abc,cd->abd" ── y2
"""

import math
import re
from string import ascii_letters

from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, twin_of
from parallel_fuse.kinds.product import product_pays
from parallel_fuse.kinds.weights import stacked, unstacked
from parallel_fuse.lanes import LEADING, Layout
from parallel_fuse.plan import Bundle
from parallel_fuse.policy import Policy


def signature(call: Call) -> dict:
    _check_bias(call)
    _check_batch(call)
    return config_signature(call)


def _check_batch(call: Call) -> None:
    """What this package makes of Dense lanes is such a layer: its axis 0 are the lanes, and calls
    of it on several tensors must not be taken for more samples of one.
    """
    inputs, kernel, _ = re.split(r",|->", call.operation.equation.replace(" ", ""))
    if inputs[0] in kernel:
        raise Reject("axis 0 has weights of its own: it is no batch")


def _check_bias(call: Call) -> None:
    """Keras on TensorFlow adds a bias that is one vector along the last axis or the second, where
    the sizes fit, whatever its shape says: with lanes in front other axes would fit.
    """
    bias = call.operation.bias
    if bias is None:
        return
    wide = [size for size in bias.shape if size > 1]
    if not wide:
        raise Reject("a bias of one number")
    misread = len(wide) == 1 and bias.shape[-1] == 1 and call.output.shape[-1] == wide[0]
    if misread:
        raise Reject("a bias that Keras adds along another axis of the same size")


def build(bundle: Bundle, layout: Layout, common: dict) -> layers.EinsumDense:
    first = bundle.layers[0]
    inputs, kernel, output, lane = _letters(first.equation, bundle)
    return twin_of(
        first,
        common,
        equation=f"{lane}{inputs},{lane}{kernel}->{lane}{output}",
        output_shape=bundle.out_shapes[0],
        bias_axes=None if first.bias_axes is None else lane + first.bias_axes,
    )


def _letters(equation: str, bundle: Bundle) -> tuple[str, str, str, str]:
    """The letters of inputs, kernel and output, an ellipsis written out, and one that is free."""
    inputs, rest = equation.replace(" ", "").split(",")
    kernel, output = rest.split("->")
    free = [letter for letter in ascii_letters if letter not in equation]
    missing = len(bundle.in_shape) - len(inputs.replace("...", ""))
    middle = "".join(free[1 : missing + 1])
    return inputs.replace("...", middle), kernel, output.replace("...", middle), free[0]


def stack(members) -> list:
    return stacked(one.get_weights() for one in members)


def pays(bundle: Bundle, policy: Policy) -> None:
    product_pays(bundle, policy, math.prod(bundle.layers[0].kernel.shape))


BATCHED = Lowering(
    name="batched-einsum",
    layouts=lambda bundle: (LEADING,),
    build=build,
    stack=stack,
    unstack=unstacked,
    pays=pays,
    kernels=3,  # product, bias, activation
)

EINSUM_DENSE = Kind(
    handles=(layers.EinsumDense,), signature=signature, lowerings=(BATCHED,), activation=True
)
