"""What may be fused without measuring. Every number here comes from `docs/performance.md`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The static rule, conservative by default.

    Attributes:
        min_lanes: bundles of fewer lanes stay as they are.
        min_gain: a region must have this many times fewer kernels to run than its branches.
        jit: the model will run under XLA (`jit_compile=True`), where other kernels win.
        profitable_only: leave out what is known to be slower; False fuses whatever can be fused.
        portable: only stock Keras layers in the result.
    """

    min_lanes: int = 2
    min_gain: float = 1.5
    jit: bool = False
    profitable_only: bool = True
    portable: bool = False


EVERYTHING = Policy(min_gain=0.0, profitable_only=False)
