"""What a layout is: its function, its modes, its errors."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import layouts

from tilekit.tensor import CoordinateError, Layout, LayoutError
from tilekit.tensor.nested import coordinate_of, flat


@given(layouts())
def test_offset_of_index_is_the_sum_over_leaves(layout):
    """An integer coordinate unpacks leftmost-fastest and sums coordinate times stride over the leaves."""
    extents, strides = flat(layout.shape), flat(layout.stride)
    coordinates = itertools.product(*(range(extent) for extent in reversed(extents)))
    expected = [sum(c * d for c, d in zip(reversed(c), strides, strict=True)) for c in coordinates]
    assert [layout(i) for i in range(layout.size)] == expected
    assert list(layout.offsets()) == expected
    assert layout.cosize == max(expected) + 1


@given(layouts(), st.data())
def test_every_form_of_a_coordinate_gives_the_same_offset(layout, data):
    """An index, the natural coordinate, and one index for each mode agree."""
    index = data.draw(st.integers(0, layout.size - 1))
    natural = layout.coordinate(index)
    by_mode = (
        tuple(Layout(mode.shape)(part) for mode, part in zip(layout, natural, strict=True)) if layout.depth else index
    )
    assert layout(natural) == layout(by_mode) == layout(index)


@given(layouts())
def test_modes_rebuild_the_layout(layout):
    """Iterating gives the top-level modes, and from_modes undoes it."""
    assert len(list(layout)) == layout.rank
    assert layout.depth == 0 or Layout.from_modes(*layout) == layout
    assert Layout.from_modes(*layout).offsets() == layout.offsets()


@given(layouts())
def test_flatten_keeps_function_and_leaves(layout):
    """Flattening changes nothing but the nesting."""
    flattened = layout.flatten()
    assert flattened.depth <= 1
    assert flattened.offsets() == layout.offsets()
    assert flattened.leaves == layout.leaves


@given(layouts(), st.data())
def test_slice_splits_the_function(layout, data):
    """Offset of the fixed modes plus the kept modes' layout is the whole function."""
    modes = tuple(layout)
    keep = data.draw(st.lists(st.booleans(), min_size=layout.rank, max_size=layout.rank).filter(any))
    fixed = [data.draw(st.integers(0, mode.size - 1)) for mode in modes]
    kept, offset = layout.slice(*(slice(None) if k else f for k, f in zip(keep, fixed, strict=True)))
    for index in range(kept.size):
        part = iter(coordinate_of(index, tuple(m.size for m, k in zip(modes, keep, strict=True) if k)))
        coordinate = tuple(next(part) if k else f for k, f in zip(keep, fixed, strict=True))
        assert offset + kept(index) == layout(coordinate if layout.rank > 1 or layout.depth else coordinate[0])


def test_majors():
    """Row-major has the rightmost mode fastest, column-major the leftmost, also through nesting."""
    assert str(Layout.row_major(8, 4)) == "(8,4):(4,1)"
    assert str(Layout.col_major(8, 4)) == "(8,4):(1,8)"
    assert str(Layout.row_major((2, 3), 4)) == "((2,3),4):((12,4),1)"
    assert str(Layout.row_major(7)) == str(Layout(7)) == "7:1"
    assert Layout.row_major((8, 4)) == Layout.row_major(8, 4)


def test_values_and_repr():
    """Layouts are values: equal, hashable, immutable, and their repr evaluates to them."""
    layout = Layout([4, [2, 2]], [2, [1, 8]])
    assert layout == Layout((4, (2, 2)), (2, (1, 8)))
    assert hash(layout) == hash(Layout((4, (2, 2)), (2, (1, 8))))
    assert eval(repr(layout)) == layout
    assert (layout.size, layout.cosize, layout.rank, layout.depth) == (16, 16, 2, 2)
    with pytest.raises(AttributeError):
        layout.shape = 4  # type: ignore[misc]


def test_indexing_modes():
    """Modes are reached by index, from the end, as a run, and through nesting."""
    layout = Layout((4, (2, 3), 5), (2, (1, 8), 30))
    assert str(layout[1]) == "(2,3):(1,8)"
    assert layout[-1] == Layout(5, 30)
    assert str(layout[1:]) == "((2,3),5):((1,8),30)"
    assert layout[1, 1] == Layout(3, 8)
    assert Layout(5, 2)[0] == Layout(5, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layout((4, 0)), r"shape holds 0; the smallest legal value is 1"),
        (lambda: Layout(4, -1), r"stride holds -1; the smallest legal value is 0"),
        (lambda: Layout((4, 2.5)), r"shape holds 2\.5; it must be an integer or a nested tuple of integers"),
        (lambda: Layout((4, ())), r"shape holds an empty tuple"),
        (lambda: Layout((4, 2), (1, (2, 2))), r"stride \(1,\(2,2\)\) is not nested like shape \(4,2\)"),
        (lambda: Layout.row_major(), r"shape is missing"),
        (lambda: Layout.from_modes(), r"was given no mode"),
    ],
)
def test_construction_errors(make, message):
    """What cannot be a layout is refused with the value and the legal one."""
    with pytest.raises(LayoutError, match=message):
        make()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a(8, 0), r"coordinate 8 lies outside shape 8: 0 to 7"),
        (lambda a: a(32), r"coordinate 32 lies outside shape \(8,4\): 0 to 31"),
        (lambda a: a(0, 0, 0), r"coordinate \(0,0,0\) does not fit shape \(8,4\)"),
        (lambda a: a((0, 1), 0), r"coordinate \(0,1\) does not fit shape 8"),
        (lambda a: a.coordinate(32), r"index 32 lies outside"),
        (lambda a: a[2], r"mode 2 of \(8,4\):\(4,1\) does not exist; it has modes 0 to 1"),
        (lambda a: a.slice(1, 2), r"at least one mode must be kept"),
        (lambda a: a.slice(slice(0, 4), 2), r"only ':' is legal"),
        (lambda a: a.slice(slice(None)), r"1 entries for 2 modes; give one for each"),
    ],
)
def test_coordinate_errors(call, message):
    """A coordinate that does not fit is an IndexError that names coordinate and shape."""
    with pytest.raises(CoordinateError, match=message):
        call(Layout.row_major(8, 4))
    assert issubclass(CoordinateError, IndexError)
