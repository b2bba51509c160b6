"""Which of several rules a call falls under. Kinds and splits are looked up in the same way."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from parallel_fuse.graph import Call

Rule = TypeVar("Rule")  # has `handles`, exact classes, and `takes`, None or a test of the call


def rule_for(rules: Sequence[Rule]) -> Callable[[Call], Rule | None]:
    """call → its rule: by its exact class, or the first that takes it."""
    by_class = {cls: rule for rule in reversed(rules) for cls in rule.handles}
    others = [rule for rule in rules if rule.takes is not None]

    def find(call: Call) -> Rule | None:
        exact = by_class.get(type(call.operation))
        return exact or next((rule for rule in others if rule.takes(call)), None)

    return find
