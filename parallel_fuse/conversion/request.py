"""What may be asked of a format, checked before Keras is started."""

from pathlib import Path

from parallel_fuse.command.exits import Exit, FileError
from parallel_fuse.command.formats import QUANTIZATIONS, Format


def check_request(form: Format, quantize: str | None, data: Path | None) -> None:
    """Raise FileError if the quantization makes no sense, or its data is missing."""
    if quantize not in (None, *QUANTIZATIONS):
        raise FileError(
            Exit.USAGE,
            f"expected a quantization out of {', '.join(QUANTIZATIONS)}. Received: {quantize}. "
            f"Choose one of these.",
        )
    if quantize and form.name != "tflite":
        raise FileError(
            Exit.USAGE,
            f"expected no quantization for {form.name}. Received: {quantize}. Write a .tflite.",
        )
    if quantize == "int8" and data is None:
        raise FileError(
            Exit.USAGE,
            "expected real inputs to quantize with. Received: int8 without any. "
            "Give --representative data.npz (representative_data=...).",
        )
    if data is not None and not data.is_file():
        raise FileError(
            Exit.MISSING_FILE,
            f"expected a .npy or .npz file of real inputs. Received: {data}, which is none. "
            f"Check the path.",
        )
