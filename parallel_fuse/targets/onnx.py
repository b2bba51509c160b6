"""ONNX, run by ONNX Runtime."""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
from keras import tree

from parallel_fuse import _keras
from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.formats import BY_NAME
from parallel_fuse.targets.base import (
    Feed,
    Interface,
    Operation,
    Options,
    Target,
    as_result,
    matched,
)
from parallel_fuse.targets.exporting import export
from parallel_fuse.targets.rounding import OTHER_KERNELS, other_kernels
from parallel_fuse.verification.compare import Result

FORM = BY_NAME["onnx"]
LIMIT = 2**31 // 4  # float32 numbers that one protocol buffer holds


def write(model: keras.Model, path: Path, options: Options) -> None:
    """`model.export(format="onnx")`, its tensors named by tf2onnx or jax2onnx.

    Raises:
        FileError: the weights do not fit into one file.
    """
    numbers = sum(math.prod(weight.shape) for weight in model.weights)
    if numbers >= LIMIT:
        raise FileError(
            Exit.WRITE_FAILED,
            f"expected fewer than {LIMIT:,} weights, which is what an ONNX file holds. "
            f"Received: {numbers:,}. Write a SavedModel.",
        )
    with warnings.catch_warnings():
        # Keras asks NumPy for names that it is about to lose.
        warnings.filterwarnings("ignore", message=".*np.object.*", category=FutureWarning)
        export(model, path, "onnx", input_signature=[_signature(model)])


def _signature(model: keras.Model) -> Any:
    """What Keras finds out by itself for a model that was called before, and for no other."""
    return tree.map_structure(
        lambda t: keras.InputSpec(shape=(None, *t.shape[1:]), dtype=t.dtype, name=t.name),
        _keras.structures(model)[0],
    )


def run(
    model: keras.Model, path: Path, feeds: Sequence[Feed], options: Options
) -> list[list[Result]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = matched(Interface.of(model).inputs, [i.name for i in session.get_inputs()], path)
    results = [session.run(None, dict(zip(names, feed))) for feed in feeds]
    return [list(map(as_result, outputs)) for outputs in results]


def operations(path: Path) -> list[Operation]:
    """All nodes, those of loop bodies and branches too."""
    import onnx

    loaded = onnx.load(str(path), load_external_data=False)
    return list(_nodes(loaded.graph.node))


def _nodes(nodes: Iterable[Any]) -> Iterator[Operation]:
    for node in nodes:
        yield Operation(node.op_type, node.name)
        for attribute in node.attribute:
            yield from _nodes(attribute.g.node)


ONNX = Target(
    form=FORM,
    write=write,
    run=run,
    operations=operations,
    precision=lambda precision, options: other_kernels(precision),
    why=lambda options: OTHER_KERNELS,
)
