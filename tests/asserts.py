"""The one harness: a model in, everything that must hold of its fusion checked."""

import os
from collections.abc import Sequence

import keras
import numpy as np
import pytest
from keras import ops

from parallel_fuse import NotEquivalentError, fuse_parallel_branches, verify_equivalence
from parallel_fuse.policy import EVERYTHING
from tests.builders import inputs_for, randomise

TOLERANCE = 2e-5  # relative to the largest output; float32 sums of at most a few hundred terms


def assert_fuses(
    model: keras.Model,
    *,
    regions: int = 1,
    layers: tuple[int, int] | None = None,
    operations: Sequence[str] | None = None,
    gradients: bool = True,
    xla: bool = True,
    reload: bool = True,
    control: bool = True,
    **options,
):
    """Fuses a model with random weights and checks the result from every side.

    Args:
        regions: how many regions the report must show.
        layers: layers before and after, summed over the regions.
        operations: class names of the operations of the result, inputs left out, in any order.
        gradients, xla, reload, control: switch off what a model cannot do, with a reason beside.
        options: for `fuse_parallel_branches`.

    Returns:
        (fused model, report)
    """
    randomise(model)
    before = snapshot(model)
    options.setdefault("policy", EVERYTHING)  # small models: what fuses, not what pays
    fused, report = fuse_parallel_branches(model, return_report=True, **options)
    assert_unchanged(model, before)
    assert len(report.regions) == regions, f"{len(report.regions)} regions\n{report}"
    if layers is not None:
        found = sum(r.layers_before for r in report.regions), sum(
            r.layers_after for r in report.regions
        )
        assert found == layers, f"layers {found}, expected {layers}\n{report}"
    if operations is not None:
        assert sorted(operation_names(fused)) == sorted(operations), operation_names(fused)
    assert fused.output_names == model.output_names
    for batch in (1, 2, 7):
        assert_same_outputs(model, fused, inputs_for(model, batch, seed=batch))
    if xla and keras.backend.backend() == "tensorflow":
        assert_same_under_xla(model, fused)
    if gradients and keras.backend.backend() == "tensorflow":
        assert_same_gradients(model, fused)
    if reload:
        assert_reloads(fused)
    if control:
        assert_swap_is_caught(model, fused, report)
    assert_is_fixed_point(fused)
    return fused, report


def assert_rejects(model: keras.Model, reason: str, **options) -> None:
    """Nothing fuses, the result still computes the same, and the report gives the reason."""
    randomise(model)
    options.setdefault("policy", EVERYTHING)
    fused, report = fuse_parallel_branches(model, return_report=True, **options)
    assert not report.regions, str(report)
    reasons = [str(miss) for miss in report.rejections]
    assert any(reason in text for text in reasons), f"no '{reason}' in {reasons}"
    assert_same_outputs(model, fused, inputs_for(model, 3, seed=0))


def operation_names(model: keras.Model) -> list[str]:
    kinds = (type(op).__name__ for op in model.operations)
    return [kind for kind in kinds if kind != "InputLayer"]


def snapshot(model: keras.Model):
    """All that fusing must not change: weights, names, the number of calls, compilation."""
    weights = [np.array(w) for w in model.weights]
    names = [op.name for op in model.operations]
    calls = [len(op._inbound_nodes) for op in model.operations]
    return weights, names, calls, model.compiled


def assert_unchanged(model: keras.Model, before) -> None:
    weights, *rest = snapshot(model)
    for new, old in zip(weights, before[0], strict=True):
        np.testing.assert_array_equal(new, old)
    assert rest == list(before[1:])


def assert_close(actual, expected) -> None:
    """Equal structure, shape, dtype; values within TOLERANCE of the largest expected one."""
    keras.tree.assert_same_structure(actual, expected)
    for one, other in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        one, other = ops.convert_to_numpy(one), ops.convert_to_numpy(other)
        assert one.shape == other.shape and one.dtype == other.dtype
        scale = np.abs(other.astype("float64")).max(initial=1e-30)
        error = np.abs(one.astype("float64") - other.astype("float64")).max(initial=0.0)
        assert error <= TOLERANCE * scale, f"error {error} at scale {scale}"


def assert_same_outputs(model, fused, inputs) -> None:
    expected = model(inputs, training=False)
    assert_close(fused(inputs, training=False), expected)


def assert_same_under_xla(model, fused) -> None:
    import tensorflow as tf

    inputs = inputs_for(model, 3, seed=3)
    expected = model(inputs, training=False)
    for jit in (False, True):
        run = tf.function(lambda x: fused(x, training=False), jit_compile=jit, autograph=False)
        assert_close(run(inputs), expected)


def _gradients(model, inputs):
    import tensorflow as tf

    floats = [x for x in keras.tree.flatten(inputs) if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        for x in floats:
            tape.watch(x)
        outputs = keras.tree.flatten(model(inputs, training=False))
        loss = sum(tf.reduce_sum(tf.sin(tf.cast(y, "float32"))) for y in outputs)
    weights = [w.value for w in model.trainable_weights]
    return tape.gradient(loss, [floats, weights])


def assert_same_gradients(model, fused) -> None:
    """Input gradients one by one; weight gradients by their norm over the whole model."""
    inputs = keras.tree.map_structure(ops.convert_to_tensor, inputs_for(model, 3, seed=4))
    (x_old, w_old), (x_new, w_new) = _gradients(model, inputs), _gradients(fused, inputs)
    for old, new in zip(x_old, x_new, strict=True):
        assert (old is None) == (new is None)
        if old is not None:
            assert_close(new, old)
    assert_close(np.array(_norm(w_new)), np.array(_norm(w_old)))


def _norm(gradients) -> float:
    dense = [ops.convert_to_numpy(g).astype("float64") for g in gradients if g is not None]
    return float(np.sqrt(sum((g**2).sum() for g in dense)))


def assert_reloads(fused, folder=None) -> None:
    """Saved and loaded, in this process, with the package's own layers registered."""
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "fused.keras")
        fused.save(path)
        loaded = keras.saving.load_model(path, compile=False)
    assert_same_outputs(fused, loaded, inputs_for(fused, 2, seed=5))


def assert_swap_is_caught(model, fused, report) -> None:
    """Negative control: with two lanes' weights swapped in the original, verification fails."""
    for one, other in _swappable(model, report):
        kept = one.get_weights(), other.get_weights()
        one.set_weights(kept[1]), other.set_weights(kept[0])
        try:
            with pytest.raises(NotEquivalentError):
                verify_equivalence(model, fused, batch_sizes=(3,))
        finally:
            one.set_weights(kept[0]), other.set_weights(kept[1])


def _swappable(model, report):
    """For each class that a region fused, two layers whose weights have equal shapes."""
    by_name = {op.name: op for op in model.operations}
    for region in report.regions:
        seen = {}
        for name in dict.fromkeys(region.layers):  # a layer called twice is one
            layer = by_name.get(name)
            if layer is None or not getattr(layer, "weights", None):
                continue
            shape = (type(layer), tuple(tuple(w.shape) for w in layer.weights))
            if shape in seen:
                yield seen.pop(shape), layer
                return
            seen[shape] = layer


def assert_is_fixed_point(fused) -> None:
    """Fusing again, as a user would, changes nothing."""
    again, report = fuse_parallel_branches(fused, return_report=True, verify=False)
    assert not report.regions, str(report)
    assert operation_names(again) == operation_names(fused)
