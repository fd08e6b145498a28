"""Matrix products as gfx942 rounds them, against the published rules written out with exact fractions, dot by dot."""

from __future__ import annotations

from fractions import Fraction
from math import floor, trunc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from programs import program

from tilekit.emulator import Device, LaunchError

Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "xf32": np.float32, "f32": np.float32, "f64": np.float64,
    "fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
LOWEST = {"f16": -14, "bf16": -126, "xf32": -126, "fp8": -7, "bf8": -15, "c": -126}
"""Exponents of the smallest normal numbers: bias 15, 127, 127, 8 and 16."""
CASES = [
    ("32x32x8_f16", "f16", "f16", 32, 8), ("16x16x16_f16", "f16", "f16", 16, 16),
    ("16x16x16_bf16", "bf16", "bf16", 16, 16), ("32x32x8_bf16", "bf16", "bf16", 32, 8),
    ("16x16x8_xf32", "xf32", "xf32", 16, 8), ("32x32x4_xf32", "xf32", "xf32", 32, 4),
    ("16x16x32_fp8_bf8", "fp8", "bf8", 16, 32), ("32x32x16_bf8_fp8", "bf8", "fp8", 32, 16),
    ("16x16x32_fp8_fp8", "fp8", "fp8", 16, 32), ("16x16x4_f32", "f32", "f32", 16, 4),
    ("32x32x2_f32", "f32", "f32", 32, 2),
]  # fmt: skip


def exponent(value: Fraction, lowest: int) -> int:
    """Of the significand in [1, 2); that of the smallest normal number below it."""
    if value == 0:
        return lowest
    size, found = abs(value), 0
    found = size.numerator.bit_length() - size.denominator.bit_length()
    found -= size < Fraction(2) ** found
    return max(found, lowest)


def cut(value: Fraction, top: int, bits: int, how: Any) -> Fraction:
    """A value in units of 2 ** (top - bits), cut off."""
    unit = Fraction(2) ** (top - bits)
    return how(value / unit) * unit


def nearest(value: Fraction) -> np.float32:
    """Rounded to float32, ties to even."""
    if value == 0:
        return np.float32(0)
    unit = Fraction(2) ** (exponent(value, -126) - 23)
    return np.float32(float(round(value / unit) * unit))  # round() of a fraction goes to even


def partial(pairs: list[tuple[Fraction, Fraction]], kinds: tuple[str, str]) -> tuple[Fraction, int]:
    """A sum of products cut off 24 bits below the largest exponent, and that exponent."""
    tops = [exponent(a, LOWEST[kinds[0]]) + exponent(b, LOWEST[kinds[1]]) if a * b else -126 for a, b in pairs]
    top = max(tops)
    return sum((cut(a * b, top, 24, trunc) for a, b in pairs), Fraction(0)), top


def dot(a: list[Fraction], b: list[Fraction], c: np.float32, kinds: tuple[str, str]) -> np.float32:
    """One number of the result, by the rules' words."""
    if kinds[0] == "f32":
        for x, y in zip(a, b, strict=True):
            c = nearest(x * y + Fraction(float(c)))
        return c
    octets = kinds[0] in ("fp8", "bf8")
    size = 16 if octets else 4 if kinds[0] == "xf32" else 8
    for start in range(0, len(a), size):
        pairs = list(zip(a[start : start + size], b[start : start + size], strict=True))
        if octets:
            (even, e), (odd, o) = partial(pairs[::2], kinds), partial(pairs[1::2], kinds)
            top = max(e, o)
            total = cut(even, top, 24, floor) + cut(odd, top, 24, floor)
        else:
            total, top = partial(pairs, kinds)
        old = Fraction(float(c))
        larger = max(top, exponent(old, -126))
        added = cut(old, larger, 24, floor)
        if octets and exponent(old, -126) < larger - 25:
            added = Fraction(0)
        c = nearest(cut(total, larger, 31, floor) + added)
    return c


def drawn(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    """Numbers of very different sizes, subnormal ones and zeros among them, that are finite."""
    kind = TYPES[name]
    spread = {"fp8": 5, "bf8": 10, "f16": 9}.get(name, 18)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread // 2, shape)
    values[rng.random(shape) < 0.1] = 0
    tiny = {"f16": 2.0**-24, "fp8": 2.0**-10, "bf8": 2.0**-17}.get(name)
    if tiny is not None:
        values[rng.random(shape) < 0.1] = 3 * tiny
    result = values.astype(kind)
    if name == "xf32":
        result = (result.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return result


def registers(matrix: Array) -> Array:
    """uint32[registers, 64] of an operand [rows, k]: lanes of one row hold adjacent parts of k."""
    rows, k = matrix.shape
    each = k * rows // 64
    lanes = [matrix[lane % rows, lane // rows * each : (lane // rows + 1) * each] for lane in range(64)]
    return np.ascontiguousarray(np.array(lanes)).view(np.uint32).reshape(64, -1).T


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_rounding(case: tuple[str, str, str, int, int]) -> None:
    """Bit for bit what the rules say, and not what float32 sums give."""
    text, ka, kb, m, k = case
    rng = np.random.default_rng(sum(map(ord, text)))
    a, b = drawn(rng, (m, k), ka), drawn(rng, (m, k), kb)
    count = m * m // 64
    c = drawn(rng, (count, 64), "f32")
    ra, rb = registers(a), registers(b)
    memory = np.concatenate([ra, rb, c.view(np.uint32), np.zeros((count, 64), np.uint32)])
    va, vb, vc = 8, 16, 24
    loads, place = [], 0
    for first, number in ((va, len(ra)), (vb, len(rb)), (vc, count)):
        for r in range(number):
            loads.append(
                f"s_add_u32 s6, s2, {256 * place}\ns_addc_u32 s7, s3, 0\nglobal_load_dword v{first + r}, v1, s[6:7]"
            )
            place += 1
    stores = [
        f"s_add_u32 s6, s2, {256 * (place + r)}\ns_addc_u32 s7, s3, 0\nglobal_store_dword v1, v{vc + r}, s[6:7]"
        for r in range(count)
    ]

    def rows(first: int, number: int) -> str:
        return f"v{first}" if number == 1 else f"v[{first}:{first + number - 1}]"

    joined = "\n".join
    body = f"""v_lshlrev_b32_e32 v1, 2, v0
        {joined(loads)}
        s_waitcnt vmcnt(0)
        v_mfma_f32_{text} {rows(vc, count)}, {rows(va, len(ra))}, {rows(vb, len(rb))}, {rows(vc, count)}
        s_nop 15
        s_nop 7
        {joined(stores)}"""
    for exact in (True, False):
        out = memory.copy()
        device = Device("gfx942", exact=exact)
        assert device.load(program(body, "gfx942"))["k"].launch(1, 64, [out]).clean
        found = out[-count:].view(np.float32)
        wanted = np.empty((count, 64), np.float32)
        exacts = [[[Fraction(float(x)) for x in row] for row in matrix] for matrix in (a, b)]
        for lane in range(64):
            for r in range(count):
                i = 4 * (lane // 16) + r if m == 16 else 8 * (r // 4) + 4 * (lane // 32) + r % 4
                wanted[r, lane] = dot(exacts[0][i], exacts[1][lane % m], c[r, lane], (ka, kb))
        if exact:
            assert (found == wanted).all()
        else:  # equal to rounding
            assert np.isclose(found, wanted, rtol=1e-4, atol=1e-3 * np.abs(wanted).max()).all()


def test_doubles() -> None:
    """Doubles are multiplied and added in one step each, along k."""
    rng = np.random.default_rng(64)
    a, b = (rng.standard_normal((16, 4)) * 2.0 ** rng.integers(-30, 30, (16, 4)) for _ in range(2))
    c = rng.standard_normal((64, 4))
    lanes = np.array([[a[lane % 16, lane // 16], b[lane % 16, lane // 16], *c[lane]] for lane in range(64)])
    memory = np.concatenate([lanes.ravel(), np.zeros(256)])
    body = """v_mul_u32_u24_e32 v1, 48, v0
        v_lshlrev_b32_e32 v2, 5, v0
        global_load_dwordx4 v[4:7], v1, s[2:3]
        global_load_dwordx4 v[8:11], v1, s[2:3] offset:16
        global_load_dwordx4 v[12:15], v1, s[2:3] offset:32
        s_add_u32 s2, s2, 0xc00
        s_addc_u32 s3, s3, 0
        s_waitcnt vmcnt(0)
        v_mfma_f64_16x16x4_f64 v[8:15], v[4:5], v[6:7], v[8:15]
        s_nop 15
        s_nop 7
        global_store_dwordx4 v2, v[8:11], s[2:3]
        global_store_dwordx4 v2, v[12:15], s[2:3] offset:16"""
    assert Device("gfx942", exact=True).load(program(body, "gfx942"))["k"].launch(1, 64, [memory]).clean
    found = memory[-256:].reshape(64, 4)
    for lane in range(64):
        for r in range(4):
            total = c[lane, r]
            for k in range(4):  # a float made of a fraction is the nearest one, ties to even
                exact = Fraction(a[lane // 16 + 4 * r, k]) * Fraction(b[lane % 16, k]) + Fraction(total)
                total = float(exact)
            assert found[lane, r] == total


def test_subnormal_results_are_kept() -> None:
    """Products of subnormal halves, and a subnormal accumulator, come through, with `exact` and without."""
    body = """v_mov_b32_e32 v4, 0x10001
        v_mov_b32_e32 v5, 0
        v_mov_b32_e32 v8, 3
        s_nop 1
        v_mfma_f32_32x32x8_f16 a[0:15], v[4:5], v[4:5], 0
        v_mfma_f32_16x16x4_f32 v[8:11], v5, v5, v[8:11]
        s_nop 15
        s_nop 3
        v_accvgpr_read_b32 v2, a0
        v_mov_b32_e32 v3, v8
        v_lshlrev_b32_e32 v1, 2, v0
        global_store_dword v1, v2, s[2:3]
        global_store_dword v1, v3, s[2:3] offset:256"""
    body = body.replace("v_mov_b32_e32 v8, 3", "\n".join(f"v_mov_b32_e32 v{n}, 3" for n in range(8, 12)))
    for exact in (False, True):
        out = np.zeros(128, np.uint32)
        Device("gfx942", exact=exact).load(program(body, "gfx942"))["k"].launch(1, 64, [out])
        assert (out[:64].view(np.float32) == np.float32(4 * 2.0**-48)).all()
        assert (out[64:] == 3).all()


def test_only_where_it_is_known() -> None:
    """No rounding is published for gfx950, and there are no more compute units than a chip has."""
    with pytest.raises(LaunchError, match="the rounding known is gfx942's"):
        Device("gfx950", exact=True)
    with pytest.raises(LaunchError, match="use multiprocessors=256"):
        Device("gfx950", multiprocessors=300)


def test_few_compute_units() -> None:
    """With one compute unit a workgroup that waits for a later one never ends; with two it does."""
    body = """
        v_mov_b32_e32 v1, 0
        v_mov_b32_e32 v2, 1
        s_cmp_eq_u32 s4, 0
        s_cbranch_scc0 .Lgive
    .Lwait:
        global_load_dword v3, v1, s[2:3] sc1
        s_waitcnt vmcnt(0)
        v_readfirstlane_b32 s6, v3
        s_cmp_eq_u32 s6, 0
        s_cbranch_scc1 .Lwait
        s_endpgm
    .Lgive:
        global_atomic_add v1, v2, s[2:3] sc1
    """
    text = program(body, "gfx950").replace("s_load_dwordx2", "s_mov_b32 s4, s2\n  s_load_dwordx2")
    kernels = [Device("gfx950", multiprocessors=number).load(text)["k"] for number in (1, 2)]
    with pytest.raises(Exception, match="loop in which nothing changes"):
        kernels[0].launch(2, 64, [np.zeros(1, np.uint32)])
    assert kernels[1].launch(2, 64, [np.zeros(1, np.uint32)]).clean
