"""The demo: a branchy model, trained on real handwritten digits, then fused as a user would."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import keras
import numpy as np
from keras import layers

from parallel_fuse.bench import Timing, compare, compiled, openings
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.conversion.convert import REPORT_FORMATS, convert
from parallel_fuse.reading.load import read
from parallel_fuse.report import Report

Stage = Callable[[str], None]

BATCHES = (1, 128)
ORIGINAL, FUSED = "original", "fused"
FILES = {ORIGINAL: "digits.keras", FUSED: "digits-fused.keras"}


@dataclass(frozen=True)
class Digits:
    """Handwritten digits: images of shape (images, 8, 8) in 0…1 and their labels 0…9."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """What the demo measured. Timings are in seconds, by model; `calls` by (batch size, model)."""

    report: Report
    held_out: int
    correct: dict[str, int]
    identical: int
    loads: dict[str, Timing]
    first_calls: dict[str, Timing]
    calls: dict[int, dict[str, Timing]]
    files: tuple[Path, ...]


def run(
    folder: Path, *, epochs: int = 12, rounds: int = 9, on_stage: Stage = lambda text: None
) -> Outcome:
    """Train, save, fuse the saved file, compare and time both files. Writes into `folder` only."""
    digits = load_digits()
    paths = {label: folder / name for label, name in FILES.items()}
    on_stage(f"training on {len(digits.train_images)} handwritten digits")
    trained_model(digits, epochs).save(paths[ORIGINAL])
    reports = (folder / "report.txt", folder / "report.html")
    report = convert(
        paths[ORIGINAL], paths[FUSED], report_path=reports[0], overwrite=True, on_stage=on_stage
    )
    reports[1].write_text(REPORT_FORMATS[".html"](report), encoding="utf-8")
    on_stage("timing both files")
    return _measured(digits, paths, report, (*paths.values(), *reports), rounds)


def fresh_folder(chosen: Path | None, *, overwrite: bool = False) -> Path:
    """Make and return the demo's folder: the chosen one, else the first free default name.

    Raises:
        FileError: the chosen folder holds something already, or cannot be made.
    """
    folder = chosen or _first_free(Path("parallel-fuse-demo"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected a folder to write into. Received: {folder}: {error.strerror}. "
            f"Choose another one with --output.",
        ) from error
    if occupied and not overwrite:
        raise FileError(
            Exit.OUTPUT_EXISTS,
            f"expected an empty folder. Received: {folder}, which holds files. "
            f"Choose another one with --output, or --overwrite to replace the demo's files in it.",
        )
    return folder


def load_digits() -> Digits:
    """Return the 1,797 digits that scikit-learn ships, a quarter of them held out."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    pixels, labels = datasets.load_digits(return_X_y=True)
    images = (pixels / 16.0).astype("float32").reshape(-1, 8, 8)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.25, random_state=0, stratify=labels
    )
    return Digits(train_images, train_labels, test_images, test_labels)


def trained_model(digits: Digits, epochs: int) -> keras.Model:
    """Return the branchy model, trained for so many epochs."""
    keras.utils.set_random_seed(0)
    model = branchy_model()
    model.compile(
        keras.optimizers.SGD(0.3),  # Adam would spend four times as long on tracing its update
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=False,  # compiling 24 towers with XLA would take longer than training them
    )
    model.fit(digits.train_images, digits.train_labels, batch_size=64, epochs=epochs, verbose=0)
    return model


def branchy_model() -> keras.Model:
    """Return a model with a Dense tower per 2×2 patch (16) and a Conv1D tower per column (8)."""
    image = keras.Input((8, 8), name="image")
    patches = layers.Reshape((4, 2, 4, 2))(image)
    patches = layers.Reshape((16, 4))(layers.Permute((1, 3, 2, 4))(patches))
    dense = [_dense_tower(patches[:, index]) for index in range(16)]
    conv = [_conv_tower(image[:, :, column : column + 1]) for column in range(8)]
    features = layers.Dropout(0.2)(layers.Concatenate()(dense + conv))
    digit = layers.Dense(10, activation="softmax", name="digit")(features)
    return keras.Model(image, digit, name="digits")


def agreement(models: dict[str, keras.Model], digits: Digits) -> tuple[dict[str, int], int]:
    """Return how many held-out digits each model names correctly, and for how many all agree."""
    guesses = {
        label: np.argmax(compiled(model, digits.test_images)(), axis=-1)
        for label, model in models.items()
    }
    correct = {label: int(np.sum(g == digits.test_labels)) for label, g in guesses.items()}
    first, *others = guesses.values()
    return correct, int(np.sum(np.all([first == other for other in others], axis=0)))


def _dense_tower(patch: keras.KerasTensor) -> keras.KerasTensor:
    hidden = layers.BatchNormalization()(layers.Dense(12)(patch))
    return layers.Dense(6, activation="relu")(layers.ReLU()(hidden))


def _conv_tower(column: keras.KerasTensor) -> keras.KerasTensor:
    hidden = layers.Conv1D(6, 3, padding="same")(column)
    hidden = layers.MaxPooling1D(2)(layers.ReLU()(layers.BatchNormalization()(hidden)))
    return layers.Flatten()(layers.Conv1D(6, 3, padding="same", activation="relu")(hidden))


def _measured(
    digits: Digits, paths: dict[str, Path], report: Report, files: tuple[Path, ...], rounds: int
) -> Outcome:
    models = {label: _load(path) for label, path in paths.items()}
    images = digits.test_images
    correct, identical = agreement(models, digits)
    loaders = {label: partial(_load, path) for label, path in paths.items()}
    loads, first_calls = openings(loaders, images[:1], rounds=min(rounds, 3))
    return Outcome(
        report=report,
        held_out=len(images),
        correct=correct,
        identical=identical,
        loads=loads,
        first_calls=first_calls,
        calls={size: compare(models, images[:size], rounds=rounds) for size in BATCHES},
        files=files,
    )


def _first_free(folder: Path) -> Path:
    candidates = (folder.with_name(f"{folder.name}-{number}") for number in range(2, 10_000))
    return folder if not folder.exists() else next(c for c in candidates if not c.exists())


def _load(path: Path) -> keras.Model:
    return read(path).model
