"""How coarse a written file computes: the epsilon behind its tolerance, with the reason."""

from parallel_fuse.targets.base import Options
from parallel_fuse.verification.precision import EPSILON, Precision

OTHER_KERNELS_EPSILON = 4
OTHER_KERNELS = (
    "4 times that of the original: the runtime's own exp, tanh and division are good to a few "
    "units in the last place"
)


def other_kernels(precision: Precision) -> Precision:
    """The original's arithmetic done by another library."""
    return Precision(precision.dtype, OTHER_KERNELS_EPSILON * precision.epsilon)


# name → (epsilon, why). An epsilon is the distance from 1 to the next number, twice the largest
# rounding error. Eight bits hold 127 steps up to the largest value of a tensor. Numbers of a bell
# curve have a root mean square of about a quarter of their largest, so half a step is
# 1/254 · 4 = 2^-6 of it, evened out to 2^-6/√3 over the steps; factors and result are each rounded.
QUANTIZED = {
    "float16": (EPSILON["float16"], "weights are rounded to float16, computed in float32"),
    "dynamic": (2.0**-6, "weights and inputs of a layer have 8 bits, scaled by the largest"),
    "int8": (2.0**-6, "weights, inputs and results of a layer have 8 bits, scaled by the largest"),
}


def quantized(precision: Precision, options: Options) -> Precision:
    if options.quantize is None:
        return other_kernels(precision)
    return Precision(options.quantize, QUANTIZED[options.quantize][0])


def reason(options: Options) -> str:
    return OTHER_KERNELS if options.quantize is None else QUANTIZED[options.quantize][1]
