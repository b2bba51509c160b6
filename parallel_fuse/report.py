"""What happened and why: text for people, a dict for programs, HTML for a page."""

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

SHOWN = 24  # near misses that the text lists; 250 branches of 250 widths have two each


@dataclass(frozen=True)
class RegionReport:
    """One fused region: `text` says what became what."""

    text: str
    lowerings: tuple[str, ...]
    layers: tuple[str, ...]
    lanes: int
    layers_before: int
    layers_after: int
    padded_parameters: int = 0


@dataclass(frozen=True)
class NearMiss:
    """Layers that stood beside siblings and stayed alone, with the reason."""

    layers: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        names = ", ".join(self.layers[:3]) + (", …" if len(self.layers) > 3 else "")
        return f"{names}: {self.reason}"


@dataclass(frozen=True)
class Counts:
    """Operations (layers and raw operations), layers, and scalar parameters of a model."""

    operations: int
    layers: int
    parameters: int


@dataclass(frozen=True)
class Report:
    """The result of `fuse_parallel_branches` or `explain`.

    Attributes:
        model: the model's name.
        regions: what was (or would be) fused.
        rejections: near misses, with reasons.
        before, after: sizes of the models; `after` is None from `explain`.
        verification: the figures of the check, None if none was made.
        notes: what could not be carried over, and other remarks.
        file: what `convert` wrote and how it was proven; None where no file was written.
    """

    model: str
    regions: tuple[RegionReport, ...]
    rejections: tuple[NearMiss, ...]
    before: Counts
    after: Counts | None = None
    verification: Any = None
    notes: tuple[str, ...] = ()
    file: Any = None

    @property
    def changed(self) -> bool:
        """Whether anything fuses."""
        return bool(self.regions)

    def to_text(self) -> str:
        """Several lines, 80 to 120 characters wide, no colours."""
        return "\n".join(line for block in self._blocks() for line in block)

    __str__ = to_text

    def to_dict(self) -> dict:
        """Plain data, ready for `json.dumps`."""
        verification = self.verification and self.verification.to_dict()
        fields = {f: getattr(self, f) for f in ("model", "notes")}
        return {
            **fields,
            "changed": self.changed,
            "regions": [asdict(r) for r in self.regions],
            "rejections": [asdict(r) for r in self.rejections],
            "before": asdict(self.before),
            "after": self.after and asdict(self.after),
            "verification": verification,
            "file": self.file and self.file.to_dict(),
        }

    def to_html(self) -> str:
        """A page of its own, without scripts or outside resources."""
        body = "\n".join(_section(block) for block in self._blocks() if block)
        title = escape(f"parallel_fuse: {self.model}")
        return (
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
            f"<style>body{{font:1em/1.5 sans-serif;margin:2em auto;max-width:60em}}</style>\n"
            f"<h1>{title}</h1>\n{body}\n</html>\n"
        )

    def _blocks(self) -> list[list[str]]:
        told = [self._headline(), self._regions(), self._misses(), self._verified(), self._notes()]
        return [*told, self._file()]

    def _headline(self) -> list[str]:
        if not self.changed:
            return [f"{self.model}: nothing to fuse ({self.before.operations} operations)"]
        if self.after is None:
            return [f"{self.model}: {len(self.regions)} region(s) would fuse"]
        pairs = zip(("operations", "layers", "parameters"), _fields(self.before, self.after))
        return [f"{self.model}: " + ", ".join(f"{n} {a:,} → {b:,}" for n, (a, b) in pairs)]

    def _regions(self) -> list[str]:
        return [f"  {region.text}" for region in self.regions]

    def _misses(self) -> list[str]:
        if not self.rejections:
            return []
        shown = [f"  {miss}" for miss in self.rejections[:SHOWN]]
        more = len(self.rejections) - len(shown)
        return ["not fused:", *shown, *([f"  and {more} more: see to_dict()"] if more else [])]

    def _verified(self) -> list[str]:
        if self.verification is not None:
            return str(self.verification).splitlines()
        if self.after is None or not self.changed:
            return []
        return ["not verified: verify=False"]

    def _notes(self) -> list[str]:
        return [f"note: {note}" for note in self.notes]

    def _file(self) -> list[str]:
        return [] if self.file is None else f"written: {self.file.to_text()}".splitlines()


def _fields(before: Counts, after: Counts) -> list[tuple[int, int]]:
    return list(zip(asdict(before).values(), asdict(after).values()))


def _section(lines: list[str]) -> str:
    heading, *rest = lines
    items = "".join(f"<li>{escape(line.strip())}</li>" for line in rest)
    return f"<p>{escape(heading.strip())}</p>" + (f"<ul>{items}</ul>" if items else "")
