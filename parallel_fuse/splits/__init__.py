"""The splits the package knows. To add one: `splits=(MINE, *SPLITS)`."""

from parallel_fuse.splits.base import Split
from parallel_fuse.splits.cropping import CROPPING
from parallel_fuse.splits.dividing import SPLIT, UNSTACK
from parallel_fuse.splits.indexing import GETITEM, TAKE
from parallel_fuse.splits.probing import PROBED

SPLITS: tuple[Split, ...] = (GETITEM, TAKE, SPLIT, UNSTACK, CROPPING, PROBED)

__all__ = ["SPLITS", "Split"]
