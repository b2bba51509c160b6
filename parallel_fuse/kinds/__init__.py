"""The kinds the package knows. To add one: `kinds=(MINE, *KINDS)`."""

from parallel_fuse.kinds.base import Kind, Lowering
from parallel_fuse.kinds.dense import DENSE

KINDS: tuple[Kind, ...] = (DENSE,)

__all__ = ["KINDS", "Kind", "Lowering"]
