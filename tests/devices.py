"""What this machine can do; tests of what it cannot are skipped, with the reason."""

import keras
import numpy as np
import pytest
from keras import layers
from packaging.version import Version


def since(version: str) -> pytest.MarkDecorator:
    """For what the oldest Keras that this package takes does not have, or gets wrong."""
    older = Version(keras.__version__) < Version(version)
    return pytest.mark.skipif(older, reason=f"Keras {version} or newer")


TENSORFLOW = keras.backend.backend() == "tensorflow"

# the class that stands for M convolutions: a stock one with groups where that is as fast
GROUPED_CONV = "GroupedConv" if TENSORFLOW else "Conv"


def runs(layer, shape) -> bool:
    try:
        layer(np.ones(shape, "float32"))
    except Exception:  # noqa: BLE001, each backend says no in its own way
        return False
    return True


def convolves_channels_first() -> bool:
    return runs(layers.Conv2D(2, 2, data_format="channels_first"), (1, 3, 4, 5))


channels_first = pytest.mark.skipif(
    not convolves_channels_first(),
    reason=f"{keras.backend.backend()} cannot convolve channels_first on this machine",
)
