"""Sixty sensors, one small Dense tower each: what a fused model is, in one screen.

    python examples/sensors.py
"""

import keras
import numpy as np
from keras import layers

from parallel_fuse import fuse_parallel_branches


def sensor_model(sensors: int = 60, readings: int = 8) -> keras.Model:
    """Return a model with one tower per sensor; its input has shape (batch, sensors, readings)."""
    inputs = keras.Input((sensors, readings), name="readings")
    towers = []
    for index in range(sensors):
        hidden = layers.Dense(16, activation="relu")(inputs[:, index])
        towers.append(layers.Dense(1)(hidden))
    return keras.Model(inputs, layers.Concatenate()(towers), name="sensors")


def main() -> None:
    """Fuse the model, print the report, and show that both give the same values."""
    model = sensor_model()
    fused, report = fuse_parallel_branches(model, return_report=True)
    print(report.to_text())
    batch = np.random.default_rng(0).normal(size=(4, 60, 8)).astype("float32")
    difference = np.abs(model.predict(batch, verbose=0) - fused.predict(batch, verbose=0)).max()
    print(f"largest difference on a batch of 4: {difference:.1e}")


if __name__ == "__main__":
    main()
