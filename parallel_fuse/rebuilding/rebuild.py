"""Replays the original calls in a new order and emits each planned bundle as one layer."""

from typing import Any

import keras
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.graph import Call, Graph, Value
from parallel_fuse.lanes import IN_BATCH, Layout
from parallel_fuse.plan import Bundle, Plan
from parallel_fuse.rebuilding.clone import Cloner
from parallel_fuse.rebuilding.emit import Emitter, arguments, emit_one_layer
from parallel_fuse.rebuilding.gather import Environment, LaneRef
from parallel_fuse.rebuilding.names import Names, bundle_name, name_outputs, name_the_rest
from parallel_fuse.rebuilding.shell import like
from parallel_fuse.rebuilding.state import check_outputs

Tensor = Any


def rebuild(graph: Graph, plan: Plan, portable: bool = False) -> tuple[keras.Model, list[str]]:
    """Carries out a plan.

    Returns:
        The new model, with the inputs, the outputs and the output names of the old one, and notes
        on what could not be carried over. The old model is not touched.
    """
    replay = _Replay(graph, plan, portable)
    return replay.model(), replay.notes()


class _Replay:
    def __init__(self, graph: Graph, plan: Plan, portable: bool):
        self.graph = graph
        self.plan = plan
        self.cloner = Cloner()
        self.emitter = Emitter()
        self.env = Environment(plan.pieces, plan.places, self._materialise, portable)
        self.input_names, self.output_names = _keras.names(graph.model)
        self.names = Names([*self.input_names, *self.output_names, *_names_kept(graph, plan)])
        self.owners = _owners_of_output_names(graph, plan, self.output_names)
        self.wanted = _wanted(graph, plan)
        self.lazy = _lazy(graph, plan)
        self.alone = _read_alone(graph, plan)

    def model(self) -> keras.Model:
        inputs, outputs = _keras.structures(self.graph.model)
        new_inputs = self._inputs(inputs)
        for step in self.plan.order:
            self._step(step)
        tensors = [self.env.tensor(value) for value in self.graph.outputs]
        named = name_outputs(tensors, self.output_names, self.names, self.cloner.made)
        name_the_rest(tree.flatten(new_inputs), named, self.names, self.cloner.made)
        new_outputs = tree.pack_sequence_as(outputs, named)
        model, notes = like(
            self.graph.model, new_inputs, new_outputs, calls=len(self.graph.calls)
        )
        self.class_notes = notes
        return model

    def notes(self) -> list[str]:
        return [*self.cloner.notes(), *self.class_notes]

    def _inputs(self, structure: Any) -> Any:
        old = tree.flatten(structure)
        new = [_fresh_input(tensor) for tensor in old]
        for value, tensor in zip(self.graph.inputs, new):
            self.env.bind(value, tensor)
        return tree.pack_sequence_as(structure, new)

    def _step(self, step: Bundle | Call) -> None:
        if isinstance(step, Bundle):
            self._emit(step)
        elif step.index in self.lazy:
            return
        elif not self._join(step):
            self._call(step)

    def _emit(self, bundle: Bundle) -> None:
        lowering = self.plan.lowerings[bundle.index]
        inputs = [self.env.lanes(row) for row in bundle.inputs]
        if bundle.one_layer:
            call = bundle.calls[0]
            found = emit_one_layer(bundle, inputs, lambda xs, more: self._run(call, xs, more))
        else:
            name = self.names.fresh(bundle_name([c.name for c in bundle.calls]))
            wanted = self.wanted[bundle.index]
            found = self.emitter.emit(bundle, lowering, inputs, wanted, name)
        for row, lanes in zip(bundle.rows, found, strict=True):
            lanes.scattered = self.alone[bundle.index] * 4 > bundle.size
            self.env.bind_lanes(row, lanes)

    def _join(self, call: Call) -> bool:
        """Emits a join of lanes; False if its operands are no lanes."""
        join, operands = self.plan.joins.get(call.index, (None, ()))
        refs = [self.env.known.get(v.index) for v in operands]
        counts: dict[int, int] = {}
        for ref in refs:
            if isinstance(ref, LaneRef):
                counts[id(ref.lanes)] = counts.get(id(ref.lanes), 0) + 1
        if max(counts.values(), default=0) < 2:
            return False
        if join.layout is not None:
            self.env.bind_join(call.output, self.env.lanes(operands), join.layout(call))
            return True
        if not any(isinstance(r, LaneRef) and r.lanes.views for r in refs):
            return False  # tensors one by one: the operation itself takes them
        self.env.bind(call.output, self._reduced(call, join, operands))
        return True

    def _reduced(self, call: Call, join: Any, operands: tuple[Value, ...]) -> Tensor:
        groups: dict[Any, list[Value]] = {}
        for value in operands:
            ref = self.env.known.get(value.index)
            key = id(ref.lanes) if isinstance(ref, LaneRef) else None
            groups.setdefault(key, []).append(value)
        tensors, counts = [], []
        for key, values in groups.items():
            parts = [[v] for v in values] if key is None or len(values) == 1 else [values]
            tensors += [self._reduced_group(call, join, part) for part in parts]
            counts += [len(part) for part in parts]
        return join.combine(call, tensors, counts)

    def _reduced_group(self, call: Call, join: Any, values: list[Value]) -> Tensor:
        if len(values) == 1:
            return self.env.tensor(values[0])
        return join.reduce(call, self.env.lanes(values))

    def _materialise(self, index: int) -> None:
        """Replays lazy calls until a value exists; a chain of any length, without recursion."""
        waiting = [self._maker_of[index]]
        while waiting:
            call = waiting[-1]
            missing = [v for v in call.inputs if v.index not in self.env.known]
            if missing:
                waiting += [self._maker_of[v.index] for v in missing]
                continue
            waiting.pop()
            if call.output.index not in self.env.known:
                self._call(call)

    @property
    def _maker_of(self) -> dict[int, Call]:
        if not hasattr(self, "_makers"):
            calls = (self.graph.calls[i] for i in self.lazy)
            self._makers = {v.index: c for c in calls for v in c.outputs}
        return self._makers

    def _call(self, call: Call) -> None:
        """One call, as it was, of the operation's twin."""
        outputs = self._run(call, [self.env.tensor(value) for value in call.inputs])
        for value, tensor in zip(call.outputs, outputs):
            self.env.bind(value, tensor)

    def _run(self, call: Call, tensors: list[Tensor], more: int = 0) -> list[Tensor]:
        """What the twin of a call's operation makes of tensors, of as many axes or some more."""
        args, kwargs = arguments(call, tensors)

        def run(operation: Any) -> list[Tensor]:
            outputs = tree.flatten(operation(*args, **kwargs))
            check_outputs(operation, outputs, call.outputs, more)
            return outputs

        return self.cloner.call(call.operation, self._name_for(call), run)

    def _name_for(self, call: Call) -> str:
        if id(call.operation) in self.cloner.twins:
            return ""
        mine = call.name not in self.output_names or id(call.operation) in self.owners
        if mine and not call.scope:
            return self.names.claim(call.name)
        return self.names.fresh(call.name, "_".join((*call.scope, call.name)))


def _fresh_input(tensor: Tensor) -> Tensor:
    layer = _keras.maker_of(tensor)
    return type(layer).from_config(layer.get_config()).output


def _names_kept(graph: Graph, plan: Plan) -> set[str]:
    """Names of the model's own operations that stay as they are."""
    bundled = {call.index for bundle in plan.bundles for call in bundle.calls}
    return {c.name for c in graph.calls if not c.scope and c.index not in bundled}


def _owners_of_output_names(graph: Graph, plan: Plan, names: list[str]) -> set[int]:
    """Ids of the operations that stay and alone make all outputs of their name."""
    bundled = {call.index for bundle in plan.bundles for call in bundle.calls}
    makers: dict[str, set[Call | None]] = {}
    for value, name in zip(graph.outputs, names):
        makers.setdefault(name, set()).add(graph.producer(value))

    def stays(call: Call | None, alone: bool) -> bool:
        if call is None or call.scope or call.index in bundled:
            return False
        return alone or call.index not in plan.joins

    return {
        id(call.operation)
        for calls in makers.values()
        if all(stays(call, alone=len(calls) == 1) for call in calls)
        for call in calls
    }


def _lazy(graph: Graph, plan: Plan) -> set[int]:
    """Calls to replay only if somebody needs their result: selections, inner calls of chains."""
    selections = {c.index for c in graph.calls if all(v.index in plan.pieces for v in c.outputs)}
    inner = set()
    for index, (_, operands) in plan.joins.items():
        direct = {v.index for v in operands}
        waiting = [v for v in graph.calls[index].inputs if v.index not in direct]
        while waiting:
            value = waiting.pop()
            inner.add(value.call)
            inputs = graph.calls[value.call].inputs
            waiting += [v for v in inputs if v.index not in direct and v.call not in inner]
    return selections | inner


def _wanted(graph: Graph, plan: Plan) -> dict[int, Layout | None]:
    """For each bundle the layout in which its lanes are read next."""
    owner = {c.index: b for b in plan.bundles for c in b.calls}
    found: dict[int, Layout | None] = {}
    for step in reversed(plan.order):
        if isinstance(step, Bundle):
            readers = graph.readers(step.calls[0].output)
            options = (_reads_in(graph, plan, owner, found, call) for call in readers)
            found[step.index] = next((o for o in options if o is not None), None)
    return found


def _reads_in(graph: Graph, plan: Plan, owner: dict, found: dict, call: Call) -> Layout | None:
    bundle = owner.get(call.index)
    if bundle is not None:
        accepted = plan.lowerings[bundle.index].layouts(bundle)
        first = None if accepted is None or accepted[0] == IN_BATCH else accepted[0]
        return found.get(bundle.index) if accepted is None else first
    join, _ = plan.joins.get(call.index, (None, ()))
    return join.layout(call) if join is not None and join.layout is not None else None


def _read_alone(graph: Graph, plan: Plan) -> dict[int, int]:
    """For each bundle, how many of its lanes somebody reads on their own."""
    members = {c.index for b in plan.bundles for c in b.calls}
    outputs = {v.index for v in graph.outputs}

    def alone(value: Value) -> bool:
        readers = (c.index for c in graph.readers(value))
        return value.index in outputs or any(
            i not in members and i not in plan.joins for i in readers
        )

    return {b.index: sum(alone(v) for v in b.outputs) for b in plan.bundles}
