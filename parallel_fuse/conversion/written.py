"""What stands in a written file and how it was proven, as data and as text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHOWN = 6  # kinds of operations that the text lists


@dataclass(frozen=True)
class Written:
    """One written file.

    Attributes:
        path, form: where it is and in which format; `quantize` says how its numbers were cut.
        size, source_size: bytes of the file (or folder) and of the one it came from.
        operations: how many of each kind the written graph holds.
        inputs, outputs: the original's names → those in the file.
        own_layers: classes of this package that are needed to load it.
        undone: which regions the format's converter took apart again.
        proof: the comparison with the original in the file's own runtime; None with `verify=False`.
        difference: the largest one of an output, relative to the output's largest value.
    """

    path: str
    form: str
    quantize: str | None
    size: int
    source_size: int
    operations: Mapping[str, int]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    own_layers: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    proof: Any = None
    difference: float | None = None

    @property
    def operation_count(self) -> int:
        return sum(self.operations.values())

    def to_text(self) -> str:
        lines = [self._headline(), self._names(), *self.undone, self._loading()]
        return "\n".join([line for line in lines if line] + self._proof())

    def to_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in ("path", "form", "quantize", "size")}
        return {
            **fields,
            "source_size": self.source_size,
            "operations": dict(self.operations),
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "own_layers": list(self.own_layers),
            "undone": list(self.undone),
            "difference": self.difference,
            "proof": self.proof and self.proof.to_dict(),
        }

    def _headline(self) -> str:
        form = f"{self.form}, {self.quantize}" if self.quantize else self.form
        sizes = f"{_bytes(self.source_size)} → {_bytes(self.size)}"
        return f"{self.path}: {form}, {sizes}, {self._operations()}"

    def _operations(self) -> str:
        counted = sorted(self.operations.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"{times} {kind}" for kind, times in counted[:SHOWN])
        more = ", …" if len(counted) > SHOWN else ""
        return f"{self.operation_count:,} operations ({shown}{more})"

    def _names(self) -> str:
        pairs = [*self.inputs.items(), *self.outputs.items()]
        other = [f"'{theirs}' is {ours}" for ours, theirs in pairs if ours != theirs]
        return f"names in the file: {', '.join(other)}" if other else ""

    def _loading(self) -> str:
        if self.form != "keras":
            return ""
        if not self.own_layers:
            return "stock layers only: loads without this package"
        return f"needs `import parallel_fuse` to load: {', '.join(self.own_layers)}"

    def _proof(self) -> list[str]:
        if self.proof is None:
            return ["not proven: verify=False"]
        headline = f"proven against the original, relative difference {self.difference:.1e}:"
        return [headline, *str(self.proof).splitlines()]


def _bytes(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
