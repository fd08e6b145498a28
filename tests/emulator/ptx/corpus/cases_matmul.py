"""Cases of ``triton_kernels/matmul.py``: whole numbers where sums are exact, normal ones where the type allows none."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from corpus_case import (
    Addresses,
    Array,
    Expect,
    Launch,
    Map,
    bf16,
    case,
    e4m3,
    e5m2,
    f32,
    i32,
    normal,
    product,
    unset,
    whole,
)

ALL = ("sm_80", "sm_90a", "sm_100a")
HOPPER_ON = ("sm_90a", "sm_100a")
f16 = np.float16


def plain(rng: np.random.Generator, dtype: Any, out: Any, m: int, n: int, k: int, tile: tuple[int, int], **near: float
          ) -> Launch:  # fmt: skip
    """Arguments (A, B, C, m, n, k), with a grid of tiles."""
    a, b, c = whole(rng, m, k, dtype=dtype), whole(rng, k, n, dtype=dtype), unset(m, n, dtype=out)
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    return Launch(grid, [a, b, c, i32(m), i32(n), i32(k)], {"c": Expect(c, product(a, b), **near)})


@case("triton/matmul_f16", *ALL)
def matmul_f16(rng: np.random.Generator) -> Launch:
    return plain(rng, f16, f16, 70, 50, 67, (64, 64))


@case("triton/matmul_bf16", *ALL)
def matmul_bf16(rng: np.random.Generator) -> Launch:
    return plain(rng, bf16, bf16, 128, 64, 128, (128, 64), rtol=4e-3)


@case("triton/matmul_tf32", *ALL)
def matmul_tf32(rng: np.random.Generator) -> Launch:
    return plain(rng, np.float32, np.float32, 64, 64, 96, (64, 64))


@case("triton/matmul_f32", *ALL)
def matmul_f32(rng: np.random.Generator) -> Launch:
    a, b, c = normal(rng, 64, 32), normal(rng, 32, 64), unset(64, 64)
    return Launch((1,), [a, b, c, i32(64), i32(64), i32(32)], {"c": Expect(c, product(a, b), 1e-5, 1e-5)})


@case("triton/matmul_tf32x3", "sm_80", "sm_90a")
def matmul_tf32x3(rng: np.random.Generator) -> Launch:
    a, b, c = normal(rng, 64, 64), normal(rng, 64, 64), unset(64, 64)
    return Launch((1,), [a, b, c, i32(64), i32(64), i32(64)], {"c": Expect(c, product(a, b), 1e-5, 1e-4)})


@case("triton/matmul_s8", "sm_80", "sm_90a")
def matmul_s8(rng: np.random.Generator) -> Launch:
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((64, 96), (96, 64)))
    c = unset(64, 64, dtype=np.int32)
    return Launch((1,), [a, b, c, i32(64), i32(64), i32(96)], {"c": Expect(c, a.astype(int) @ b.astype(int))})


@case("triton/matmul_e5m2", *ALL)
def matmul_e5m2(rng: np.random.Generator) -> Launch:
    return plain(rng, e5m2, np.float32, 64, 64, 128, (64, 64))


@case("triton/matmul_e4m3", "sm_89", *HOPPER_ON)
def matmul_e4m3(rng: np.random.Generator) -> Launch:
    return plain(rng, e4m3, f16, 64, 64, 128, (64, 64))


@case("triton/matmul_f64", "sm_80", "sm_90a")
def matmul_f64(rng: np.random.Generator) -> Launch:
    a, b, c = rng.standard_normal((32, 48)), rng.standard_normal((48, 32)), unset(32, 32, dtype=np.float64)
    return Launch((1,), [a, b, c, i32(32), i32(32), i32(48)], {"c": Expect(c, a @ b, 1e-12, 1e-12)})


@case("triton/matmul_bias_relu", *ALL)
def matmul_bias_relu(rng: np.random.Generator) -> Launch:
    a, b, bias = whole(rng, 128, 64, dtype=f16), whole(rng, 128, 64, dtype=f16), whole(rng, 128, most=9)
    c = unset(128, 128, dtype=f16)
    want = np.maximum(product(a, b.T) + bias, 0)
    return Launch((2,), [a, b, bias, c, i32(128), i32(128), i32(64)], {"c": Expect(c, want)})


@case("triton/matmul_batched", *ALL)
def matmul_batched(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 3, 64, 64, dtype=bf16), whole(rng, 3, 64, 64, dtype=bf16), unset(3, 64, 64)
    return Launch((2, 2, 3), [a, b, c, i32(64)], {"c": Expect(c, product(a, b))})


@case("triton/matmul_3d_dot", "sm_80", "sm_90a")
def matmul_3d_dot(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 2, 32, 32, dtype=f16), whole(rng, 2, 32, 32, dtype=f16), unset(2, 32, 32)
    return Launch((1,), [a, b, c], {"c": Expect(c, product(a, b))})


@case("triton/matmul_grouped", *ALL)
def matmul_grouped(rng: np.random.Generator) -> Launch:
    sizes = np.array([40, 0, 17, 64], np.int32)
    a = [whole(rng, max(m, 1), 64, dtype=f16) for m in sizes]
    b = [whole(rng, 64, 64, dtype=f16) for _ in sizes]
    c = [unset(max(m, 1), 64, dtype=f16) for m in sizes]
    expect = {f"c[{g}]": Expect(c[g], product(a[g], b[g])) for g in (0, 2, 3)}
    args = [Addresses(a), Addresses(b), Addresses(c), sizes, i32(4), i32(64), i32(64)]
    return Launch((3,), args, expect)


@case("triton/matmul_split_k", *ALL)
def matmul_split_k(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 32, 160, dtype=f16), whole(rng, 160, 64, dtype=f16), np.zeros((32, 64), np.float32)
    return Launch((1, 2, 3), [a, b, c, i32(32), i32(64), i32(160)], {"c": Expect(c, product(a, b))})


@case("triton/matmul_split_k_locks", *ALL)
def matmul_split_k_locks(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 64, 160, dtype=f16), whole(rng, 160, 64, dtype=f16), unset(64, 64)
    locks = np.zeros(2, np.int32)
    expect = {"c": Expect(c, product(a, b)), "locks": Expect(locks, [3, 3])}
    return Launch((2, 1, 3), [a, b, c, locks, i32(64), i32(160)], expect)


@case("triton/matmul_persistent", *ALL)
def matmul_persistent(rng: np.random.Generator) -> Launch:
    a, b = whole(rng, 192, 64, dtype=bf16), whole(rng, 64, 128, dtype=bf16)
    c = unset(192, 128, dtype=bf16)
    args = [a, b, c, i32(192), i32(128), i32(64)]
    return Launch((4,), args, {"c": Expect(c, product(a, b).astype(np.float32).astype(bf16))})


@case("triton/matmul_host_maps", *HOPPER_ON)
def matmul_host_maps(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 128, 96, dtype=f16), whole(rng, 96, 64, dtype=f16), unset(128, 64, dtype=f16)
    return Launch((2, 1), [Map(a), Map(b), Map(c), i32(96)], {"c": Expect(c, product(a, b))})


@case("triton/matmul_host_maps_128", "sm_90a")
def matmul_host_maps_128(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 100, 256, dtype=bf16), whole(rng, 256, 136, dtype=bf16), unset(100, 136, dtype=bf16)
    want = product(a, b).astype(np.float32).astype(bf16)
    return Launch((1, 2), [Map(a), Map(b), Map(c), i32(256)], {"c": Expect(c, want)})


@case("triton/matmul_device_maps", *HOPPER_ON)
def matmul_device_maps(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 130, 128, dtype=f16), whole(rng, 128, 128, dtype=f16), unset(130, 128, dtype=f16)
    args = [a, b, c, i32(130), i32(128), i32(128)]
    return Launch((2,), args, {"c": Expect(c, product(a, b.T))})


@case("triton/matmul_warp_specialized", "sm_100a")
def matmul_warp_specialized(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 256, 128, dtype=f16), whole(rng, 128, 128, dtype=f16), unset(256, 128, dtype=f16)
    args = [Map(a), Map(b), Map(c), i32(256), i32(128), i32(128)]
    return Launch((2,), args, {"c": Expect(c, product(a, b))})


@case("triton/matmul_4bit_weights", *ALL)
def matmul_4bit_weights(rng: np.random.Generator) -> Launch:
    a, weights = whole(rng, 32, 128, dtype=f16), rng.integers(-8, 8, (64, 128))
    packed = ((weights[:, ::2] & 15) | (weights[:, 1::2] << 4)).astype(np.uint8).view(np.int8)
    scale, c = rng.choice(np.array([0.5, 1, 2], f16), 64), unset(32, 64, dtype=f16)
    want = product(a, (weights * scale[:, None].astype(float)).T)
    return Launch((1, 1), [a, packed, scale, c, i32(64), i32(128)], {"c": Expect(c, want, 1e-3)})


def scaled(values: Array, exponents: Array) -> Array:
    """Values times a power of two for each 32 along K."""
    return values.astype(np.float64) * np.exp2(exponents.astype(int) - 127.0).repeat(32, 1)


@case("triton/matmul_mxfp8", *HOPPER_ON)
def matmul_mxfp8(rng: np.random.Generator) -> Launch:
    a, b = whole(rng, 128, 256, dtype=e5m2), whole(rng, 64, 256, dtype=e4m3)
    sa, sb = (rng.integers(124, 130, (rows, 8)).astype(np.uint8) for rows in (128, 64))
    c = unset(128, 64)
    args = [a, sa, b, sb, c, i32(64), i32(256)]
    return Launch((1, 1), args, {"c": Expect(c, scaled(a, sa) @ scaled(b, sb).T, 1e-5, 1e-5)})


@case("triton/matmul_mxfp4", *HOPPER_ON)
def matmul_mxfp4(rng: np.random.Generator) -> Launch:
    a, b = (rng.integers(0, 16, (rows, 256)).astype(np.uint8) for rows in (128, 64))
    sa, sb = (rng.integers(124, 130, (rows, 8)).astype(np.uint8) for rows in (128, 64))
    c = unset(128, 64)
    packed = [x[:, ::2] | x[:, 1::2] << 4 for x in (a, b)]
    left, right = (scaled(x.view(ml_dtypes.float4_e2m1fn), s) for x, s in ((a, sa), (b, sb)))
    args = [packed[0], sa, packed[1], sb, c, i32(64), i32(256)]
    return Launch((1, 1), args, {"c": Expect(c, left @ right.T, 1e-5, 1e-5)})


@case("triton/matmul_nvfp4", "sm_100a")
def matmul_nvfp4(rng: np.random.Generator) -> Launch:
    a, b = (rng.integers(0, 16, (rows, 256)).astype(np.uint8) for rows in (128, 64))
    sa, sb = (rng.choice(np.array([0.25, 0.5, 1, 1.5, 3], e4m3), (rows, 16)) for rows in (128, 64))
    c = unset(128, 64)
    packed = [x[:, ::2] | x[:, 1::2] << 4 for x in (a, b)]
    left, right = (
        x.view(ml_dtypes.float4_e2m1fn).astype(float) * s.astype(float).repeat(16, 1) for x, s in ((a, sa), (b, sb))
    )
    args = [packed[0], sa, packed[1], sb, c, i32(64), i32(256)]
    return Launch((1, 1), args, {"c": Expect(c, left @ right.T, 1e-5, 1e-5)})


@case("triton/convolution", *ALL)
def convolution(rng: np.random.Generator) -> Launch:
    x, weight = whole(rng, 7, 9, 32, dtype=f16), whole(rng, 3, 3, 32, 64, dtype=f16)
    out = unset(63, 64, dtype=f16)
    padded = np.pad(x.astype(float), ((1, 1), (1, 1), (0, 0)))
    want = sum(padded[r : r + 7, s : s + 9] @ weight[r, s].astype(float) for r in range(3) for s in range(3))
    args = [x, weight, out, i32(7), i32(9), i32(32), i32(64)]
    return Launch((2, 2), args, {"out": Expect(out, np.reshape(want, (63, 64)))})


def attend(q: Array, k: Array, v: Array, scale: float, causal: bool) -> tuple[Array, Array]:
    """Attention of each head in double precision, and log2 of the sums of exponentials."""
    score = q.astype(float) @ k.astype(float).swapaxes(-1, -2) * scale
    if causal:
        score = np.where(np.tri(score.shape[-1], dtype=bool), score, -np.inf)
    e = np.exp(score)
    return e @ v.astype(float) / e.sum(-1, keepdims=True), np.log2(e.sum(-1))


def attention_launch(rng: np.random.Generator, dtype: Any, length: int, d: int, causal: bool, near: float) -> Launch:
    q, k, v = (normal(rng, 2, length, d, dtype=dtype) for _ in range(3))
    out, log_sum = unset(2, length, d, dtype=dtype), unset(2, length)
    want, sums = attend(q, k, v, d**-0.5, causal)
    expect = {"out": Expect(out, want, near, near), "log_sum": Expect(log_sum, sums, 1e-3, 1e-3)}
    return Launch((length // 64, 2), [q, k, v, out, log_sum, i32(length), f32(d**-0.5)], expect)


@case("triton/attention", *ALL)
def attention(rng: np.random.Generator) -> Launch:
    return attention_launch(rng, f16, 128, 64, True, 2e-3)


@case("triton/attention_full", *ALL)
def attention_full(rng: np.random.Generator) -> Launch:
    return attention_launch(rng, bf16, 128, 32, False, 1e-2)


@case("triton/attention_maps", *HOPPER_ON)
def attention_maps(rng: np.random.Generator) -> Launch:
    return attention_maps_launch(rng, 64)


@case("triton/attention_maps_128", "sm_90a")
def attention_maps_128(rng: np.random.Generator) -> Launch:
    return attention_maps_launch(rng, 128)


def attention_maps_launch(rng: np.random.Generator, rows: int) -> Launch:
    q, k, v = (normal(rng, 2 * 128, 64, dtype=f16) for _ in range(3))
    out = unset(256, 64, dtype=f16)
    heads = (x.reshape(2, 128, 64) for x in (q, k, v))
    want, _ = attend(*heads, 0.125, False)
    return Launch((128 // rows, 2), [Map(q), Map(k), Map(v), out, i32(128), f32(0.125)],
                  {"out": Expect(out, want.reshape(256, 64), 2e-3, 2e-3)})  # fmt: skip


@case("triton/matmul_stream_k", *HOPPER_ON)
def matmul_stream_k(rng: np.random.Generator) -> Launch:
    m, n, k, each = 128, 128, 160, 3
    a, b, c = whole(rng, m, k, dtype=f16), whole(rng, k, n, dtype=f16), unset(m, n)
    programs = -(-4 * (k // 32) // each)
    flags, parts = np.zeros(programs, np.int32), unset(programs, 64, 64)
    args = [a, b, c, flags, parts, i32(m), i32(n), i32(k), i32(each)]
    return Launch((programs,), args, {"c": Expect(c, product(a, b))})
