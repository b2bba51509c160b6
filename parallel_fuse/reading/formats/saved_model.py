"""SavedModel folders: what their serving signature computes."""

from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.reading.request import Read, Request
from parallel_fuse.translation.values import UntranslatedError


def read(request: Request) -> Read:
    """A functional model in inference form, from the operations of the graph.

    Raises:
        FileError: an operation has no translation; the message names it.
    """
    from parallel_fuse.translation.walk import functional_from_saved_model

    try:
        model = functional_from_saved_model(request.path)
    except UntranslatedError as reason:
        raise FileError(Exit.UNTRANSLATED, str(reason)) from reason
    request.told("the graph of a SavedModel's signature, as it runs in inference")
    return Read(model)
