"""Ask why some branches stay as they are: `explain` builds nothing and changes nothing.

    python examples/why_not.py
"""

import keras
from keras import layers

from parallel_fuse import explain


def uneven_model() -> keras.Model:
    """Return a model whose branches differ: in width, in a frozen layer, in their class."""
    inputs = keras.Input((12, 8), name="readings")
    same = [layers.Dense(16, activation="relu")(inputs[:, index]) for index in range(9)]
    frozen = layers.Dense(16, activation="relu", trainable=False, name="frozen")(inputs[:, 9])
    wide = layers.Dense(24, activation="relu", name="wide")(inputs[:, 10])
    normalized = layers.LayerNormalization(name="normalized")(inputs[:, 11])
    return keras.Model(inputs, layers.Concatenate()([*same, frozen, wide, normalized]))


def main() -> None:
    """Print what would fuse, what not, and why."""
    print(explain(uneven_model()).to_text())


if __name__ == "__main__":
    main()
