"""The image of a tile: what the copy engine, threads and `ldmatrix` make of one description."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from tests.composed import Array, Composed, integers
from tilekit.assembly.errors import TraceError
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32, GMEM, SMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, DType
from tilekit.emulator import Device
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_io.cp_async import CpAsyncLoader
from tilekit.tile_io.payload_loader import PayloadLoader, StandardLoader
from tilekit.tile_io.tma import TmaLoader
from tilekit.tiles.call import Call, Matrix
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import OperandTile, SwizzleBytes
from tilekit.tiles.stage import Stage

SWIZZLES: tuple[SwizzleBytes, ...] = (0, 32, 64, 128)
E2M1 = DType("e2m1", 4, np.dtype(np.uint8), "16u4_align8B", (17, 4), 0.5)
E2M1_PADDED = DType("e2m1", 4, np.dtype(np.uint8), "16u4_align16B", (17, 4), 0.5)
E3M2 = DType("e3m2", 6, np.dtype(np.uint8), "16u6_align16B", (16, 6), 0.25)
"""Types that no kernel has yet: packed, padded from 4 bits to bytes, and from 6."""


def load_image(w: Writer, tile: OperandTile) -> Value:
    """Have the copy engine fill the tile's image from the matrix's first rows; 0xAA stays where it writes nothing."""
    loader = TmaLoader(w, tile)
    place = w.shared.allocate("image", size=tile.bytes, alignment=tile.alignment, kind="tile")
    bar = w.shared_base + w.shared.allocate("full", size=8, alignment=8, kind="mbarrier").offset
    lane = w.lane()
    for word in range(0, tile.bytes, 128):
        w.isa.memory.store_shared_b32(address=w.shared_base + place.offset + lane * 4 + word, value=0xAAAA_AAAA)
    w.ptx.tma.fence_shared()
    w.warp_sync()
    with w.when(w.elect()):
        w.ptx.mbarrier.init(bar=bar, count=1)
        w.ptx.mbarrier.fence_init()
        w.ptx.mbarrier.arrive_expect(bar=bar, bytes=tile.transfer_bytes)
        zero = w.constant(U32, 0)
        loader.bind(w, place, None).at(w, zero, 0, 0).load(w, Stage(zero, bar, "test"), zero)
    w.warp_sync()
    w.ptx.mbarrier.wait_parity(bar=bar, parity=0)
    return w.shared_base + place.offset


def launch(w: Writer, tile: OperandTile, matrix: Array, extents: tuple[int, int], found: Array) -> None:
    """Run one warp on a matrix of such elements; what it finds comes back in the array."""
    device = Device(w.target.name, seed=1)
    buffer = device.buffer(matrix)
    operand = Matrix(tile.name, tile.dtype, extents, matrix.strides[0])  # type: ignore[arg-type]
    call = Call(m=1, n=1, k=1, matrices={tile.name: operand}, addresses={tile.name: buffer.address}, resident=1)
    (described,) = (p.value(call) for p in w.parameters if p.value is not None)
    kernel = device.load(w.text())[w.name]
    assert kernel.launch(grid=1, block=32, shared_bytes=w.shared.size, args=[described.encode(), found]).clean


def moved(tile: OperandTile, packed: Array, extents: tuple[int, int]) -> Array:
    """The bytes of the tile's image."""
    w = Writer("image", target="sm_100a", threads=32)
    base, out, lane = load_image(w, tile), w.parameter("out", GMEM), w.lane()
    for word in range(0, tile.bytes, 128):
        value = w.isa.memory.load_shared_f32(address=base + lane * 4 + word)
        target = (out + w.widen_multiply(lane * 4 + word, 1)).retyped(GMEM)
        w.isa.memory.store_global_f32(address=target, value=value, valid=lane >= 0)
    image = np.zeros(tile.bytes, np.uint8)
    launch(w, tile, packed, extents, image)
    return image


def packed_rows(codes: Array, bits: int) -> Array:
    """Rows of numbers as so many bits each, the first in the lowest ones."""
    lowest = (codes[:, :, None] >> np.arange(bits)) & 1
    return np.packbits(lowest.reshape(len(codes), -1), axis=1, bitorder="little")


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_four_bits_are_moved_exactly(swizzle: SwizzleBytes) -> None:
    """A packed 4-bit tile lies where its `TileTensor` says, element by element, in every swizzle."""
    made = OperandTile("a", E2M1, 16, "k", 1, swizzle)
    tile = replace(made, slices=256 // made.slice_k)
    assert (tile.bits, tile.k, tile.bytes, tile.transfer_bytes) == (4, 256, 2048, 2048)
    codes = np.random.default_rng(1).integers(0, 16, (16, 256)).astype(np.uint8)
    image = moved(tile, packed_rows(codes, 4), (256, 16))
    nibbles = np.stack([image & 15, image >> 4], axis=1).reshape(-1)
    where = tile.tensor
    for part in range(tile.slices):
        base = part * tile.slice_bytes * 2
        for row in range(16):
            for k in range(tile.slice_k):
                place = where.swizzle(where.layout(row, k) // 2) * 2 + k % 2
                assert nibbles[base + place] == codes[row, part * tile.slice_k + k]


@pytest.mark.parametrize(("rows", "rest"), [(136, 8), (88, 24), (56, 56), (128, 0)])
def test_a_trimmed_tile_counts_what_it_has(rows: int, rest: int) -> None:
    """Chunks of the image are whole, and of the last one only the tile's own elements are loaded."""
    tile, whole = (OperandTile("b", BF16, rows, "mn", 2, trimmed=trimmed) for trimmed in (True, False))
    assert (tile.rest, tile.loaded_rows, tile.transfer_bytes) == (rest, rows, rows * 128 * 2)
    assert (whole.rest, whole.loaded_rows, whole.transfer_bytes) == (0, whole.image_rows, whole.bytes)
    assert tile.bytes == whole.bytes == -(-rows // 64) * 64 * 128 * 2
    assert replace(tile, major="k").rest == 0


@pytest.mark.parametrize("dtype", [E2M1_PADDED, E3M2], ids=lambda dtype: f"{dtype.bits} bits")
def test_padded_types_take_a_byte_each(dtype: DType) -> None:
    """16 elements of 4 or 6 bits come in 16 bytes, of which their own count on the barrier; the rest is nothing."""
    tile = OperandTile("a", dtype, 8, "k")
    assert (tile.bits, tile.k, tile.bytes, tile.transfer_bytes) == (8, 128, 1024, 128 * dtype.bits)
    codes = np.random.default_rng(2).integers(0, 1 << dtype.bits, (8, 128)).astype(np.uint8)
    packed = packed_rows(codes, dtype.bits)
    image = moved(tile, packed, (128, 8))
    used = 2 * dtype.bits
    for row in range(8):
        for group in range(8):
            place = tile.swizzle(row * 128 + group * 16)
            found = image[place : place + used]
            assert (found == packed[row, group * used : (group + 1) * used]).all()


def by_threads(width: int, stages: int) -> Any:
    """Both operands copied by threads, from addresses that are multiples of `width` bytes."""

    def loading(
        w: Writer, a: OperandTile, b: OperandTile, tiles: dict[str, SharedArray], cluster: Cluster
    ) -> PayloadLoader:
        loaders = (CpAsyncLoader(w, CopyPlan(tile, width), stages=stages) for tile in (a, b))
        return StandardLoader(w, *loaders, tiles, cluster)

    return loading


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("width", [4, 2])
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("majors", [("k", "k"), ("mn", "k"), ("k", "mn")], ids="-".join)
def test_threads_make_every_image(
    majors: tuple[Literal["k", "mn"], Literal["k", "mn"]], swizzle: SwizzleBytes, width: int
) -> None:
    """The same images by `cp.async`, aligned or shifted: exact products, nothing found."""
    a, b = (OperandTile(name, BF16, 64, major, 1, swizzle) for name, major in zip("ab", majors, strict=True))
    a, b = (replace(tile, slices=64 // tile.slice_k) for tile in (a, b))
    if any(CopyPlan(tile, width).block_lines % CopyPlan(tile, width).unit for tile in (a, b)):
        with pytest.raises(TraceError, match=r"CpAsyncLoader copies \d+ rows.*tile '[ab]'.*nearest: \d+.*TK-TRACE-017"):
            Composed(a, b, loading=by_threads(width, 3), filled_by="threads", engine_bytes=0)
        return
    kernel = Composed(a, b, loading=by_threads(width, 3), filled_by="threads", engine_bytes=0)
    m, n, k = 72, 70, 100
    left, right = integers(m, k, 5), integers(n, k, 6)
    laid = [pitched(x if major == "k" else x.T, width) for x, major in zip((left, right), majors, strict=True)]
    d, report = kernel.run(laid[0], laid[1], m, n, k)
    np.testing.assert_array_equal(d, left.astype(np.float32) @ right.astype(np.float32).T)
    assert report.clean


def pitched(matrix: Array, width: int) -> Array:
    """The matrix with rows that begin at multiples of `width` bytes, and of no larger power of two."""
    size = matrix.dtype.itemsize
    pitch = -(-matrix.shape[1] * size // (2 * width)) * 2 * width + width
    memory = np.zeros((matrix.shape[0], pitch // size), matrix.dtype)
    memory[:, : matrix.shape[1]] = matrix
    return memory[:, : matrix.shape[1]]


def test_threads_copy_whole_bytes() -> None:
    """A tile of 4-bit elements is the copy engine's: the loader and the tile are named."""
    w = Writer("bits", target="sm_100a", threads=128)
    with pytest.raises(TraceError, match=r"CpAsyncLoader copies whole bytes.*tile 'a'.*4 bits.*TMA.*TK-TRACE-017"):
        CpAsyncLoader(w, CopyPlan(OperandTile("a", E2M1, 64, "k"), 8), stages=2)


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_ldmatrix_follows_the_swizzle(swizzle: SwizzleBytes) -> None:
    """An instruction that takes row addresses finds its rows by `swizzled` in each image that the copy engine made."""
    made = OperandTile("a", BF16, 16, "k", 1, swizzle)
    tile = replace(made, slices=64 // made.slice_k)
    w = Writer("rows", target="sm_90a", threads=32)
    base, out, lane = load_image(w, tile), w.parameter("out", GMEM), w.lane()
    row = lane % 16
    for chunk in range(8):
        part, within = divmod(chunk * 16, tile.row_bytes)
        byte = w.constant(U32, within)
        address = base + part * tile.slice_bytes + row * tile.row_bytes + tile.swizzled(byte, row)
        for half, value in enumerate(w.ptx.ldmatrix.load_x2(address=address.retyped(SMEM))):
            # Lane l holds the elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
            target = (lane // 4 + 8 * half) * 128 + chunk * 16 + lane % 4 * 4
            element = (out + w.widen_multiply(target, 1)).retyped(GMEM)
            w.isa.memory.store_global_f32(address=element, value=value.retyped(F32), valid=lane >= 0)
    matrix, found = integers(16, 64, 7), np.zeros((16, 64), BF16.numpy)
    launch(w, tile, matrix, (64, 16), found)
    np.testing.assert_array_equal(found, matrix)
