"""What a comparison of two models found, as data, as text and as JSON."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class OutputCheck:
    """One output of both models, over all batch sizes and modes.

    `max_abs_error`, `scale` and `tolerance` belong to the element that came nearest to its
    tolerance (or overstepped it most): |new - old| there, the largest |old| at that position over
    the batch, and what was allowed. They are None where nothing could be compared, and 0 for
    outputs that are no floats, which must be equal. `shape` is the symbolic one.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    max_abs_error: float | None
    scale: float | None
    tolerance: float | None
    batch_sizes: tuple[int, ...]
    ok: bool
    problem: str = ""


@dataclass(frozen=True)
class Verification:
    """The result of `verify_equivalence`; prints as a table.

    `problem` says what differs where the models were not even run (structure, names).
    `inputs` is "random" or "given"; `seconds` is the time the whole check took.
    """

    ok: bool
    outputs: tuple[OutputCheck, ...]
    batch_sizes: tuple[int, ...]
    modes: tuple[str, ...]
    tolerance_rule: str
    inputs: str
    seed: int
    seconds: float
    problem: str = ""

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """A headline, a line for each output and the rule behind the tolerances."""
        if self.problem:
            return f"NOT EQUIVALENT: {self.problem}"
        return "\n".join([self._headline(), *self._table(), f"tolerance: {self.tolerance_rule}"])

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""
        return asdict(self)

    def failure(self) -> str:
        """One line on the first thing that is wrong; empty if nothing is."""
        wrong = (f"output '{o.name}': {o.problem}" for o in self.outputs if not o.ok)
        return self.problem or next(wrong, "")

    def _headline(self) -> str:
        sizes = ", ".join(map(str, self.batch_sizes))
        drawn = f"random inputs, seed {self.seed}" if self.inputs == "random" else "given inputs"
        verdict = "equivalent" if self.ok else "NOT EQUIVALENT"
        how = f"batch sizes {sizes}; {' and '.join(self.modes)}; {drawn}"
        return f"{verdict} ({how}; {self.seconds:.1f} s)"

    def _table(self) -> list[str]:
        rows = [("output", "type", "shape", "error", "tolerance", "scale", "")]
        rows += [
            (o.name, o.dtype, str(o.shape), *map(_number, (o.max_abs_error, o.tolerance, o.scale)),
             _verdict(o))
            for o in self.outputs
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)) for row in rows]
        return [f"  {line.rstrip()}" for line in lines]


def _verdict(output: OutputCheck) -> str:
    """Two models that give zero for every sample may still differ: say that nothing was seen."""
    if not output.ok:
        return output.problem
    blind = output.scale == 0
    return "ok, but zero for all inputs: compare on inputs of your own" if blind else "ok"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"
