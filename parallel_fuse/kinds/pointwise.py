"""Raw operations on each element (`ops.relu(x)`, `x * 2.0`, `x + y`): one call on the lanes.

    x0 ── relu ── y0
    x1 ── relu ── y1      →      (lanes in any layout) ── relu ── (the same layout)
    x2 ── relu ── y2

Attributes and plain numbers beside the tensors must be equal; an array there rejects. Operands of a
lane must have one rank; where their sizes differ they are broadcast within the lane, which needs
those axes whole. An operation whose operands *are* the lanes is a join, and never comes here.
Lanes that read the same tensors have one result.
"""

from collections.abc import Sequence

from keras import layers, tree

from parallel_fuse import _keras
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call, Value
from parallel_fuse.kinds.axes import any_last_width, anywhere, clear_of, last_widths
from parallel_fuse.kinds.base import Kind, Lowering, config_signature, operation_signature
from parallel_fuse.kinds.once import ONCE, copy_of
from parallel_fuse.lanes import Layout
from parallel_fuse.plan import Bundle

ADDITIONS = (layers.Add, layers.Average, _keras.Add)
WRONG_AXIS = "Keras on TensorFlow takes one for a bias where sizes happen to agree"


def signature(call: Call) -> dict:
    shapes = [value.shape for value in call.inputs]
    if len({len(shape) for shape in (*shapes, call.output.shape)}) > 1:
        raise Reject(f"operands of different rank: {' and '.join(map(str, shapes))}")
    if uneven(shapes) and type(call.operation) in ADDITIONS:
        raise Reject(f"operands of shapes {' and '.join(map(str, shapes))} are added: {WRONG_AXIS}")
    return {**own_signature(call), **({} if uneven(shapes) else any_last_width(call))}


def own_signature(call: Call) -> dict:
    if not isinstance(call.operation, layers.Layer):
        return operation_signature(call)
    if not all(isinstance(leaf, Value) for leaf in tree.flatten(call.args)):
        raise Reject("an array among the operands")
    return config_signature(call)


def uneven(shapes: Sequence[tuple]) -> set[int]:
    """The axes along which operands of one rank are broadcast."""
    return {axis for axis, sizes in enumerate(zip(*shapes)) if len(set(sizes)) > 1}


def layouts(bundle: Bundle) -> tuple[Layout, ...] | None:
    broadcast = uneven([row[0].shape for row in bundle.inputs])
    return clear_of(broadcast, len(bundle.in_shape)) if broadcast else anywhere(bundle)


POINTWISE = Kind(
    handles=_keras.POINTWISE,
    signature=signature,
    lowerings=(ONCE, Lowering("as-they-lie", layouts, copy_of, sizes=last_widths)),
    light=True,
)
