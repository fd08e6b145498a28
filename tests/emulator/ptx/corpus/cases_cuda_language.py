"""Cases of ``cuda_kernels`` about the language: calls, printf, intrinsics, rounding, the mathematical library."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import ml_dtypes
import numpy as np
from corpus_case import Array, Expect, Launch, case, i32, normal, unset, whole

BOTH = ("sm_80", "sm_90a")
ALL = (*BOTH, "sm_100a")


@case("nvcc/recursion", *ALL)
def recursion(rng: np.random.Generator) -> Launch:
    x, out, areas = rng.integers(0, 9, 64).astype(np.int32), unset(4, 64, dtype=np.int32), unset(64)
    numbers = [0, 1]
    while len(numbers) < 9:
        numbers.append(numbers[-1] + numbers[-2])
    operations = [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: numbers[a & 7] * b]
    i = np.arange(64)
    rows = np.sort((i[:, None] * 7 + np.arange(8) * 5) % 11, 1)
    stacked = [1 + sum(n + j for n in range(1, k + 1) for j in range(n)) for k in range(6)]
    want = [
        [numbers[k % 9] for k in i],
        [operations[v % 3](k, v) for k, v in enumerate(x.tolist())],
        (rows @ 11 ** np.arange(7, -1, -1)).astype(np.int32),
        [k + 7 + stacked[k % 6] for k in i],
    ]
    shapes = np.where(x & 1, 2.0 * i * i, 3.0 + i)
    return Launch((2,), [x, out, areas], {"out": Expect(out, want), "areas": Expect(areas, shapes)}, threads=32)


@case("nvcc/device_printf", *ALL)
def device_printf(rng: np.random.Generator) -> Launch:
    x = whole(rng, 40) * np.float32(0.75)
    lines = [
        "%d of %s: %6.2f %d 0x%04x %c %5.1e|" % (i, "some", x[i], i << 40, i + 10, 97 + i, x[i])  # noqa: UP031
        for i in range(35)
    ]
    return Launch((2,), [x, i32(35)], {}, threads=32, printed=(*lines, "done"))


def _wrapped(value: int, bits: int = 32) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _parts(value: int, count: int, signed: bool) -> list[int]:
    bits = 32 // count
    fields = [value >> bits * n & (1 << bits) - 1 for n in range(count)]
    return [_wrapped(f, bits) for f in fields] if signed else fields


def _packed(parts: list[int]) -> int:
    bits = 32 // len(parts)
    return sum((part % (1 << bits)) << bits * n for n, part in enumerate(parts))


def _by_parts(function: Callable[..., Any], count: int, signed: bool, *values: int) -> int:
    return _packed([int(function(*p)) for p in zip(*(_parts(v, count, signed) for v in values), strict=True)])


def _clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


@case("nvcc/simd_intrinsics", *BOTH)
def simd_intrinsics(rng: np.random.Generator) -> Launch:
    x, y = (rng.integers(0, 2**32, 64, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    out = unset(36, 64, dtype=np.uint32)
    columns, wide = [], []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        sa, sb = _wrapped(a), _wrapped(b)
        each = _by_parts
        both = b << 32 | a
        places = [n for n in range(3, 32) if a >> n & 1]
        mean = lambda p, q: (p + q + 1) >> 1  # noqa: E731
        columns.append([
            each(lambda p, q: p + q, 4, False, a, b),
            each(lambda p, q: _clamp(p + q, -(2**15), 2**15 - 1), 2, True, a, b),
            each(lambda p, q: max(p - q, 0), 4, False, a, b),
            each(lambda p, q: abs(p - q), 4, False, a, b),
            each(lambda p, q: abs(p - q), 2, True, a, b),
            each(lambda p, q: (p + q + (p + q >= 0)) >> 1, 4, True, a, b),
            each(mean, 2, False, a, b),
            each(max, 4, False, a, b),
            each(min, 2, True, a, b),
            each(lambda p, q: -(p > q), 4, True, a, b),
            each(lambda p, q: p == q, 4, False, a, b & 0xFF00FF),
            sum(abs(p - q) for p, q in zip(_parts(a, 4, False), _parts(b, 4, False), strict=True)),
            each(lambda p: -p, 2, True, a),
            each(lambda p: min(abs(p), 127), 4, True, a),
            7 + sum(p * q for p, q in zip(_parts(a, 2, True), _parts(b, 4, True)[:2], strict=True)),
            9 + sum(p * q for p, q in zip(_parts(a, 4, False), _parts(b, 4, False), strict=True)),
            both >> 13,
            (both << min(b & 63, 32)) >> 32,
            int.from_bytes(bytes(both.to_bytes(8, "little")[n] for n in (1, 3, 5, 7)), "little"),
            int(f"{a ^ b:032b}"[::-1], 2),
            (a & -a).bit_length() + 32 if a else 0,
            places[3] if len(places) > 3 else -1,
            each(lambda p, q: (p + q) >> 1, 4, False, a, b),
            each(lambda p, q, r: max(_wrapped(p + q, 16), r), 2, True, a, b, 0x00070007),
            each(min, 2, False, a, b, 0x7FFF7FFF),
            max(min(_wrapped(sa + sb), 99), 0),
            abs(a - b) + 3,
            (sa + sb + 1) >> 1,
            (a + b) >> 1,
            (_wrapped(a << 8) >> 8) * (_wrapped(b << 8) >> 8),
        ])  # fmt: skip
        product = ((a << 32 | b) * (b << 32 | a) + (a << 100)) % 2**128
        quotient = product // (b << 20 | 1)
        wide.append([product % 2**64, product >> 64, quotient % 2**64])
    want = np.array([[v % 2**32 for v in column] for column in columns], np.uint32).T
    rest = np.array(wide, np.uint64).view(np.uint32).reshape(6, 64)
    return Launch((1,), [x, y, out, i32(64)], {"out": Expect(out, np.concatenate([want, rest]))}, threads=64)


def _directed(exact: Fraction, direction: str, dtype: type[np.floating[Any]]) -> float:
    """The neighbour of an exact value on one side: ``d`` down, ``u`` up, ``z`` towards zero."""
    up = direction == "u" or (direction == "z" and exact < 0)
    sign = -1 if up else 1  # downwards of the mirror image
    exact, infinity = sign * exact, dtype(np.inf)
    found = dtype(float(exact))
    while Fraction(float(found)) > exact:
        found = np.nextafter(found, -infinity)
    while Fraction(float(following := np.nextafter(found, infinity))) <= exact:
        found = following
    return sign * float(found)


def _root(value: float, direction: str, dtype: type[np.floating[Any]]) -> float:
    """The square root, rounded to one side."""
    digits = Fraction(math.isqrt(int(Fraction(value) * 4**400)), 2**400)  # far more than any format has
    return _directed(digits if digits * digits == Fraction(value) or direction != "u" else digits + Fraction(1, 2**400),
                     direction, dtype)  # fmt: skip


@case("nvcc/rounding_modes", *BOTH)
def rounding_modes(rng: np.random.Generator) -> Launch:
    n = 32
    x, y, u, v = (rng.standard_normal(n) * 3 for _ in range(4))
    u, v = u.astype(np.float32), v.astype(np.float32)
    out, outf = unset(18, n, dtype=np.float64), unset(14, n)
    ints = np.zeros((10, n), np.int64)
    rows, rows_f, rows_i = [], [], []
    for i in range(n):
        a, b = float(x[i]), float(y[i])
        p, q = float(u[i]), float(v[i])
        fa, fb, fp, fq = map(Fraction, (a, b, p, q))
        one, half = np.float64, np.float32
        mantissa, exponent = math.frexp(b)
        rows.append([
            _directed(fa + fb, "d", one), _directed(fa + fb, "u", one), _directed(fa * fb, "z", one),
            _directed(fa / fb, "u", one), _directed(fa * fb + fa, "d", one), _root(abs(a), "u", one),
            _directed(1 / fb, "d", one), float(fa * fb + Fraction(-a * b)), math.fmod(a * 1e5, b),
            math.remainder(a * 100, b), math.ldexp(a, 11), mantissa, math.nextafter(a, b), math.hypot(a, b),
            max(a - b, 0.0), math.copysign(a, b), abs(b) ** -0.5, abs(a) ** b,
        ])  # fmt: skip
        scaled = np.float32(p) * np.float32(50), float(np.float32(q) * np.float32(9))
        whole_part = math.trunc(scaled[1])
        rows_f.append([
            _directed(fp + fq, "d", half), _directed(fp - fq, "u", half), _directed(fp * fq, "z", half),
            _directed(fp / fq, "u", half), _directed(fp * fq + fp, "d", half), _root(abs(p), "z", half),
            _directed(1 / fq, "u", half), _directed(fa, "d", half), _directed(Fraction(int(a * 1e12)), "u", half),
            _directed(Fraction(3000000001 + i), "z", half), float(np.rint(scaled[0])), scaled[1] - whole_part,
            p / 128, whole_part,
        ])  # fmt: skip
        bits = np.float64([a, b]).view(np.int64).tolist()
        rows_i.append([
            math.floor(a * 1e15), math.ceil(a * 1e15), int(abs(b) * 1e18),
            round(float(np.float32(p) * np.float32(100))),
            min(math.ceil(float(abs(np.float32(q)) * np.float32(1e9))), 2**32 - 1), bits[0], bits[1] >> 32,
            exponent - 1, round(a * 1001), exponent % 2**32,
        ])  # fmt: skip
    expect = {
        "out": Expect(out, np.array(rows).T, 4e-16),
        "outf": Expect(outf, np.array(rows_f).T),
        "ints": Expect(ints, np.array(rows_i, dtype=np.int64).T),
    }
    return Launch((1,), [x, y, out, u, v, outf, ints, i32(n)], expect, threads=n)


def _bessel(order: int, x: float) -> float:
    """J of an order, by the integral over a period, of which the trapezoid rule is exact to the last digits."""
    angles = np.arange(200) * 2 * np.pi / 200
    return float(np.mean(np.cos(order * angles - x * np.sin(angles))))


def _inverse_of_erf(y: float) -> float:
    x = 0.0
    for _ in range(50):
        x -= (math.erf(x) - y) * math.sqrt(math.pi) / 2 * math.exp(x * x)
    return x


@case("nvcc/special_functions", "sm_90a")
def special_functions(rng: np.random.Generator) -> Launch:
    n = 32
    x = rng.uniform(-3, 3, n).astype(np.float32).astype(np.float64)
    out, outf = unset(19, n, dtype=np.float64), unset(20, n)
    rows, rows_f = [], []
    spread = NormalDist()
    for a in x.tolist():
        i0 = float(np.mean(np.exp(a * np.cos(np.arange(200) * np.pi / 100))))
        rows.append([
            math.erfc(a), _inverse_of_erf(a / 8), math.gamma(abs(a) + 0.3), _bessel(0, a * 3), _bessel(1, a * 2), i0,
            math.erfc(-a / math.sqrt(2)) / 2, spread.inv_cdf(0.5 + a / 20), math.sin(math.pi * a),
            math.cos(math.pi * a), math.expm1(a), 10.0**a, math.log2(abs(a) + 1), math.asinh(a),
            math.acosh(abs(a) + 1), math.atanh(a / 8), math.copysign(abs(a) ** (1 / 3), a),
            math.copysign(abs(a) ** (-1 / 3), a), math.exp(a * a) * math.erfc(abs(a)),
        ])  # fmt: skip
        rows_f.append([
            math.erfc(a), math.gamma(abs(a) + float(np.float32(0.3))), _bessel(1, a * 3),
            math.erfc(-a / math.sqrt(2)) / 2, math.sin(math.pi * a), math.expm1(a), 10.0**a, math.asinh(a),
            math.atanh(a / 8), math.acos(a / 8), math.tan(a), math.sinh(a), abs(a) ** 1.5, math.sin(a), math.exp(a),
            math.log(abs(a) + 1), a / float(np.float32(3.7)), _clamp_unit(a), 1 / math.hypot(a, 2),
            math.sqrt(a * a + 5),
        ])  # fmt: skip
    expect = {"out": Expect(out, np.array(rows).T, 2e-13, 1e-13), "outf": Expect(outf, np.array(rows_f).T, 3e-6, 2e-6)}
    return Launch((1,), [x, out, outf, i32(n)], expect, threads=n)


def _clamp_unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


@case("nvcc/stencil", *BOTH)
def stencil(rng: np.random.Generator) -> Launch:
    nz, ny, nx = 5, 10, 40
    x, y = whole(rng, nz, ny, nx), unset(nz, ny, nx)
    padded: Array = np.pad(x, 1)
    around = sum(np.roll(padded, shift, axis) for shift in (1, -1) for axis in range(3))
    want = (6 * padded - around)[1:-1, 1:-1, 1:-1]
    args = [x, y, i32(nx), i32(ny), i32(nz)]
    return Launch((2, 3), args, {"y": Expect(y, want)}, threads=(32, 4))


@case("nvcc/narrow_formats", "sm_80", "sm_100a")
def narrow_formats(rng: np.random.Generator) -> Launch:
    n = 64
    x = normal(rng, 2 * n) * np.float32(2.0) ** rng.integers(-6, 6, 2 * n).astype(np.float32)
    codes, back = unset(8 * n, dtype=np.uint8), unset(3, 2 * n)
    values = [np.clip(x, -most, most).astype(kind) for most, kind in (
        (6, ml_dtypes.float4_e2m1fn), (7.5, ml_dtypes.float6_e2m3fn), (28, ml_dtypes.float6_e3m2fn))]  # fmt: skip
    four, *six = (value.view(np.uint8).reshape(n, 2) for value in values)
    scales = np.ceil(np.log2(abs(x).astype(np.float64))).astype(int) + 127
    pairs = [code[:, 0] | code[:, 1].astype(np.uint16) << 8 for code in (*six, scales.reshape(n, 2).astype(np.uint16))]
    want = np.concatenate([four[:, 0] & 15 | four[:, 1] << 4, np.full(n, 0xFF), *(p.view(np.uint8) for p in pairs)])
    expect = {
        "codes": Expect(codes, want),
        "back": Expect(back, np.stack([value.astype(np.float32) for value in values])),
    }
    return Launch((1,), [x, codes, back, i32(n)], expect, threads=n)
