"""Triton kernels for AMD chips: products of many types, shapes, options and ways to divide the work."""

from __future__ import annotations

import triton.language as tl
from triton import jit
from triton_kernels.variants import variant

_TILE = {"BM": 64, "BN": 64, "BK": 32}


@variant("amd_options_16", "*bf16 *bf16 *fp32 i32:16 i32:16 i32:16", constants=_TILE, matrix_instr_nonkdim=16, kpack=2)
@variant("amd_options_32", "*bf16 *bf16 *fp32 i32:16 i32:16 i32:16", constants=_TILE, matrix_instr_nonkdim=32, kpack=2,
         num_stages=3)  # fmt: skip
@variant("amd_options_4", "*fp16 *fp16 *fp32 i32:16 i32:16 i32:16", constants={"BM": 16, "BN": 64, "BK": 64},
         num_warps=1, num_stages=1)  # fmt: skip
@variant("amd_options_8_warps", "*fp16 *fp16 *fp32 i32:16 i32:16 i32:16", constants={"BM": 128, "BN": 128, "BK": 64},
         num_warps=8, waves_per_eu=2)  # fmt: skip
@variant("amd_options_flat", "*bf16 *bf16 *fp32 i32:16 i32:16 i32:16", constants=_TILE, num_stages=4, buffer_ops=False)
@variant("amd_options_one_stage", "*fp8e5 *fp8e4nv *fp32 i32:16 i32:16 i32:16",
         constants={"BM": 32, "BN": 32, "BK": 64}, num_stages=1, num_warps=2)  # fmt: skip
@variant("amd_options_f64", "*fp64 *fp64 *fp64 i32:16 i32:16 i32:16", constants={"BM": 32, "BN": 32, "BK": 16})
@variant("amd_options_bf8_mixed", "*fp8e4b8 *fp8e5b16 *fp32 i32:16 i32:16 i32:16",
         constants={"BM": 32, "BN": 64, "BK": 64}, matrix_instr_nonkdim=16)  # fmt: skip
@variant("amd_options_s8_16", "*i8 *i8 *i32 i32:16 i32:16 i32:16", constants={"BM": 32, "BN": 32, "BK": 128},
         matrix_instr_nonkdim=16, num_stages=3)  # fmt: skip
@jit
def options(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A Bᵀ with B's rows along K."""
    kind: tl.constexpr = tl.int32 if c.dtype.element_ty == tl.int32 else c.dtype.element_ty
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    x, y = a + rows[:, None] * k + depth[None, :], b + columns[None, :] * k + depth[:, None]
    total = tl.zeros((BM, BN), kind)
    for _ in range(0, k, BK):
        total = tl.dot(tl.load(x), tl.load(y), total, out_dtype=kind)
        x += BK
        y += BK
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@variant("amd_transposed", "*fp16 *fp16 *fp16 i32:16 i32:16 i32:16", constants={"BM": 64, "BN": 32, "BK": 32})
@jit
def transposed(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = leaky(Aᵀ B) + C, A's rows along M, workgroups in groups."""
    group = tl.program_id(0)
    rows, columns = group // tl.cdiv(n, BN), group % tl.cdiv(n, BN)
    i, j = rows * BM + tl.arange(0, BM), columns * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        depth = start + tl.arange(0, BK)
        x = tl.load(a + depth[:, None] * m + i[None, :], depth[:, None] < k, 0.0)
        y = tl.load(b + depth[:, None] * n + j[None, :], depth[:, None] < k, 0.0)
        total += tl.dot(tl.trans(x), y)
    place = c + i[:, None] * n + j[None, :]
    total = tl.where(total > 0, total, 0.25 * total) + tl.load(place)
    tl.store(place, total.to(tl.float16))


@variant("amd_chained", "*bf16 *bf16 *bf16 *fp32", constants={"M": 64, "N": 64, "K": 64})
@variant("amd_chained_16", "*bf16 *bf16 *bf16 *fp32", constants={"M": 32, "N": 64, "K": 64}, matrix_instr_nonkdim=16,
         num_warps=2)  # fmt: skip
@jit
def chained(a, b, d, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """(A B) D, the first product an operand of the second."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + j[None, :])
    z = tl.load(d + j[:, None] * K + k[None, :])
    tl.store(c + i[:, None] * K + k[None, :], tl.dot(tl.dot(x, y).to(tl.bfloat16), z))


@variant("amd_precisions", "*fp32 *fp32 *fp32 *fp32", constants={"M": 32, "N": 32, "K": 64})
@jit
def precisions(a, b, c, c3, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """float32 as it is, and from three products of bfloat16."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y, input_precision="ieee"))
    tl.store(c3 + i[:, None] * N + j[None, :], tl.dot(x, y, input_precision="bf16x3"))


@variant(
    "amd_split_k_atomic", "*fp16 *fp16 *fp32 i32:16 i32:16 i32:16", constants={"BM": 32, "BN": 32, "BK": 32, "S": 4}
)
@variant("amd_split_k_half", "*fp16 *fp16 *fp16 i32:16 i32:16 i32:16", constants={"BM": 32, "BN": 32, "BK": 32, "S": 4})
@variant("amd_split_k_bf16", "*bf16 *bf16 *bf16 i32:16 i32:16 i32:16", constants={"BM": 32, "BN": 64, "BK": 32, "S": 2})
@jit
def split_k_atomic(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, S: tl.constexpr):
    """K divided among workgroups that add into C by atomics."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, k, BK * S):
        depth = start + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + depth[None, :])
        y = tl.load(b + depth[:, None] * n + columns[None, :])
        total = tl.dot(x, y, total)
    tl.atomic_add(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty), sem="relaxed")


@variant("amd_stream_k_locks", "*bf16 *bf16 *fp32 *fp32 *i32 i32:16 i32:16 i32:16",
         constants={"BM": 32, "BN": 32, "BK": 32, "MANY": 3})  # fmt: skip
@jit
def stream_k_locks(
    a, b, c, shares, locks, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MANY: tl.constexpr
):
    """Stream-K: a workgroup that ends a tile waits for the share of the one before it."""
    per = tl.cdiv(k, BK)
    tiles_n = tl.cdiv(n, BN)
    whole = tl.cdiv(m, BM) * tiles_n * per
    me = tl.program_id(0)
    at, end = whole * me // MANY, whole * (me + 1) // MANY
    i, j, d = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    while at < end:
        tile, first = at // per, at % per
        last = tl.minimum(per, first + end - at)
        rows, columns = tile // tiles_n * BM + i, tile % tiles_n * BN + j
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(first, last):
            depth = step * BK + d
            total = tl.dot(tl.load(a + rows[:, None] * k + depth[None, :]),
                           tl.load(b + depth[:, None] * n + columns[None, :]), total)  # fmt: skip
        if first > 0:
            while tl.atomic_cas(locks + me - 1, 1, 1) != 1:
                pass
            total += tl.load(shares + (me - 1) * BM * BN + i[:, None] * BN + j[None, :], volatile=True)
        if last < per:
            tl.store(shares + me * BM * BN + i[:, None] * BN + j[None, :], total)
            tl.debug_barrier()
            tl.atomic_xchg(locks + me, 1)
        else:
            tl.store(c + rows[:, None] * n + columns[None, :], total)
        at += last - first


@variant("amd_grouped", "*i64 *i64 *i64 *i32 i32", constants={"BM": 32, "BN": 32, "BK": 32, "MANY": 4}, num_warps=2)
@jit
def grouped(ap, bp, cp, sizes, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MANY: tl.constexpr):
    """Products of several sizes from arrays of addresses; workgroups share out all tiles."""
    tile, done = tl.program_id(0), 0
    for g in range(groups):
        m, n, k = tl.load(sizes + 3 * g), tl.load(sizes + 3 * g + 1), tl.load(sizes + 3 * g + 2)
        across = tl.cdiv(n, BN)
        many = tl.cdiv(m, BM) * across
        a = tl.load(ap + g).to(tl.pointer_type(tl.float16))
        b = tl.load(bp + g).to(tl.pointer_type(tl.float16))
        c = tl.load(cp + g).to(tl.pointer_type(tl.float32))
        while tile < done + many:
            rows, columns = (
                (tile - done) // across * BM + tl.arange(0, BM),
                (tile - done) % across * BN + tl.arange(0, BN),
            )
            total = tl.zeros((BM, BN), tl.float32)
            for start in range(0, k, BK):
                depth = start + tl.arange(0, BK)
                x = tl.load(a + rows[:, None] * k + depth[None, :], (rows < m)[:, None] & (depth < k)[None, :], 0.0)
                y = tl.load(
                    b + depth[:, None] * n + columns[None, :], (depth < k)[:, None] & (columns < n)[None, :], 0.0
                )
                total = tl.dot(x, y, total)
            tl.store(c + rows[:, None] * n + columns[None, :], total, (rows < m)[:, None] & (columns < n)[None, :])
            tile += MANY
        done += many


@variant("amd_int4_weights", "*fp16 *i32 *fp16 *fp16 *fp32 i32 i32:16 i32:16",
         constants={"BM": 16, "BN": 64, "BK": 64, "GROUP": 64})  # fmt: skip
@jit
def int4_weights(
    a, packed, scales, zeros, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    """Weights of four bits, eight a word along K, with scales and zero points for groups of rows."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        depth = start + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + depth[None, :], (rows < m)[:, None], 0.0)
        q = tl.load(packed + (depth // 8)[:, None] * n + columns[None, :])
        q = (q >> ((depth % 8) * 4)[:, None]) & 15
        group = start // GROUP
        s, z = tl.load(scales + group * n + columns), tl.load(zeros + group * n + columns)
        total = tl.dot(x, (q.to(tl.float16) - z[None, :]) * s[None, :], total)
    tl.store(c + rows[:, None] * n + columns[None, :], total, (rows < m)[:, None])


@variant("amd_int8_weights", "*bf16 *i8 *fp32 *bf16 i32:16 i32:16 i32:16", constants={"BM": 32, "BN": 64, "BK": 64})
@jit
def int8_weights(a, b, scales, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Weights of eight bits with a scale a column."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        depth = start + tl.arange(0, BK)
        y = tl.load(b + depth[:, None] * n + columns[None, :]).to(tl.bfloat16)
        total = tl.dot(tl.load(a + rows[:, None] * k + depth[None, :]), y, total)
    tl.store(c + rows[:, None] * n + columns[None, :], (total * tl.load(scales + columns)[None, :]).to(tl.bfloat16))


@variant("amd_mx_e4m3_e2m1", "*u8 *u8 *u8 *u8 *fp32",
         constants={"M": 64, "N": 64, "K": 128, "AF": "e4m3", "BF": "e2m1", "AP": 1, "BP": 2})  # fmt: skip
@variant("amd_mx_e5m2_e4m3", "*u8 *u8 *u8 *u8 *fp32",
         constants={"M": 32, "N": 64, "K": 256, "AF": "e5m2", "BF": "e4m3", "AP": 1, "BP": 1},
         matrix_instr_nonkdim=16)  # fmt: skip
@variant("amd_mx_e2m1_e5m2", "*u8 *u8 *u8 *u8 *fp32",
         constants={"M": 64, "N": 32, "K": 128, "AF": "e2m1", "BF": "e5m2", "AP": 2, "BP": 1}, num_warps=2)  # fmt: skip
@variant("amd_mx_e2m1", "*u8 *u8 *u8 *u8 *fp32",
         constants={"M": 128, "N": 64, "K": 256, "AF": "e2m1", "BF": "e2m1", "AP": 2, "BP": 2},
         num_warps=8)  # fmt: skip
@jit
def mx(a, b, sa, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, AF: tl.constexpr, BF: tl.constexpr,
       AP: tl.constexpr, BP: tl.constexpr):  # fmt: skip
    """A product of narrow floats in blocks of 32 with a power of two each."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    ka, kb, ks = tl.arange(0, K // AP), tl.arange(0, K // BP), tl.arange(0, K // 32)
    x = tl.load(a + i[:, None] * (K // AP) + ka[None, :])
    y = tl.load(b + kb[:, None] * N + j[None, :])
    p, q = tl.load(sa + i[:, None] * (K // 32) + ks[None, :]), tl.load(sb + j[:, None] * (K // 32) + ks[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot_scaled(x, p, AF, y, q, BF))


@variant("amd_mx_weights", "*bf16 *u8 *u8 *fp32", constants={"M": 32, "N": 64, "K": 128})
@jit
def mx_weights(a, b, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """bfloat16 times mxfp4."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    kb, ks = tl.arange(0, K // 2), tl.arange(0, K // 32)
    x, y = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + kb[:, None] * N + j[None, :])
    q = tl.load(sb + j[:, None] * (K // 32) + ks[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot_scaled(x, None, "bf16", y, q, "e2m1"))


@variant("amd_convolution", "*bf16 *bf16 *fp32 i32 i32 i32 i32", constants={"BM": 64, "BN": 32, "BK": 32, "C": 16},
         num_stages=3)  # fmt: skip
@jit
def convolution(x, w, y, height, width, filters, dilation, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                C: tl.constexpr):  # fmt: skip
    """3 x 3, NHWC, dilated, as a product with rows gathered from the image."""
    pixels, out = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    row, column = pixels // width, pixels % width
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, 9 * C, BK):
        k = start + tl.arange(0, BK)
        tap, channel = k // C, k % C
        r = row[:, None] + (tap // 3 - 1)[None, :] * dilation
        q = column[:, None] + (tap % 3 - 1)[None, :] * dilation
        inside = (r >= 0) & (r < height) & (q >= 0) & (q < width) & (k < 9 * C)[None, :]
        a = tl.load(x + (r * width + q) * C + channel[None, :], inside, 0.0)
        b = tl.load(w + k[:, None] * filters + out[None, :], (k < 9 * C)[:, None] & (out < filters)[None, :], 0.0)
        total = tl.dot(a, b, total)
    tl.store(y + pixels[:, None] * filters + out[None, :], total,
             (pixels < height * width)[:, None] & (out < filters)[None, :])  # fmt: skip


@variant("amd_batched_cubes", "*fp16 *fp16 *fp32", constants={"B": 4, "M": 32, "N": 32, "K": 32})
@jit
def batched_cubes(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Products of cubes, the first axis a batch."""
    g = tl.arange(0, B)[:, None, None]
    x = tl.load(a + (g * M + tl.arange(0, M)[None, :, None]) * K + tl.arange(0, K)[None, None, :])
    y = tl.load(b + (g * K + tl.arange(0, K)[None, :, None]) * N + tl.arange(0, N)[None, None, :])
    tl.store(c + (g * M + tl.arange(0, M)[None, :, None]) * N + tl.arange(0, N)[None, None, :], tl.dot(x, y))
