"""python -m benchmarks [--set facts|grid] [--mode graph|jit] [--all] [--output FILE.json]

Times each case as written and fused, interleaved in this one process, and prints a Markdown table
of the medians and their ratio. `--all` fuses without the static rule, to see where it loses.
"""

import argparse
import json
import os
from dataclasses import asdict, dataclass

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from benchmarks.cases import SETS, Case
from parallel_fuse import fuse_parallel_branches
from parallel_fuse.bench import compare
from parallel_fuse.policy import EVERYTHING, Policy


@dataclass(frozen=True)
class Row:
    case: str
    batch: int
    mode: str
    original_us: float
    fused_us: float
    ratio: float
    fastest_ratio: float
    slowest_ratio: float
    fused_regions: int


def measure(case: Case, mode: str, everything: bool, rounds: int) -> list[Row]:
    model = case.build()
    policy = EVERYTHING if everything else Policy(mode=mode, batch=max(case.batches))
    fused, report = fuse_parallel_branches(
        model, return_report=True, policy=policy, verify=len(model.layers) < 200
    )
    return [_row(case, mode, batch, model, fused, report, rounds) for batch in case.batches]


def _row(case, mode, batch, model, fused, report, rounds) -> Row:
    random = np.random.default_rng(0)
    inputs = [random.normal(size=(batch, *t.shape[1:])).astype(t.dtype) for t in model.inputs]
    inputs = inputs if isinstance(model.input, list) else inputs[0]
    timings = compare({"original": model, "fused": fused}, inputs, jit_compile=mode == "jit",
                      rounds=rounds)  # fmt: skip
    one, other = timings["original"], timings["fused"]
    ratios = [a / b for a, b in zip(one.rounds, other.rounds)]
    micros = one.median * 1e6, other.median * 1e6
    spread = one.median / other.median, max(ratios), min(ratios)
    return Row(case.name, batch, mode, *micros, *spread, len(report.regions))


def line(row: Row) -> str:
    spread = f"{row.slowest_ratio:.2f} to {row.fastest_ratio:.2f}"
    fused = "" if row.fused_regions else " (not fused)"
    return (
        f"| {row.case} | {row.batch} "
        f"| {row.original_us:,.0f} | {row.fused_us:,.0f} "
        f"| **{row.ratio:.2f}**{fused} | {spread} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=SETS, default="facts", dest="cases")
    parser.add_argument("--mode", choices=("graph", "jit"), default="graph")
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--all", action="store_true", help="fuse whatever can be fused")
    parser.add_argument("--output", help="also write the rows as JSON")
    options = parser.parse_args()
    print(f"| model ({options.mode}) | batch | original µs | fused µs | ratio | spread |")
    print("|---|---|---|---|---|---|")
    rows = []
    for case in SETS[options.cases]():
        if options.match not in case.name:
            continue
        for row in measure(case, options.mode, options.all, options.rounds):
            print(line(row), flush=True)
            rows.append(row)
        keras.backend.clear_session()
    if options.output:
        with open(options.output, "w") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)


if __name__ == "__main__":
    main()
