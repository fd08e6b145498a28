"""Cases of ``hip_matmul.py``."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from corpus_case import Addresses, Array, Expect, Launch, bf16, e4m3, e5m2, f32, i32, normal, product, unset, whole
from hip_cases import draws, e4m3_fnuz, f16

f64 = np.float64
e5m2_fnuz = ml_dtypes.float8_e5m2fnuz
_OPTIONS: dict[str, tuple[Any, Any, Any, tuple[int, int, int], tuple[int, int]]] = {
    "16": (bf16, bf16, f32, (128, 64, 96), (64, 64)), "32": (bf16, bf16, f32, (64, 128, 96), (64, 64)),
    "4": (f16, f16, f32, (32, 64, 128), (16, 64)), "8_warps": (f16, f16, f32, (128, 128, 128), (128, 128)),
    "flat": (bf16, bf16, f32, (64, 64, 160), (64, 64)), "one_stage": (e5m2, e4m3, f32, (32, 64, 128), (32, 32)),
    "f64": (f64, f64, f64, (32, 64, 48), (32, 32)), "bf8_mixed": (e4m3_fnuz, e5m2_fnuz, f32, (32, 64, 128), (32, 64)),
    "s8_16": (np.int8, np.int8, np.int32, (32, 32, 256), (32, 32)),
}  # fmt: skip


def _options(name: str, rng: np.random.Generator) -> Launch:
    left, right, out, (m, n, k), tile = _OPTIONS[name]
    a, b, c = whole(rng, m, k, dtype=left), whole(rng, n, k, dtype=right), unset(m, n, dtype=out)
    return Launch((m // tile[0], n // tile[1]), [a, b, c, i32(m), i32(n), i32(k)], {"c": Expect(c, product(a, b.T))})


for _name in _OPTIONS:
    draws(f"amd_options_{_name}")(lambda rng, name=_name: _options(name, rng))


@draws("amd_transposed")
def transposed(rng: np.random.Generator) -> Launch:
    m, n, k = 64, 96, 80
    a, b, c = whole(rng, k, m, dtype=f16), whole(rng, k, n, dtype=f16), whole(rng, m, n, dtype=f16)
    found = product(a.T, b)
    want = (np.where(found > 0, found, found / 4) + c.astype(f64)).astype(f16)
    return Launch((3,), [a, b, c, i32(m), i32(n), i32(k)], {"c": Expect(c, want)})


def _chained(rng: np.random.Generator, m: int) -> Launch:
    a, b, d = whole(rng, m, 64, dtype=bf16), whole(rng, 64, 64, dtype=bf16), whole(rng, 64, 64, dtype=bf16)
    c = unset(m, 64)
    return Launch((1,), [a, b, d, c], {"c": Expect(c, product(product(a, b).astype(bf16), d), 1e-5, 1e-2)})


@draws("amd_chained")
def chained(rng: np.random.Generator) -> Launch:
    return _chained(rng, 64)


@draws("amd_chained_16")
def chained_16(rng: np.random.Generator) -> Launch:
    return _chained(rng, 32)


@draws("amd_precisions")
def precisions(rng: np.random.Generator) -> Launch:
    a, b, c, c3 = normal(rng, 32, 64), normal(rng, 64, 32), unset(32, 32), unset(32, 32)
    want = product(a, b)
    return Launch((1,), [a, b, c, c3], {"c": Expect(c, want, 1e-5, 1e-5), "c3": Expect(c3, want, 1e-4, 2e-3)})


def _split(rng: np.random.Generator, kind: Any, out: Any, tile: tuple[int, int], shares: int) -> Launch:
    m, n, k = 64, 64, 256
    a, b, c = whole(rng, m, k, dtype=kind, most=1), whole(rng, k, n, dtype=kind, most=1), np.zeros((m, n), out)
    return Launch(
        (m // tile[0], n // tile[1], shares), [a, b, c, i32(m), i32(n), i32(k)], {"c": Expect(c, product(a, b))}
    )


@draws("amd_split_k_atomic")
def split_k_atomic(rng: np.random.Generator) -> Launch:
    return _split(rng, f16, f32, (32, 32), 4)


@draws("amd_split_k_half")
def split_k_half(rng: np.random.Generator) -> Launch:
    return _split(rng, f16, f16, (32, 32), 4)


@draws("amd_split_k_bf16")
def split_k_bf16(rng: np.random.Generator) -> Launch:
    return _split(rng, bf16, bf16, (32, 64), 2)


@draws("amd_stream_k_locks")
def stream_k_locks(rng: np.random.Generator) -> Launch:
    m, n, k = 64, 64, 160
    a, b, c = whole(rng, m, k, dtype=bf16), whole(rng, k, n, dtype=bf16), unset(m, n)
    args = [a, b, c, unset(3, 32, 32), np.zeros(3, np.int32), i32(m), i32(n), i32(k)]
    return Launch((3,), args, {"c": Expect(c, product(a, b))})


@draws("amd_grouped")
def grouped(rng: np.random.Generator) -> Launch:
    sizes = np.array([(40, 70, 50), (32, 32, 32), (10, 100, 64)], np.int32)
    a = [whole(rng, m, k, dtype=f16) for m, _, k in sizes]
    b = [whole(rng, k, n, dtype=f16) for _, n, k in sizes]
    c = [unset(m, n) for m, n, _ in sizes]
    expect = {f"c{g}": Expect(c[g], product(a[g], b[g])) for g in range(3)}
    return Launch((4,), [Addresses(a), Addresses(b), Addresses(c), sizes, i32(3)], expect)


@draws("amd_int4_weights")
def int4_weights(rng: np.random.Generator) -> Launch:
    m, n, k = 20, 64, 128
    a, q = whole(rng, m, k, dtype=f16), rng.integers(0, 16, (k, n))
    scales, zeros = (2.0 ** rng.integers(-2, 2, (2, n))).astype(f16), rng.integers(0, 16, (2, n)).astype(f16)
    packed = sum(q[p::8].astype(np.uint32) << np.uint32(4 * p) for p in range(8)).astype(np.uint32).view(np.int32)
    b = (q - zeros.repeat(64, 0).astype(f64)) * scales.repeat(64, 0)
    c = unset(m, n)
    return Launch((2, 1), [a, packed, scales, zeros, c, i32(m), i32(n), i32(k)], {"c": Expect(c, product(a, b))})


@draws("amd_int8_weights")
def int8_weights(rng: np.random.Generator) -> Launch:
    m, n, k = 32, 128, 128
    a, b = whole(rng, m, k, dtype=bf16), rng.integers(-128, 128, (k, n)).astype(np.int8)
    scales, c = (2.0 ** rng.integers(-4, 4, n)).astype(f32), unset(m, n, dtype=bf16)
    args = [a, b, scales, c, i32(m), i32(n), i32(k)]
    return Launch((1, 2), args, {"c": Expect(c, product(a, b) * scales, 4e-3)})


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _narrow(rng: np.random.Generator, kind: str, rows: int, depth: int) -> tuple[Array, Array]:
    """Bytes along K, and the numbers that they are."""
    if kind == "e2m1":
        codes = rng.integers(0, 16, (rows, depth)).astype(np.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4, _E2M1[codes]
    values = whole(rng, rows, depth, dtype=e4m3 if kind == "e4m3" else e5m2)
    return values.view(np.uint8), values.astype(f64)


def _scales(rng: np.random.Generator, rows: int, depth: int) -> tuple[Array, Array]:
    codes = rng.integers(124, 131, (rows, depth // 32)).astype(np.uint8)
    return codes, (2.0 ** (codes.astype(f64) - 127)).repeat(32, 1)


def _mx(rng: np.random.Generator, m: int, n: int, k: int, left: str, right: str) -> Launch:
    (a, x), (b, y), (sa, p), (sb, q) = (
        _narrow(rng, left, m, k), _narrow(rng, right, n, k), _scales(rng, m, k), _scales(rng, n, k),
    )  # fmt: skip
    c = unset(m, n)
    want = product(x * p, (y * q).T)
    return Launch((1,), [a, np.ascontiguousarray(b.T), sa, sb, c], {"c": Expect(c, want, 1e-5, 1e-2)})


_MX = {"e4m3_e2m1": (64, 64, 128), "e5m2_e4m3": (32, 64, 256), "e2m1_e5m2": (64, 32, 128), "e2m1": (128, 64, 256)}
for _name, _shape in _MX.items():
    draws(f"amd_mx_{_name}")(
        lambda rng, name=_name, shape=_shape: _mx(rng, *shape, name.split("_")[0], name.split("_")[-1])
    )


@draws("amd_mx_weights")
def mx_weights(rng: np.random.Generator) -> Launch:
    a = whole(rng, 32, 128, dtype=bf16)
    (b, y), (sb, q), c = _narrow(rng, "e2m1", 64, 128), _scales(rng, 64, 128), unset(32, 64)
    return Launch((1,), [a, np.ascontiguousarray(b.T), sb, c], {"c": Expect(c, product(a, (y * q).T), 1e-5, 1e-2)})


@draws("amd_convolution")
def convolution(rng: np.random.Generator) -> Launch:
    height, width, filters, dilation, channels = 9, 11, 20, 2, 16
    x, w = whole(rng, height, width, channels, dtype=bf16), whole(rng, 9, channels, filters, dtype=bf16)
    padded = np.pad(x.astype(f64), ((2, 2), (2, 2), (0, 0)))
    want = sum(
        padded[2 * (tap // 3) :, 2 * (tap % 3) :][:height, :width].reshape(-1, channels) @ w[tap].astype(f64)
        for tap in range(9)
    )
    y = unset(height * width, filters)
    args = [x, w, y, i32(height), i32(width), i32(filters), i32(dilation)]
    return Launch((2, 1), args, {"y": Expect(y, want)})


@draws("amd_batched_cubes")
def batched_cubes(rng: np.random.Generator) -> Launch:
    a, b, c = whole(rng, 4, 32, 32, dtype=f16), whole(rng, 4, 32, 32, dtype=f16), unset(4, 32, 32)
    return Launch((1,), [a, b, c], {"c": Expect(c, product(a, b))})
