"""Lanes in every layout, from every layout, against NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from parallel_fuse.lanes import LEADING, Lanes, Layout, move_axis, pick
from tests.asserts import operation_names

M = 4
SHAPE = (2, 5, 3)  # of one lane, batch first
RANK = len(SHAPE)
RANDOM = np.random.default_rng(0)
LANES = [RANDOM.normal(size=SHAPE).astype("float32") for _ in range(M)]
LAYOUTS = [Layout(a) for a in range(RANK + 1)] + [Layout(a, folded=True) for a in range(RANK)]


def laid_out(lanes, layout: Layout) -> np.ndarray:
    """The same by NumPy: a stack, or a concatenation."""
    join = np.concatenate if layout.folded else np.stack
    return join(lanes, axis=layout.axis)


def tensor(array):
    return ops.convert_to_tensor(array)


def as_array(x) -> np.ndarray:
    return ops.convert_to_numpy(x)


def short(layout: Layout) -> str:
    return f"{layout.axis}{'f' if layout.folded else ''}"


def views(layout: Layout, **options) -> Lanes:
    return Lanes(M, {layout: tensor(laid_out(LANES, layout))}, **options)


FORMS = {
    **{f"view {short(layout)}": lambda layout=layout: views(layout) for layout in LAYOUTS},
    "tensors": lambda: Lanes(M, parts=[tensor(one) for one in LANES]),
    "parts": lambda: Lanes(M, parts=[
        Lanes(2, {LEADING: tensor(np.stack(LANES[:2]))}),
        Lanes(1, parts=[tensor(LANES[2])]),
        tensor(LANES[3]),
    ]),
    "parts of parts": lambda: Lanes(M, parts=[
        Lanes(3, parts=[Lanes(2, {Layout(2, True): tensor(np.concatenate(LANES[:2], 2))}),
                        tensor(LANES[2])]),
        Lanes(1, {Layout(1): tensor(np.stack(LANES[3:], 1))}),
    ]),
    "tensors in another order": lambda: Lanes(
        M, parts=[tensor(LANES[i]) for i in (2, 0, 3, 1)], order=(1, 3, 0, 2)),
    "parts in another order": lambda: Lanes(M, order=(2, 0, 3, 1), parts=[
        Lanes(2, {Layout(2, True): tensor(np.concatenate([LANES[1], LANES[3]], 2))}),
        Lanes(2, parts=[tensor(LANES[0]), tensor(LANES[2])]),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("target", LAYOUTS, ids=short)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_every_layout(form, target):
    np.testing.assert_array_equal(as_array(FORMS[form]().to(target)), laid_out(LANES, target))


@pytest.mark.parametrize("target", LAYOUTS, ids=short)
def test_one_tensor_in_every_layout(target):
    lanes = Lanes(M, same=tensor(LANES[0]))
    np.testing.assert_array_equal(as_array(lanes.to(target)), laid_out([LANES[0]] * M, target))


TAKEN = {
    "all": (0, 1, 2, 3),
    "a run": (1, 2),
    "one": (3,),
    "reversed": (3, 2, 1, 0),
    "any, repeated": (2, 0, 0, 3, 2),
}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("form", [*FORMS, "one tensor"])
def test_taken_lanes(form, name):
    lanes, expected = _form(form)
    taken = lanes.take(TAKEN[name])
    assert taken.count == len(TAKEN[name])
    wanted = [expected[i] for i in TAKEN[name]]
    np.testing.assert_array_equal(as_array(taken.to(Layout(1))), np.stack(wanted, axis=1))
    for one, other in zip(taken.all(), wanted, strict=True):
        np.testing.assert_array_equal(as_array(one), other)


def _form(form):
    if form == "one tensor":
        return Lanes(M, same=tensor(LANES[0])), [LANES[0]] * M
    return FORMS[form](), LANES


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("form", [*FORMS, "one tensor"])
def test_single_lanes(form, scattered):
    lanes, expected = _form(form)
    lanes.scattered = scattered
    assert lanes.rank == RANK
    for index in (2, 0, 3, 1):
        np.testing.assert_array_equal(as_array(lanes.lane(index)), expected[index])


@pytest.mark.parametrize("form", [*FORMS, "one tensor"])
def test_apart(form):
    lanes, expected = _form(form)
    layout, whole = lanes.apart()
    assert not layout.folded
    np.testing.assert_array_equal(as_array(whole), np.stack(expected, axis=layout.axis))


WIDTHS = (3, 1, 4, 3)


def ragged(axis: int):
    """Lanes whose widths differ along one axis, and the arrays."""
    arrays = []
    for width in WIDTHS:
        shape = (*SHAPE[:axis], width, *SHAPE[axis + 1 :])
        arrays.append(RANDOM.normal(size=shape).astype("float32"))
    layout = Layout(axis, folded=True)
    return Lanes(M, {layout: tensor(np.concatenate(arrays, axis))}, sizes=WIDTHS), arrays


@pytest.mark.parametrize("axis", [1, 2])
def test_lanes_of_unequal_widths(axis):
    lanes, arrays = ragged(axis)
    assert lanes.rank == RANK
    for index in (2, 0, 3, 1):
        np.testing.assert_array_equal(as_array(lanes.lane(index)), arrays[index])
    for one, other in zip(lanes.all(), arrays, strict=True):
        np.testing.assert_array_equal(as_array(one), other)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("indices", [(0, 3), (3, 0, 3), (2, 1, 0, 3), (1,)])
def test_some_lanes_of_unequal_widths(axis, indices):
    lanes, arrays = ragged(axis)
    taken = lanes.take(indices)
    wanted = [arrays[i] for i in indices]
    folded = Layout(axis, folded=True)
    np.testing.assert_array_equal(as_array(taken.to(folded)), np.concatenate(wanted, axis))
    if len({one.shape for one in wanted}) == 1:
        np.testing.assert_array_equal(as_array(taken.to(LEADING)), np.stack(wanted))
        layout, whole = taken.apart()
        np.testing.assert_array_equal(as_array(whole), np.stack(wanted, layout.axis))


def test_unequal_widths_among_parts():
    lanes, arrays = ragged(2)
    more = RANDOM.normal(size=(*SHAPE[:2], 6)).astype("float32")
    joined = Lanes(M + 1, parts=[tensor(more), lanes])
    folded = as_array(joined.to(Layout(2, folded=True)))
    np.testing.assert_array_equal(folded, np.concatenate([more, *arrays], axis=2))
    np.testing.assert_array_equal(as_array(joined.lane(3)), arrays[2])


@pytest.mark.parametrize("unknown", [False, True])
def test_unequal_widths_in_another_order(unknown):
    _, arrays = ragged(2)
    more = RANDOM.normal(size=(*SHAPE[:2], 6)).astype("float32")
    other = keras.Input((5, None if unknown else 6))
    whole = keras.Input((5, sum(WIDTHS)))
    parts = [other, Lanes(M, {Layout(2, folded=True): whole}, sizes=WIDTHS)]
    joined = Lanes(M + 1, parts=parts, order=(3, 0, 1, 4, 2))
    assert joined.widths(2) == [4, None if unknown else 6, 3, 3, 1]
    assert joined.widths(1) == [5] * (M + 1)
    model = keras.Model([other, whole], [joined.to(Layout(2, folded=True)), joined.lane(3)])
    folded, third = model([more, np.concatenate(arrays, axis=2)])
    expected = [arrays[2], more, arrays[0], arrays[3], arrays[1]]
    np.testing.assert_array_equal(folded, np.concatenate(expected, axis=2))
    np.testing.assert_array_equal(third, arrays[3])


@pytest.mark.parametrize("form", [*FORMS, "one tensor"])
def test_widths(form):
    lanes, _ = _form(form)
    assert [lanes.widths(axis)[1:] for axis in range(RANK)] == [[n] * (M - 1) for n in SHAPE]


UNKNOWN = [(None, 5, 3), (None, None, 3), (None, 5, None), (None, None, None), (2, None, 3)]


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("start", LAYOUTS, ids=short)
@pytest.mark.parametrize("shape", UNKNOWN)
def test_unknown_sizes(shape, start, portable):
    """Every conversion from one layout, by a model that knows as little as `shape` says."""
    whole = laid_out(LANES, start)
    known = list(shape)
    if not start.folded:
        known.insert(start.axis, M)
    elif shape[start.axis] is not None:
        known[start.axis] *= M
    x = keras.Input(batch_shape=tuple(known))
    lanes = Lanes(M, {start: x}, portable=portable)
    outputs = {short(layout): lanes.to(layout) for layout in LAYOUTS}
    single = Lanes(M, {start: x}, portable=portable).all()
    model = keras.Model(x, [outputs, single])
    found, apart = model(tensor(whole))
    for layout in LAYOUTS:
        np.testing.assert_array_equal(found[short(layout)], laid_out(LANES, layout))
    for one, other in zip(apart, LANES, strict=True):
        np.testing.assert_array_equal(one, other)
    custom = {"FoldLanes", "UnfoldLanes"} & set(operation_names(model))
    assert not (portable and custom)


def test_several_unknown_sizes_need_a_layer_of_our_own():
    """`Reshape` infers one size; the batch of images of unknown size has three."""
    x = keras.Input((None, None, 6))
    lanes = Lanes(M, {Layout(3): ops.stack([x] * M, axis=3)})
    model = keras.Model(x, lanes.to(Layout(3, folded=True)))
    assert operation_names(model) == ["Stack", "FoldLanes"]
    known = model.output.shape
    assert known == (None, None, None, 6 * M)


def test_models_with_our_own_layers_reload(tmp_path):
    x = keras.Input((None, None, 8))
    lanes = Lanes(M, {Layout(3, folded=True): x})
    model = keras.Model(x, lanes.to(LEADING))
    assert "UnfoldLanes" in operation_names(model)
    model.save(tmp_path / "m.keras")
    array = RANDOM.normal(size=(2, 3, 5, 8)).astype("float32")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(array), model(array))


def test_views_are_kept():
    lanes = views(Layout(2))
    assert lanes.to(LEADING) is lanes.to(LEADING)
    assert lanes.layouts == (Layout(2), LEADING)


def test_folding_where_the_lanes_are_moves_no_data():
    x = keras.Input((M, 5))
    model = keras.Model(x, Lanes(M, {Layout(1): x}).to(Layout(1, folded=True)))
    assert operation_names(model) == ["Reshape"]


def test_there_and_back_is_one_transpose():
    x = keras.Input((M, 5))
    lanes = Lanes(M, {Layout(1): x})
    lanes.to(LEADING)
    assert lanes.to(Layout(1)) is x


def test_parts_that_lie_alike_are_moved_together():
    x, y = keras.Input(batch_shape=(2, None, 5)), keras.Input(batch_shape=(2, None, 5))
    parts = [Lanes(2, {LEADING: x}), Lanes(2, {LEADING: y})]
    whole = Lanes(4, parts=parts, order=(0, 2, 1, 3)).to(Layout(1, folded=True))
    model = keras.Model([x, y], whole)
    assert operation_names(model) == ["Concatenate", "Take", "Transpose", "Reshape"]


def test_every_lane_is_one_operation():
    x = keras.Input((M * 5,))
    model = keras.Model(x, Lanes(M, {Layout(1, folded=True): x}).all())
    assert operation_names(model) == ["Split"]
    y = keras.Input((M, 5))
    model = keras.Model(y, Lanes(M, {Layout(1): y}).all())
    assert operation_names(model) == ["Unstack"]


def test_moved_axis_keeps_the_others_in_order():
    array = RANDOM.normal(size=(2, 3, 4, 5)).astype("float32")
    for source in range(4):
        for target in range(4):
            moved = as_array(move_axis(tensor(array), source, target))
            np.testing.assert_array_equal(moved, np.moveaxis(array, source, target))


def test_picked_entries():
    array = RANDOM.normal(size=(2, 5, 3)).astype("float32")
    whole = tensor(array)
    assert pick(whole, range(5), 1) is whole
    for indices in ((1, 2, 3), (4,), (3, 0, 3), (4, 3, 2, 1, 0), (0, 1)):
        picked = as_array(pick(whole, indices, 1))
        np.testing.assert_array_equal(picked, array[:, list(indices)])
