"""The joins the package knows. To add one: `joins=(MINE, *JOINS)`."""

from parallel_fuse.joins.base import Join
from parallel_fuse.joins.reductions import ADD, AVERAGE, MAXIMUM, MINIMUM, MULTIPLY
from parallel_fuse.joins.side_by_side import CONCATENATE, STACK

JOINS: tuple[Join, ...] = (CONCATENATE, STACK, ADD, AVERAGE, MAXIMUM, MINIMUM, MULTIPLY)

__all__ = ["JOINS", "Join"]
