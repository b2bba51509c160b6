"""What can go wrong, as the user sees it, and the one channel used inside."""

from typing import Any


class ParallelFuseError(Exception):
    """Base of every error this package raises on purpose; its message is one readable line."""


class UnsupportedModelError(ParallelFuseError):
    """The model has no graph to work on (a subclassed or an unbuilt model)."""


class NotEquivalentError(ParallelFuseError):
    """Two models were run and do not compute the same.

    Attributes:
        verification: the full `Verification`, with the figures of every output.
    """

    def __init__(self, message: str, verification: Any = None):
        super().__init__(message)
        self.verification = verification


class NotVerifiedError(ParallelFuseError):
    """Nothing was found wrong, but the two models could not be compared.

    The original cannot run on this machine, gives other values at each call, or no valid random
    input can be made for it.
    """


class InvalidInputsError(ParallelFuseError, ValueError):
    """The `inputs` the caller gave do not fit the model."""


class ConversionError(ParallelFuseError):
    """A file could not be read as a model, or the result could not be written."""


class Reject(Exception):  # noqa: N818 - a verdict, not an error
    """The one failure channel inside: "these do not fuse, because …".

    Raised by a rule, caught in one place, shown in the report; it never reaches the user as an
    exception.

    Attributes:
        reason: a sentence a user understands, naming the layer and the attribute, such as
            "dense_7: units 16, its siblings 32".
    """

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason
