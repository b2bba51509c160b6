"""The file formats that a fused model is written in, one file each."""

from parallel_fuse.targets.base import Operation, Options, Target
from parallel_fuse.targets.keras import KERAS
from parallel_fuse.targets.onnx import ONNX
from parallel_fuse.targets.savedmodel import SAVEDMODEL
from parallel_fuse.targets.tflite import TFLITE

TARGETS = (KERAS, SAVEDMODEL, TFLITE, ONNX)

__all__ = ["TARGETS", "Operation", "Options", "Target"]
