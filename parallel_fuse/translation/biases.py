"""Which bias belongs to which product or convolution, found before anything is built."""

from collections import defaultdict

import numpy as np

from parallel_fuse.translation.frozen import Frozen, Operation, value_of

WITH_BIAS = frozenset(("MatMul", "Conv2D", "Conv3D", "DepthwiseConv2dNative"))
ADDING = frozenset(("BiasAdd", "Add", "AddV2"))
# May stand between, where they keep the last axis.
PASSING = frozenset(("Identity", "Reshape", "Squeeze", "BatchToSpaceND"))


class Biases:
    """A linear operation with constant weights whose only reader adds a constant vector.

    Attributes:
        of: linear operation → the operation that holds its bias.
        absorbed: operations that add such a bias.
    """

    def __init__(self, graph: Frozen):
        self.known = {op.name: op for op in graph.operations}
        self.readers: dict[str, list[Operation]] = defaultdict(list)
        for operation in graph.operations:
            for name, _ in operation.inputs:
                self.readers[name].append(operation)
        for name, _ in graph.outputs.values():
            self.readers[name].append(None)
        self.of: dict[str, str] = {}
        self.absorbed: set[str] = set()
        for operation in graph.operations:
            if operation.kind in WITH_BIAS and self.constant(operation.inputs[1][0]) is not None:
                self._look_behind(operation)

    def _look_behind(self, operation: Operation) -> None:
        width, reached = _width(operation), operation
        while len(self.readers[reached.name]) == 1:
            before, reached = reached, self.readers[reached.name][0]
            if reached is None:
                return
            if reached.kind in ADDING:
                self._absorb(operation, before, reached, width)
                return
            if reached.kind not in PASSING or _width(reached) != width:
                return

    def _absorb(self, operation: Operation, before: Operation, adding: Operation, width) -> None:
        others = [name for name, _ in adding.inputs if name != before.name]
        if len(others) != 1 or width is None or _turned(adding):
            return
        bias, rank = self.constant(others[0]), len(before.shapes[0] or ())
        if (
            bias is not None
            and bias.ndim <= rank
            and bias.size == width
            and bias.shape[-1:] == (width,)
        ):
            self.of[operation.name] = others[0]
            self.absorbed.add(adding.name)

    def constant(self, name: str) -> np.ndarray | None:
        """The array that an operation hands on, if nothing but its shape changes on the way."""
        operation = self.known[name]
        shape = operation.shapes[0] if operation.shapes else None
        source = self.known[self.source(name)]
        if source.kind != "Const" or shape is None or None in shape:
            return None
        array = value_of(source)
        return array.reshape(shape) if array.size == np.prod(shape, dtype=int) else None

    def source(self, name: str) -> str:
        """The operation that a value was first made by, before it was handed on and reshaped."""
        while self.known[name].kind in (*PASSING, "ExpandDims") and self.known[name].inputs:
            name = self.known[name].inputs[0][0]
        return name


def _width(operation: Operation) -> int | None:
    shape = operation.shapes[0] if operation.shapes else None
    return shape[-1] if shape else None


def _turned(adding: Operation) -> bool:
    return adding.kind == "BiasAdd" and adding.source.get_attr("data_format") == b"NCHW"
