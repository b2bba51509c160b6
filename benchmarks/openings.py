"""python -m benchmarks.openings [--lanes 100 256 1024]

What a fresh process pays for M towers `x[:, i] → 2 × Dense(8, relu) → Dense(1)`: building them,
loading its file, its first call with tracing. And what fusing costs beside building the original.
"""

import argparse
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from benchmarks.cases import dense_towers
from parallel_fuse import fuse_parallel_branches
from parallel_fuse.bench import openings

SIZES = dict(width=8, units=8, depth=2)


def timed(function, *args, **options):
    start = time.perf_counter()
    return function(*args, **options), time.perf_counter() - start


def measure(lanes: int, rounds: int) -> str:
    model, build = timed(dense_towers, lanes, **SIZES)
    fused, fuse = timed(fuse_parallel_branches, model, verify=False)
    _, verified = timed(fuse_parallel_branches, model)
    inputs = np.zeros((32, lanes, SIZES["width"]), "float32")
    with tempfile.TemporaryDirectory() as folder:
        loaders, sizes = {}, {}
        for name, one in {"original": model, "fused": fused}.items():
            path = os.path.join(folder, f"{name}.keras")
            one.save(path)
            sizes[name] = os.path.getsize(path) / 1e6
            loaders[name] = lambda path=path: keras.saving.load_model(path, compile=False)
        loads, firsts = openings(loaders, inputs, rounds=rounds)
    columns = [
        f"{lanes}", f"{build:.2f}", f"{fuse:.2f}", f"{verified:.2f}",
        *(f"{t['original'].median:.2f} → {t['fused'].median:.3f}" for t in (loads, firsts)),
        f"{sizes['original']:.2f} → {sizes['fused']:.2f}",
    ]  # fmt: skip
    return "| " + " | ".join(columns) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lanes", type=int, nargs="+", default=[100, 256, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| lanes | build original, s | fuse, s | fuse and verify, s | load, s | first call, s | "
          "file, MB |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for lanes in options.lanes:
        print(measure(lanes, options.rounds), flush=True)
        keras.backend.clear_session()


if __name__ == "__main__":
    main()
