"""How tcgen05.mma rounds, where it is asked for: against the published rules, in whole numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from operands import descriptor, offset, place
from tensor_kernel import IMAGE_BASE, text

from tilekit.emulator import Device, LaunchError
from tilekit.emulator.core.arithmetic.formats import decode, encode
from tilekit.emulator.ptx.matrix.tcgen05 import accumulate
from tilekit.emulator.ptx.matrix.tcgen05_descriptors import MmaForm, MmaShape

LEAST = {"f32": -126, "bf16": -126, "tf32": -126, "f16": -14, "e5m2": -14, "e4m3": -6, "e3m2": -2, "e2m3": 0, "e2m1": 0}
"""Exponents of the smallest normal numbers."""

Array = np.ndarray


def shape(a: str, b: str, d: str = "f32", negate: bool = False) -> MmaShape:
    """An instruction of some types."""
    return MmaShape(64, 8, a, b, d, negate, False, False, False, False, "", 0, 0, 0, 0)


def exponent(value: Fraction, kind: str) -> int:
    """The exponent a value counts with: a zero's and a subnormal's are the smallest."""
    if not value:
        return -126
    found = 0
    while abs(value) >= Fraction(2) ** (found + 1):
        found += 1
    while abs(value) < Fraction(2) ** found:
        found -= 1
    return max(found, LEAST[kind])


def cut(value: Fraction, unit: Fraction) -> Fraction:
    """Towards zero, to a multiple of `unit`."""
    return int(value / unit) * unit


def dot(a: Array, b: Array, c: float, a_type: str, b_type: str) -> Fraction:
    """One instruction's sum (MMA-Sim, arXiv 2511.10909): all terms cut off 25 bits below the largest exponent."""
    pairs = [(Fraction(float(x)), Fraction(float(y))) for x, y in zip(a, b, strict=True)]
    start = Fraction(float(c))
    largest = max([exponent(x, a_type) + exponent(y, b_type) for x, y in pairs] + [exponent(start, "f32")])
    unit = Fraction(2) ** (largest - 25)
    return sum((cut(x * y, unit) for x, y in pairs), Fraction(0)) + cut(start, unit)


def f32(value: Fraction) -> np.float32:
    """Cut off to f32."""
    return np.float32(float(cut(value, Fraction(2) ** (exponent(value, "f32") - 23)))) if value else np.float32(0)


def draw(kind: str, count: tuple[int, int], seed: int, spread: float) -> Array:
    """Values of a type whose magnitudes differ by powers of two, some of them zero."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(count) * 2.0 ** rng.uniform(-spread, spread, count) * (rng.random(count) > 0.1)
    wide = values.astype(np.float32)
    if kind == "tf32":
        return (wide.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return decode(encode(np.clip(wide, -6, 6) if kind[:2] in ("e2", "e3") else wide, kind), kind)


@pytest.mark.parametrize(
    ("kind", "a_type", "b_type", "d_type", "spread"),
    [
        ("f16", "f16", "f16", "f32", 6),
        ("f16", "f16", "f16", "f16", 3),
        ("f16", "bf16", "bf16", "f32", 12),
        ("tf32", "tf32", "tf32", "f32", 12),
        ("f8f6f4", "e4m3", "e5m2", "f32", 4),
        ("f8f6f4", "e5m2", "e4m3", "f16", 2),
        ("f8f6f4", "e2m1", "e3m2", "f32", 1),
    ],
)
def test_every_bit(kind: str, a_type: str, b_type: str, d_type: str, spread: float) -> None:
    """Two instructions onto an accumulator: every term is cut off where the rules say, and each result again."""
    form = MmaForm(kind, 1)
    a, b = draw(a_type, (4, 2 * form.k), 1, spread), draw(b_type, (3, 2 * form.k), 2, spread)
    before = draw(d_type if d_type == "f16" else "bf16", (4, 3), 3, spread)
    cells = before.view(np.uint32) if d_type == "f32" else encode(before, "f16").astype(np.uint32) | 0xFFFF0000
    got = accumulate(form, shape(a_type, b_type, d_type), a, b, cells, 0, exact=True)
    want = np.zeros_like(got)
    for row in range(4):
        for column in range(3):
            held: float = before[row, column]
            for first in range(0, 2 * form.k, form.k):
                step = slice(first, first + form.k)
                total = dot(a[row, step], b[column, step], held, a_type, b_type)
                held = f32(total) if d_type == "f32" else float(np.float16(float(total)))
            one = np.float32(held).view(np.uint32) if d_type == "f32" else np.float16(held).view(np.uint16)
            want[row, column] = int(one) | (0 if d_type == "f32" else 0xFFFF0000)
    np.testing.assert_array_equal(got, want)


def test_it_is_not_what_float32_gives() -> None:
    """A term below the last bit that is kept is lost, in whichever order the terms come."""
    form = MmaForm("f16", 1)
    a, b = np.zeros((1, 16), np.float32), np.ones((1, 16), np.float32)
    a[0, :9] = [1.0, *[2.0**-26] * 8]
    plain, exact = (accumulate(form, shape("bf16", "bf16"), a, b, None, 0, exact=e).view(np.float32) for e in (0, 1))
    assert exact[0, 0] == 1.0
    assert plain[0, 0] in (1.0, np.float32(1.0) + np.float32(2.0**-23))
    a[0, 1:9] = 2.0**-25
    assert accumulate(form, shape("bf16", "bf16"), a, b, None, 0, exact=True).view(np.float32)[0, 0] == 1 + 2.0**-22


def test_exact_sums_and_infinities() -> None:
    """Where every partial sum is exact both ways agree; what overflows or is no number is so in both."""
    form, rng = MmaForm("f16", 1), np.random.default_rng(4)
    a, b = (rng.integers(-8, 9, (7, 48)).astype(np.float32) for _ in range(2))
    one, other = (accumulate(form, shape("bf16", "bf16"), a, b, None, 0, exact=e) for e in (False, True))
    np.testing.assert_array_equal(one, other)
    a[0, 0], a[1, 1], b[0, 1] = np.inf, np.nan, 3.0e38
    for way in (False, True):
        with np.errstate(all="ignore"):
            cells = accumulate(form, shape("bf16", "bf16"), a, b, None, 0, exact=way)
        assert np.isinf(cells.view(np.float32)[0, 1]) or np.isnan(cells.view(np.float32)[0, 1])
        assert (cells[1] == 0x7FFFFFFF).all()


def test_negated_and_scaled_accumulators() -> None:
    """A negated factor changes the sign alone, and the accumulator is divided before it is cut off."""
    form = MmaForm("f16", 1)
    a, b = draw("bf16", (4, 16), 5, 3), draw("bf16", (4, 16), 6, 3)
    plain = accumulate(form, shape("bf16", "bf16"), a, b, None, 0, exact=True).view(np.float32)
    negated = accumulate(form, shape("bf16", "bf16", negate=True), a, b, None, 0, exact=True).view(np.float32)
    np.testing.assert_array_equal(negated, -plain)
    eight = np.full((4, 4), 8.0, np.float32)
    divided = accumulate(form, shape("bf16", "bf16"), a, b, eight.view(np.uint32), 3, exact=True)
    one = accumulate(form, shape("bf16", "bf16"), a, b, np.ones_like(eight).view(np.uint32), 0, exact=True)
    np.testing.assert_array_equal(divided, one)


@pytest.mark.parametrize(("target", "known"), [("sm_90a", True), ("sm_100a", True), ("sm_80", False)])
def test_which_devices_round(target: str, known: bool) -> None:
    """Rounding can be asked for where it is known; elsewhere the error says where that is."""
    if known:
        assert Device(target, exact=True).exact
        return
    with pytest.raises(LaunchError, match="the rounding known is that of sm_90a, and of tcgen05 on sm_100a"):
        Device(target, exact=True)


def test_a_launch_rounds() -> None:
    """A tilted sum through a whole kernel: what lies 26 bits below the largest term is lost with exact, else kept."""
    results = []
    for exact in (False, True):
        image = np.zeros(8192, np.uint8)
        a = np.zeros((128, 16), np.float32)
        a[:, 0], a[:, 1:5] = 1.0, 2.0**-26
        place(image, IMAGE_BASE, 0, a, "bf16", lambda r, k: offset(r, k * 2, "64B", 0, 512), "64B")
        ones = np.ones((128, 16), np.float32)
        other = 8192
        image = np.concatenate([image, np.zeros(8192, np.uint8)])
        place(image, IMAGE_BASE, other, ones, "bf16", lambda r, k: offset(r, k * 2, "64B", 0, 512), "64B")
        body = (
            "  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;\n"
            f"  mov.u64 %da, {descriptor(0, '64B', 16, 512):#x}; add.s64 %da, %da, %wide;\n"
            f"  mov.u64 %db, {descriptor(other, '64B', 16, 512):#x}; add.s64 %db, %db, %wide;\n"
            f"  tcgen05.mma.cta_group::1.kind::f16 [%tm], %da, %db, {1 << 4 | 9 << 7 | 4 << 17 | 8 << 24:#x}, 0;"
        )
        kernel = Device("sm_100a", exact=exact).load(text(body, columns=32))["probe"]
        out = np.zeros((1, 128, 32), np.uint32)
        kernel.launch(1, 128, [image[None], np.zeros((1, 128, 32), np.uint32), out, np.uint32(len(image))],
                      cluster=(1, 1, 1), shared_bytes=1024 + len(image))  # fmt: skip
        results.append(out.view(np.float32))
    assert (results[1] == 1.0).all()
    assert results[0].max() <= 1.0 + 2.0**-23
