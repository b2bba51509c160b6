"""When two calls are alike. The machine's part of a signature, around what the kind says.

Equal keys mean: the same class, configuration, input shapes and dtypes, dtype policy, `trainable`,
call arguments. Attributes stay named, so that a near miss can say which one differs.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
from keras import tree

from parallel_fuse.activations import activation_of
from parallel_fuse.errors import Reject
from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.kinds.base import Kind, freeze
from parallel_fuse.masks import picks_up_masks
from parallel_fuse.matching.sizes import Sizes
from parallel_fuse.options import check_options
from parallel_fuse.plan import Piece
from parallel_fuse.rulebook import rule_for

_LEFT_OPEN = ("mask", "training")


@dataclass(frozen=True)
class Signature:
    """`key` must be equal within a bundle; `shared_key` within one whose lanes read one tensor."""

    kind: Kind
    attributes: dict[str, Hashable]
    key: Hashable
    shared_key: Hashable


class Signatures:
    """The signature, or the reason why there is none, of every call of a graph. Computed once.

    `excluded` calls (those that work out masks) have none.
    """

    def __init__(
        self,
        graph: Graph,
        kinds: Sequence[Kind],
        pieces: Mapping[int, Piece],
        excluded: Collection[int] = (),
    ):
        self.graph = graph
        self.sizes = Sizes(graph, pieces)
        self.excluded = excluded
        self.rule_of = rule_for(kinds)
        self.owners = _owners(call.operation for call in graph.calls)
        self.known: dict[int, Signature | Reject | None] = {}

    def of(self, call: Call) -> Signature | Reject | None:
        """None where no kind knows the class."""
        if call.index not in self.known:
            self.known[call.index] = self._compute(call)
        return self.known[call.index]

    def knows(self, call: Call) -> bool:
        """Whether a kind takes the call, as far as can be told from it alone."""
        return isinstance(self.of(call), Signature)

    def _compute(self, call: Call) -> Signature | Reject | None:
        kind = None if call.index in self.excluded else self.rule_of(call)
        if kind is None:
            return None
        try:
            self._check(call, kind)
            attributes = {**_machine(call, self.sizes), **kind.signature(call)}
            if kind.activation:
                activation_of(call.operation.activation)
        except Reject as reject:
            return reject
        free = {*kind.shared_free, "input shape", "run-time sizes"}
        shared = {name: v for name, v in attributes.items() if name not in free}
        cls = type(call.operation)
        key, shared_key = ((cls, tuple(a.items())) for a in (attributes, shared))
        return Signature(kind, attributes, key, shared_key)

    def _check(self, call: Call, kind: Kind) -> None:
        operation = call.operation
        if len(call.outputs) != 1 and not kind.several:
            raise Reject(f"{len(call.outputs)} outputs, expected one")
        if picks_up_masks(call):
            raise Reject("receives a mask")
        if _values({k: v for k, v in call.kwargs.items() if k not in kind.keywords}):
            raise Reject("receives a mask or another tensor by keyword")
        if not isinstance(operation, keras.layers.Layer):
            return
        _check_layer(operation)
        if any(len(self.owners[id(v)]) > 1 for v in operation.weights):
            raise Reject("weights shared: another layer uses the same variable")


def _owners(operations: Iterable[Any]) -> dict[int, set[int]]:
    """variable id → the operations that hold it."""
    owners: dict[int, set[int]] = {}
    for operation in operations:
        for variable in getattr(operation, "variables", ()):
            owners.setdefault(id(variable), set()).add(id(operation))
    return owners


def _check_layer(layer: keras.layers.Layer) -> None:
    if getattr(layer, "quantization_mode", None) is not None:
        raise Reject(f"quantized ({layer.quantization_mode})")
    if getattr(layer, "lora_enabled", False):
        raise Reject("LoRA enabled")
    if layer.activity_regularizer is not None:
        raise Reject("activity regularizer: its loss depends on the batch axis")
    check_options(vars(layer).items())


def _machine(call: Call, sizes: Sizes) -> dict[str, Hashable]:
    operation = call.operation
    attributes: dict[str, Hashable] = {
        "input shape": tuple(v.shape for v in call.inputs),
        "run-time sizes": tuple(sizes.unknown(v) for v in call.inputs),
        "input dtype": tuple(v.dtype for v in call.inputs),
        "call arguments": _constants(call),
    }
    if not isinstance(operation, keras.layers.Layer):
        return attributes
    attributes["dtype policy"] = operation.dtype_policy.name
    if operation.weights:
        attributes["trainable"] = operation.trainable
    return attributes


def _constants(call: Call) -> Hashable:
    """The arguments beside the tensors. Keras writes an open `mask` down for some calls only."""
    kwargs = {k: v for k, v in call.kwargs.items() if v is not None or k not in _LEFT_OPEN}
    if not kwargs and len(call.args) == 1 and isinstance(call.args[0], Value):
        return ()
    nest = (call.args, kwargs)
    return freeze(tree.map_structure(lambda x: "·" if isinstance(x, Value) else x, nest))


def _values(nest: Any) -> list[Value]:
    return [leaf for leaf in tree.flatten(nest) if isinstance(leaf, Value)] if nest else []


def differences(one: Signature, other: Signature) -> list[tuple[str, Any, Any]]:
    """(attribute, its value in one, in the other) for every attribute that differs.

    An attribute that only one of them has follows from another that differs, if one does.
    """
    names = dict.fromkeys([*one.attributes, *other.attributes])
    pairs = ((n, one.attributes.get(n), other.attributes.get(n)) for n in names)
    found = [(n, a, b) for n, a, b in pairs if a != b]
    both = [pair for pair in found if pair[0] in one.attributes.keys() & other.attributes.keys()]
    return both or found


def most_common(values: Iterable[Hashable]) -> Hashable:
    return Counter(values).most_common(1)[0][0]
