"""One tcgen05.mma of each kind, by a CTA and by a pair, on tiles that the copy engine brought, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from blackwell_kernel import BlackwellKernel
from small_kernels import BF16, E4M3, E5M2, Array, Tensor

from tilekit.assembly.types import F32, PRED, U32
from tilekit.assembly.values import Value
from tilekit.dtypes import BF16 as BF16_TYPE
from tilekit.dtypes import E4M3 as E4M3_TYPE
from tilekit.dtypes import F32 as F32_TYPE
from tilekit.emulator import EmulatorError
from tilekit.tile_op.descriptors import TCGEN05_MODES, MatrixDescriptor
from tilekit.tiles.operand import OperandTile

F16, TF32 = np.dtype(np.float16), np.dtype(np.float32)
FORMATS = {F16: 0, BF16: 1, TF32: 2, E4M3: 0, E5M2: 1}
"""Codes of the operand types in the instruction descriptor."""
CALLS = {1: "mma_f8f6f4", 2: "mma_f16", 4: "mma_tf32"}
"""Fragments by the bytes of an element."""
ROW = 128
"""Bytes of a row of a tile: one span of the 128-byte swizzle."""
MIDDLE = 64 | 1 << 14 | 2 << 29
"""High word of a descriptor: groups of 8 rows every 1024 bytes, the version of sm_100, 128-byte swizzle."""


def descriptor(k: BlackwellKernel, address: Value) -> Value:
    """The matrix descriptor of a K-major tile in the 128-byte swizzle."""
    low = ((address.retyped(U32) & 0x3FFFF) >> 4) | (1 << 16)
    result: Value = k.w.ptx.tcgen05.descriptor(low=low, high=MIDDLE)
    return result


def multiply(
    a: Array, b: Array, *, group: int = 1, times: int = 1, first: bool = False, commit: bool = True, after: bool = True
) -> Array:
    """A [128 * group, k] times B [n, k] transposed, in one instruction of k * 32 bytes, `times` times.

    The first of them accumulates if `first`, onto tensor memory that holds 1, and the others do. The defects that the
    emulator must notice: no `commit` but a plain arrival, or no `after` fence in front of the loads.
    """
    (m, _), (n, _) = a.shape, b.shape
    out = np.full((m, n), np.float32(np.nan))
    k = BlackwellKernel(pointers=1, maps=2, group=group)
    w, tc = k.w, k.w.ptx.tcgen05
    rows = (128, n // group)
    tiles = [
        w.shared_base + w.shared.allocate(name, size=r * ROW, alignment=1024, kind="tile").offset
        for name, r in zip("ab", rows, strict=True)
    ]
    full, done = k.barrier("full"), k.barrier("done")
    rank = w.ptx.cluster.cta_rank()
    address = k.allocate(max(32, n))
    mine = address + (k.warp.retyped(address.type) << 21)
    ones = w.tile(F32, n, "ones")
    for register in ones:
        register.assign(1.0)
    tc.store_32x32b(address=mine, values=ones, x=n)
    tc.wait_store()
    tc.fence_before()
    k.meet()
    tc.fence_after()
    with w.when((k.thread == 0) & (rank == 0)):
        w.ptx.mbarrier.arrive_expect(bar=full, bytes=group * sum(rows) * ROW)
    with w.when(k.thread == 0):
        leader = w.ptx.cluster.map_address(address=full, rank=0)
        for tile, tensor, height in zip(tiles, k.maps, rows, strict=True):
            if group == 2:
                w.ptx.tma.load_2d_pair(dst=tile, map=tensor, x=0, y=rank * height, full=leader)
            else:
                w.ptx.tma.load_2d(dst=tile, map=tensor, x=0, y=0, full=full)
    with w.when((k.thread == 0) & (rank == 0)):
        w.ptx.mbarrier.wait_parity(bar=full, parity=0)
        code = FORMATS[a.dtype] << 7 | FORMATS[b.dtype] << 10
        idesc = 1 << 4 | code | (n >> 3) << 17 | (m >> 4) << 24
        mma = getattr(tc, CALLS[a.dtype.itemsize])
        a_desc, b_desc = (descriptor(k, tile) for tile in tiles)
        for index in range(times):
            accumulate = w.constant(PRED, first or index > 0)
            mma(d=address, a=a_desc, b=b_desc, idesc=idesc, accumulate=accumulate, group=group)
        if not commit:
            w.ptx.mbarrier.arrive(bar=done, active=k.thread == 0)
        elif group == 2:
            tc.commit_multicast(bar=done, mask=k.both(), group=2)
        else:
            tc.commit(bar=done, group=1)
    w.warp_sync()
    w.ptx.mbarrier.wait_parity(bar=done, parity=0)
    if after:
        tc.fence_after()
    values = w.tile(F32, n, "values")
    tc.load_32x32b(values=values, address=mine, x=n)
    tc.wait_load()
    for column, register in enumerate(values):
        k.store(0, (rank * 128 + k.thread) * n + column, register)
    k.free(address, max(32, n))
    k.run(out, maps=[operand(a, rows[0]), operand(b, rows[1])])
    return out


def operand(matrix: Array, rows: int) -> Tensor:
    """A tensor map of a matrix whose k is padded to one swizzle span."""
    span = ROW // matrix.dtype.itemsize
    padded = np.zeros((matrix.shape[0], span), matrix.dtype)
    padded[:, : matrix.shape[1]] = matrix
    return Tensor(padded, (span, rows), swizzle="128B")


def integers(rows: int, dtype: np.dtype, seed: int) -> Array:
    """Rows of 32 bytes of small integers, whose sums of products are exact in f32."""
    shape = (rows, 32 // dtype.itemsize)
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32).astype(dtype)


def product(a: Array, b: Array) -> Array:
    """The exact product."""
    return a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    ("a_dtype", "b_dtype"), [(F16, F16), (BF16, BF16), (TF32, TF32), (E4M3, E5M2), (E5M2, E4M3)], ids=str
)
def test_kinds(a_dtype: np.dtype, b_dtype: np.dtype, group: int) -> None:
    """`mma_f16`, `mma_tf32` and `mma_f8f6f4` with `commit`, or for a pair `commit_multicast`, are exact."""
    a, b = integers(128 * group, a_dtype, 1), integers(32 * group, b_dtype, 2)
    np.testing.assert_array_equal(multiply(a, b, group=group), product(a, b))


def test_descriptors_of_what_lies_along_m_or_n() -> None:
    """LBO, SBO, the step of one instruction and the swizzle code are those that CUTLASS and DeepGEMM give their tiles.

    8 k-rows of 128 bytes repeat the swizzle that keeps 16 bytes together, 4 the one that keeps 32 (PTX ISA, tcgen05,
    Strides; DeepGEMM, `make_umma_desc`: SBO = 128 / atom * 128 bytes, LBO = BLOCK_K * 128).
    """
    for dtype, k, rows, code in ((BF16_TYPE, 64, 8, 2), (F32_TYPE, 32, 4, 1), (E4M3_TYPE, 128, 8, 2)):
        tile = OperandTile("a", dtype, 256, "mn")
        fields = MatrixDescriptor.of(tile, TCGEN05_MODES)
        assert (fields.leading, fields.stride) == (k * 128, rows * 128)
        assert fields.step == 32 // dtype.bytes * 128
        assert fields.high == rows * 8 | 1 << 14 | code << 29


@pytest.mark.parametrize("n", [16, 128])
def test_widths(n: int) -> None:
    """A narrow and a wide n."""
    a, b = integers(128, BF16, 3), integers(n, BF16, 4)
    np.testing.assert_array_equal(multiply(a, b), product(a, b))


@pytest.mark.parametrize("dtype", [F16, TF32, E4M3], ids=str)
def test_accumulate_adds_to_tensor_memory(dtype: np.dtype) -> None:
    """With `accumulate` an instruction adds to what tensor memory holds, without it overwrites that."""
    a, b = integers(128, dtype, 5), integers(16, dtype, 6)
    np.testing.assert_array_equal(multiply(a, b, first=True), product(a, b) + 1)
    np.testing.assert_array_equal(multiply(a, b, times=3), 3 * product(a, b))


@pytest.mark.parametrize(
    ("left_out", "error", "message"),
    [("commit", EmulatorError, "tcgen05"), ("after", AssertionError, "no tcgen05.fence::after_thread_sync by warp")],
)
def test_commit_and_fence_are_needed(left_out: str, error: type[Exception], message: str) -> None:
    """An ordinary arrival does not wait for the tensor core, and loads need `fence_after`: both are noticed."""
    a, b = integers(128, BF16, 7), integers(16, BF16, 8)
    with pytest.raises(error, match=message):
        multiply(a, b, **{left_out: False})
