"""What may be fused without measuring. Every number here comes from `docs/performance.md`."""

from dataclasses import dataclass

# How the model will be run: as a backend's graph, `predict` too; under XLA (`jit_compile=True`);
# operation by operation; from a written file, by LiteRT or ONNX Runtime.
MODES = ("graph", "jit", "eager", "tflite", "onnx")


@dataclass(frozen=True)
class Policy:
    """The static rule, conservative by default.

    Attributes:
        min_lanes: bundles of fewer lanes stay as they are.
        min_gain: a region must have this many times fewer kernels to run than its branches.
        mode: how the model will run, one of `MODES`: other kernels win in each.
        batch: the most rows that one call will have: the larger, the less there is to gain.
        profitable_only: leave out what may be slower; False fuses whatever can be fused.
        portable: only stock Keras layers in the result.

    Raises:
        ValueError: an unknown mode.
    """

    min_lanes: int = 2
    min_gain: float = 1.5
    mode: str = "graph"
    batch: int = 128
    profitable_only: bool = True
    portable: bool = False

    def __post_init__(self):
        if self.mode not in MODES:
            raise ValueError(f"expected a mode out of {', '.join(MODES)}. Received: {self.mode!r}.")


EVERYTHING = Policy(min_gain=0.0, profitable_only=False)
