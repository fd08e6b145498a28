"""Cases of ``cuda_kernels``."""

from __future__ import annotations

import math

import numpy as np
from corpus_case import Array, Expect, Launch, Map, bf16, case, e4m3, e5m2, i32, normal, product, unset, whole

BOTH = ("sm_80", "sm_90a")
ALL = (*BOTH, "sm_100a")
f16 = np.float16


def signed(values: Array) -> Array:
    """Integers wrapped to 32 bits."""
    return np.asarray(values).astype(np.int64).astype(np.int32)


@case("nvcc/warp_functions", *ALL)
def warp_functions(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(-60, 60, 128).astype(np.int32), unset(128, 10, dtype=np.int32)
    w = x.reshape(4, 32).astype(np.int64)
    lane = np.arange(32)
    bits = 1 << lane.astype(np.int64)
    full = np.ones_like(w)
    same = ((w[:, :, None] & 7) == (w[:, None, :] & 7)) @ bits
    partial = np.where(lane < 20, 20 + w[:, :20].sum(1, keepdims=True), 0)
    quad = w.reshape(4, 8, 4)[:, :, 3:].repeat(4, 2).reshape(4, 32)
    ahead = np.where(lane % 8 == 7, w, np.roll(w, -1, 1))
    flags = 1 + 2 * (w == 0).any(1, keepdims=True) + 4
    columns = [w.sum(1, keepdims=True) * full, w.cumsum(1), quad, ahead, ((w & 1) @ bits)[:, None] * full, same,
               flags * full, w.min(1, keepdims=True) * full, np.bitwise_xor.reduce(w, 1)[:, None] * full,
               partial]  # fmt: skip
    want = signed(np.stack(columns, -1)).reshape(128, 10)
    return Launch((2,), [x, out], {"out": Expect(out, want)}, threads=64)


@case("nvcc/block_reduce", *BOTH)
def block_reduce(rng: np.random.Generator) -> Launch:
    x, out = abs(whole(rng, 3, 500, most=9)), np.zeros(6, np.float32)
    by_thread = np.pad(x, ((0, 0), (0, 12))).reshape(3, -1, 128).sum(1)
    want = np.concatenate([x.sum(1), by_thread.max(1)])
    return Launch((3,), [x, out, i32(500)], {"out": Expect(out, want)}, threads=128)


@case("nvcc/shared_transpose", *BOTH)
def shared_transpose(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 40, 70), unset(70, 40)
    return Launch((3, 2), [x, out, i32(40), i32(70)], {"out": Expect(out, x.T)}, threads=(32, 8))


@case("nvcc/async_copy_ring", *BOTH)
def async_copy_ring(rng: np.random.Generator) -> Launch:
    x, y, out = whole(rng, 2, 5 * 512), whole(rng, 5 * 512), np.zeros(2, np.float32)
    return Launch((2,), [x, y, out, i32(5)], {"out": Expect(out, x @ y)}, threads=128)


@case("nvcc/tma_tile", "sm_90a", "sm_100a")
def tma_tile(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(0, 999, (40, 76)).astype(np.int32), unset(76, 40, dtype=np.int32)
    maps = [Map(array, (32, 32), None) for array in (x, out)]
    return Launch((3, 2), maps, {"out": Expect(out, x.T)}, threads=128)


@case("nvcc/bulk_copies", "sm_90a", "sm_100a")
def bulk_copies(rng: np.random.Generator) -> Launch:
    x, sums = whole(rng, 3 * 5, 256), np.zeros(256, np.float32)
    return Launch((3,), [x, sums, i32(5)], {"sums": Expect(sums, x.sum(0))}, threads=256)


@case("nvcc/cluster_histogram", "sm_90a", "sm_100a")
def cluster_histogram(rng: np.random.Generator) -> Launch:
    x, bins = rng.integers(0, 256, 2000).astype(np.int32), np.zeros(256, np.int32)
    return Launch((2,), [x, bins, i32(2000)], {"bins": Expect(bins, np.bincount(x, minlength=256))}, threads=128)


@case("nvcc/cluster_ring", "sm_90a", "sm_100a")
def cluster_ring(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(0, 999, (2, 2, 128)).astype(np.int32), unset(2, 2, 128, dtype=np.int32)
    return Launch((2,), [x, out], {"out": Expect(out, 3 * x[:, ::-1, ::-1])}, threads=128)


@case("nvcc/function_calls", *ALL)
def function_calls(rng: np.random.Generator) -> Launch:
    x = rng.uniform(-1, 1, 128).astype(np.float32)
    out, turned = unset(128), unset(128, 4, dtype=np.int32)
    i = np.arange(128)
    a, b, v = np.ones(128), i % 5, x.astype(float)
    for _ in range(3):
        a, b = a * v + v**b, b + 1
    values = np.outer(i, [1, 2, 3, 4])
    shift = np.where(i % 2, i >> 1, 0)[:, None]
    want = np.take_along_axis(values, (np.arange(4) + shift) & 3, 1)
    expect = {"out": Expect(out, a, 1e-5, 1e-6), "turned": Expect(turned, want)}
    return Launch((2,), [x, out, turned], expect, threads=64)


@case("nvcc/switch_table", *BOTH)
def switch_table(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(-1, 8, 256).astype(np.int32), unset(256, dtype=np.int32)
    want = []
    for i, v in enumerate(x.tolist()):
        grown = (i + 1) * 3 ** (i % 4)
        r = {0: i * 7, 1: i ^ 0x55, 2: grown, 3: grown, 4: i.bit_count(), 5: i << 4, 6: i % 13}.get(v, -1)
        want.append((r + 100, r - 100, r * 2, ~r)[i // 32 % 4])
    return Launch((2,), [x, out], {"out": Expect(out, want)}, threads=128)


@case("nvcc/half_math", *ALL)
def half_math(rng: np.random.Generator) -> Launch:
    x, y = normal(rng, 128, dtype=f16), normal(rng, 128, dtype=f16)
    p, q = normal(rng, 128, dtype=bf16), normal(rng, 128, dtype=bf16)
    out, out2 = unset(5, 128, dtype=f16), unset(3, 128, dtype=bf16)
    a, b, c, d = (v.astype(float) for v in (x, y, p, q))
    swapped = np.maximum(a * b + a, 0).reshape(-1, 2)[:, ::-1].reshape(-1)
    rows = [a * b + (a + b), np.maximum(a * b, -abs(a)), np.exp2(b) - 1 / (1 + abs(a)), a > b, swapped]
    rows2 = [c * d + c, np.minimum(c + d, c * d), np.where(np.arange(128) % 2, d / 3, c * 3)]
    expect = {"out": Expect(out, np.stack(rows), 2e-3, 3e-3), "out2": Expect(out2, np.stack(rows2), 8e-3, 2e-2)}
    return Launch((1,), [x, y, out, p, q, out2, i32(64)], expect, threads=64)


@case("nvcc/local_arrays", *BOTH)
def local_arrays(rng: np.random.Generator) -> Launch:
    x = rng.integers(-50, 50, (64, 12)).astype(np.int32)
    out, counts = unset(64, 12, dtype=np.int32), unset(64, 8, dtype=np.uint8)
    want = np.stack([np.bincount(row & 7, minlength=8) for row in x])
    expect = {"sorted": Expect(out, np.sort(x, 1)), "counts": Expect(counts, want)}
    return Launch((2,), [x, out, counts], expect, threads=32)


@case("nvcc/atomics", *BOTH)
def atomics(rng: np.random.Generator) -> Launch:
    x = rng.integers(0, 1000, 256).astype(np.int32)
    u = np.array([0, 7, 2**32 - 1, 0, 0, 0, 0, 0], np.uint32)
    s, w = np.array([-5, 5000, 0], np.int32), np.zeros(2, np.uint64)
    f, d, h = np.zeros(2, np.float32), np.zeros(1), np.zeros(2, f16)
    v = x.astype(np.int64)
    down = 7
    for _ in range(256):
        down = 49 if down == 0 or down > 49 else down - 1
    cleared = 2**32 - 1 & ~int(np.bitwise_or.reduce(1 << (v & 31)))
    want = [256 % 100, down, cleared, int(np.bitwise_xor.reduce(v)), *np.bincount(v & 3, minlength=4)]
    expect = {
        "u": Expect(u, want),
        "s": Expect(s, [v.max(), v.min(), -v.sum()]),
        "w": Expect(w, [int(v.sum()) << 20, int(v.max()) << 33]),
        "f": Expect(f, [v.sum(), v.max() / 2]),
        "d": Expect(d, [v.sum()]),
        "h": Expect(h, [(v & 3).sum(), 256]),
    }
    return Launch((2,), [x, u, s, w, f, d, h], expect, threads=128)


@case("nvcc/constant_memory", *BOTH)
def constant_memory(rng: np.random.Generator) -> Launch:
    x, out, seen = rng.integers(0, 1000, (3, 64)).astype(np.int32), unset(3, 64), np.zeros(3, np.int32)
    table = np.concatenate([2.0 ** np.arange(8), -(2.0 ** np.arange(8))])
    power = np.where(x >> 4 & 1, (x % 5) ** 3, (x % 5) ** 2)
    want = table[x & 15] * np.array([[-5], [7], [11]]) + power
    return Launch((3,), [x, out, seen], {"out": Expect(out, want), "seen": Expect(seen, [1, 1, 1])}, threads=64)


@case("nvcc/dynamic_shared", *BOTH)
def dynamic_shared(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(0, 9, (2, 128)).astype(np.int32), unset(2, 128, dtype=np.int32)
    want = x.cumsum(1) - x + x * x.sum(1, keepdims=True)
    args = [x, out, i32(128)]
    return Launch((2,), args, {"out": Expect(out, want)}, threads=64, shared_bytes=2 * 128 * 4)


@case("nvcc/gemm_ldmatrix", *BOTH)
def gemm_ldmatrix(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 128, 96, dtype=f16), whole(rng, 64, 96, dtype=f16), unset(128, 64)
    return Launch((2, 1), [a, b, c, i32(64), i32(96)], {"c": Expect(c, product(a, b.T))}, threads=128)


@case("nvcc/math_library", *BOTH)
def math_library(rng: np.random.Generator) -> Launch:
    x, y = normal(rng, 100), rng.standard_normal(100) * 5
    out, out2 = unset(10, 100), unset(6, 100, dtype=np.float64)
    v, w = x.astype(float), y
    scaled = (x * np.float32(1e6)).astype(float)
    rows = [np.sin(scaled), abs(v) ** np.float32(1.7), np.vectorize(math.erf)(v), np.tanh(v),
            np.vectorize(math.lgamma)(abs(v) + 0.5), np.arctan2(v, np.float32(0.3)), np.cbrt(v),
            np.fmod(x * np.float32(100), np.float32(0.7)), np.log1p(abs(v)), np.rint(x * np.float32(10))]  # fmt: skip
    rows2 = [np.sin(w), np.exp(w), np.log(abs(w)), np.sqrt(abs(w)) / (1 + w * w),
             np.floor(w * 7) + np.trunc(w) + np.trunc(w * 1e9), w * w - w]  # fmt: skip
    expect = {"out": Expect(out, np.stack(rows), 2e-6, 2e-6), "out2": Expect(out2, np.stack(rows2), 1e-12, 1e-12)}
    return Launch((2,), [x, out, y, out2, i32(100)], expect, threads=64)


@case("nvcc/integer_functions", *BOTH)
def integer_functions(rng: np.random.Generator) -> Launch:
    x, y = (rng.integers(-(2**31), 2**31, 64).astype(np.int32) for _ in range(2))
    out, wide = unset(10, 64, dtype=np.int32), unset(5, 64, dtype=np.int64)
    want, want_wide = [], []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        u, v = a % 2**32, b % 2**32
        au, av = u.to_bytes(4, "little"), v.to_bytes(4, "little")
        both = au + av
        byte = [t - 256 if t > 127 else t for t in both]
        halves = [np.frombuffer(t, np.int16) for t in (au, av)]
        long, m = (a << 20) ^ b, b
        quotient, positive = abs(long) // abs(m) * (1 if (long < 0) == (m < 0) else -1), long % 2**64
        added = bytes((s + t) % 256 for s, t in zip(au, av, strict=True))
        most = np.maximum(*halves).tobytes()
        want.append([
            a * b >> 32,
            int(f"{u:032b}"[::-1], 2) ^ ((v & -v).bit_length()),
            int.from_bytes(bytes(both[s] for s in (7, 3, 5, 2)), "little"),
            ((v << 32 | u) << 11) >> 32,
            5 + sum(byte[t] * byte[t + 4] for t in range(4)),
            abs(u - v) + 3,
            u // (v | 1) + u % (v | 1),
            int.from_bytes(added, "little") ^ int.from_bytes(most, "little"),
            32 - u.bit_length() + positive.bit_count(),
            int(signed(np.int64(a << 5))) >> 20,
        ])  # fmt: skip
        rest = long - quotient * m
        want_wide.append([quotient + rest, long * long >> 64, positive // 1000003, long * m, (long >> 7) ^ (m << 33)])
    wrapped = [[(t + 2**31) % 2**32 - 2**31 for t in row] for row in want]
    wrapped_wide = [[(t + 2**63) % 2**64 - 2**63 for t in row] for row in want_wide]
    expect = {"out": Expect(out, np.array(wrapped).T), "wide": Expect(wide, np.array(wrapped_wide).T)}
    return Launch((1,), [x, y, out, wide, i32(64)], expect, threads=64)


@case("nvcc/warp_roles", *BOTH)
def warp_roles(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(0, 99, (6, 64)).astype(np.int32), unset(6, 64, dtype=np.int32)
    return Launch((1,), [x, out, i32(6)], {"out": Expect(out, 2 * x[:, ::-1] + 1)}, threads=128)


@case("nvcc/last_block", *BOTH)
def last_block(rng: np.random.Generator) -> Launch:
    x, parts, ticket, out = rng.integers(0, 99, (6, 128)).astype(np.int32), *(np.zeros(n, np.int32) for n in (6, 1, 1))
    expect = {"out": Expect(out, [x.sum()]), "parts": Expect(parts, x.sum(1)), "ticket": Expect(ticket, [0])}
    return Launch((6,), [x, parts, ticket, out], expect, threads=128)


@case("nvcc/bitonic_sort", *BOTH)
def bitonic_sort(rng: np.random.Generator) -> Launch:
    keys, values = normal(rng, 2, 256), np.arange(512, dtype=np.int32).reshape(2, 256)
    order = np.argsort(keys, 1)
    expect = {
        "keys": Expect(keys, np.sort(keys, 1)),
        "values": Expect(values, np.take_along_axis(values.copy(), order, 1)),
    }
    return Launch((2,), [keys, values], expect, threads=256)


@case("nvcc/mandelbrot", *BOTH)
def mandelbrot(rng: np.random.Generator) -> Launch:
    out, want = unset(21, 37, dtype=np.int32), np.zeros((21, 37), int)
    for y in range(21):
        for x in range(37):
            cr, ci, r, i, n = -2 + 3.0 * x / 37, -1.25 + 2.5 * y / 21, 0.0, 0.0, 0
            while n < 30 and r * r + i * i <= 4:
                r, i, n = r * r + -(i * i) + cr, 2 * r * i + ci, n + 1
            want[y, x] = n
    return Launch((3, 3), [out, i32(37), i32(21), i32(30)], {"out": Expect(out, want)}, threads=(16, 8))


@case("nvcc/sparse_rows", *BOTH)
def sparse_rows(rng: np.random.Generator) -> Launch:
    dense = whole(rng, 10, 80) * (rng.random((10, 80)) < 0.5)
    x, y, copy = whole(rng, 80), unset(10), unset(10, 4)
    rows, columns = np.nonzero(dense)
    starts = np.searchsorted(rows, np.arange(11)).astype(np.int32)
    want = dense @ x
    table = np.stack([want, -want, np.arange(10), np.ones(10)], 1)
    args = [starts, columns.astype(np.int32), dense[rows, columns], x, y, copy, i32(10)]
    return Launch((3,), args, {"y": Expect(y, want), "copy": Expect(copy, table)}, threads=128)


@case("nvcc/fp8_conversions", *ALL)
def fp8_conversions(rng: np.random.Generator) -> Launch:
    x = normal(rng, 256) * np.float32(2.0) ** rng.integers(-12, 9, 256).astype(np.float32)
    a, b, back = unset(256, dtype=e4m3), unset(256, dtype=e5m2), unset(2, 256)
    first, second = np.clip(x, -448, 448).astype(e4m3), np.clip(x, -57344, 57344).astype(e5m2)
    want = np.stack([first.astype(np.float32), second.astype(np.float32)])
    expect = {"e4m3": Expect(a, first), "e5m2": Expect(b, second), "back": Expect(back, want)}
    return Launch((4,), [x, a, b, back, i32(256)], expect, threads=64)


@case("nvcc/wgmma_tile", "sm_90a")
def wgmma_tile(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 64, 16, dtype=f16), whole(rng, 8, 16, dtype=f16), unset(64, 8)
    return Launch((1,), [a, b, c], {"c": Expect(c, product(a, b.T) + 1)}, threads=128)


def tiles(rng: np.random.Generator, count: int) -> tuple[Map, Array, Array]:
    """A map of the first of some tiles of 16 x 32, the tiles, and as much memory to be set."""
    x = whole(rng, count * 16, 32)
    return Map(x[:16], (32, 16), None), x, unset(count * 16, 32)


@case("nvcc/tensor_maps", "sm_90a", "sm_100a")
def tensor_maps(rng: np.random.Generator) -> Launch:
    model, x, out = tiles(rng, 4)
    args = [model, np.zeros(4 * 128, np.uint8), np.zeros(1, np.int32), x, out]
    return Launch((4,), args, {"out": Expect(out, x - 1)}, threads=64)


@case("nvcc/map_in_cluster", "sm_90a", "sm_100a")
def map_in_cluster(rng: np.random.Generator) -> Launch:
    model, x, out = tiles(rng, 4)
    rank = np.arange(4 * 16)[:, None] // 16 % 2
    return Launch((2,), [model, np.zeros(2 * 128, np.uint8), x, out], {"out": Expect(out, x + rank)}, threads=64)


@case("nvcc/barrier_bytes", "sm_90a", "sm_100a")
def barrier_bytes(rng: np.random.Generator) -> Launch:
    x, out = whole(rng, 2, 3, 2, 256), unset(2, 3, 2, 256)
    return Launch((2,), [x, out, i32(3)], {"out": Expect(out, x + np.array([[1], [-1]]))}, threads=64)
