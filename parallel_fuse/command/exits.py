"""What `parallel-fuse` tells the shell: one exit code per way of not succeeding."""

from enum import IntEnum

from parallel_fuse.errors import (
    ConversionError,
    NotEquivalentError,
    NotVerifiedError,
    UnsupportedModelError,
)


class Exit(IntEnum):
    """Exit codes of the command line. They are stable: scripts compare them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    MISSING_FILE = 3
    NOT_A_MODEL = 4
    UNSUPPORTED = 5
    UNKNOWN_CLASS = 6
    OUTPUT_EXISTS = 7
    NOT_EQUIVALENT = 8
    NOTHING_FUSED = 9
    WRITE_FAILED = 10
    UNSAFE_LAMBDA = 11
    MISSING_PACKAGE = 12
    NOT_VERIFIED = 13
    WRITTEN_DIFFERS = 14
    SOME_FAILED = 15
    UNTRANSLATED = 16
    DAMAGED = 17
    STRAY_PATH = 18
    WEIGHTS_ALONE = 19


MEANINGS = {
    Exit.OK: "success",
    Exit.FAILED: "interrupted, or an error not listed here",
    Exit.USAGE: "wrong usage of the command line",
    Exit.MISSING_FILE: "a file is missing or cannot be read",
    Exit.NOT_A_MODEL: "a file is not a Keras model",
    Exit.UNSUPPORTED: "the model has no graph that can be fused (a subclassed model)",
    Exit.UNKNOWN_CLASS: "a custom class or function is unknown",
    Exit.OUTPUT_EXISTS: "the output exists; `--overwrite` replaces it",
    Exit.NOT_EQUIVALENT: "two models do not compute the same thing",
    Exit.NOTHING_FUSED: "nothing was fused and `--strict` was given",
    Exit.WRITE_FAILED: "the output could not be written",
    Exit.UNSAFE_LAMBDA: "the file holds Python code (a Lambda) and `--unsafe-lambda` was not given",
    Exit.MISSING_PACKAGE: "a package that is needed is not installed",
    Exit.NOT_VERIFIED: "two models could not be compared on this machine",
    Exit.WRITTEN_DIFFERS: "the written file does not give in its runtime what the original gives",
    Exit.SOME_FAILED: "of several files some failed; the table says which and why",
    Exit.UNTRANSLATED: "an operation of TensorFlow has no translation",
    Exit.DAMAGED: "a file is cut short or damaged",
    Exit.STRAY_PATH: "an archive holds a path outside itself, or a link",
    Exit.WEIGHTS_ALONE: "a file holds weights alone, without the model",
}


class FileError(ConversionError):
    """A file could not be read, fused or written; `code` says which way it failed."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException) -> Exit:
    """Return the exit code that stands for an error."""
    if isinstance(error, FileError):
        return error.code
    if isinstance(error, UnsupportedModelError):
        return Exit.UNSUPPORTED
    if isinstance(error, NotEquivalentError):
        return Exit.NOT_EQUIVALENT
    if isinstance(error, NotVerifiedError):
        return Exit.NOT_VERIFIED
    if isinstance(error, ImportError):
        return Exit.MISSING_PACKAGE
    return Exit.FAILED
