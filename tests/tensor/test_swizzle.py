"""Swizzles: the hardware's tables, and the laws of any of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import layouts

from tilekit.tensor import Layout, LayoutError, Swizzle

swizzles = st.builds(
    lambda bits, base, extra: Swizzle(bits, base, bits + extra), st.integers(0, 3), st.integers(0, 4), st.integers(0, 2)
)


@pytest.mark.parametrize(("span", "rows_per_step"), [(128, 1), (64, 2), (32, 4)])
def test_tma_swizzles_follow_the_hardware_table(span, rows_per_step):
    """Byte b of row r: the 16-byte chunk is flipped by the row, by half of it for 64 B and a quarter for 32 B."""
    swizzle = Swizzle.tma(span)
    chunks = span // 16
    for row in range(64):
        for byte in range(span):
            chunk = (byte // 16) ^ (row // rows_per_step % chunks)
            assert swizzle(row * span + byte) == row * span + chunk * 16 + byte % 16


def test_tma_swizzles_have_the_hardware_sizes():
    """Atoms of 16 bytes trade places within the span; the pattern repeats as matrix descriptors and TMA require."""
    assert [(Swizzle.tma(s).atom, Swizzle.tma(s).span, Swizzle.tma(s).period) for s in (32, 64, 128)] == [
        (16, 32, 256),
        (16, 64, 512),
        (16, 128, 1024),
    ]
    identity = Swizzle.tma(None)
    assert identity == Swizzle.identity()
    assert (identity.span, identity.period, identity(12345)) == (1, 1, 12345)


def test_128_byte_swizzle_spreads_a_column_over_all_banks():
    """Eight rows of one 16-byte chunk lie in eight different groups of four banks; unswizzled, all in one."""
    chunk_columns = [{(Swizzle.tma(128)(row * 128 + c * 16) % 128) // 16 for row in range(8)} for c in range(8)]
    assert chunk_columns == [set(range(8))] * 8


@given(swizzles)
def test_swizzles_are_involutions_that_permute_each_span(swizzle):
    """Applying a swizzle twice gives the offset back, and nothing leaves its span or its atom."""
    for offset in range(2 * swizzle.period):
        image = swizzle(offset)
        assert swizzle(image) == swizzle.inverse()(image) == offset
        assert image // swizzle.span == offset // swizzle.span
        assert image % swizzle.atom == offset % swizzle.atom


@given(swizzles)
def test_period_is_the_least(swizzle):
    """Adding the period commutes with the swizzle, and half of it does not."""
    period = swizzle.period
    assert all(swizzle(i + period) == swizzle(i) + period for i in range(2 * period))
    if swizzle.bits:
        assert any(swizzle(i + period // 2) != swizzle(i) + period // 2 for i in range(2 * period))


@given(st.sampled_from([4, 8, 16, 32, 64, 128]), st.sampled_from([32, 64, 128]), st.integers(0, 4095))
def test_element_swizzle_is_the_byte_swizzle_in_other_units(width, span, element):
    """Swizzling an element's offset and then taking bits is swizzling the bits."""
    first_bit = element * width
    expected = Swizzle.tma(span)(first_bit // 8) * 8 + first_bit % 8
    assert Swizzle.tma(span).for_elements(width)(element) * width == expected


@given(swizzles, layouts())
def test_composition_with_a_layout_is_pointwise(swizzle, layout):
    """``swizzle @ layout`` applies the layout first, for an index and for a natural coordinate."""
    both = swizzle @ layout
    assert both.offsets() == tuple(swizzle(offset) for offset in layout.offsets())
    assert [both(i) for i in range(both.size)] == list(both.offsets())
    assert both(layout.coordinate(layout.size - 1)) == both.offsets()[-1]
    assert both.shape == layout.shape


def test_printing():
    """A swizzled layout prints as a composition."""
    assert str(Swizzle.tma(128) @ Layout.row_major(8, 128)) == "S(3,4,3) o (8,128):(128,1)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Swizzle(-1, 4, 3), "bits is -1; the smallest legal value is 0"),
        (lambda: Swizzle(3, 4, 2), r"shift is 2, less than bits \(3\).* smallest legal shift is 3"),
        (lambda: Swizzle.tma(96), "span is 96; the swizzle modes are 32, 64 and 128 bytes, and None"),
        (lambda: Swizzle.tma(128).for_elements(24), "width is 24 bits; it must be a power of two"),
        (lambda: Swizzle.tma(128).for_elements(256), "keeps no more than 128 bits together"),
    ],
)
def test_errors(make, message):
    """What is no swizzle is refused with the argument and the legal values."""
    with pytest.raises(LayoutError, match=message):
        make()
