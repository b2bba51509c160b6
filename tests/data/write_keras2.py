"""Writes keras2.zip: models as Keras 2 saved them, with what Keras 2 computes from a fixed input.

Run it in an environment of its own, for Keras 2 lives beside no other:

    python3.11 -m venv keras2
    keras2/bin/pip install "tensorflow==2.19.*" tf_keras h5py
    keras2/bin/python tests/data/write_keras2.py

Lambda layers hold byte code of the Python version that runs this.
"""

import json
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tf_keras import backend as K  # noqa: N812 - the name that saved lambdas use
from tf_keras import layers

TARGET = Path(__file__).with_name("keras2.zip")
LANES = 9


def lambdas() -> keras.Model:
    """Slices by lambdas: an index as default argument, `K`, `tf`, and an argument of the layer."""
    x = keras.Input((LANES, 4), name="sensors")

    def slices(i):
        yield layers.Lambda(lambda t, i=i: t[:, i])
        yield layers.Lambda(lambda t, k: t[:, k], arguments={"k": i})
        yield layers.Lambda(lambda t, i=i: K.reshape(t[:, i : i + 1], (-1, 4)))
        yield layers.Lambda(lambda t, i=i: tf.squeeze(t[:, i : i + 1], axis=1))

    pieces = [list(slices(i))[i % 4](x) for i in range(LANES)]
    branches = [layers.Dense(2)(layers.Dense(3, activation="relu")(piece)) for piece in pieces]
    joined = layers.Concatenate(name="joined")(branches)
    return keras.Model(x, layers.Dense(5, name="price")(joined), name="lambdas")


def operations() -> keras.Model:
    """What TensorFlow 2.4 and later write as TFOpLambda and SlicingOpLambda."""
    x = keras.Input((LANES, 4), name="sensors")
    branches = [layers.Dense(3)(tf.nn.relu(x[:, i])) for i in range(LANES)]
    joined = tf.concat(branches, axis=-1)
    halves = tf.split(x, [2, LANES - 2], axis=1)
    turned = tf.transpose(tf.expand_dims(halves[1], 1), perm=[0, 2, 1, 3])
    means = tf.reduce_mean(tf.squeeze(turned, axis=[2]), axis=1, keepdims=True)
    flat = tf.reshape(means, [-1, 4]) * 2.0 + tf.cast(x[:, -1, ::2][..., 0:1] > 0, tf.float32)
    products = tf.matmul(halves[0], x, transpose_b=True)[:, 0, ..., tf.newaxis][:, :, 0]
    spread = 1.0 - tf.math.sqrt(tf.math.abs(products)) / (1.0 + tf.exp(-products))
    stacked = tf.stack([flat, -flat], axis=1)
    picked = tf.gather(stacked, [1, 0, 1], axis=1)
    summed = tf.math.add_n(tf.unstack(picked, axis=1)) + tf.maximum(flat, 0.25)
    outputs = layers.Dense(5, name="price")(tf.concat([joined, summed, spread], 1))
    return keras.Model(x, [outputs, tf.nn.softmax(joined)], name="operations")


def slashes() -> keras.Model:
    """Names that Keras 3 refuses, two of them equal once the `/` is gone, and two outputs."""
    x = keras.Input((LANES * 4,), name="in/sensors")
    branches = [
        layers.Dense(3, activation="tanh", name=f"tower/{i}")(x[:, 4 * i : 4 * i + 4])
        for i in range(LANES - 1)
    ]
    branches.append(layers.Dense(6, name="tower_3")(x))
    joined = layers.Concatenate(name="top/joined")(branches)
    heads = [layers.Dense(n, name=f"head/{name}")(joined) for n, name in ((2, "a"), (5, "b"))]
    model = keras.Model(x, heads, name="with/slashes")
    model.compile("adam", loss={"head/a": "mse", "head/b": "mae"})
    return model


def nested() -> keras.Model:
    """A shared nested model, a Sequential, calls with several tensors, a recurrent state."""
    y = keras.Input((4,))
    tower = keras.Model(y, layers.Dense(2)(layers.BatchNormalization()(y)), name="tower")
    tail = keras.Sequential([layers.Dense(6, activation="relu"), layers.Dense(3)], name="tail")
    x, z = keras.Input((LANES, 4), name="sensors"), keras.Input((4,), name="other")
    rows = [tower(layers.Cropping1D((i, LANES - 1 - i))(x)[:, 0]) for i in range(3)]
    state = layers.GRU(7)(x, initial_state=layers.Dense(7)(z))
    spread = layers.TimeDistributed(layers.Dense(3))(x)
    attended = layers.MultiHeadAttention(2, 3, name="attended")(spread, value=spread)
    both = layers.Bidirectional(layers.LSTM(2))(attended)
    pair = layers.Dot(axes=1)([rows[0], rows[1]])
    image = layers.Reshape((LANES, 4, 1))(x)
    image = layers.DepthwiseConv2D(3, depth_multiplier=2)(image)
    image = layers.Conv2DTranspose(2, 2)(layers.LeakyReLU(alpha=0.2)(image))
    merged = layers.Concatenate()([*rows, state, tower(z), both, pair, layers.Flatten()(image)])
    return keras.Model([x, z], {"price": tail(merged), "sum": layers.Add()(rows)}, name="nested")


def changed() -> keras.Model:
    """What Keras 3 computes otherwise, has under other arguments, or lacks."""
    x = keras.Input((LANES, 4), name="sensors")
    words = keras.Input((5,), dtype="int32", name="words")
    y = keras.Input((4,))
    inner = keras.Model(y, layers.Dense(3)(layers.BatchNormalization()(y)))
    read = layers.Embedding(11, 6, mask_zero=True, input_length=5)(words)
    gated = layers.LSTM(2, activation="hard_sigmoid", recurrent_activation="hard_sigmoid")(read)
    old = layers.GRU(3, reset_after=False)(read)
    each = layers.TimeDistributed(inner)(layers.SpatialDropout1D(0.1)(x))
    each = layers.ThresholdedReLU(0.3)(layers.LayerNormalization(axis=[1, 2])(each))
    kept = tf.boolean_mask(each, [i % 2 == 0 for i in range(LANES)], axis=1)
    flat = tf.reshape(kept, [tf.shape(kept)[0], 15])
    total = tf.reduce_logsumexp(tf.strided_slice(x, [0, 1], [3, 4]), axis=[1, 2], keepdims=True)
    outputs = [gated, old, flat, total, layers.Activation("hard_sigmoid")(flat)]
    model = keras.Model([x, words], outputs, name="changed")
    model.add_loss(tf.reduce_mean(flat))
    return model


def served() -> keras.Model:
    """A SavedModel without Python code: nested models, statistics, slices, a frozen layer."""
    x = keras.Input((LANES, 4), name="sensors")
    y = keras.Input((4,))
    tower = keras.Model(y, layers.BatchNormalization()(layers.Dense(3)(y)), name="tower")
    tail = keras.Sequential([layers.Dense(6, activation="relu"), layers.Dense(2)], name="tail")
    branches = [layers.Dense(5, name=f"side/{i}")(x[:, i]) for i in range(3, LANES)]
    branches += [tower(x[:, 0]), tower(x[:, 2])]
    model = keras.Model(x, [tail(layers.Concatenate()(branches)), branches[-1]], name="served")
    model.get_layer("side/4").trainable = False
    return model


def images() -> keras.Model:
    """Separable and grouped convolutions, normalization, pooling; saved as `.keras`."""
    x = keras.Input((11, 9, 8), name="picture")
    pieces = [layers.Conv2D(3, 3)(x[:, :, :, 2 * i : 2 * i + 2]) for i in range(4)]
    joined = layers.BatchNormalization()(layers.Concatenate()(pieces))
    cut = layers.SeparableConv2D(5, 2, activation="relu")(joined)
    wide = layers.Conv2D(10, 1, groups=5)(layers.PReLU(shared_axes=[1, 2])(cut))
    pooled = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(wide))
    dropped = layers.Dropout(0.5)(layers.LayerNormalization()(pooled))
    model = keras.Model(x, layers.Dense(3, kernel_regularizer="l2")(dropped), name="images")
    model.compile(keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
    return model


def randomised(model: keras.Model, rng: np.random.Generator) -> keras.Model:
    """Weights that no two layers share, statistics of BatchNormalization kept positive."""
    for weight in model.weights:
        values = rng.normal(scale=0.5, size=weight.shape).astype("float32")
        weight.assign(np.abs(values) + 0.5 if "variance" in weight.name else values)
    return model


def drawn(dtype: tf.DType, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if dtype.is_integer:
        return rng.integers(0, 11, shape).astype(dtype.name)
    return rng.normal(size=shape).astype(dtype.name)


def computed(model: keras.Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs and outputs, in the order of `model.inputs` and of the flattened outputs."""
    inputs = [drawn(t.dtype, (3, *t.shape[1:]), rng) for t in model.inputs]
    outputs = tf.nest.flatten(model(inputs if len(inputs) > 1 else inputs[0], training=False))
    found = {f"input_{i}": x for i, x in enumerate(inputs)}
    return found | {f"output_{i}": y.numpy() for i, y in enumerate(outputs)}


def write(folder: Path) -> None:
    rng = np.random.default_rng(20240117)
    for make in (lambdas, operations, slashes, nested, images, changed, served):
        model = randomised(make(), rng)
        if make is not served:
            model.save(folder / f"{make.__name__}.h5")
        np.savez_compressed(folder / f"{make.__name__}.npz", **computed(model, rng))
        if make in (lambdas, served):
            model.save(folder / make.__name__, include_optimizer=False)
        if make in (images, nested, changed):
            model.save(folder / f"{make.__name__}.keras")
        if make is images:
            (folder / "images.json").write_text(model.to_json())
            model.save_weights(folder / "images.weights-only.h5")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    versions = {"tensorflow": tf.__version__, "tf_keras": keras.__version__, "python": python}
    (folder / "versions.json").write_text(json.dumps(versions))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        with zipfile.ZipFile(TARGET, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in sorted(Path(name).rglob("*")):
                archive.write(path, path.relative_to(name))
