"""One layer called on M tensors: one call on the samples of all, laid one after the other.

    x0 ── L ── y0
    x1 ── L ── y1      →      (M·batch, …) ── L ── (M·batch, …)
    x2 ── L ── y2

The layer stays what it is, with its weights; only its calls are merged. Assumes that a layer treats
each sample alone. It fits every kind, so that no kind lists it.
"""

from parallel_fuse.errors import Reject
from parallel_fuse.kinds.base import Lowering
from parallel_fuse.lanes import IN_BATCH, Layout
from parallel_fuse.plan import Bundle


def sample_by_sample(bundle: Bundle) -> None:
    if not bundle.kind.by_sample and bundle.layers[0].trainable:
        raise Reject(f"one layer called {bundle.size} times takes statistics of each call")


def never_built(bundle: Bundle, layout: Layout, common: dict) -> None:
    raise NotImplementedError("the machine calls the layer's own twin")


ONE_LAYER = Lowering(
    name="one-layer",
    layouts=lambda bundle: (IN_BATCH,),
    build=never_built,
    accepts=sample_by_sample,
)
