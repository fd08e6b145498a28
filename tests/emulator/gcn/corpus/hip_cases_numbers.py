"""Cases of ``hip_numbers.py``."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from corpus_case import Array, Expect, Launch, bf16, e4m3, e5m2, f32, i32, normal, unset
from hip_cases import draws, f16


def _any(rng: np.random.Generator, count: int, dtype: Any) -> Array:
    """Integers of all magnitudes."""
    wide = np.iinfo(dtype)
    values = rng.integers(wide.min, wide.max, count, dtype=dtype, endpoint=True)
    return (values >> rng.integers(0, wide.bits, count).astype(dtype)).astype(dtype)


def _log_sum_exp(rows: Array) -> Array:
    top = rows.max(1, keepdims=True)
    found: Array = np.log(np.exp(rows - top).sum(1)) + top[:, 0]
    return found


def _rotated(words: Array, by: Array) -> Array:
    bits = words.dtype.itemsize * 8
    return (words << by) | (words >> (bits - by).astype(words.dtype))


def _quotient(a: Array, b: Array) -> Array:
    """As C divides: towards zero."""
    high = a.astype(object), b.astype(object)
    found = [abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(*high, strict=True)]
    return np.array([v & (1 << 8 * a.itemsize) - 1 for v in found], f"u{a.itemsize}").view(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    """With the sign of the dividend."""
    with np.errstate(over="ignore"):
        return (a - _quotient(a, b) * b).astype(a.dtype)


@draws("amd_bit_tricks")
def bit_tricks(rng: np.random.Generator) -> Launch:
    n = 400
    x, y = _any(rng, n, np.int32), _any(rng, n, np.int64)
    x[:4] = 0, -1, 1, -(2**31)
    out, out2 = unset(6 * n, dtype=np.int32), unset(3 * n, dtype=np.int64)
    at = np.arange(n)
    u, w = x.view(np.uint32), y.view(np.uint64)
    clz = [32 - int(v).bit_length() for v in u]
    want = [
        [int(v).bit_count() for v in u], clz, _rotated(u, (at % 31 + 1).astype(np.uint32)).view(np.int32), x & -x,
        u.byteswap().view(np.int32), ~(x ^ (x >> 7)) | 0x55,
    ]  # fmt: skip
    want2 = [_rotated(w, (at % 63 + 1).astype(np.uint64)).view(np.int64), y >> (at % 64), (y & -y) ^ (y << 3)]
    return Launch((2,), [x, out, y, out2, i32(n)], {
        "out": Expect(out, np.concatenate(want)), "out2": Expect(out2, np.concatenate(want2)),
    })  # fmt: skip


@draws("amd_wide_integers")
def wide_integers(rng: np.random.Generator) -> Launch:
    n = 300
    x, y, out = _any(rng, n, np.int64), _any(rng, n, np.int64), unset(8 * n, dtype=np.int64)
    y[y == 0] = 3
    x[:2], y[:2] = (-(2**63), 2**63 - 1), (7, -1)
    u, v = x.view(np.uint64), y.view(np.uint64)
    high = np.array([int(a) * int(b) >> 64 for a, b in zip(u, v, strict=True)], np.uint64)
    want = [
        x * y, _quotient(x, y), _remainder(x, y), (u // v).view(np.int64), (u % v).view(np.int64), high.view(np.int64),
        np.minimum(x, y) - np.maximum(x, y), (x < y) + 2 * (u < v),
    ]  # fmt: skip
    return Launch((3,), [x, y, out, i32(n)], {"out": Expect(out, np.concatenate(want))})


@draws("amd_narrow_integers")
def narrow_integers(rng: np.random.Generator) -> Launch:
    n = 500
    x, y, p, q = (_any(rng, n, t) for t in (np.int8, np.int8, np.int16, np.int16))
    y[(y == 0) | (y == -1)] = 3
    q[(q == 0) | (q == -1)] = 5
    e, f = p.view(np.uint16), q.view(np.uint16)
    out, out2 = unset(6 * n, dtype=np.int8), unset(6 * n, dtype=np.int16)
    want = [x + y, x * y, _quotient(x, y), _remainder(x, y), np.maximum(x, y), x >> (y & 7)]
    want2 = [
        p * q + p, _quotient(p, q), (e % f).view(np.int16), np.minimum(p, q), np.maximum(e, f).view(np.int16),
        (e >> (f & 15)).view(np.int16),
    ]  # fmt: skip
    return Launch((2,), [x, y, out, p, q, out2, i32(n)], {
        "out": Expect(out, np.concatenate(want)), "out2": Expect(out2, np.concatenate(want2)),
    })  # fmt: skip


def _division(rng: np.random.Generator, divisor: int, block: int) -> Launch:
    n = 380
    x, y, out = _any(rng, n, np.int32), _any(rng, n, np.int32), unset(8 * n, dtype=np.int32)
    y[(y == 0) | (y == -1)] = 3
    x[:2] = -(2**31), 2**31 - 1
    u, v, d = x.view(np.uint32), y.view(np.uint32), np.full(n, divisor, np.int32)
    high = (u.astype(np.uint64) * v >> np.uint64(32)).astype(np.uint32)
    with np.errstate(over="ignore"):
        want = [
            _quotient(x, y), _remainder(x, y), (u // v).view(np.int32), (u % v).view(np.int32), _quotient(x, d),
            (u % d.view(np.uint32)).view(np.int32), high.view(np.int32), _quotient(x + (d - 1), d),
        ]  # fmt: skip
    return Launch((-(-n // block),), [x, y, out, i32(n)], {"out": Expect(out, np.concatenate(want))})


@draws("amd_division")
def division(rng: np.random.Generator) -> Launch:
    return _division(rng, 7, 256)


@draws("amd_division_641")
def division_641(rng: np.random.Generator) -> Launch:
    return _division(rng, 641, 64)


@draws("amd_transcendental")
def transcendental(rng: np.random.Generator) -> Launch:
    n = 500
    x, out = normal(rng, n) * f32(3), unset(12 * n)
    a = x.astype(np.float64)
    p = (np.abs(x) + f32(0.125)).astype(np.float64)
    want = [
        np.exp2(a), np.log2(p), np.sin(a), np.cos((x * f32(40)).astype(np.float64)), 1 / np.sqrt(p),
        np.vectorize(math.erf)(a),
        np.tanh(a), p**a, a / p, np.sqrt(p), np.trunc(a) + np.rint(a), a / p + 1 / (1 + np.exp(-a)),
    ]  # fmt: skip
    return Launch((2,), [x, out, i32(n)], {"out": Expect(out, np.concatenate(want), 2e-5, 2e-5)})


@draws("amd_doubles")
def doubles(rng: np.random.Generator) -> Launch:
    n = 200
    x, y, out = rng.standard_normal(n) * 4, rng.standard_normal(n) * 4, unset(9 * n, dtype=np.float64)
    want = [
        x / y, np.sqrt(np.abs(x)), np.exp(x), np.log(np.abs(x) + 1), np.sin(x * 3), np.floor(x) + np.ceil(y),
        np.maximum(x, y) - np.minimum(x, y), x * y + x, np.where(x < y, x, y * 0.5),
    ]  # fmt: skip
    return Launch((2,), [x, y, out, i32(n)], {"out": Expect(out, np.concatenate(want), 1e-12, 1e-12)})


@draws("amd_halves")
def halves(rng: np.random.Generator) -> Launch:
    n = 300
    a, b, c, d = (normal(rng, n, dtype=t) for t in (f16, f16, bf16, bf16))
    out, out2 = unset(6 * n, dtype=f16), unset(4 * n, dtype=bf16)
    want = [
        a + b, a * b, np.maximum(a, b), np.minimum(a, -b), np.where(a > b, a - b, abs(b)),
        (a.astype(np.float64) * b + a).astype(f16),
    ]  # fmt: skip
    want2 = [c + d, c * d, np.maximum(c, d), np.where(c <= d, -c, abs(d))]
    return Launch((2,), [a, b, out, c, d, out2, i32(n)], {
        "out": Expect(out, np.concatenate(want)), "out2": Expect(out2, np.concatenate(want2)),
    })  # fmt: skip


@draws("amd_conversions")
def conversions(rng: np.random.Generator) -> Launch:
    n = 300
    x, w = normal(rng, n), _any(rng, n, np.int64)
    out = [unset(c * n, dtype=t) for c, t in (
        (2, np.int8), (2, np.int16), (2, np.int32), (3, np.int64), (4, np.float32), (3, np.float64), (2, f16),
    )]  # fmt: skip
    u, a = w.view(np.uint64), abs(x)
    cut = x.astype(f16)
    beyond = abs(cut.astype(f32)) > a
    cut[beyond] = np.nextafter(cut[beyond], f16(0))
    short = w.astype(np.int16)
    want = [
        [(x * f32(10)).astype(np.int8), (a * f32(20)).astype(np.uint8).view(np.int8)],
        [(x * f32(3000)).astype(np.int16), (a * f32(6000)).astype(np.uint16).view(np.int16)],
        [(x * f32(1e8)).astype(np.int32), (a * f32(3e8)).astype(np.uint32).view(np.int32)],
        [(x * f32(1e17)).astype(np.int64), (a * f32(1e17)).astype(np.int64),
         (x.astype(np.float64) * 1e17).astype(np.int64)],
        [
            w.astype(f32), u.astype(f32), w.astype(np.int8).astype(f32) + w.astype(np.uint8).astype(f32),
            short.astype(f32) - w.astype(np.uint16).astype(f32),
        ],
        [w.astype(np.float64), u.astype(np.float64), w.astype(np.uint32).astype(np.float64)],
        [short.astype(f16), cut],
    ]  # fmt: skip
    pairs = zip(out, want, strict=True)
    return Launch((2,), [x, w, *out, i32(n)], {
        str(o.dtype): Expect(o, np.concatenate(r)) for o, r in pairs
    })  # fmt: skip


@draws("amd_casts_fnuz")
def casts_fnuz(rng: np.random.Generator) -> Launch:
    x = (normal(rng, 256) * f32(2) ** rng.integers(-12, 6, 256)).astype(f32)
    p, q = x.astype(ml_dtypes.float8_e4m3fnuz), x.astype(ml_dtypes.float8_e5m2fnuz)
    out, out2, back, back2 = unset(256, dtype=p.dtype), unset(256, dtype=q.dtype), unset(256), unset(256, dtype=bf16)
    return Launch((1,), [x, out, out2, back, back2], {
        "out": Expect(out, p), "out2": Expect(out2, q), "back": Expect(back, p.astype(f32)),
        "back2": Expect(back2, q.astype(bf16)),
    })  # fmt: skip


@draws("amd_casts_ocp")
def casts_ocp(rng: np.random.Generator) -> Launch:
    x = (normal(rng, 256) * f32(2) ** rng.integers(-12, 6, 256)).astype(f16)
    p, q = x.astype(e4m3), x.astype(e5m2)
    out, out2, back, back2 = unset(256, dtype=e4m3), unset(256, dtype=e5m2), unset(256, dtype=f16), unset(256)
    return Launch((1,), [x, out, out2, back, back2], {
        "out": Expect(out, p), "out2": Expect(out2, q), "back": Expect(back, p.astype(f16)),
        "back2": Expect(back2, q.astype(f32)),
    })  # fmt: skip


def philox_words(seed: int, places: Array) -> list[Array]:
    """The ten rounds of Philox 4x32 (Salmon et al., 2011)."""
    low = np.uint64(0xFFFFFFFF)
    c = [places.astype(np.uint64), *(np.zeros(places.shape, np.uint64) for _ in range(3))]
    k = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(q >> np.uint64(32)) ^ c[1] ^ k[0], q & low, (p >> np.uint64(32)) ^ c[3] ^ k[1], p & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return [v.astype(np.uint32) for v in c]


@draws("amd_philox")
def philox(rng: np.random.Generator) -> Launch:
    seed, n = int(rng.integers(1 << 31)), 512
    words = philox_words(seed, np.arange(n))
    out, out2 = unset(4 * n, dtype=np.int32), unset(2 * n)

    def uniform(v: Array) -> Array:
        signed = v.view(np.int32).astype(np.int64)
        return np.where(signed < 0, -signed - 1, signed) * 4.6566127342e-10

    u, v = np.maximum(uniform(words[0]), 1e-7), uniform(words[1])
    gauss = np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    return Launch((2,), [out, out2, i32(seed), i32(n)], {
        "out": Expect(out, np.stack(words, -1).reshape(-1).view(np.int32)),
        "out2": Expect(out2, np.concatenate([uniform(words[0]), gauss]), 1e-4, 1e-5),
    })  # fmt: skip


@draws("amd_flip_join")
@draws("amd_flip_join_8")
def flip_join(rng: np.random.Generator) -> Launch:
    x, y = _any(rng, 1024, np.int32).reshape(16, 64), normal(rng, 16, 64, dtype=f16)
    out, out2, out3 = unset(2, 16, 64, dtype=np.int32), unset(16, 128, dtype=f16), unset(1536, dtype=np.int32)
    pairs = x.reshape(16, 32, 2)
    cube = x.reshape(16, 8, 8).transpose(2, 0, 1)
    return Launch((1,), [x, y, out, out2, out3], {
        "out": Expect(out, np.stack([x[:, ::-1], x[::-1]])),
        "out2": Expect(out2, np.stack([y, -y], -1).reshape(16, 128)),
        "out3": Expect(out3, np.concatenate([(pairs[..., 0] * 2 - pairs[..., 1]).reshape(-1), cube.reshape(-1)])),
    })  # fmt: skip


def _cube(rng: np.random.Generator, a: int, b: int, c: int) -> Launch:
    x = rng.integers(-40, 40, (a, b, c)).astype(f32)
    out, where, last = unset(b * c + a * c + a * b), unset(b * c + a * c + a * b, dtype=np.int32), unset(1)
    want = [x.sum(0), x.max(1), x.min(2)]
    places = [x.argmax(0), x.argmin(1), x.argmax(2)]
    return Launch((1,), [x, out, where, last], {
        "out": Expect(out, np.concatenate([v.reshape(-1) for v in want])),
        "where": Expect(where, np.concatenate([v.reshape(-1) for v in places])),
        "last": Expect(last, [x.sum()]),
    })  # fmt: skip


@draws("amd_cube_reductions")
def cube(rng: np.random.Generator) -> Launch:
    return _cube(rng, 8, 16, 32)


@draws("amd_cube_reductions_8")
def cube_8(rng: np.random.Generator) -> Launch:
    return _cube(rng, 16, 8, 64)


@draws("amd_cube_reductions_1")
def cube_1(rng: np.random.Generator) -> Launch:
    return _cube(rng, 4, 8, 8)


@draws("amd_custom_reductions")
def custom_reductions(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, (8, 128)).astype(np.int32) | 1
    out, wide, double = unset(32, dtype=np.int32), unset(128, dtype=np.int64), unset(8, dtype=np.float64)
    products = np.multiply.reduce(x, 1, dtype=np.int32)
    w = x.astype(np.int64)
    want = [products, np.bitwise_xor.reduce(x, 1), x.max(1), x.argmax(1)]
    return Launch((1,), [x, out, wide, double], {
        "out": Expect(out, np.concatenate(want)), "wide": Expect(wide, (w * w * 1000003).sum(0)),
        "double": Expect(double, (x / 3.0).max(1), 1e-15),
    })  # fmt: skip


def _scans(rng: np.random.Generator, rows: int, block: int) -> Launch:
    x = rng.integers(-9, 10, (rows, block)).astype(f32)
    out, running, wide = unset(3, rows, block), unset(rows, block, dtype=np.int32), unset(rows, block, dtype=np.int64)
    signs = np.where(x > 0, 1.0, -1.0)
    want = [x.cumsum(0), x[:, ::-1].cumsum(1)[:, ::-1], signs.cumprod(1)]
    return Launch((1,), [x, out, running, wide], {
        "out": Expect(out, np.stack(want)),
        "running": Expect(running, np.maximum.accumulate(x[::-1].astype(int), 0)[::-1]),
        "wide": Expect(wide, (x.astype(np.int64) << 33).cumsum(1)),
    })  # fmt: skip


@draws("amd_scans")
def scans(rng: np.random.Generator) -> Launch:
    return _scans(rng, 32, 16)


@draws("amd_scans_8")
def scans_8(rng: np.random.Generator) -> Launch:
    return _scans(rng, 8, 256)


def _sorts(rng: np.random.Generator, rows: int, block: int) -> Launch:
    x, y, z = normal(rng, rows, block), _any(rng, rows * block, np.int64), _any(rng, rows * block, np.int16)
    y, z = y.reshape(rows, block), z.reshape(rows, block)
    out, out2, out3 = unset(rows, block), unset(rows, block, dtype=np.int64), unset(rows, 8, dtype=np.int16)
    return Launch((1,), [x, out, y, out2, z, out3], {
        "out": Expect(out, np.sort(x, 1)[:, ::-1]), "out2": Expect(out2, np.sort(y, 1)),
        "out3": Expect(out3, np.sort(z, 1)[:, : -9 : -1]),
    })  # fmt: skip


@draws("amd_sorts")
def sorts(rng: np.random.Generator) -> Launch:
    return _sorts(rng, 4, 64)


@draws("amd_sorts_8")
def sorts_8(rng: np.random.Generator) -> Launch:
    return _sorts(rng, 1, 1024)


@draws("amd_masked_histogram")
def masked_histogram(rng: np.random.Generator) -> Launch:
    n = 900
    x, out, total = rng.integers(0, 128, n).astype(np.int32), np.zeros(128, np.int32), np.zeros(1, np.int32)
    kept = np.where(x % 3 != 0, x, -1)
    parts = [np.bincount(part[part >= 0], minlength=128) for part in np.split(kept, [256, 512, 768])]
    return Launch((4,), [x, out, total, i32(n)], {
        "out": Expect(out, sum(parts)), "total": Expect(total, [max(p.max() for p in parts)]),
    })  # fmt: skip


@draws("amd_log_sum_exp")
def log_sum_exp(rng: np.random.Generator) -> Launch:
    rows, columns, stride = 5, 1337, 1400
    x = normal(rng, rows, stride, dtype=f16) * f16(4)
    out, entropy = unset(rows), unset(rows)
    v = x[:, :columns].astype(np.float64)
    want = _log_sum_exp(v)
    p = np.exp(v - want[:, None])
    return Launch((rows,), [x, out, entropy, i32(stride), i32(columns)], {
        "out": Expect(out, want, 1e-5, 1e-5), "entropy": Expect(entropy, want - (p * v).sum(1), 1e-4, 1e-4),
    })  # fmt: skip


@draws("amd_group_norm")
def group_norm(rng: np.random.Generator) -> Launch:
    groups, pixels = 3, 200
    x = normal(rng, groups, 8, pixels, dtype=bf16)
    weight, bias, out = normal(rng, groups * 8), normal(rng, groups * 8), unset(groups, 8, pixels, dtype=bf16)
    v = x.astype(np.float64)
    mean, var = v.mean((1, 2), keepdims=True), v.var((1, 2), keepdims=True)
    want = (v - mean) / np.sqrt(var + 1e-5) * weight.reshape(groups, 8, 1) + bias.reshape(groups, 8, 1)
    return Launch((groups,), [x, weight, bias, out, i32(pixels), f32(1e-5)], {"out": Expect(out, want, 1e-2, 1e-2)})


@draws("amd_cross_entropy_fused")
def cross_entropy_fused(rng: np.random.Generator) -> Launch:
    rows, columns, smoothing = 4, 700, 0.1
    x, labels = normal(rng, rows, columns, dtype=bf16), rng.integers(0, columns, rows).astype(np.int32)
    loss, grad = unset(rows), unset(rows, columns, dtype=bf16)
    v = x.astype(np.float64)
    norm = _log_sum_exp(v)
    picked = v[np.arange(rows), labels]
    target = np.full((rows, columns), smoothing / columns)
    target[np.arange(rows), labels] += 1 - smoothing
    return Launch((rows,), [x, labels, loss, grad, i32(columns), f32(smoothing)], {
        "loss": Expect(loss, norm - (1 - smoothing) * picked - smoothing * v.mean(1), 1e-5, 1e-5),
        "grad": Expect(grad, np.exp(v - norm[:, None]) - target, 1e-2, 1e-4),
    })  # fmt: skip


@draws("amd_called_functions")
def called_functions(rng: np.random.Generator) -> Launch:
    x, y, out = (rng.integers(1, 400, 12).astype(np.int32) for _ in range(3))
    first = np.gcd(x, y)
    want = np.where(first > 1, first + np.gcd(x // first, y), first)
    return Launch((12,), [x, y, out], {"out": Expect(out, want)})
