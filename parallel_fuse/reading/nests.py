"""Configurations are nests of dicts and lists: finding and replacing things in them."""

from collections.abc import Callable, Iterator
from typing import Any


def dicts(nest: Any) -> Iterator[dict[str, Any]]:
    """Every dict in the nest, outer ones first. Iterative: the depth is the file's to choose."""
    waiting = [nest]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(reversed(list(one.values())))
        elif isinstance(one, (list, tuple)):
            waiting.extend(reversed(one))


def objects(nest: Any) -> Iterator[dict[str, Any]]:
    """Every serialised object: a dict with a class and its configuration."""
    for one in dicts(nest):
        if isinstance(one.get("class_name"), str) and isinstance(one.get("config"), dict):
            yield one


def replaced(nest: Any, change: Callable[[Any], Any]) -> Any:
    """A copy in which `change` was asked for each part, inner parts first."""
    if isinstance(nest, dict):
        return change({key: replaced(value, change) for key, value in nest.items()})
    if isinstance(nest, (list, tuple)):
        return change([replaced(value, change) for value in nest])
    return change(nest)
