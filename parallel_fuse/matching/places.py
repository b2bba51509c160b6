"""Which values are equal in every run, though different calls made them.

The same slice cut twice, the same ReLU of one tensor: layers that read them read one tensor. Equal
values share a place; every other value is a place of its own.
"""

from collections.abc import Collection, Hashable, Mapping

from keras import layers

from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call, Graph
from parallel_fuse.kinds.base import config_signature, operation_signature
from parallel_fuse.plan import Piece

Place = Hashable


def places_of(
    graph: Graph, pieces: Mapping[int, Piece], excluded: Collection[int] = ()
) -> dict[int, Place]:
    """value index → its place. `excluded` calls make places of their own."""
    places: dict[int, Place] = {value.index: value.index for value in graph.inputs}
    first: dict[Hashable, int] = {}
    for call in graph.calls:
        key = None if call.index in excluded else _work(call, places)
        same = call.index if key is None else first.setdefault(key, call.index)
        for value, original in zip(call.outputs, graph.calls[same].outputs):
            piece = pieces.get(value.index)
            places[value.index] = original.index if piece is None else _of(piece, places)
    return places


def _of(piece: Piece, places: Mapping[int, Place]) -> Place:
    return places[piece.source.index], piece.picks, piece.inserts


def _work(call: Call, places: Mapping[int, Place]) -> Hashable:
    """Equal for two calls that compute the same; None where that cannot be told."""
    what = _what(call)
    if what is None or any(value.masked for value in (*call.inputs, *call.outputs)):
        return None
    return what, tuple(places[value.index] for value in call.inputs), call.output.dtype


def _what(call: Call) -> Hashable:
    operation = call.operation
    if not type(operation).__module__.startswith("keras.") or isinstance(operation, layers.Lambda):
        return None
    try:
        return type(operation), tuple(sorted(_settings(call).items(), key=lambda item: item[0]))
    except (Reject, NotImplementedError, TypeError):
        return None


def _settings(call: Call) -> dict[str, Hashable]:
    operation = call.operation
    if not isinstance(operation, layers.Layer):
        return operation_signature(call)
    if operation.variables or hasattr(type(operation), "save_assets"):
        raise NotImplementedError("weights, noise or a vocabulary of its own")
    if len(call.args) != 1 or call.kwargs or operation.activity_regularizer is not None:
        raise NotImplementedError("call arguments, or a loss of its own")
    activation = getattr(operation, "activation", None)
    return {
        **config_signature(call),
        "activation": activation,
        "compute dtype": operation.compute_dtype,
    }
