"""Triton kernels for AMD chips: integers, floating-point numbers, bits, reductions, scans and sorts."""

from __future__ import annotations

import triton.language as tl
from triton import jit
from triton.language.extra import libdevice
from triton_kernels.variants import variant


@variant("amd_bit_tricks", "*i32 *i32 *i64 *i64 i32", constants={"BLOCK": 256})
@jit
def bit_tricks(x, out, y, out2, n, BLOCK: tl.constexpr):
    """Counts, reversals, rotations and masks of 32 and 64 bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + at, inside, 0)
    u = a.to(tl.uint32, bitcast=True)
    s = (at % 31 + 1).to(tl.uint32)
    tl.store(out + at, libdevice.popc(a), inside)
    tl.store(out + n + at, libdevice.clz(a), inside)
    tl.store(out + 2 * n + at, ((u << s) | (u >> (32 - s))).to(tl.int32, bitcast=True), inside)
    tl.store(out + 3 * n + at, a & -a, inside)
    swapped = (u >> 24) | ((u >> 8) & 0xFF00) | ((u << 8) & 0xFF0000) | (u << 24)
    tl.store(out + 4 * n + at, swapped.to(tl.int32, bitcast=True), inside)
    tl.store(out + 5 * n + at, ~(a ^ (a >> 7)) | 0x55, inside)
    b = tl.load(y + at, inside, 0)
    w = b.to(tl.uint64, bitcast=True)
    t = (at % 63 + 1).to(tl.uint64)
    tl.store(out2 + at, ((w << t) | (w >> (64 - t))).to(tl.int64, bitcast=True), inside)
    tl.store(out2 + n + at, b >> (at % 64), inside)
    tl.store(out2 + 2 * n + at, (b & -b) ^ (b << 3), inside)


@variant("amd_wide_integers", "*i64 *i64 *i64 i32", constants={"BLOCK": 128}, num_warps=2)
@jit
def wide_integers(x, y, out, n, BLOCK: tl.constexpr):
    """Products, quotients and remainders of 64 bits, signed and unsigned."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, inside, 1), tl.load(y + at, inside, 1)
    u, v = a.to(tl.uint64, bitcast=True), b.to(tl.uint64, bitcast=True)
    tl.store(out + at, a * b, inside)
    tl.store(out + n + at, a // b, inside)
    tl.store(out + 2 * n + at, a % b, inside)
    tl.store(out + 3 * n + at, (u // v).to(tl.int64, bitcast=True), inside)
    tl.store(out + 4 * n + at, (u % v).to(tl.int64, bitcast=True), inside)
    tl.store(out + 5 * n + at, tl.umulhi(u, v).to(tl.int64, bitcast=True), inside)
    tl.store(out + 6 * n + at, tl.minimum(a, b) - tl.maximum(a, b), inside)
    tl.store(out + 7 * n + at, (a < b).to(tl.int64) + 2 * (u < v).to(tl.int64), inside)


@variant("amd_narrow_integers", "*i8 *i8 *i8 *i16 *i16 *i16 i32", constants={"BLOCK": 256}, num_warps=1)
@jit
def narrow_integers(x, y, out, p, q, out2, n, BLOCK: tl.constexpr):
    """Arithmetic of 8 and 16 bits, which wraps."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, inside, 1), tl.load(y + at, inside, 1)
    tl.store(out + at, a + b, inside)
    tl.store(out + n + at, a * b, inside)
    tl.store(out + 2 * n + at, a // b, inside)
    tl.store(out + 3 * n + at, a % b, inside)
    tl.store(out + 4 * n + at, tl.maximum(a, b), inside)
    tl.store(out + 5 * n + at, a >> (b & 7), inside)
    c, d = tl.load(p + at, inside, 1), tl.load(q + at, inside, 1)
    e, f = c.to(tl.uint16, bitcast=True), d.to(tl.uint16, bitcast=True)
    tl.store(out2 + at, c * d + c, inside)
    tl.store(out2 + n + at, c // d, inside)
    tl.store(out2 + 2 * n + at, (e % f).to(tl.int16, bitcast=True), inside)
    tl.store(out2 + 3 * n + at, tl.minimum(c, d), inside)
    tl.store(out2 + 4 * n + at, tl.maximum(e, f).to(tl.int16, bitcast=True), inside)
    tl.store(out2 + 5 * n + at, (e >> (f & 15)).to(tl.int16, bitcast=True), inside)


@variant("amd_division", "*i32 *i32 *i32 i32", constants={"BLOCK": 256, "D": 7})
@variant("amd_division_641", "*i32 *i32 *i32 i32", constants={"BLOCK": 64, "D": 641}, num_warps=1)
@jit
def division(x, y, out, n, BLOCK: tl.constexpr, D: tl.constexpr):
    """Quotients and remainders by numbers and by a constant."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, inside, 1), tl.load(y + at, inside, 1)
    u, v = a.to(tl.uint32, bitcast=True), b.to(tl.uint32, bitcast=True)
    tl.store(out + at, a // b, inside)
    tl.store(out + n + at, a % b, inside)
    tl.store(out + 2 * n + at, (u // v).to(tl.int32, bitcast=True), inside)
    tl.store(out + 3 * n + at, (u % v).to(tl.int32, bitcast=True), inside)
    tl.store(out + 4 * n + at, a // D, inside)
    tl.store(out + 5 * n + at, (u % D).to(tl.int32, bitcast=True), inside)
    tl.store(out + 6 * n + at, tl.umulhi(u, v).to(tl.int32, bitcast=True), inside)
    tl.store(out + 7 * n + at, tl.cdiv(a, D), inside)


@variant("amd_transcendental", "*fp32 *fp32 i32", constants={"BLOCK": 256})
@jit
def transcendental(x, out, n, BLOCK: tl.constexpr):
    """Functions of libdevice and of the hardware."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + at, inside, 1.0)
    p = tl.abs(a) + 0.125
    tl.store(out + at, tl.exp2(a), inside)
    tl.store(out + n + at, tl.log2(p), inside)
    tl.store(out + 2 * n + at, tl.sin(a), inside)
    tl.store(out + 3 * n + at, tl.cos(a * 40), inside)
    tl.store(out + 4 * n + at, tl.rsqrt(p), inside)
    tl.store(out + 5 * n + at, tl.erf(a), inside)
    tl.store(out + 6 * n + at, libdevice.tanh(a), inside)
    tl.store(out + 7 * n + at, libdevice.exp(a * libdevice.log(p)), inside)
    tl.store(out + 8 * n + at, tl.div_rn(a, p), inside)
    tl.store(out + 9 * n + at, tl.sqrt_rn(p), inside)
    tl.store(out + 10 * n + at, libdevice.trunc(a) + libdevice.rint(a), inside)
    tl.store(out + 11 * n + at, a / p + tl.sigmoid(a), inside)


@variant("amd_doubles", "*fp64 *fp64 *fp64 i32", constants={"BLOCK": 128})
@jit
def doubles(x, y, out, n, BLOCK: tl.constexpr):
    """Arithmetic and functions of 64 bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, inside, 1.0), tl.load(y + at, inside, 1.0)
    tl.store(out + at, a / b, inside)
    tl.store(out + n + at, tl.sqrt(tl.abs(a)), inside)
    tl.store(out + 2 * n + at, tl.exp(a), inside)
    tl.store(out + 3 * n + at, tl.log(tl.abs(a) + 1), inside)
    tl.store(out + 4 * n + at, tl.sin(a * 3), inside)
    tl.store(out + 5 * n + at, tl.floor(a) + tl.ceil(b), inside)
    tl.store(out + 6 * n + at, tl.maximum(a, b) - tl.minimum(a, b), inside)
    tl.store(out + 7 * n + at, tl.fma(a, b, a), inside)
    tl.store(out + 8 * n + at, tl.where(a < b, a, b * 0.5), inside)


@variant("amd_halves", "*fp16 *fp16 *fp16 *bf16 *bf16 *bf16 i32", constants={"BLOCK": 256})
@jit
def halves(x, y, out, p, q, out2, n, BLOCK: tl.constexpr):
    """Arithmetic of float16 and of bfloat16."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, inside, 1.0), tl.load(y + at, inside, 1.0)
    tl.store(out + at, a + b, inside)
    tl.store(out + n + at, a * b, inside)
    tl.store(out + 2 * n + at, tl.maximum(a, b), inside)
    tl.store(out + 3 * n + at, tl.minimum(a, -b), inside)
    tl.store(out + 4 * n + at, tl.where(a > b, a - b, tl.abs(b)), inside)
    tl.store(out + 5 * n + at, tl.fma(a, b, a), inside)
    c, d = tl.load(p + at, inside, 1.0), tl.load(q + at, inside, 1.0)
    tl.store(out2 + at, c + d, inside)
    tl.store(out2 + n + at, c * d, inside)
    tl.store(out2 + 2 * n + at, tl.maximum(c, d), inside)
    tl.store(out2 + 3 * n + at, tl.where(c <= d, -c, tl.abs(d)), inside)


@variant("amd_conversions", "*fp32 *i64 *i8 *i16 *i32 *i64 *fp32 *fp64 *fp16 i32", constants={"BLOCK": 256})
@jit
def conversions(x, w, byte, short, word, wide, single, double, half, n, BLOCK: tl.constexpr):
    """Between integers and floating-point numbers of all widths."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, inside, 0.0), tl.load(w + at, inside, 0)
    tl.store(byte + at, (a * 10).to(tl.int8), inside)
    tl.store(byte + n + at, (tl.abs(a) * 20).to(tl.uint8).to(tl.int8, bitcast=True), inside)
    tl.store(short + at, (a * 3000).to(tl.int16), inside)
    tl.store(short + n + at, (tl.abs(a) * 6000).to(tl.uint16).to(tl.int16, bitcast=True), inside)
    tl.store(word + at, (a * 1e8).to(tl.int32), inside)
    tl.store(word + n + at, (tl.abs(a) * 3e8).to(tl.uint32).to(tl.int32, bitcast=True), inside)
    tl.store(wide + at, (a * 1e17).to(tl.int64), inside)
    tl.store(wide + n + at, (tl.abs(a) * 1e17).to(tl.uint64).to(tl.int64, bitcast=True), inside)
    tl.store(wide + 2 * n + at, (a.to(tl.float64) * 1e17).to(tl.int64), inside)
    tl.store(single + at, b.to(tl.float32), inside)
    tl.store(single + n + at, b.to(tl.uint64, bitcast=True).to(tl.float32), inside)
    tl.store(single + 2 * n + at, b.to(tl.int8).to(tl.float32) + b.to(tl.uint8).to(tl.float32), inside)
    tl.store(single + 3 * n + at, b.to(tl.int16).to(tl.float32) - b.to(tl.uint16).to(tl.float32), inside)
    tl.store(double + at, b.to(tl.float64), inside)
    tl.store(double + n + at, b.to(tl.uint64, bitcast=True).to(tl.float64), inside)
    tl.store(double + 2 * n + at, b.to(tl.uint32).to(tl.float64), inside)
    tl.store(half + at, b.to(tl.int16).to(tl.float16), inside)
    tl.store(half + n + at, a.to(tl.float16, fp_downcast_rounding="rtz"), inside)


@variant("amd_casts_fnuz", "*fp32 *fp8e4b8 *fp8e5b16 *fp32 *bf16", constants={"BLOCK": 256})
@jit
def casts_fnuz(x, out, out2, back, back2, BLOCK: tl.constexpr):
    """The 8-bit numbers without negative zero, there and back."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at)
    p, q = a.to(tl.float8e4b8), a.to(tl.float8e5b16)
    tl.store(out + at, p)
    tl.store(out2 + at, q)
    tl.store(back + at, p.to(tl.float32))
    tl.store(back2 + at, q.to(tl.bfloat16))


@variant("amd_casts_ocp", "*fp16 *fp8e4nv *fp8e5 *fp16 *fp32", constants={"BLOCK": 256})
@jit
def casts_ocp(x, out, out2, back, back2, BLOCK: tl.constexpr):
    """OCP's 8-bit numbers, from and to 16 bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at)
    p, q = a.to(tl.float8e4nv), a.to(tl.float8e5)
    tl.store(out + at, p)
    tl.store(out2 + at, q)
    tl.store(back + at, p.to(tl.float16))
    tl.store(back2 + at, q.to(tl.float32))


@variant("amd_philox", "*i32 *fp32 i32 i32", constants={"BLOCK": 256})
@jit
def philox(out, out2, seed, n, BLOCK: tl.constexpr):
    """Four random words a place, and uniform numbers."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, at)
    tl.store(out + 4 * at, a.to(tl.int32, bitcast=True))
    tl.store(out + 4 * at + 1, b.to(tl.int32, bitcast=True))
    tl.store(out + 4 * at + 2, c.to(tl.int32, bitcast=True))
    tl.store(out + 4 * at + 3, d.to(tl.int32, bitcast=True))
    tl.store(out2 + at, tl.rand(seed, at), at < n)
    tl.store(out2 + n + at, tl.randn(seed, at), at < n)


@variant("amd_flip_join", "*i32 *fp16 *i32 *fp16 *i32", constants={"ROWS": 16, "BLOCK": 64})
@variant("amd_flip_join_8", "*i32 *fp16 *i32 *fp16 *i32", constants={"ROWS": 16, "BLOCK": 64}, num_warps=8)
@jit
def flip_join(x, y, out, out2, out3, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Flips, joins, splits, interleaves and permutations of a tile."""
    r, c = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    at = r * BLOCK + c
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.flip(a, 1))
    tl.store(out + ROWS * BLOCK + at, tl.flip(a, 0))
    tl.store(out2 + r * 2 * BLOCK + tl.arange(0, 2 * BLOCK)[None, :], tl.interleave(b, -b))
    even, odd = tl.split(tl.reshape(a, (ROWS, BLOCK // 2, 2)))
    half = r * (BLOCK // 2) + tl.arange(0, BLOCK // 2)[None, :]
    tl.store(out3 + half, even * 2 - odd)
    cube = tl.permute(tl.reshape(a, (ROWS, BLOCK // 8, 8)), (2, 0, 1))
    i, j, k = tl.arange(0, 8)[:, None, None], tl.arange(0, ROWS)[None, :, None], tl.arange(0, BLOCK // 8)[None, None, :]
    tl.store(out3 + ROWS * BLOCK // 2 + (i * ROWS + j) * (BLOCK // 8) + k, cube)


@variant("amd_cube_reductions", "*fp32 *fp32 *i32 *fp32", constants={"A": 8, "B": 16, "C": 32})
@variant("amd_cube_reductions_8", "*fp32 *fp32 *i32 *fp32", constants={"A": 16, "B": 8, "C": 64}, num_warps=8)
@variant("amd_cube_reductions_1", "*fp32 *fp32 *i32 *fp32", constants={"A": 4, "B": 8, "C": 8}, num_warps=1)
@jit
def cube_reductions(x, out, where, last, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    """Sums, extrema and their places over each axis of a cube."""
    i, j, k = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None, :]
    v = tl.load(x + (i * B + j) * C + k)
    ab, ac = (
        tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :],
        tl.arange(0, A)[:, None] * C + tl.arange(0, C)[None, :],
    )
    bc = tl.arange(0, B)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(out + bc, tl.sum(v, 0))
    tl.store(out + B * C + ac, tl.max(v, 1))
    tl.store(out + B * C + A * C + ab, tl.min(v, 2))
    tl.store(where + bc, tl.argmax(v, 0))
    tl.store(where + B * C + ac, tl.argmin(v, 1))
    tl.store(where + B * C + A * C + ab, tl.argmax(v, 2, tie_break_left=True))
    tl.store(last, tl.sum(tl.sum(tl.sum(v, 1), 1), 0))


@jit
def _product(a, b):
    return a * b


@jit
def _lexicographic(a, i, b, j):
    keep = (a > b) | ((a == b) & (i < j))
    return tl.where(keep, a, b), tl.where(keep, i, j)


@variant("amd_custom_reductions", "*i32 *i32 *i64 *fp64", constants={"ROWS": 8, "BLOCK": 128})
@jit
def custom_reductions(x, out, wide, double, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Reductions by functions of the kernel's own, of 32 and 64 bits."""
    r, c = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    v = tl.load(x + r[:, None] * BLOCK + c[None, :])
    tl.store(out + r, tl.reduce(v, 1, _product))
    tl.store(out + ROWS + r, tl.xor_sum(v, 1))
    best, place = tl.reduce((v, tl.broadcast_to(c[None, :], v.shape)), 1, _lexicographic)
    tl.store(out + 2 * ROWS + r, best)
    tl.store(out + 3 * ROWS + r, place)
    tl.store(wide + c, tl.sum(v.to(tl.int64) * v * 1000003, 0))
    tl.store(double + r, tl.max(v.to(tl.float64) / 3, 1))


@variant("amd_scans", "*fp32 *fp32 *i32 *i64", constants={"ROWS": 32, "BLOCK": 16})
@variant("amd_scans_8", "*fp32 *fp32 *i32 *i64", constants={"ROWS": 8, "BLOCK": 256}, num_warps=8)
@jit
def scans(x, out, running, wide, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Scans forwards and backwards over both axes."""
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    v = tl.load(x + at)
    tl.store(out + at, tl.cumsum(v, 0))
    tl.store(out + ROWS * BLOCK + at, tl.cumsum(v, 1, reverse=True))
    tl.store(out + 2 * ROWS * BLOCK + at, tl.cumprod(tl.where(v > 0, 1.0, -1.0), 1))
    tl.store(running + at, tl.associative_scan(v.to(tl.int32), 0, _larger, reverse=True))
    tl.store(wide + at, tl.cumsum(v.to(tl.int64) << 33, 1))


@jit
def _larger(a, b):
    return tl.maximum(a, b)


@variant("amd_sorts", "*fp32 *fp32 *i64 *i64 *i16 *i16", constants={"ROWS": 4, "BLOCK": 64}, num_warps=2)
@variant("amd_sorts_8", "*fp32 *fp32 *i64 *i64 *i16 *i16", constants={"ROWS": 1, "BLOCK": 1024}, num_warps=8)
@jit
def sorts(x, out, y, out2, z, out3, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sorts of several types, up and down, and the greatest."""
    r, c = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    at = r * BLOCK + c
    tl.store(out + at, tl.sort(tl.load(x + at), 1, descending=True))
    tl.store(out2 + at, tl.sort(tl.load(y + at), 1))
    tl.store(out3 + r * 8 + tl.arange(0, 8)[None, :], tl.topk(tl.load(z + at), 8))


@variant("amd_masked_histogram", "*i32 *i32 *i32 i32", constants={"BINS": 128, "BLOCK": 256})
@jit
def masked_histogram(x, out, total, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Histograms of what a mask lets through, added up by atomics."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 0)
    counts = tl.histogram(v, BINS, mask=(at < n) & (v % 3 != 0))
    tl.atomic_add(out + tl.arange(0, BINS), counts, sem="relaxed")
    tl.atomic_max(total, tl.max(counts, 0))


@variant("amd_log_sum_exp", "*fp16 *fp32 *fp32 i32 i32", constants={"BLOCK": 512}, num_warps=8, waves_per_eu=2)
@jit
def log_sum_exp(x, out, entropy, stride, columns, BLOCK: tl.constexpr):
    """Row by row in blocks, with a running maximum."""
    row = tl.program_id(0)
    top, total, weighted = (
        tl.full((1,), -float("inf"), tl.float32),
        tl.zeros((1,), tl.float32),
        tl.zeros((1,), tl.float32),
    )
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * stride + at, at < columns, -float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(v, 0))
        p = tl.exp(v - new)
        total = total * tl.exp(top - new) + tl.sum(p, 0)
        weighted = weighted * tl.exp(top - new) + tl.sum(tl.where(at < columns, p * v, 0.0), 0)
        top = new
    result = top + tl.log(total)
    tl.store(out + row + tl.arange(0, 1), result)
    tl.store(entropy + row + tl.arange(0, 1), result - weighted / total)


@variant("amd_group_norm", "*bf16 *fp32 *fp32 *bf16 i32 fp32", constants={"CHANNELS": 8, "BLOCK": 128}, num_warps=2)
@jit
def group_norm(x, weight, bias, out, pixels, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """A group of channels by its mean and its variance, in two passes."""
    group = tl.program_id(0)
    c, p = tl.arange(0, CHANNELS)[:, None], tl.arange(0, BLOCK)[None, :]
    base = x + group * CHANNELS * pixels
    total, square = tl.zeros((CHANNELS, BLOCK), tl.float32), tl.zeros((CHANNELS, BLOCK), tl.float32)
    for start in range(0, pixels, BLOCK):
        v = tl.load(base + c * pixels + start + p, (start + p < pixels) & (c >= 0), 0.0).to(tl.float32)
        total += v
        square += v * v
    count = CHANNELS * pixels
    mean = tl.sum(tl.sum(total, 1), 0) / count
    scale = tl.rsqrt(tl.sum(tl.sum(square, 1), 0) / count - mean * mean + eps)
    w, b = tl.load(weight + group * CHANNELS + c), tl.load(bias + group * CHANNELS + c)
    for start in range(0, pixels, BLOCK):
        inside = (start + p < pixels) & (c >= 0)
        v = tl.load(base + c * pixels + start + p, inside, 0.0).to(tl.float32)
        tl.store(
            out + group * CHANNELS * pixels + c * pixels + start + p,
            ((v - mean) * scale * w + b).to(tl.bfloat16),
            inside,
        )


@variant("amd_cross_entropy_fused", "*bf16 *i32 *fp32 *bf16 i32 fp32", constants={"BLOCK": 256})
@jit
def cross_entropy_fused(logits, labels, loss, grad, columns, smoothing, BLOCK: tl.constexpr):
    """Loss with smoothed labels and its gradient, in one kernel."""
    row = tl.program_id(0)
    label = tl.load(labels + row)
    at = tl.arange(0, BLOCK)
    top, total, plain = -float("inf"), 0.0, 0.0
    for start in range(0, columns, BLOCK):
        v = tl.load(logits + row * columns + start + at, start + at < columns, -float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(v, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(v - new), 0)
        plain += tl.sum(tl.where(start + at < columns, v, 0.0), 0)
        top = new
    norm = top + tl.log(total)
    picked = tl.load(logits + row * columns + label).to(tl.float32)
    tl.store(loss + row, norm - (1 - smoothing) * picked - smoothing * plain / columns)
    for start in range(0, columns, BLOCK):
        here = start + at
        v = tl.load(logits + row * columns + here, here < columns, 0.0).to(tl.float32)
        g = tl.exp(v - norm) - smoothing / columns - tl.where(here == label, 1 - smoothing, 0.0)
        tl.store(grad + row * columns + here, g.to(tl.bfloat16), here < columns)


@jit(noinline=True)
def _greatest_common(a, b):
    while b != 0:
        a, b = b, a % b
    return a


@variant("amd_called_functions", "*i32 *i32 *i32", num_warps=1)
@jit
def called_functions(x, y, out):
    """A function that is called and not inlined, from two places."""
    at = tl.program_id(0)
    a, b = tl.load(x + at), tl.load(y + at)
    divisor = _greatest_common(a, b)
    if divisor > 1:
        divisor += _greatest_common(a // divisor, b)
    tl.store(out + at, divisor)
