"""Random models: fused, compared, fused again. `--hypothesis-profile long` tries many more."""

import itertools

import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st

from parallel_fuse import fuse_parallel_branches, verify_equivalence
from parallel_fuse.graph import Graph
from parallel_fuse.policy import EVERYTHING, Policy
from tests.asserts import assert_same_outputs, assert_unchanged, snapshot
from tests.builders import inputs_for
from tests.generator import random_model

turn = itertools.count()


def built(draw):
    """Keras itself cannot build every model that is drawn: a number times a tensor counts as sparse
    (3.15), and a custom layer behind it finds no shape.
    """
    try:
        return random_model(draw)
    except (TypeError, UserWarning) as error:
        assume("infer the output shape" not in str(error) and "unbuilt state" not in str(error))
        raise


def runs(model, inputs) -> bool:
    """Sequences of unknown lengths may turn out unequal: then no model can add them."""
    if not any(None in tensor.shape[1:] for tensor in model.inputs):
        return True
    try:
        model(inputs)
    except Exception:  # noqa: BLE001 - backends raise whatever they like
        return False
    return True


# To shrink a model takes minutes: only the long profile, which somebody waits for, does.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
if not settings.default.derandomize:
    PHASES.append(Phase.shrink)


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")  # of size 1
@settings(suppress_health_check=list(HealthCheck), phases=PHASES)
@given(data=st.data(), everything=st.booleans(), portable=st.booleans())
def test_random_models(data, everything, portable):
    model = built(data.draw)
    note(str(Graph.of(model)))
    inputs = inputs_for(model, 3, seed=1)
    assume(runs(model, inputs))
    before = snapshot(model)
    policy = EVERYTHING if everything else Policy()
    fused, report = fuse_parallel_branches(
        model, return_report=True, verify=False, policy=policy, portable=portable
    )
    note(str(report))
    assert_unchanged(model, before)
    assert_same_outputs(model, fused, inputs)
    _, again = fuse_parallel_branches(fused, return_report=True, verify=False, portable=portable)
    assert not again.changed, str(again)
    if next(turn) % 10 == 0:
        verify_equivalence(model, fused)
