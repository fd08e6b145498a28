"""Triton kernels for AMD chips only: what matrix instructions multiply, and the sizes that speed is measured at."""

from __future__ import annotations

import triton.language as tl
from triton import jit
from triton_kernels.variants import variant

_GEMM = {"BM": 64, "BN": 64, "BK": 64}


@variant("amd_matmul_bf16_512", "*bf16 *bf16 *bf16 i32:16 i32:16 i32:16", constants={"BM": 128, "BN": 128, "BK": 64},
         num_stages=2)  # fmt: skip
@variant("amd_matmul_bf16", "*bf16 *bf16 *bf16 i32:16 i32:16 i32:16", constants=_GEMM, num_stages=2)
@variant("amd_matmul_f16", "*fp16 *fp16 *fp16 i32:16 i32:16 i32:16", constants=_GEMM, num_stages=3)
@variant("amd_matmul_f16_odd", "*fp16 *fp16 *fp16 i32 i32 i32", constants={"BM": 32, "BN": 64, "BK": 32}, num_stages=2)
@variant(
    "amd_matmul_f32", "*fp32 *fp32 *fp32 i32:16 i32:16 i32:16", constants={"BM": 32, "BN": 32, "BK": 32}, num_stages=2
)
@variant("amd_matmul_s8", "*i8 *i8 *i32 i32:16 i32:16 i32:16", constants=_GEMM, num_stages=2)
@variant("amd_matmul_16_rows", "*bf16 *bf16 *fp32 i32:16 i32:16 i32:16", constants={"BM": 16, "BN": 32, "BK": 128},
         num_stages=2, num_warps=2)  # fmt: skip
@jit
def amd_matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B, row-major, with masks."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    kind: tl.constexpr = tl.int32 if c.dtype.element_ty == tl.int32 else tl.float32
    total = tl.zeros((BM, BN), kind)
    for start in range(0, k, BK):
        inside = start + depth < k
        x = tl.load(a + rows[:, None] * k + (start + depth)[None, :], (rows < m)[:, None] & inside[None, :], 0)
        y = tl.load(b + (start + depth)[:, None] * n + columns[None, :], inside[:, None] & (columns < n)[None, :], 0)
        total = tl.dot(x, y, total, out_dtype=kind)
    place = c + rows[:, None] * n + columns[None, :]
    tl.store(place, total.to(c.dtype.element_ty), (rows < m)[:, None] & (columns < n)[None, :])


@variant("amd_matmul_e4m3", "*fp8e4nv *fp8e4nv *fp16 i32:16 i32:16 i32:16", constants=_GEMM, num_stages=2)
@variant("amd_matmul_e5m2", "*fp8e5 *fp8e5 *fp32 i32:16 i32:16 i32:16", constants=_GEMM, num_stages=2)
@variant("amd_matmul_e4m3_fnuz", "*fp8e4b8 *fp8e4b8 *fp32 i32:16 i32:16 i32:16", constants=_GEMM, num_stages=2)
@variant("amd_matmul_e5m2_fnuz", "*fp8e5b16 *fp8e5b16 *fp32 i32:16 i32:16 i32:16", constants=_GEMM, num_stages=2)
@variant("amd_matmul_e4m3_16", "*fp8e4nv *fp8e4nv *fp32 i32:16 i32:16 i32:16",
         constants={"BM": 16, "BN": 32, "BK": 128}, num_stages=2, num_warps=2)  # fmt: skip
@jit
def amd_matmul_whole(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B, row-major, of whole tiles."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + rows[:, None] * k + (start + depth)[None, :])
        y = tl.load(b + (start + depth)[:, None] * n + columns[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty))


@variant("amd_add_million", "*fp32 *fp32 *fp32 i32:16", constants={"BLOCK": 1024})
@jit
def amd_add(x, y, z, n, BLOCK: tl.constexpr):
    """z = x + y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)
