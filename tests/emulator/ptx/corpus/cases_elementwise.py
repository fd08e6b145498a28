"""Cases of ``triton_kernels/elementwise.py``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from corpus_case import Array, Expect, Launch, bf16, case, e4m3, e5m2, f32, i32, normal, unset

ALL = ("sm_80", "sm_90a", "sm_100a")
HOPPER_ON = ("sm_90a", "sm_100a")
erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


@case("triton/add", *ALL)
def add(rng: np.random.Generator) -> Launch:
    x, y, z = normal(rng, 1000), normal(rng, 1000), unset(1000)
    return Launch((4,), [x, y, z, i32(1000)], {"z": Expect(z, x + y)})


@case("triton/math_functions", *ALL)
def math_functions(rng: np.random.Generator) -> Launch:
    x = rng.uniform(0.05, 3, 500).astype(np.float32)
    out = unset(12, 500)
    v = x.astype(np.float64)
    rows = [np.exp(v), np.log(v), erf(v), v**-0.5, np.sin(v), np.sqrt(x), np.tanh(v), sigmoid(x), np.floor(x), v**2.5,
            1 / x, np.exp2(v)]  # fmt: skip
    return Launch((2,), [x, out, i32(500)], {"out": Expect(out, np.stack(rows), 2e-6, 1e-6)})


@case("triton/gelu_bf16", *ALL)
def gelu(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 2000, dtype=bf16), unset(2000, dtype=bf16)
    v = x.astype(np.float64)
    return Launch((4,), [x, out, i32(2000)], {"out": Expect(out, 0.5 * v * (1 + erf(v / math.sqrt(2))), 8e-3, 1e-3)})


@case("triton/silu_mul_f16", *ALL)
def silu_mul(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 6, 2 * 400, dtype=np.float16), unset(6, 400, dtype=np.float16)
    gate = x[:, :400].astype(np.float64)
    want = gate * sigmoid(gate) * x[:, 400:]
    return Launch((6,), [x, out, i32(400)], {"out": Expect(out, want, 2e-3, 1e-4)})


def philox(seed: int, offset: Array) -> Array:
    """First word of Philox 4x32-10 with the counter (offset, 0, 0, 0) and the key (seed, 0)."""
    c = [offset.astype(np.uint64), *(np.zeros_like(offset, np.uint64) for _ in range(3))]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c[0].astype(np.uint32)


def uniform(seed: int, count: int) -> Array:
    """The first numbers of ``tl.rand``, in [0, 1)."""
    word = philox(seed, np.arange(count)).view(np.int32)
    return np.where(word < 0, -word - 1, word).astype(np.float32) * np.float32(4.6566127342e-10)


@case("triton/dropout", *ALL)
def dropout(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 1000), unset(1000)
    want = np.where(uniform(1234, 1000) > np.float32(0.3), x / np.float32(0.7), 0)
    return Launch((2,), [x, out, i32(1000), f32(0.3), i32(1234)], {"out": Expect(out, want, 1e-6)})


@case("triton/casts", *ALL)
def casts(rng: np.random.Generator) -> Launch:
    x = normal(rng, 1024) * np.float32(20)
    kinds = (np.float16, bf16, e5m2, np.int8, np.float64, np.int64)
    out = [unset(1024, dtype=kind) for kind in kinds]
    scaled = (x * np.float32(1e6)).astype(np.int64)
    want = [x.astype(np.float16), x.astype(bf16), x.astype(e5m2), x.astype(np.int8), x.astype(np.float64) * 3, scaled]
    names = ("half", "brain", "byte", "whole", "double", "wide")
    return Launch((2,), [x, *out], {n: Expect(o, w) for n, o, w in zip(names, out, want, strict=True)})


@case("triton/casts_fp8", *HOPPER_ON)
def casts_fp8(rng: np.random.Generator) -> Launch:
    x = normal(rng, 1024) * np.float32(3)
    kinds = (e4m3, np.float16, np.float32, bf16)
    out = [unset(1024, dtype=kind) for kind in kinds]
    byte = x.astype(e4m3)
    expect = {str(np.dtype(k)): Expect(o, byte.astype(np.float32).astype(k)) for k, o in zip(kinds, out, strict=True)}
    return Launch((2,), [x, *out], expect)


@case("triton/integers", *ALL)
def integers(rng: np.random.Generator) -> Launch:
    x = rng.integers(-(2**31), 2**31, 512).astype(np.int32)
    y = rng.integers(1, 2**16, 512).astype(np.int32) * rng.choice(np.array([-1, 1], np.int32), 512)
    out, wide = unset(9, 512, dtype=np.int32), unset(512, dtype=np.int64)
    a, b = x.astype(np.int64), y.astype(np.int64)
    quotient = np.trunc(a / b).astype(np.int64)
    high = (x.view(np.uint32).astype(np.uint64) * y.view(np.uint32).astype(np.uint64)) >> np.uint64(32)
    bits = np.array([v.bit_count() for v in x.view(np.uint32).tolist()])
    zeros = np.array([32 - v.bit_length() for v in y.view(np.uint32).tolist()])
    byte = x.astype(np.int8).astype(np.int64)
    rows = [quotient, a - quotient * b, (a >> 3) ^ (b << 5), high.astype(np.int64), bits + zeros,
            np.minimum(a, b) - np.maximum(a, ~b), (a * b).astype(np.int16),
            np.trunc((byte + 2).astype(np.int8) / 3)]  # fmt: skip
    want = np.stack([np.asarray(r).astype(np.int64).astype(np.int32) for r in rows])
    product = a * b
    want_wide = np.sign(product) * (abs(product) // 7)
    expect = {"out": Expect(out[:8], want), "wide": Expect(wide, want_wide)}
    return Launch((2,), [x, y, out, wide, i32(512)], expect)


@case("triton/double_horner", *ALL)
def double_horner(rng: np.random.Generator) -> Launch:
    x, out = rng.standard_normal(300), unset(300, dtype=np.float64)
    p = x * 0.25 + 1.5
    for _ in range(6):
        p = p * x - 0.75
    return Launch((2,), [x, out, i32(300)], {"out": Expect(out, p + np.exp(x) / np.sqrt(x * x + 1), 1e-12, 1e-12)})


@case("triton/extrema", *ALL)
def extrema(rng: np.random.Generator) -> Launch:
    x, y, z = (normal(rng, 256) for _ in range(3))
    for nans in (x, y, z):
        nans[rng.integers(0, 256, 40)] = np.nan
    out = unset(5, 256)
    clamp = np.clip(np.where(np.isnan(x), 0, x), -0.5, 0.5)
    rows = [np.fmax(np.fmax(x, y), z), np.fmin(np.fmin(x, y), z), np.maximum(x, y), clamp,
            abs(x) - np.where(y > z, y, -z)]  # fmt: skip
    return Launch((1,), [x, y, z, out, i32(256)], {"out": Expect(out, np.stack(rows))})


@case("triton/rope_f16", *ALL)
def rope(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 5, 16, 64, dtype=np.float16), unset(5, 16, 64, dtype=np.float16)
    out[:, 8:] = x[:, 8:] = 0
    angle = rng.uniform(0, 6, (5, 32))
    c, s = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    a, b = x[..., :32].astype(np.float32), x[..., 32:].astype(np.float32)
    want = np.concatenate([a * c[:, None] - b * s[:, None], a * s[:, None] + b * c[:, None]], -1)
    return Launch((5,), [x, c, s, out, i32(16)], {"out": Expect(out, want, 1e-3, 1e-3)})


@case("triton/fused_multiply_add", "sm_100a")
def fused_multiply_add(rng: np.random.Generator) -> Launch:
    x, y, z, out = normal(rng, 2048), normal(rng, 2048), normal(rng, 2048), unset(2048)
    a, b, c = (v.astype(np.float64) for v in (x, y, z))
    for _ in range(4):
        a = a * b + c
        c = c + a * 0.5
    return Launch((2,), [x, y, z, out], {"out": Expect(out, a * c, 1e-4, 1e-4)})
