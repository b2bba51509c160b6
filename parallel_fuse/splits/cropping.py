"""`Cropping1D/2D/3D`: a contiguous part of each spatial axis.

    Cropping1D((2, 1))(x)    Piece(x, (None, (2, …, L - 2), None))
"""

from keras import layers

from parallel_fuse.graph import Call
from parallel_fuse.plan import Piece
from parallel_fuse.splits.base import Split, whole


def cropping_pieces(call: Call) -> dict[int, Piece]:
    source, layer = call.inputs[0], call.operation
    crops = [layer.cropping] if isinstance(layer, layers.Cropping1D) else layer.cropping
    first = 2 if getattr(layer, "data_format", None) == "channels_first" else 1
    picks = whole(len(source.shape))
    for axis, (before, after) in enumerate(crops, start=first):
        size = source.shape[axis]
        if not before and not after:
            continue
        if size is None:
            return {}
        picks[axis] = tuple(range(before, size - after))
    return {0: Piece(source, tuple(picks))}


CROPPING = Split(
    handles=(layers.Cropping1D, layers.Cropping2D, layers.Cropping3D), pieces=cropping_pieces
)
