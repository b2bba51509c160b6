"""The protocol of a kind: what one rule says about one layer class, and nothing more.

A kind never sees slices, joins, names, cloning or the order of lanes. It says which layers are
alike (`signature`), in which layout M of them run as one (`Lowering.layouts`), which layer that is
(`build`), and how M trained weight sets become that layer's (`stack`).
"""

import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import dtype_policies, tree

from parallel_fuse import _keras
from parallel_fuse.graph import Call, Value
from parallel_fuse.lanes import Layout
from parallel_fuse.plain import exact
from parallel_fuse.plan import Bundle
from parallel_fuse.policy import Policy

Layer = Any
Arrays = list[Any]


def no_weights(layers: Sequence[Layer]) -> Arrays:
    return []


def no_unstack(arrays: Arrays, count: int) -> list[Arrays]:
    return [[] for _ in range(count)]


def always(bundle: Bundle) -> None:
    """Accepts every bundle."""


def pays_always(bundle: Bundle, policy: Policy) -> None:
    """Never slower, whatever the sizes."""


def same_layout(bundle: Bundle, layout: Layout) -> Layout:
    return layout


@dataclass(frozen=True)
class Lowering:
    """One way to run M layers as one.

    Attributes:
        name: what the report calls it.
        layouts: bundle → the layouts it eats, preferred first; None eats any layout.
        build: (bundle, layout, common) → the fused layer, not built, or anything that is called
            as a lane is and has its `weights`, if there are any. `common` holds `name` and, for
            layers, `dtype` and `trainable`; `activation` where the kind has one.
        stack: M layers → the fused layer's weights, in the order of its `weights`.
        unstack: the inverse of `stack`: (weights, M) → M weight lists.
        makes: (bundle, layout eaten) → layout made; the same one by default.
        accepts: raises `Reject` with the reason where the lowering does not fit.
        pays: (bundle, policy) → raises `Reject` where it is known to be slower than the lanes.
        kernels: how many kernels a backend runs for it; the lanes' layers count one each, or less
            where this is less.
        shared: eats the one tensor that all lanes read, instead of M.
        once: with `shared`: computes the one result that all lanes have in common.
        sizes: the widths of the lanes along the folded axis it makes, where they may differ.
        portable: the fused layer is a stock Keras layer.
        any_shape: the fused layer takes lanes of any size, as the lanes' own layers do.
    """

    name: str
    layouts: Callable[[Bundle], tuple[Layout, ...] | None]
    build: Callable[[Bundle, Layout, dict], Layer]
    stack: Callable[[Sequence[Layer]], Arrays] = no_weights
    unstack: Callable[[Arrays, int], list[Arrays]] = no_unstack
    makes: Callable[[Bundle, Layout], Layout] = same_layout
    accepts: Callable[[Bundle], None] = always
    pays: Callable[[Bundle, Policy], None] = pays_always
    kernels: float = 1
    shared: bool = False
    sizes: Callable[[Bundle], tuple[int, ...]] | None = None
    once: bool = False
    portable: bool = True
    any_shape: bool = False


@dataclass(frozen=True)
class Kind:
    """The rule for one family of layers.

    Attributes:
        handles: exact classes, never subclasses: a subclass may compute something else.
        takes: further calls, told by something else than their class; asked last.
        signature: call → attributes that must be equal within a bundle; raises `Reject`.
        lowerings: preferred first.
        light: no weights and little arithmetic; not worth a gather and a scatter of its own.
        shared_free: attributes that may differ between lanes that read the same tensor.
        activation: the layer's `activation` may differ between lanes: the machine applies it.
        keywords: keyword arguments that may hold tensors (`mask`, `initial_state`, …): further
            rows of lanes, in the order of the call.
        several: a call may have several outputs; the fused layer makes as many, all in the layout
            that the lowering makes.
        by_sample: what a layer computes of one sample does not depend on the others, in training
            either: one layer called on M lanes may be called once on all their samples.
        any_rank: a layer takes further axes in front of the last one as it takes the batch axis:
            one layer called on M lanes may be called once on lanes with an axis of their own.
    """

    handles: tuple[type, ...]
    signature: Callable[[Call], dict[str, Hashable]]
    lowerings: tuple[Lowering, ...]
    light: bool = False
    shared_free: tuple[str, ...] = ()
    activation: bool = False
    keywords: tuple[str, ...] = ()
    several: bool = False
    by_sample: bool = True
    any_rank: bool = False
    takes: Callable[[Call], bool] | None = None


# Attributes that say how a layer came to be, not what it computes.
HISTORY = frozenset(
    """name trainable dtype activation seed kernel_initializer bias_initializer gamma_initializer
    beta_initializer moving_mean_initializer moving_variance_initializer alpha_initializer
    depthwise_initializer pointwise_initializer embeddings_initializer quantization_config
    lora_rank lora_alpha gptq_unpacked_column_size""".split()
)


def config_signature(call: Call, drop: Sequence[str] = ()) -> dict[str, Hashable]:
    """The layer's whole configuration, less its history and what the rule merges itself.

    Starting from everything keeps an attribute that a new Keras release adds from being ignored.
    """
    config = _keras.config_of(call.operation)
    kept = config.keys() - HISTORY - set(drop)
    return {key: freeze(config[key]) for key in sorted(kept)}


def operation_signature(call: Call) -> dict[str, Hashable]:
    """A raw operation's attributes and the plain values it is called with.

    Raises:
        Reject: an array or a tensor that is no part of the graph takes part.
    """
    attributes = _keras.attributes(call.operation).items()
    leaves = tree.flatten((call.args, call.kwargs))
    return {
        **{key: exact(value) for key, value in attributes},
        "constants": exact([leaf for leaf in leaves if not isinstance(leaf, Value)]),
        "output dtype": call.output.dtype,
    }


def twin_of(layer: Layer, common: dict, cls: type | None = None, **changes: Any) -> Layer:
    """A new layer with this one's configuration, less its initializers: `stack` brings the weights,
    and an initializer made for one lane may not fit M.

    Args:
        common: what the machine sets (`name`, `dtype`, `trainable`, `activation`).
        cls: the class to make, where it is not the layer's own.
        changes: attributes that differ from the layer's.
    """
    config = _keras.config_of(layer)
    kept = {key: value for key, value in config.items() if not key.endswith("_initializer")}
    known = {key: value for key, value in common.items() if _takes(cls or type(layer), key)}
    # A layer without a `get_config` of its own can only be saved if it was given plain values.
    known["dtype"] = dtype_policies.serialize(common["dtype"])
    return (cls or type(layer)).from_config({**kept, **known, **changes})


def _takes(cls: type, argument: str) -> bool:
    """Some layers take no `trainable`."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    return any(p.name == argument or p.kind is p.VAR_KEYWORD for p in parameters)


def _of_inner(config: Any) -> Any:
    """What a serialised object inside a layer computes: its name and initializers do not matter."""
    if not isinstance(config, dict):
        return config
    return {
        k: v for k, v in config.items() if k != "name" and not k.endswith("_initializer")
    }


def freeze(value: Any) -> Hashable:
    """A hashable twin of a configuration value."""
    if isinstance(value, dict) and {"class_name", "config"} <= value.keys():
        value = {**value, "config": _of_inner(value["config"]), "build_config": None}
    if isinstance(value, dict):
        return tuple((key, freeze(item)) for key, item in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    if isinstance(value, slice):
        return ("slice", value.start, value.stop, value.step)
    if hasattr(value, "__array__"):  # its text would leave the middle out
        array = np.asarray(value)
        return ("array", str(array.dtype), array.shape, array.tobytes())
    return value if isinstance(value, Hashable) else repr(value)
