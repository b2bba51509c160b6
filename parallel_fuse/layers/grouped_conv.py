"""Grouped convolution that reaches TensorFlow's own grouped kernel.

Keras' TensorFlow backend wraps every grouped convolution in a function compiled by XLA. On a CPU
that is several times slower than the separate convolutions, and exporters reject the wrapper.

The classes subclass the stock layers and override `call` alone. Weights, names, shape inference,
configuration, LoRA and what later Keras versions add thus stay those of `Conv` with `groups`, and
`set_weights`, `load_weights` and `from_config` work between the two. `call` is overridden rather
than `convolution_op` because `Conv1D.call` does not go through `convolution_op`. Only public
attributes of the stock layer are read.
"""

import keras
from keras import ops

_PACKAGE = "parallel_fuse"


@keras.saving.register_keras_serializable(package=_PACKAGE)
class GroupedConv1D(keras.layers.Conv1D):
    """`keras.layers.Conv1D` for `groups` > 1, without the XLA wrapper.

    Arguments, weights and results are those of `keras.layers.Conv1D`, `padding="causal"` included.

    Input shape: `(batch, steps, channels)`, or `(batch, channels, steps)` with
    `data_format="channels_first"`; any dimension but the channels may be unknown.
    Output shape: `(batch, new_steps, filters)`, or `(batch, filters, new_steps)`.
    Weights: kernel `(*kernel_size, channels // groups, filters)`, bias `(filters,)`.

    Raises `ValueError` where the stock layer does: `filters` or the channels are no multiple of
    `groups`, strides and dilation are both above 1, the input is shorter than the kernel.

    On TensorFlow the kernel is chosen while tracing (see `_grouped_conv_tensorflow.py`). A `.keras`
    file chooses anew where it is loaded. A SavedModel keeps the choice of the machine that wrote
    it: its forward pass runs on other CPUs too with `channels_last`, its gradient and
    `channels_first` perhaps not.
    """

    def call(self, inputs):
        if _is_left_to_keras(self):
            return super().call(inputs)
        return _call_tensorflow(self, inputs)


@keras.saving.register_keras_serializable(package=_PACKAGE)
class GroupedConv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D` for `groups` > 1, without the XLA wrapper.

    Input shape: `(batch, height, width, channels)`, or `(batch, channels, height, width)` with
    `data_format="channels_first"`. All else, errors included, is as in `GroupedConv1D`.
    """

    def call(self, inputs):
        if _is_left_to_keras(self):
            return super().call(inputs)
        return _call_tensorflow(self, inputs)


@keras.saving.register_keras_serializable(package=_PACKAGE)
class GroupedConv3D(keras.layers.Conv3D):
    """`keras.layers.Conv3D` for `groups` > 1, without the XLA wrapper.

    Input shape: `(batch, depth, height, width, channels)`, or
    `(batch, channels, depth, height, width)` with `data_format="channels_first"`.
    All else, errors included, is as in `GroupedConv1D`. TensorFlow has no grouped 3D kernel on a
    CPU, so there the groups run one after the other.
    """

    def call(self, inputs):
        if _is_left_to_keras(self):
            return super().call(inputs)
        return _call_tensorflow(self, inputs)


def _is_left_to_keras(layer):
    # `keras.ops.conv` reads the groups off the shapes; JAX and PyTorch run them natively.
    return layer.groups == 1 or keras.backend.backend() != "tensorflow"


def _call_tensorflow(layer, inputs):
    # Imported here, for TensorFlow may be absent under another backend.
    from parallel_fuse.layers._grouped_conv_tensorflow import Window, grouped_conv

    inputs = ops.convert_to_tensor(inputs)
    # The stock layer raises for an empty result; for sizes known since build, this does.
    layer.compute_output_shape(tuple(inputs.shape))
    window = Window(
        strides=tuple(layer.strides),
        padding="SAME" if layer.padding == "same" else "VALID",
        dilation_rate=tuple(layer.dilation_rate),
        channels_first=layer.data_format == "channels_first",
    )
    # Reading the variables through Keras applies the autocast of a mixed dtype policy.
    kernel = ops.convert_to_tensor(layer.kernel)
    bias = ops.convert_to_tensor(layer.bias) if layer.use_bias else None
    outputs = grouped_conv(_pad_causal(layer, inputs), kernel, bias, window)
    return outputs if layer.activation is None else layer.activation(outputs)


def _pad_causal(layer, inputs):
    if layer.padding != "causal":
        return inputs
    before = (layer.dilation_rate[0] * (layer.kernel_size[0] - 1), 0)
    steps_first = layer.data_format == "channels_last"
    return ops.pad(inputs, ((0, 0), before, (0, 0)) if steps_first else ((0, 0), (0, 0), before))
