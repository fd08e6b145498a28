"""Kernels that compute every element by itself."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from .variants import ALL, variant


@variant("add", "*fp32 *fp32 *fp32 i32", constants={"BLOCK": 256})
@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(z + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


@variant("math_functions", "*fp32 *fp32 i32", constants={"BLOCK": 256})
@triton.jit
def math_functions(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + i, mask=mask, other=1.0)
    tl.store(out + i, tl.exp(v), mask=mask)
    tl.store(out + n + i, tl.log(v), mask=mask)
    tl.store(out + 2 * n + i, tl.math.erf(v), mask=mask)
    tl.store(out + 3 * n + i, tl.rsqrt(v), mask=mask)
    tl.store(out + 4 * n + i, tl.sin(v), mask=mask)
    tl.store(out + 5 * n + i, tl.sqrt_rn(v), mask=mask)
    tl.store(out + 6 * n + i, libdevice.tanh(v), mask=mask)
    tl.store(out + 7 * n + i, tl.sigmoid(v), mask=mask)
    tl.store(out + 8 * n + i, tl.floor(v), mask=mask)
    tl.store(out + 9 * n + i, libdevice.pow(v, 2.5), mask=mask)
    tl.store(out + 10 * n + i, tl.div_rn(1.0, v), mask=mask)
    tl.store(out + 11 * n + i, tl.exp2(v), mask=mask)


@variant("gelu_bf16", "*bf16 *bf16 i32", constants={"BLOCK": 512})
@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(out + i, (0.5 * v * (1 + tl.math.erf(v * 0.70710678))).to(tl.bfloat16), mask=i < n)


@variant("silu_mul_f16", "*fp16 *fp16 i32", constants={"BLOCK": 512})
@triton.jit
def silu_mul(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    gate = tl.load(x + row * 2 * columns + i, mask=mask).to(tl.float32)
    up = tl.load(x + row * 2 * columns + columns + i, mask=mask)
    tl.store(out + row * columns + i, (gate / (1 + tl.exp(-gate))).to(tl.float16) * up, mask=mask)


@variant("dropout", "*fp32 *fp32 i32 fp32 i32", constants={"BLOCK": 512})
@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + i, mask=mask)
    keep = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(keep, v / (1 - p), 0.0), mask=mask)


@variant("casts", "*fp32 *fp16 *bf16 *fp8e5 *i8 *fp64 *i64", constants={"BLOCK": 512})
@triton.jit
def casts(x, half, brain, byte, whole, double, wide, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(half + i, v.to(tl.float16))
    tl.store(brain + i, v.to(tl.bfloat16))
    tl.store(byte + i, v.to(tl.float8e5))
    tl.store(whole + i, v.to(tl.int8))
    tl.store(double + i, v.to(tl.float64) * 3)
    tl.store(wide + i, (v * 1e6).to(tl.int64))


@variant("casts_fp8", "*fp32 *fp8e4nv *fp16 *fp32 *bf16", ("sm_90a", "sm_100a"), constants={"BLOCK": 512})
@triton.jit
def casts_fp8(x, byte, half, single, brain, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    e4m3 = tl.load(x + i).to(tl.float8e4nv)
    tl.store(byte + i, e4m3)
    tl.store(half + i, e4m3.to(tl.float16))
    tl.store(single + i, e4m3.to(tl.float32))
    tl.store(brain + i, e4m3.to(tl.bfloat16))


@variant("integers", "*i32 *i32 *i32 *i64 i32:16", constants={"BLOCK": 256})
@triton.jit
def integers(x, y, out, wide, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a // b)
    tl.store(out + n + i, a % b)
    tl.store(out + 2 * n + i, (a >> 3) ^ (b << 5))
    tl.store(out + 3 * n + i, tl.umulhi(a.to(tl.uint32), b.to(tl.uint32)).to(tl.int32))
    tl.store(out + 4 * n + i, libdevice.popc(a) + libdevice.clz(b))
    tl.store(out + 5 * n + i, tl.minimum(a, b) - tl.maximum(a, ~b))
    tl.store(out + 6 * n + i, (a.to(tl.int16) * b.to(tl.int16)).to(tl.int32))
    tl.store(out + 7 * n + i, tl.cdiv(a.to(tl.int8), 3).to(tl.int32))
    tl.store(wide + i, a.to(tl.int64) * b // 7)


@variant("double_horner", "*fp64 *fp64 i32", ALL, constants={"BLOCK": 256})
@triton.jit
def double_horner(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    p = v * 0.25 + 1.5
    for _ in range(6):
        p = p * v - 0.75
    tl.store(out + i, p + tl.exp(v) / tl.sqrt(v * v + 1), mask=i < n)


@variant("extrema", "*fp32 *fp32 *fp32 *fp32 i32:16", constants={"BLOCK": 256})
@triton.jit
def extrema(x, y, z, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    tl.store(out + i, tl.maximum(tl.maximum(a, b), c))
    tl.store(out + n + i, tl.minimum(tl.minimum(a, b), c))
    tl.store(out + 2 * n + i, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 3 * n + i, tl.clamp(tl.where(a == a, a, 0.0), -0.5, 0.5))
    tl.store(out + 4 * n + i, tl.abs(a) - tl.where(b > c, b, -c))


@variant("rope_f16", "*fp16 *fp32 *fp32 *fp16 i32:16", constants={"HALF": 32})
@triton.jit
def rope(x, cosine, sine, out, heads, HALF: tl.constexpr):
    token = tl.program_id(0)
    i = tl.arange(0, HALF)
    h = tl.arange(0, 8)
    c, s = tl.load(cosine + token * HALF + i)[None, :], tl.load(sine + token * HALF + i)[None, :]
    base = (token * heads + h[:, None]) * 2 * HALF + i[None, :]
    first, second = tl.load(x + base).to(tl.float32), tl.load(x + base + HALF).to(tl.float32)
    tl.store(out + base, (first * c - second * s).to(tl.float16))
    tl.store(out + base + HALF, (first * s + second * c).to(tl.float16))


@variant("fused_multiply_add", "*fp32 *fp32 *fp32 *fp32", ("sm_100a",), constants={"BLOCK": 1024})
@triton.jit
def fused_multiply_add(x, y, z, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    for _ in range(4):
        a = tl.fma(a, b, c)
        c = c + a * 0.5
    tl.store(out + i, a * c)
