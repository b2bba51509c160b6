"""SavedModel folders: those of Keras 2 by their configuration, others by their serving graph."""

from typing import Any

from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.formats import check_installed
from parallel_fuse.reading.keras2 import checkpoint
from parallel_fuse.reading.keras2.layers import Making, is_model
from parallel_fuse.reading.keras2.metadata import metadata
from parallel_fuse.reading.keras2.replay import model_of
from parallel_fuse.reading.refusing import Refused, not_a_model
from parallel_fuse.reading.request import Read, Request
from parallel_fuse.reading.weights import fill
from parallel_fuse.translation.values import UntranslatedError
from parallel_fuse.wording import first_line


def read(request: Request) -> Read:
    """The model, functional, with the weights of the folder.

    Raises:
        FileError: an operation of the graph has no translation; the message names it.

    Where its configuration cannot be read (a class is unknown, Python code may not run), it is
    made from the graph that serves it, which has the operations that all that comes to.
    """
    check_installed(("tensorflow",), "tensorflow")
    graph = _object_graph(request)
    noted = metadata(request.path, graph)
    if not _has_config(noted.get(0)):
        return Read(_of_graph(request))
    try:
        return Read(_of_keras(request, graph, noted))
    except Exception as error:  # noqa: BLE001 - what is wrong with it does not matter to the graph
        return Read(_of_graph_instead(request, error))


def _object_graph(request: Request) -> Any:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString((request.path / "saved_model.pb").read_bytes())
    except DecodeError as error:
        what = "whose saved_model.pb is damaged"
        raise not_a_model(request.path, what, Exit.DAMAGED) from error
    if not saved.meta_graphs:
        raise not_a_model(request.path, "whose saved_model.pb holds no graph")
    return saved.meta_graphs[0].object_graph_def


def _has_config(root: Any) -> bool:
    return root is not None and isinstance(root.get("config"), dict) and is_model(root)


def _of_keras(request: Request, graph: Any, noted: dict[int, Any]) -> Any:
    making = Making(request.known, request.safe_mode, request.told)
    model = model_of(noted[0], making)
    fill(making, checkpoint.arrays_of(request.path, graph, noted))
    return model


def _of_graph(request: Request) -> Any:
    from parallel_fuse.translation.walk import functional_from_saved_model

    try:
        model = functional_from_saved_model(request.path)
    except UntranslatedError as reason:
        raise FileError(Exit.UNTRANSLATED, str(reason)) from reason
    request.told("the graph of a SavedModel's signature, as it runs in inference")
    return model


def _of_graph_instead(request: Request, error: Exception) -> Any:
    why = error.what if isinstance(error, Refused) else f"that fails with {first_line(error)}"
    request.told.layers.clear()
    request.told(f"its configuration is not read: it is one {why}")
    try:
        return _of_graph(request)
    except Exception as second:
        raise error from second
