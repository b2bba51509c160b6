"""When one batched product is no slower than the products of its lanes, run one after the other.

A TensorFlow graph on a CPU fuses each lane's product with its bias and activation, shares the lanes
out between the cores, and needs no transposes. A batched product saves the launches of M lanes
instead, and so pays where the lanes are many and small. `docs/performance.md` has the figures.
"""

import math

from parallel_fuse._backend import runs_single_operations
from parallel_fuse.errors import Reject
from parallel_fuse.plan import Bundle
from parallel_fuse.policy import Policy

FEW = {"graph": 12, "onnx": 16}  # fewer lanes are faster one by one


def product_pays(bundle: Bundle, policy: Policy, numbers: int) -> None:
    """Raise Reject where a product of all lanes may be slower than M of `numbers` weights each."""
    in_graph = policy.mode == "graph"
    if in_graph and not runs_single_operations():
        return
    few, lanes = FEW.get(policy.mode, 0), bundle.size
    if lanes < few:
        raise Reject(f"{lanes} lanes: one product of fewer than {few} may be slower, measure")
    width, widest = math.sqrt(numbers), widest_lane(lanes, policy.batch)
    if in_graph and width > widest:
        sizes = f"{lanes} lanes of {width:.3g} × {width:.3g} weights, batch {policy.batch}"
        raise Reject(f"{sizes}: one product above {widest:.3g} may be slower, measure")


def widest_lane(lanes: int, batch: int) -> float:
    """Inputs and units of a lane: with 128 rows, up to 32 for 16 lanes, 128 for 32 lanes."""
    return 16 * lanes**2 / batch
