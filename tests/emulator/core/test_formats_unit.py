"""Floating-point formats against brute force over every value of each format."""

from __future__ import annotations

import bisect
import functools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekit.emulator.core.arithmetic.formats import FORMATS, Format, decode, encode, pack_pair, unpack_pair

SMALL = ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"]
IEEE = ["f16", "bf16", "tf32"]
ROUNDINGS = ["rn", "rna", "rz", "rm", "rp"]


def value_of(bits: int, form: Format) -> float:
    """The value of a pattern, straight from the definition of sign, exponent and mantissa."""
    if form.sign and bits & form.sign:
        return -value_of(bits ^ form.sign, form)
    magnitude = bits >> form.pad
    if form.infinity is not None and bits == form.infinity:
        return math.inf
    if magnitude > form.largest >> form.pad:
        return math.nan
    exponent, fraction = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    if form.name == "ue8m0":
        return math.ldexp(1.0, exponent - form.bias)
    if exponent == 0:
        return math.ldexp(fraction, 1 - form.bias - form.mantissa)
    return math.ldexp((1 << form.mantissa) + fraction, exponent - form.bias - form.mantissa)


@functools.cache
def magnitudes(form: Format) -> list[float]:
    """All finite magnitudes in order."""
    return [value_of(code, form) for code in range(0, form.largest + 1, 1 << form.pad)]


def rounded(x: float, form: Format, rounding: str, saturate: bool) -> int:
    """The bits of x by searching the format's finite magnitudes: slow and obvious."""
    if math.isnan(x):
        return form.largest if form.nan is None else form.nan
    sign = form.sign if math.copysign(1.0, x) < 0 else 0
    step = 1 << form.pad
    largest = form.largest
    overflow = form.infinity if form.infinity is not None else form.nan
    if saturate or overflow is None:
        overflow = largest
    if math.isinf(x):
        return sign | overflow
    target = Fraction(abs(x))
    codes = range(0, largest + 1, step)
    low = bisect.bisect_right(magnitudes(form), abs(x)) - 1
    below = Fraction(value_of(codes[low], form))
    if below == target:
        return sign | codes[low]
    # One virtual value above the largest keeps the tie rule at the overflow threshold.
    top = low == len(codes) - 1
    above = (
        below + (below - Fraction(value_of(codes[low - 1], form))) if top else Fraction(value_of(codes[low + 1], form))
    )
    up = {
        "rz": False,
        "rm": sign != 0,
        "rp": sign == 0,
        "rna": target - below >= above - target,
        "rn": target - below > above - target or (target - below == above - target and low % 2 == 1),
    }[rounding]
    if not up:
        return sign | codes[low]
    return sign | (overflow if top else codes[low + 1])


def edges(form: Format) -> list[float]:
    """Every boundary that matters: values, midpoints, and their neighbours, around each power of two of f32."""
    result = [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan]
    for exponent in range(-150, 129):
        for mantissa in (
            1.0,
            1.0 + 2**-23,
            1.5,
            2.0 - 2**-23,
            1 + 2.0 ** -(form.mantissa + 1),
            1 + 3 * 2.0 ** -(form.mantissa + 1),
        ):
            value = float(np.float32(min(math.ldexp(mantissa, exponent), 3.4028234e38)))
            result += [value, -value, float(np.nextafter(np.float32(value), np.float32(0)))]
    return result


@pytest.mark.parametrize("name", [n for n in FORMATS if n not in ("f32", "tf32")])
def test_decode_follows_the_definition_for_every_pattern(name: str) -> None:
    """Every bit pattern decodes to sign * 2**exponent * mantissa, NaN and infinity included."""
    form = FORMATS[name]
    codes = np.arange(1 << {"e2m1": 4, "e2m3": 6, "e3m2": 6, "f16": 16, "bf16": 16}.get(name, 8)).astype(form.storage)
    expected = np.array([value_of(int(code), form) for code in codes], np.float32)
    np.testing.assert_array_equal(decode(codes, name), expected)
    assert np.array_equal(
        np.signbit(decode(codes, name))[~np.isnan(expected)], np.signbit(expected)[~np.isnan(expected)]
    )


@pytest.mark.parametrize("name", [n for n in FORMATS if n not in ("f32", "tf32", "ue8m0")])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_encode_inverts_decode(name: str, rounding: str) -> None:
    """Every value that a format has is encoded to its own bits under every rounding."""
    form = FORMATS[name]
    codes = np.arange(2 * form.sign, dtype=np.uint32).astype(form.storage)
    values = decode(codes, name)
    kept = np.isfinite(values)
    np.testing.assert_array_equal(encode(values, name, rounding)[kept], codes[kept])


def test_tf32_ignores_the_low_thirteen_bits() -> None:
    """The tensor core reads a tf32 operand as f32 with the low 13 bits cut off."""
    words = np.array([0x3F800000, 0x3F801FFF, 0x3F802000, 0xC0490FDB], np.uint32)
    np.testing.assert_array_equal(decode(words, "tf32").view(np.uint32), words & 0xFFFFE000)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", SMALL + IEEE)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("saturate", [False, True])
def test_encode_rounds_as_defined_at_every_f32_exponent(name: str, rounding: str, saturate: bool) -> None:
    """Rounding, overflow and NaN agree with a search over all values, at the edges of every f32 exponent."""
    form = FORMATS[name]
    inputs = np.array(edges(form)[::5] if name in SMALL else edges(form)[::17], np.float32)
    bits = encode(inputs, name, rounding, saturate=saturate)
    table = {"f16": 5, "bf16": 5, "tf32": 5}.get(name)
    expected = [
        rounded_by_scale(float(x), form, rounding, saturate) if table else rounded(float(x), form, rounding, saturate)
        for x in inputs
    ]
    np.testing.assert_array_equal(bits, np.array(expected, np.uint32).astype(form.storage))


def rounded_by_scale(x: float, form: Format, rounding: str, saturate: bool) -> int:
    """As `rounded`, in exact rational arithmetic: the formats with 2**15 and more magnitudes."""
    if math.isnan(x):
        assert form.nan is not None
        return form.nan
    assert form.infinity is not None
    sign = form.sign if math.copysign(1.0, x) < 0 else 0
    beyond = form.largest if saturate else form.infinity
    if math.isinf(x):
        return sign | beyond
    exponent = 1 - form.bias
    while Fraction(abs(x)) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    scaled = Fraction(abs(x)) / Fraction(2) ** (exponent - form.mantissa)
    whole, rest = scaled.__floor__(), scaled - scaled.__floor__()
    half = Fraction(1, 2)
    up = {
        "rz": False,
        "rm": rest > 0 and sign != 0,
        "rp": rest > 0 and sign == 0,
        "rna": rest >= half,
        "rn": rest > half or (rest == half and whole % 2 == 1),
    }[rounding]
    magnitude = (((exponent + form.bias - 1) << form.mantissa) + whole + up) << form.pad
    if magnitude > form.largest:
        keeps = rounding == "rz" or (rounding == "rm" and not sign) or (rounding == "rp" and sign != 0)
        return sign | (form.largest if keeps else beyond)
    return sign | magnitude


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("f16", np.float16),
        ("bf16", ml_dtypes.bfloat16),
        ("e4m3", ml_dtypes.float8_e4m3fn),
        ("e5m2", ml_dtypes.float8_e5m2),
    ],
)
def test_round_to_nearest_agrees_with_ml_dtypes(name: str, dtype: type) -> None:
    """A million random f32 patterns round as another implementation rounds them."""
    words = np.random.default_rng(1).integers(0, 2**32, 1_000_000, dtype=np.uint32)
    values = words.view(np.float32)
    values = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        expected = values.astype(dtype)
    bits = encode(values, name)
    number = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(bits[number], expected.view(bits.dtype)[number])
    assert np.isnan(decode(bits[~number], name)).all()


@given(st.floats(width=64))
def test_f64_input_is_rounded_once(x: float) -> None:
    """A double is rounded to f32 and f16 directly, in every direction, without passing through another format."""
    for rounding in ROUNDINGS:
        for name in ("f32", "f16"):
            bits = int(encode(np.array([x], np.float64), name, rounding)[0])  # type: ignore[arg-type]
            if math.isnan(x) and name == "f32":
                assert bits & 0x7FC00000 == 0x7FC00000
                continue
            assert bits == rounded_by_scale(x, FORMATS[name], rounding, False)


def test_saturation_and_relu() -> None:
    """satfinite keeps infinities finite, relu clamps negatives to +0 and keeps NaN."""
    x = np.array([np.inf, -np.inf, 1e30, -1e30, np.nan, -1.0, -0.0, 2.0], np.float32)
    assert encode(x, "e4m3", saturate=True).tolist() == [0x7E, 0xFE, 0x7E, 0xFE, 0x7F, 0xB8, 0x80, 0x40]
    assert encode(x, "bf16", saturate=True).tolist() == [
        0x7F7F, 0xFF7F, 0x714A, 0xF14A, 0x7FFF, 0xBF80, 0x8000, 0x4000,
    ]  # fmt: skip
    assert encode(x, "f16", saturate=True).tolist()[:5] == [0x7BFF, 0xFBFF, 0x7BFF, 0xFBFF, 0x7FFF]
    assert encode(x, "bf16", relu=True).tolist() == [0x7F80, 0, 0x714A, 0, 0x7FFF, 0, 0, 0x4000]
    assert encode(x, "e2m1").tolist() == [7, 15, 7, 15, 7, 10, 8, 4]


def test_nan_patterns() -> None:
    """Most conversions make one NaN; f64 to f32 and rna to tf32 keep the payload's upper bits (as on an H200)."""
    nan = np.array([0x7FB1DAEE, 0xFFC6DC3B], np.uint32).view(np.float32)
    assert encode(nan, "tf32").tolist() == [0x7FFFE000] * 2
    assert encode(nan, "tf32", "rna").tolist() == [0x7FB1C000, 0xFFC6C000]
    assert encode(nan, "f16", "rz").tolist() == [0x7FFF] * 2
    assert encode(np.array([0xFFFC68058F8D0B85], np.uint64).view(np.float64), "f32").tolist() == [0xFFE3402C]
    assert decode([0x7C01, 0xFE00], "f16").view(np.uint32).tolist() == [0x7FFFFFFF] * 2
    assert decode([0x7F81, 0xFFC1], "bf16").view(np.uint32).tolist() == [0x7F810000, 0xFFC10000]


def test_flush_to_zero() -> None:
    """ftz replaces f32-subnormal inputs by a zero of their sign, and f32-subnormal results too."""
    tiny = np.array([1e-40, -1e-40, 2.0**-126], np.float32)
    assert encode(tiny, "bf16", ftz=True).tolist() == [0, 0x8000, 0x0080]
    assert encode(tiny, "bf16").tolist()[0] != 0
    below = np.array([2.0**-126 * (1 - 2.0**-30)], np.float64)
    assert encode(below, "f32", "rz", ftz=True).tolist() == [0]
    assert encode(below, "f32", "rp", ftz=True).tolist() == [0x00800000]
    assert encode(below, "f32", "rz").tolist() == [0x007FFFFF]


@pytest.mark.parametrize(
    ("x", "down", "up"),
    [(1.0, 127, 127), (1.5, 127, 128), (-1.5, 127, 128), (0.0, 0, 0), (2.0**-127, 0, 0), (1.5 * 2.0**-127, 0, 1),
     (2.0**-140, 0, 0), (2.0**127, 254, 254), (3.4e38, 254, 255), (math.inf, 255, 255), (math.nan, 255, 255)],
)  # fmt: skip
def test_scale_format(x: float, down: int, up: int) -> None:
    """ue8m0 keeps the power of two of the magnitude, towards zero or up; 255 is NaN and overflow."""
    value = np.array([x], np.float32)
    assert encode(value, "ue8m0", "rz").tolist() == [down]
    assert encode(value, "ue8m0", "rp").tolist() == [up]
    if not math.isnan(x):
        assert encode(value, "ue8m0", "rp", saturate=True).tolist() == [min(up, 254)]


def test_errors_name_the_argument() -> None:
    """An unknown format, or a rounding ue8m0 does not have, is refused by name."""
    with pytest.raises(ValueError, match=r"fmt = 'e9m9'.*e4m3"):
        decode([0], "e9m9")
    with pytest.raises(ValueError, match=r"rounding = 'rn'.*'rz' or 'rp'"):
        encode([1.0], "ue8m0")


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_pairs_round_trip(upper: int, lower: int) -> None:
    """The first source of an x2 conversion lands in the upper half."""
    word = pack_pair(np.uint16(upper), np.uint16(lower), 16)
    assert int(word) == upper << 16 | lower
    assert [int(half) for half in unpack_pair(word, 16)] == [upper, lower]
