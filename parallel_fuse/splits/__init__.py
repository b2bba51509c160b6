"""The splits the package knows. To add one: `splits=(MINE, *SPLITS)`."""

from parallel_fuse.splits.base import Split
from parallel_fuse.splits.indexing import GETITEM

SPLITS: tuple[Split, ...] = (GETITEM,)

__all__ = ["SPLITS", "Split"]
