"""python -m benchmarks.files MODEL… [--custom-objects NAME=module:Name] [--to keras tflite …]

What a deployer gets: each model written in each format as it is and fused, both proven, then opened
and called in the runtime of the format, the two taking turns in this one process.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from benchmarks.runtimes import OPENERS, Feed
from parallel_fuse.bench import interleaved
from parallel_fuse.command.terminal import Opening
from parallel_fuse.conversion.convert import convert
from parallel_fuse.policy import EVERYTHING, Policy

AS_IT_IS = replace(Policy(), min_lanes=10**9)
SUFFIXES = {"keras": ".keras", "savedmodel": ".savedmodel", "tflite": ".tflite", "onnx": ".onnx"}
HEAD = (
    "| model | format | operations | MB | relative difference | open and first call, ms | "
    + "call, µs, batch {} | ratio |\n|---|---|---|---|---|---|---|---|"
)


def written(source: Path, folder: str, form: str, policies: Mapping[str, Policy], known: dict):
    """Both files of one format, with their reports."""
    for label, policy in policies.items():
        path = Path(folder, f"{source.stem}-{label}{SUFFIXES[form]}")
        yield label, path, convert(source, path, to=form, policy=policy, custom_objects=known)


def opened(paths: Mapping[str, Path], form: str, known: dict, feed: Feed, rounds: int = 3):
    """Seconds to open each file and call it once, taking turns, and one callable for each."""
    seconds: dict[str, list[float]] = {label: [] for label in paths}
    calls: dict[str, Callable[[Feed], object]] = {}
    for _ in range(rounds):
        for label, path in paths.items():
            start = time.perf_counter()
            calls[label] = OPENERS[form](path, known)
            calls[label](feed)
            seconds[label].append(time.perf_counter() - start)
    return {label: median(found) for label, found in seconds.items()}, calls


def feed_of(source: Path, known: dict, batch: int) -> Feed:
    model = keras.saving.load_model(source, custom_objects=known, compile=False)
    random = np.random.default_rng(0)
    shapes = [(batch, *(size or 7 for size in t.shape[1:])) for t in model.inputs]
    values = [random.random(shape).astype(t.dtype) for shape, t in zip(shapes, model.inputs)]
    return {t.name: value for t, value in zip(model.inputs, values)}


def row(source: Path, form: str, policy: Policy, known: dict, batch: int, rounds: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        policies = {"original": AS_IT_IS, "fused": policy}
        found = list(written(source, folder, form, policies, known))
        paths = {label: path for label, path, _ in found}
        feed = feed_of(source, known, batch)
        opening, calls = opened(paths, form, known, feed)
        timings = interleaved(
            {label: lambda call=call: call(feed) for label, call in calls.items()}, rounds=rounds
        )
    reports = [report.file for *_, report in found]
    one, other = (timings[label].median * 1e6 for label in policies)
    return "| " + " | ".join([
        source.stem, form,
        " → ".join(f"{r.operation_count:,}" for r in reports),
        " → ".join(f"{r.size / 1e6:.2f}" for r in reports),
        f"{reports[1].difference:.1e}",
        " → ".join(f"{1000 * opening[label]:,.0f}" for label in policies),
        f"{one:,.0f} → {other:,.0f}",
        f"**{one / other:.2f}**",
    ]) + " |"  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--custom-objects", nargs="*", default=[], metavar="NAME=module:Name")
    parser.add_argument("--to", nargs="+", choices=list(SUFFIXES), default=list(SUFFIXES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--default-policy", action="store_true", help="with the static rule")
    options = parser.parse_args(arguments)
    known = Opening(tuple(options.custom_objects), False)()["custom_objects"]
    known |= {item.__name__: item for item in known.values()}  # what Keras writes calls them so
    policy = Policy() if options.default_policy else EVERYTHING
    print(HEAD.format(options.batch))
    for source in options.models:
        for form in options.to:
            print(row(source, form, policy, known, options.batch, options.rounds), flush=True)


if __name__ == "__main__":
    main()
