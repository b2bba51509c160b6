"""Activations that Keras 3 computes otherwise than Keras 2 did."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="parallel_fuse")
def keras2_hard_sigmoid(x):
    """`hard_sigmoid` of Keras 1 and 2, 0.2 x + 0.5 between 0 and 1; Keras 3 has x / 6 + 0.5.

    It is what LSTM and GRU took for their gates by default before Keras 2.3.

    Source: `activations.hard_sigmoid` in tf_keras 2.19.
    """
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)
