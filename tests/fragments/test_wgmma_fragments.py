"""One wgmma of each kind, run by the emulator on tiles that the copy engine brought, and compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from small_kernels import BF16, E4M3, E5M2, Array, SmallKernel, Tensor

from tilekit.assembly.types import F32, S32, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import as_dtype
from tilekit.tile_op.descriptors import WGMMA_MODES, MatrixDescriptor
from tilekit.tiles.call import Major
from tilekit.tiles.operand import OperandTile, SwizzleBytes

F16 = np.dtype(np.float16)


def multiply(
    a: Array,
    b: Array,
    *,
    majors: tuple[Major, Major] = ("k", "k"),
    accumulate: bool = False,
    swizzle_bytes: SwizzleBytes = 128,
) -> Array:
    """A [64, k] times B [k, n] by one instruction, with accumulators that begin at 1; a whole k-block is loaded."""
    n = b.shape[1]
    tiles = [
        OperandTile("a", as_dtype(a.dtype), 64, majors[0]),
        OperandTile("b", as_dtype(b.dtype), n, majors[1], swizzle_bytes=swizzle_bytes),
    ]
    tensors = [operand_map(a, tiles[0]), operand_map(b.T, tiles[1])]
    out = np.full((64, n), np.float32(np.nan))
    k = SmallKernel(pointers=1, maps=2, threads=128)
    w = k.w
    places = [w.shared.allocate(t.name, size=t.bytes, alignment=1024, kind="tile") for t in tiles]
    full = k.barrier("full")
    with w.when(k.thread == 0):
        w.ptx.mbarrier.arrive_expect(bar=full, bytes=sum(t.bytes for t in tiles))
        for tile, place, tensor in zip(tiles, places, k.maps, strict=True):
            # MN-major, one copy brings a chunk of one swizzle span along M or N.
            for chunk in range(1 if tile.major == "k" else tile.rows // tile.chunk):
                target = w.shared_base + (place.offset + chunk * tile.chunk * 128)
                w.ptx.tma.load_2d(dst=target, map=tensor, x=chunk * tile.chunk, y=0, full=full)
    w.warp_sync()
    w.ptx.mbarrier.wait_parity(bar=full, parity=0)
    whole = a.dtype == np.int8
    acc = w.tile(S32 if whole else F32, n // 2, "acc")
    for register in acc:
        register.assign(1 if whole else 1.0)
    a_desc, b_desc = (
        descriptor(w, tile, w.shared_base.retyped(U32) + place.offset)
        for tile, place in zip(tiles, places, strict=True)
    )
    w.ptx.wgmma.fence()
    common = {"acc": acc, "a": a_desc, "b": b_desc, "accumulate": accumulate, "n": n}
    if whole:
        w.ptx.wgmma.mma_s8(**common)
    elif a.dtype.itemsize == 1:
        w.ptx.wgmma.mma_8bit(**common, a_type=tiles[0].dtype.name, b_type=tiles[1].dtype.name)
    else:
        transposed = {"a_mn_major": int(majors[0] == "mn"), "b_mn_major": int(majors[1] == "mn")}
        w.ptx.wgmma.mma_16bit(**common, type=tiles[0].dtype.name, **transposed)
    w.ptx.wgmma.commit()
    w.ptx.wgmma.wait(pending=0)
    row = (k.thread >> 5) * 16 + ((k.thread >> 2) & 7)
    for index, register in enumerate(acc):
        column = (k.thread & 3) * 2 + (8 * (index // 4) + index % 2)
        value = w.isa.convert.bits_f32(whole=register) if whole else register
        k.store(0, (row + 8 * (index // 2 % 2)) * n + column, value)
    k.run(out, maps=tensors)
    return out.view(np.int32) if whole else out


def descriptor(w: Writer, tile: OperandTile, address: Value) -> Value:
    """The matrix descriptor of the tile's first k-slice."""
    fields = MatrixDescriptor.of(tile, WGMMA_MODES)
    result: Value = w.ptx.wgmma.descriptor(low=(address >> 4) | fields.low, high=fields.high)
    return result


def operand_map(matrix: Array, tile: OperandTile) -> Tensor:
    """A tensor map of (rows, k), padded to one k-block along K, in the tile's major."""
    padded = np.zeros((tile.rows, tile.k), matrix.dtype)
    padded[:, : matrix.shape[1]] = matrix
    if tile.major == "k":
        return Tensor(padded, (tile.k, tile.rows), swizzle="128B")
    swizzle = f"{tile.swizzle_bytes}B" if tile.swizzle_bytes else None
    return Tensor(np.ascontiguousarray(padded.T), (tile.chunk, tile.k), swizzle=swizzle)


def integers(shape: tuple[int, int], dtype: np.dtype, seed: int) -> Array:
    """Small integers, whose sums of products are exact in f32, different enough to tell coordinates apart."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32).astype(dtype)


def product(a: Array, b: Array) -> Array:
    """The exact product."""
    return a.astype(np.float32) @ b.astype(np.float32)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("majors", [("k", "k"), ("mn", "k"), ("k", "mn"), ("mn", "mn")])
def test_16bit_majors(dtype: np.dtype, majors: tuple[Major, Major]) -> None:
    """m64n128k16 with each operand K-major and MN-major, exact."""
    a, b = integers((64, 16), dtype, 1), integers((16, 128), dtype, 2)
    np.testing.assert_array_equal(multiply(a, b, majors=majors), product(a, b))


@pytest.mark.parametrize(
    ("n", "swizzle_bytes"), [(8, 0), (16, 0), (40, 0), (16, 32), (48, 32), (32, 64), (96, 64), (192, 128)]
)
def test_narrow_chunks(n: int, swizzle_bytes: SwizzleBytes) -> None:
    """An MN-major B in chunks of every width that a swizzle has, one and several of them, exact."""
    a, b = integers((64, 16), BF16, 9), integers((16, n), BF16, 10)
    np.testing.assert_array_equal(multiply(a, b, majors=("k", "mn"), swizzle_bytes=swizzle_bytes), product(a, b))


@pytest.mark.parametrize("b_dtype", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("a_dtype", [E4M3, E5M2], ids=str)
def test_8bit_types(a_dtype: np.dtype, b_dtype: np.dtype) -> None:
    """m64n64k32 with each pair of fp8 types, exact."""
    a, b = integers((64, 32), a_dtype, 3), integers((32, 64), b_dtype, 4)
    np.testing.assert_array_equal(multiply(a, b), product(a, b))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("n", [8, 24, 48, 256])
def test_signed_bytes(n: int, accumulate: bool) -> None:
    """m64nNk32 of signed bytes, both ends among them, in s32: a sum's bits are those of a whole number."""
    rng = np.random.default_rng(n)
    a, b = rng.integers(-128, 128, (64, 32), np.int8), rng.integers(-128, 128, (32, n), np.int8)
    exact = a.astype(np.int32) @ b.astype(np.int32)
    np.testing.assert_array_equal(multiply(a, b, accumulate=accumulate), exact + accumulate)


@pytest.mark.parametrize("n", [8, 24, 256])
def test_widths(n: int) -> None:
    """The narrowest, an odd and the widest n."""
    a, b = integers((64, 16), BF16, 5), integers((16, n), BF16, 6)
    np.testing.assert_array_equal(multiply(a, b), product(a, b))


@pytest.mark.parametrize("dtype", [F16, E4M3], ids=str)
def test_accumulate_adds_to_the_accumulators(dtype: np.dtype) -> None:
    """With `accumulate` the instruction adds to what the registers hold, without it overwrites them."""
    k = 32 // dtype.itemsize
    a, b = integers((64, k), dtype, 7), integers((k, 8), dtype, 8)
    np.testing.assert_array_equal(multiply(a, b, accumulate=True), product(a, b) + 1)
