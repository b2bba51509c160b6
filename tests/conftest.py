"""Settings and fixtures that every test shares. KERAS_BACKEND is left as the user set it."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Each worker would otherwise start a thread per core and fight the others for it.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import hypothesis
import keras
import pytest

SEED = 20240117

hypothesis.settings.register_profile("ci", max_examples=300, deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", max_examples=2000, deadline=None)
hypothesis.settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _seed():
    """Each test draws the same weights and inputs, alone or among others."""
    keras.utils.set_random_seed(SEED)


@pytest.fixture(autouse=True, scope="module")
def _fresh_keras():
    """Forget the graphs of the module before (once per test would cost more than the tests)."""
    keras.utils.clear_session()
