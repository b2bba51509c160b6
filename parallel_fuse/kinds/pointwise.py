"""Raw operations on each element (`ops.relu(x)`, `x * 2.0`): one call on the lanes, as they lie.

    x0 ── relu ── y0
    x1 ── relu ── y1      →      (lanes in any layout) ── relu ── (the same layout)
    x2 ── relu ── y2

Equal attributes and equal plain numbers beside the tensor are required; an array there would have
to be broadcast, and rejects. Lanes that read one tensor have one result.
"""

from parallel_fuse import _keras
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call
from parallel_fuse.kinds.axes import any_last_width, anywhere, last_widths
from parallel_fuse.kinds.base import Kind, Lowering, operation_signature
from parallel_fuse.kinds.once import ONCE, copy_of


def signature(call: Call) -> dict:
    if any(value.shape != call.output.shape for value in call.inputs):
        shapes = " and ".join(str(value.shape) for value in call.inputs)
        raise Reject(f"operands of shapes {shapes} are broadcast")
    if len(call.inputs) > 1:
        raise Reject("operands from several tensors")
    return {**operation_signature(call), **any_last_width(call)}


POINTWISE = Kind(
    handles=_keras.POINTWISE,
    signature=signature,
    lowerings=(ONCE, Lowering("as-they-lie", anywhere, copy_of, sizes=last_widths)),
    light=True,
)
