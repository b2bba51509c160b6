"""Arguments as Keras 1 called them. Source: its `legacy` wrappers in Keras 2.0."""

from collections.abc import Mapping
from typing import Any

from parallel_fuse.reading.refusing import Refused
from parallel_fuse.reading.told import Told

RENAMED = {
    "border_mode": "padding",
    "subsample": "strides",
    "subsample_length": "strides",
    "nb_filter": "filters",
    "filter_length": "kernel_size",
    "atrous_rate": "dilation_rate",
    "dim_ordering": "data_format",
    "init": "kernel_initializer",
    "inner_init": "recurrent_initializer",
    "inner_activation": "recurrent_activation",
    "bias": "use_bias",
    "W_regularizer": "kernel_regularizer",
    "U_regularizer": "recurrent_regularizer",
    "b_regularizer": "bias_regularizer",
    "W_constraint": "kernel_constraint",
    "b_constraint": "bias_constraint",
    "pool_length": "pool_size",
    "stride": "strides",
    "p": "rate",
    "dropout_W": "dropout",
    "dropout_U": "recurrent_dropout",
}
SIZES = {  # of the kernel, in the order of its axes
    "Conv2D": ("nb_row", "nb_col"),
    "Conv2DTranspose": ("nb_row", "nb_col"),
    "SeparableConv2D": ("nb_row", "nb_col"),
    "Conv3D": ("kernel_dim1", "kernel_dim2", "kernel_dim3"),
}
UNITS = ("Dense", "LSTM", "GRU", "SimpleRNN", "Highway", "MaxoutDense")
MERGES = {"sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum"}
DATA_FORMATS = {"tf": "channels_last", "th": "channels_first", "default": None}
DROPPED = frozenset(["weights", "input_dim", "consume_less", "forget_bias_init"])


def keras1_arguments(kind: str, config: Mapping[str, Any], told: Told) -> dict[str, Any]:
    """The configuration with the names of today; as it is where it holds none of Keras 1."""
    found, sizes = {}, SIZES.get(kind, ())
    for key, value in config.items():
        new = _name(kind, key, config)
        if new is None or key in sizes:
            continue
        found[new] = _value(new, value, kind)
        if new != key:
            told("arguments of Keras 1 under their new names", f"{kind}.{new} (was {key})")
    if sizes and sizes[0] in config:
        found["kernel_size"] = [config[size] for size in sizes]
        was = ", ".join(sizes)
        told("arguments of Keras 1 under their new names", f"{kind}.kernel_size (was {was})")
    return found


def merging(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The class and the configuration that do what a Merge layer of Keras 1 did."""
    mode, name = config.get("mode"), {"name": config["name"]}
    if mode == "concat":
        return "Concatenate", {**name, "axis": config.get("concat_axis", -1)}
    if mode == "dot":
        return "Dot", {**name, "axes": config["dot_axes"]}
    if mode in MERGES:
        return MERGES[mode], name
    raise Refused(
        f"whose Merge '{config['name']}' has the mode {mode!r}", "Convert it with Keras 2 first."
    )


def _name(kind: str, key: str, config: Mapping[str, Any]) -> str | None:
    if key == "output_dim" and kind in UNITS:
        return "units"
    if key in DROPPED and not (kind == "Embedding" and key == "input_dim"):
        return None
    new = RENAMED.get(key, key)
    return key if new in config else new


def _value(new: str, value: Any, kind: str) -> Any:
    if new != "data_format" or value not in DATA_FORMATS:
        return value
    if value == "th":
        raise Refused(
            f"whose {kind} orders its axes as Theano did (dim_ordering 'th')",
            "Convert it with Keras 2 first.",
        )
    return DATA_FORMATS[value]
