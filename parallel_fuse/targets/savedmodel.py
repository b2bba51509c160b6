"""TensorFlow SavedModel: a folder that TensorFlow Serving and Triton load."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

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
from parallel_fuse.verification.compare import Result

FORM = BY_NAME["savedmodel"]
SIGNATURE = "serving_default"
# Nodes that hold or pass on values.
SILENT = frozenset("Const Placeholder Identity IdentityN NoOp ReadVariableOp VarHandleOp".split())


def write(model: keras.Model, path: Path, options: Options) -> None:
    export(model, path, "tf_saved_model")


def run(
    model: keras.Model, path: Path, feeds: Sequence[Feed], options: Options
) -> list[list[Result]]:
    import tensorflow as tf

    interface = Interface.of(model)
    loaded = tf.saved_model.load(str(path))  # the functions do not keep the variables alive
    serve = loaded.signatures[SIGNATURE]
    inputs = matched(interface.inputs, list(serve.structured_input_signature[1]), path)
    outputs = matched(interface.outputs, list(serve.structured_outputs), path)
    results = [serve(**dict(zip(inputs, map(tf.constant, feed)))) for feed in feeds]
    return [[as_result(given[name].numpy()) for name in outputs] for given in results]


def operations(path: Path) -> list[Operation]:
    """Those that the serving signature runs, each call of a function followed."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((path / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0]
    functions = {f.signature.name: f.node_def for f in graph.graph_def.library.function}
    nodes = {node.name: node for node in graph.graph_def.node}
    outputs = graph.signature_def[SIGNATURE].outputs.values()
    starts = dict.fromkeys(output.name.partition(":")[0] for output in outputs)
    return list(_followed([nodes[name] for name in starts], functions))


def _followed(nodes: Sequence[Any], functions: Mapping[str, Any]) -> Iterator[Operation]:
    for node in nodes:
        called = node.attr["f"].func.name
        if called:
            yield from _followed(functions[called], functions)
        elif node.op not in SILENT:
            yield Operation(node.op, node.name)


SAVEDMODEL = Target(
    form=FORM,
    write=write,
    run=run,
    operations=operations,
)
