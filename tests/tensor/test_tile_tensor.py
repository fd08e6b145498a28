"""Tiles: offsets of whole tensors, tiles, vectors and threads' parts against explicit loops."""

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekit.tensor import AddressSpace, CoordinateError, Layout, LayoutError, Swizzle, TileTensor, element_type

GLOBAL, SHARED, REGISTER = AddressSpace.GLOBAL, AddressSpace.SHARED, AddressSpace.REGISTER
counts = st.integers(1, 4)


def test_lanes_write_pairs_of_a_tile():
    """Threads numbered row-major 8 x 4 share a 16 x 64 tile in pairs: each gets 2 x 8 pairs, all covered once."""
    output_tile = TileTensor(Layout.row_major(16, 64), "f32", GLOBAL)
    thread_layout = Layout.row_major(8, 4)
    written = []
    for lane_id in range(thread_layout.size):
        my_elements = output_tile.vectorize(1, 2).distribute(thread_layout, lane_id)
        assert my_elements.shape == (2, 8)
        row, column = divmod(lane_id, 4)
        for i, j in itertools.product(range(2), range(8)):
            first = my_elements[i, j]
            assert first == 64 * (row + 8 * i) + 2 * (column + 4 * j)
            written += [first + step for step in my_elements.element.offsets()]
    assert sorted(written) == list(range(16 * 64))


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=3), st.booleans(), st.sampled_from([None, 32, 128]))
def test_tiles_cover_the_tensor(blocks, row_major, span):
    """Element c of tile t is element t * extent + c of the tensor, swizzled by its place in the whole."""
    shape, extents = tuple(a * b for a, b in blocks), tuple(a for a, _ in blocks)
    layout = Layout.row_major(shape) if row_major else Layout.col_major(shape)
    tensor = TileTensor(layout, "bf16", SHARED, swizzle=Swizzle.tma(span), offset=24)
    for which in itertools.product(*(range(b) for _, b in blocks)):
        tile = tensor.tile(extents, which)
        assert tile.shape == extents
        for inside in itertools.product(*map(range, extents)):
            whole = tuple(t * e + c for t, e, c in zip(which, extents, inside, strict=True))
            assert tile[inside] == tensor[whole]
            assert tile.byte_offset(inside) == Swizzle.tma(span)(2 * (24 + layout(whole)))


@given(st.tuples(counts, counts), st.tuples(counts, counts), st.tuples(counts, counts), st.booleans())
def test_vectors_and_threads_partition_the_tensor(vector, threads, repeats, row_major):
    """Vector (i, j) of a thread starts where a round-robin deal along both modes says, and every element is dealt."""
    shape = tuple(v * t * r for v, t, r in zip(vector, threads, repeats, strict=True))
    tensor = TileTensor(Layout.row_major(*shape), "f32", SHARED, offset=5)
    thread_layout = Layout.row_major(*threads) if row_major else Layout.col_major(*threads)
    thread_offsets, first_part = tensor.vectorize(*vector).distribution(thread_layout)
    dealt = []
    for where in itertools.product(*map(range, threads)):
        number = thread_layout(where)
        mine = tensor.vectorize(*vector).distribute(thread_layout, number)
        assert mine.shape == repeats
        for i, j in itertools.product(*map(range, repeats)):
            start = (vector[0] * (where[0] + threads[0] * i), vector[1] * (where[1] + threads[1] * j))
            assert mine[i, j] == tensor[start] == first_part[i, j] + thread_offsets(number)
            dealt += [mine[i, j] + step for step in mine.element.offsets()]
    assert sorted(dealt) == list(range(5, 5 + tensor.size))


def test_slicing_keeps_modes():
    """``:`` keeps a mode and fixes the rest; a full coordinate gives an offset."""
    tensor = TileTensor(Layout((8, (4, 2)), (8, (1, 64))), "f32", SHARED, offset=100)
    assert tensor[3, 5] == tensor[3, (1, 1)] == tensor[3 + 8 * 5] == 100 + 3 * 8 + 1 + 64
    row = tensor[3, :]
    assert [row[j] for j in range(8)] == [tensor[3, j] for j in range(8)]
    assert tensor[:, (slice(None), 1)].shape == (8, 4)
    assert tensor[:, (slice(None), 1)][2, 3] == tensor[2, (3, 1)]


@given(
    st.sampled_from(["e2m1", "e4m3", "bf16", "f32", "b64"]),
    st.sampled_from([None, 32, 64, 128]),
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 8, 16, 48, 64, 128])), min_size=1, max_size=3),
    st.sampled_from([0, 2, 64, 512]),
    st.sampled_from([1, 16, 1024, 2048]),
)
def test_access_alignment_divides_every_address(dtype, span, modes, offset, base_alignment):
    """The promised alignment divides all byte offsets, and without swizzle the next power of two does not."""
    swizzle = Swizzle.tma(span)
    if base_alignment < swizzle.period or element_type(dtype).bits < 8:
        base_alignment = 1024
    layout = Layout(tuple(m[0] for m in modes), tuple(2 * m[1] for m in modes))
    tensor = TileTensor(layout, dtype, SHARED, swizzle=swizzle, offset=offset, base_alignment=base_alignment)
    addresses = [address for _, address in tensor.byte_offsets()]
    assert all(address % tensor.access_alignment == 0 for address in addresses)
    if span is None:
        tight = tensor.access_alignment == base_alignment or any(
            address % (2 * tensor.access_alignment) for address in addresses
        )
        assert tight


@given(
    st.sampled_from([None, 32, 64, 128]),
    st.integers(1, 20),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from(["e4m3", "bf16", "f32"]),
)
def test_contiguous_vectors_are_neighbours_in_memory(span, rows, width, dtype):
    """Where vectors are called contiguous, each one's bytes lie in one run, as loops over the swizzle confirm."""
    tensor = TileTensor(Layout.row_major(rows, 32), dtype, SHARED, swizzle=Swizzle.tma(span))
    vectors = tensor.vectorize(1, width)
    runs = all(
        tensor[i, j * width + k] == vectors[i, j] + k
        for i in range(rows)
        for j in range(32 // width)
        for k in range(width)
    )
    assert vectors.contiguous == runs or (runs and rows * 32 * element_type(dtype).bits // 8 <= 1024)
    assert not TileTensor(Layout.row_major(4, 4), dtype, SHARED).vectorize(2, 1).contiguous


def test_bytes_and_footprint():
    """`bytes` counts data once, `footprint` reaches to the last byte, padded rows and swizzle rows included."""
    padded = TileTensor(Layout((4, 10), (16, 1)), "bf16", SHARED)
    assert (padded.bytes, padded.footprint) == (80, 2 * (3 * 16 + 10))
    swizzled = TileTensor(Layout((4, 10), (64, 1)), "bf16", SHARED, swizzle=Swizzle.tma(128))
    assert swizzled.footprint == 512
    assert max(address for _, address in swizzled.byte_offsets()) < swizzled.footprint
    halves = TileTensor(Layout.row_major(4, 8), "e2m1", SHARED).vectorize(1, 2)
    assert (halves.size, halves.bytes, halves.footprint) == (32, 16, 16)
    assert TileTensor(Layout((4, 8), (0, 1)), "f32", GLOBAL).footprint == 32


def test_byte_offsets_walk_all_coordinates():
    """The walk is leftmost-fastest, with natural coordinates."""
    tensor = TileTensor(Layout((2, (1, 2)), (4, (8, 1))), "bf16", GLOBAL)
    assert list(tensor.byte_offsets()) == [((0, (0, 0)), 0), ((1, (0, 0)), 8), ((0, (0, 1)), 2), ((1, (0, 1)), 10)]


def test_base_is_handed_on_and_values_compare():
    """Any object may be the base; parts keep it, and tiles are values."""
    base = object()
    tensor = TileTensor(Layout.row_major(8, 8), "f32", SHARED, base=base, base_alignment=128)
    part = tensor.tile((4, 4), (1, 1)).vectorize(1, 4)
    assert part.base is base
    assert part.offset == 36
    assert (part.alignment, part.access_alignment) == (16, 16)
    assert (tensor.alignment, tensor.access_alignment) == (128, 4)
    assert part == tensor.tile((4, 4), (1, 1)).vectorize(1, 4)
    assert part != tensor.tile((4, 4), (0, 1)).vectorize(1, 4)


def test_printing():
    """A tile prints its memory, type, vector and layout."""
    tile = TileTensor(Layout.row_major(64, 64), "bf16", SHARED, swizzle=Swizzle.tma(128)).tile((64, 16), (0, 1))
    assert str(tile) == "shared bf16 S(3,3,3) o 16 o (64,16):(64,1)"
    assert str(TileTensor(Layout(8), "f32", REGISTER).vectorize(4)) == "register f32 x (4,):(1,) (2,):(4,)"


def test_any_object_with_name_and_bits_is_a_type():
    """Other layers' element types work without this package knowing them."""

    @dataclass(frozen=True)
    class Mine:
        name: str
        bits: int

    assert TileTensor(Layout(4), Mine("ue8m0", 8), SHARED).byte_offset(3) == 3
    assert TileTensor(Layout(4), "f64", SHARED).byte_offset(3) == 24


def shared_tile(**arguments):
    return TileTensor(Layout.row_major(8, 12), "bf16", SHARED, **arguments)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: TileTensor(Layout(4), "bf61", SHARED), LayoutError, r"dtype 'bf61' is unknown.*nearest: 'bf16'"),
        (lambda: TileTensor(Layout(4), object(), SHARED), LayoutError, r"must be a name or have \.name and \.bits"),
        (
            lambda: shared_tile(swizzle=Swizzle.tma(128), base_alignment=128),
            LayoutError,
            r"base_alignment is 128 bytes; .* at least its period \(nearest legal value: 1024\)",
        ),
        (lambda: shared_tile(base_alignment=24), LayoutError, r"nearest legal value: 32\)"),
        (lambda: shared_tile(offset=-1), LayoutError, r"offset is -1; the smallest legal value is 0"),
        (lambda: shared_tile(swizzle=Swizzle(2, 0, 3)), LayoutError, r"keeps no more than 8 bits together"),
        (
            lambda: shared_tile().tile((8, 5), (0, 0)),
            LayoutError,
            r"tile by \(8,5\): mode 1 of .*5:1 does not divide 12:1, of size 12 \(nearest .*: 4 or 6\)",
        ),
        (lambda: shared_tile().tile((8, 4), (0, 3)), CoordinateError, r"coordinate 3 lies outside shape 3: 0 to 2"),
        (lambda: shared_tile().tile(8, 0), LayoutError, r"\(8,\) has 1 extents for the 2 modes of shape \(8,12\)"),
        (lambda: shared_tile().vectorize(1, 8), LayoutError, r"vectorize by \(1,8\): mode 1 of .*: 6 or 12\)"),
        (lambda: shared_tile().vectorize(1, 2).vectorize(1, 2), LayoutError, r"vectors already"),
        (
            lambda: shared_tile().distribute(Layout((8, 4), (8, 1)), 0),
            LayoutError,
            r"\(8,4\):\(8,1\) does not number its 32 threads 0 to 31",
        ),
        (lambda: shared_tile().distribute(Layout((8, 4), (0, 1)), 0), LayoutError, r"does not number its 32 threads"),
        (lambda: shared_tile().distribute(Layout.row_major(8, 4), 32), CoordinateError, r"coordinate 32 lies outside"),
        (lambda: shared_tile().distribute(Layout.row_major(8, 5), 0), LayoutError, r"distribute by \(8,5\): mode 1"),
        (
            lambda: TileTensor(Layout(4), "e2m1", SHARED).byte_offset(3),
            CoordinateError,
            r"starts at bit 4 of byte 1; .* vectorize the tile by 2",
        ),
        (lambda: shared_tile()[8, 0], CoordinateError, r"coordinate 8 lies outside shape 8"),
    ],
)
def test_errors(call, error, message):
    """Bad requests are refused where they are made, with what would be legal."""
    with pytest.raises(error, match=message):
        call()
