"""TFLite, today's LiteRT: plain, with 16-bit weights, or with 8-bit ones."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np

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
from parallel_fuse.targets.rounding import quantized, reason
from parallel_fuse.verification.compare import Result

FORM = BY_NAME["tflite"]


def write(model: keras.Model, path: Path, options: Options) -> None:
    """`model.export(format="litert")`; the fused products stay in one piece."""
    # Some releases take a product with constant factors apart again unless told not to.
    quantization = _quantization(model, options)
    with _without_notice():
        export(model, path, "litert", unfold_batchmatmul=False, **quantization)


def _quantization(model: keras.Model, options: Options) -> dict[str, Any]:
    if options.quantize is None:
        return {}
    import tensorflow as tf

    found: dict[str, Any] = {"optimizations": [tf.lite.Optimize.DEFAULT]}
    if options.quantize == "float16":
        found["target_spec"] = {"supported_types": [tf.float16]}
    if options.quantize == "int8":
        found["target_spec"] = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]}
        found["representative_dataset"] = _rows(model, options.representative)
    return found


def _rows(model: keras.Model, arrays: Sequence[np.ndarray]) -> Callable[[], Iterator[dict]]:
    names = Interface.of(model).inputs

    def samples() -> Iterator[dict[str, np.ndarray]]:
        for row in range(len(arrays[0])):
            yield {name: array[row : row + 1] for name, array in zip(names, arrays)}

    return samples


def run(
    model: keras.Model, path: Path, feeds: Sequence[Feed], options: Options
) -> list[list[Result]]:
    interface = Interface.of(model)
    opened = _opened(path)
    (listed,) = opened.get_signature_list().values()
    inputs = matched(interface.inputs, listed["inputs"], path)
    outputs = matched(interface.outputs, listed["outputs"], path)
    serve = opened.get_signature_runner()
    results = [serve(**dict(zip(inputs, feed))) for feed in feeds]
    return [[as_result(given[name]) for name in outputs] for given in results]


def _opened(path: Path) -> Any:
    """LiteRT's interpreter; TensorFlow's own, which is older, where LiteRT is not installed."""
    if _has_litert():
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter(model_path=str(path))
    import tensorflow as tf

    with _without_notice():
        return tf.lite.Interpreter(model_path=str(path))


@contextmanager
def _without_notice() -> Iterator[None]:
    """TensorFlow's interpreter says that it will move to a package of its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*Warning: tf.lite.Interpreter is deprecated")
        yield


def _has_litert() -> bool:
    return find_spec("ai_edge_litert") is not None


def place(path: Path, options: Options) -> str:
    if _has_litert():
        return ""
    import tensorflow as tf

    here = f"as TensorFlow {tf.__version__} ships it"
    if options.quantize != "int8":
        return here
    return f'{here}, which gets 8-bit batched products wrong (pip install "parallel-fuse[tflite]")'


def operations(path: Path) -> list[Operation]:
    """Those of all subgraphs, each under the names of the tensors that it makes."""
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    codes = {code: name for name, code in vars(schema.BuiltinOperator).items() if name.isupper()}
    kinds = [_kind(code, codes) for code in model.operatorCodes]
    return [
        Operation(kinds[operator.opcodeIndex], _tensor_names(graph, operator))
        for graph in model.subgraphs
        for operator in graph.operators
    ]


def _kind(code: Any, codes: dict[int, str]) -> str:
    """An operation that only TensorFlow itself has goes by its own name, `FlexErf`."""
    if code.customCode:
        return code.customCode.decode()
    return codes[max(code.builtinCode, code.deprecatedBuiltinCode)]


def _tensor_names(graph: Any, operator: Any) -> str:
    return ";".join(graph.tensors[index].name.decode() for index in operator.outputs)


TFLITE = Target(
    form=FORM,
    write=write,
    run=run,
    operations=operations,
    precision=quantized,
    why=reason,
    place=place,
)
