"""Kinds × joins × splits: every kind with every join and with every split, every join with every
split, each model fused and compared.

The full product would say little more and take hours: the third of the three is taken in turn.
"""

import keras
import pytest

from parallel_fuse import fuse_parallel_branches, verify_equivalence
from parallel_fuse.graph import Graph
from parallel_fuse.kinds import KINDS
from parallel_fuse.policy import EVERYTHING
from tests.asserts import assert_same_outputs, assert_unchanged, snapshot
from tests.builders import inputs_for, randomise
from tests.examples import EXAMPLES, JOINS, SPLITS, branched

# Here nothing shows that the lanes belong together, or gathering them costs what it saves.
MAY_STAY = ("inputs", "a slice and inputs", "operations", "the same tensor")


def cells() -> list[tuple[str, str, str]]:
    """(kind, split, join), so that any two of the three meet."""
    splits, joins = list(SPLITS), list(JOINS)
    return [
        (kind, splits[(row + column) % len(splits)], join)
        for row, kind in enumerate(EXAMPLES)
        for column, join in enumerate(joins)
    ]


NEXT_TO_NOTHING = ("Identity", "Flatten", "Reshape")  # no kernel to save, or a quarter of one


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_kind(example):
    for name, split, join in cells():
        if name == example:
            check(name, split, join)


def check(example: str, split: str, join: str) -> None:
    where = f"{example} × {split} × {join}"
    model = randomise(branched(example, split, join))
    before = snapshot(model)
    fused, report = fuse_parallel_branches(
        model, return_report=True, verify=False, policy=EVERYTHING
    )
    assert_unchanged(model, before)
    light = join == "no join" or not any(layer.weights for layer in model.layers)
    may_stay = (light and split in MAY_STAY) or example in NEXT_TO_NOTHING
    assert report.changed or may_stay, f"{where}\n{report}"
    for batch in (1, 3):
        try:
            assert_same_outputs(model, fused, inputs_for(model, batch, seed=batch))
        except AssertionError as error:
            raise AssertionError(f"{where}\n{Graph.of(model)}\n{report}") from error


@pytest.mark.parametrize("example", EXAMPLES)
def test_one_of_every_kind_by_the_product_s_own_check(example):
    split = list(SPLITS)[list(EXAMPLES).index(example) % len(SPLITS)]
    model = randomise(branched(example, split, "Concatenate"))
    fused = fuse_parallel_branches(model, verify=False, policy=EVERYTHING)
    verify_equivalence(model, fused)


def test_any_two_meet():
    found = cells()
    assert {(k, s) for k, s, _ in found} == {(k, s) for k in EXAMPLES for s in SPLITS}
    assert {(s, j) for _, s, j in found} == {(s, j) for s in SPLITS for j in JOINS}


def test_every_kind_has_an_example():
    seen = set()
    for shape, branch in EXAMPLES.values():
        x = keras.Input(shape)
        seen |= {type(operation) for operation in keras.Model(x, branch(x)).operations}
    missing = [kind.handles for kind in KINDS if kind.handles and not seen & set(kind.handles)]
    assert not missing, f"no example in tests/examples.py for {missing}"
