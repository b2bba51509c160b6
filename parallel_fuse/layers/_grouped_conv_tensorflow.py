"""Grouped convolution with TensorFlow's own operations, chosen by what the device can do.

What TensorFlow 2.21 can do on an x86-64 CPU, alike in eager mode and in a graph; strides, padding,
dilation and batch size make no difference:

* Conv2D with oneDNN in float32, float16, bfloat16: forward and both gradients, NHWC and NCHW.
* Conv2D without oneDNN (`TF_ENABLE_ONEDNN_OPTS=0`, other CPUs), and always in float64: NHWC forward
  only, slower than split convolutions. The gradient raises, and so does the forward pass once the
  graph optimiser has fused a BiasAdd into it. NCHW raises, grouped or not.
* Conv3D: never; "input and filter must have the same depth".
* Under XLA all of these work, and so does what stands in for them here.

So there are two ways to run, and a trial decides. A function that XLA will compile for a CPU goes
neither way blindly: XLA's own grouped convolution is up to three times slower than one convolution
per group, and for one or two channels a group a dense convolution with zeros between the groups is
faster still. `tf.function(jit_compile=True)` traces inside an XLA context, which tells them apart.
"""

import functools
import logging
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_util  # the only place that knows of the XLA context

logger = logging.getLogger("parallel_fuse")

_CHANNELS_LAST = {4: "NHWC", 5: "NDHWC"}
_CHANNELS_FIRST = {4: "NCHW", 5: "NCDHW"}

# Where the dense form wins under XLA; beyond, its zeros cost more than the launches it saves.
_DENSE_CHANNELS, _DENSE_GROUPS = 2, 64


@dataclass(frozen=True)
class Window:
    """How a kernel moves over its input: one stride and one dilation rate per spatial dimension."""

    strides: tuple[int, ...]
    padding: str
    dilation_rate: tuple[int, ...]
    channels_first: bool


def grouped_conv(inputs, kernel, bias, window: Window):
    """Convolves each group of channels with its own filters.

    Args:
        inputs: `(batch, *spatial, channels)`, or `(batch, channels, *spatial)`; 1 to 3 spatial
            dimensions, channels known.
        kernel: `(*sizes, channels // groups, filters)`; the shape tells the groups.
        bias: `(filters,)` or None.
        window: with padding "SAME" or "VALID".

    Returns:
        `(batch, *new_spatial, filters)`, or `(batch, filters, *new_spatial)`.
    """
    if inputs.shape.rank == 3:
        return _as_2d(inputs, kernel, bias, window)
    outputs = _way(inputs, kernel, window)(inputs, kernel, window)
    return outputs if bias is None else _add_bias(outputs, bias, window)


def _way(inputs, kernel, window):
    if not _compiled_for_cpu():
        return _convolve if _has_kernel(inputs, window) else _convolve_split
    channels = kernel.shape[-2]
    groups = inputs.shape[1 if window.channels_first else -1] // channels
    small = channels <= _DENSE_CHANNELS and groups <= _DENSE_GROUPS
    return _convolve_dense if small else _convolve_split


def _compiled_for_cpu() -> bool:
    if tf.executing_eagerly() or tf.config.list_logical_devices("GPU"):
        return False
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def _as_2d(inputs, kernel, bias, window):
    # TensorFlow's own 1D convolution is a 2D one of height 1, too; doing it here keeps the bias
    # next to the convolution, where the graph optimiser looks for it.
    height = 2 if window.channels_first else 1
    wide = replace(window, strides=(1, *window.strides), dilation_rate=(1, *window.dilation_rate))
    outputs = grouped_conv(tf.expand_dims(inputs, height), tf.expand_dims(kernel, 0), bias, wide)
    return tf.squeeze(outputs, height)


def _add_bias(outputs, bias, window):
    # An AddV2, where Keras would place a BiasAdd: oneDNN's optimiser fuses both into the grouped
    # convolution, the common one fuses only BiasAdd, into a kernel that then refuses the groups.
    # A SavedModel written with oneDNN thus runs where there is none.
    if window.channels_first:
        bias = tf.reshape(bias, (-1, *[1] * (outputs.shape.rank - 2)))
    return tf.add(outputs, bias)


def _convolve(inputs, kernel, window):
    formats = _CHANNELS_FIRST if window.channels_first else _CHANNELS_LAST
    return tf.nn.convolution(
        inputs,
        kernel,
        strides=window.strides,
        padding=window.padding,
        data_format=formats[inputs.shape.rank],
        dilations=window.dilation_rate,
    )


def _convolve_split(inputs, kernel, window):
    """The same numbers from one convolution per group, by operations that every device has."""
    if window.channels_first:
        return _channels_last(_convolve_split, inputs, kernel, window)
    groups = inputs.shape[-1] // kernel.shape[-2]
    slices = zip(tf.split(inputs, groups, axis=-1), tf.split(kernel, groups, axis=-1))
    return tf.concat([_convolve(x, w, window) for x, w in slices], axis=-1)


def _convolve_dense(inputs, kernel, window):
    """The same numbers from one convolution of all channels, zeros between the groups."""
    if window.channels_first:
        return _channels_last(_convolve_dense, inputs, kernel, window)
    *sizes, channels, filters = kernel.shape
    groups = inputs.shape[-1] // channels
    per_group = tf.reshape(kernel, (*sizes, 1, channels, groups, filters // groups))
    diagonal = tf.reshape(tf.eye(groups, dtype=kernel.dtype), (groups, 1, groups, 1))
    dense = tf.reshape(per_group * diagonal, (*sizes, groups * channels, filters))
    return _convolve(inputs, dense, window)


def _channels_last(convolve, inputs, kernel, window):
    last = inputs.shape.rank - 1
    moved = tf.transpose(inputs, (0, *range(2, last + 1), 1))
    outputs = convolve(moved, kernel, replace(window, channels_first=False))
    return tf.transpose(outputs, (0, last, *range(1, last)))


def _has_kernel(inputs, window) -> bool:
    # Out of the graph that is being traced and of any gradient tape, but still within the caller's
    # device scope, so that the trial runs where the convolution will.
    with tf.init_scope():
        if not tf.executing_eagerly():  # a graph of TensorFlow 1, where nothing can be tried
            return False
        device = tf.DeviceSpec.from_string(tf.zeros(()).device).device_type
        return _trial(inputs.shape.rank, inputs.dtype.name, window.channels_first, device)


@functools.cache
def _trial(rank: int, dtype: str, channels_first: bool, device: str) -> bool:
    """Whether the grouped kernel and its gradient run here and agree with split convolutions.

    A tiny trial errs to the safe side: some builds leave tiny convolutions to the kernels without
    a gradient and send only larger ones to oneDNN.
    """
    try:
        found = _trial_results(_convolve, rank, dtype, channels_first)
    except (tf.errors.OpError, ValueError) as error:
        logger.debug("no grouped %dD convolution (%s, %s): %s", rank - 2, dtype, device, error)
        return False
    wanted = _trial_results(_convolve_split, rank, dtype, channels_first)
    # The patterns are small integers: rounding stays far below 1, an error does not.
    return all(np.allclose(f, w, rtol=0, atol=0.25) for f, w in zip(found, wanted))


def _trial_results(convolve, rank, dtype, channels_first):
    """Outputs, input gradient and kernel gradient, from a graph as a caller's may look.

    A BiasAdd and a Relu follow the convolution, for a caller may place them behind a layer without
    a bias, and the graph optimiser then fuses all three.
    """
    window = Window((1,) * (rank - 2), "VALID", (1,) * (rank - 2), channels_first)
    sizes, channels, filters = (5, 4, 3)[: rank - 2], 4, 6
    shape = (2, channels, *sizes) if channels_first else (2, *sizes, channels)
    inputs = _pattern(shape, dtype)
    kernel = _pattern((2,) * (rank - 2) + (channels // 2, filters), dtype)
    bias = _pattern((filters,), dtype)

    def step(inputs, kernel, bias):
        layout = "NCHW" if channels_first else "NHWC"
        outputs = tf.nn.bias_add(convolve(inputs, kernel, window), bias, data_format=layout)
        outputs = tf.nn.relu(outputs)
        # No tape: tf.init_scope stops all of them.
        return outputs, *tf.gradients(outputs * _pattern(outputs.shape, dtype), (inputs, kernel))

    # Eager calls have a choice of kernels of their own.
    convolve(inputs, kernel, window)
    # A concrete function, for calls of others count towards the warning on repeated tracing.
    graph = tf.function(step, autograph=False).get_concrete_function(inputs, kernel, bias)
    return [tf.cast(result, tf.float32).numpy() for result in graph(inputs, kernel, bias)]


def _pattern(shape, dtype):
    index = np.arange(np.prod(shape))
    return tf.constant((index * index + 3 * index) % 5 - 2, dtype, shape)
