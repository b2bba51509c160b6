"""Fuse the parallel branches of a trained Keras model into batched layers."""

from parallel_fuse.api import explain, fuse_parallel_branches
from parallel_fuse.errors import (
    ConversionError,
    NotEquivalentError,
    ParallelFuseError,
    UnsupportedModelError,
)
from parallel_fuse.joins import JOINS
from parallel_fuse.kinds import KINDS
from parallel_fuse.splits import SPLITS
from parallel_fuse.verify import verify_equivalence

__all__ = [
    "JOINS",
    "KINDS",
    "SPLITS",
    "ConversionError",
    "NotEquivalentError",
    "ParallelFuseError",
    "UnsupportedModelError",
    "explain",
    "fuse_parallel_branches",
    "verify_equivalence",
]
