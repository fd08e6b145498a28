"""Conversions of narrow formats, f32 arithmetic on halves, 8-bit registers, and 128-bit ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tilekit.emulator import Device

VALUES = np.array(
    [0, -0.0, 0.24, 0.25, 0.26, 0.5, 0.75, -0.75, 1, 1.25, -1.75, 2.5, 3, 3.5, 5, -5, 6, 7, 100, -1000, 0.1, 27, 28.5,
     1e-3, 1e30, np.inf, -np.inf, np.nan, 2**-130, 2.0**127, 1.5 * 2**-10, 0.0625],
    np.float32,
)  # fmt: skip
TYPES = {
    "e2m1": (ml_dtypes.float4_e2m1fn, 4, 6.0),
    "e2m3": (ml_dtypes.float6_e2m3fn, 8, 7.5),
    "e3m2": (ml_dtypes.float6_e3m2fn, 8, 28.0),
}


def run(body: str, a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> npt.NDArray[np.uint32]:
    """Run a body in each of 32 lanes: %f0 and %f1 hold its values, %r0 is stored."""
    source = f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry probe(.param .u64 a, .param .u64 b, .param .u64 out)
{{
  .reg .b8 %b<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<16>; .reg .b128 %q<4>;
  mov.u32 %r9, %tid.x;
  mul.wide.u32 %rd9, %r9, 4;
  ld.param.u64 %rd1, [a]; add.s64 %rd1, %rd1, %rd9; ld.global.b32 %f0, [%rd1];
  ld.param.u64 %rd2, [b]; add.s64 %rd2, %rd2, %rd9; ld.global.b32 %f1, [%rd2];
  {body}
  ld.param.u64 %rd3, [out]; add.s64 %rd3, %rd3, %rd9; st.global.b32 [%rd3], %r0;
  ret;
}}
"""
    out = np.zeros(32, np.uint32)
    Device("sm_100a").load(source)["probe"].launch(1, 32, [a, b, out])
    return out


def encoded(values: npt.NDArray[np.float32], kind: str) -> npt.NDArray[np.uint32]:
    """Codes, saturated; NaN becomes the largest value."""
    dtype, _, largest = TYPES[kind]
    clipped = np.clip(np.where(np.isnan(values), largest, values), -largest, largest)
    return clipped.astype(dtype).view(np.uint8).astype(np.uint32)


@pytest.mark.parametrize("kind", ["e2m3", "e3m2"])
def test_to_six_bits(kind: str) -> None:
    """Two f32 become two bytes, the first operand's in the upper one, and back to the same values."""
    other = VALUES[::-1].copy()
    out = run(f"cvt.rn.satfinite.{kind}x2.f32 %h0, %f0, %f1; cvt.u32.u16 %r0, %h0;", VALUES, other)
    np.testing.assert_array_equal(out, encoded(VALUES, kind) << 8 | encoded(other, kind))
    back = run(f"cvt.rn.satfinite.{kind}x2.f32 %h0, %f0, %f1; cvt.rn.f16x2.{kind}x2 %r0, %h0;", VALUES, other)
    halves = back.view(np.float16).reshape(32, 2).astype(np.float32)
    expected = np.stack([encoded(x, kind).astype(np.uint8).view(TYPES[kind][0]) for x in (other, VALUES)], axis=1)
    np.testing.assert_array_equal(halves, expected.astype(np.float32))


def test_to_four_bits() -> None:
    """e2m1 pairs are one byte, of which four make a register."""
    other = VALUES[::-1].copy()
    out = run(
        "cvt.rn.satfinite.e2m1x2.f32 %b0, %f0, %f1; cvt.rn.satfinite.e2m1x2.f32 %b1, %f1, %f0; "
        "mov.b32 %r0, {%b0, %b1, %b1, %b0};",
        VALUES,
        other,
    )
    first = encoded(VALUES, "e2m1") << 4 | encoded(other, "e2m1")
    second = encoded(other, "e2m1") << 4 | encoded(VALUES, "e2m1")
    np.testing.assert_array_equal(out, first | second << 8 | second << 16 | first << 24)


def test_unpack_bytes() -> None:
    """A register comes apart into four 8-bit ones, and an e2m1 pair into two f16."""
    given = np.arange(32, dtype=np.uint32) * 0x01030507
    out = run("mov.b32 %r1, %f0; mov.b32 {%b0, %b1, %b2, %b3}, %r1; cvt.rn.f16x2.e2m1x2 %r0, %b1;", given, given)
    byte = (given >> 8 & 0xFF).astype(np.uint8)
    table = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float16)
    np.testing.assert_array_equal(
        out.view(np.float16).reshape(32, 2), np.stack([table[byte & 15], table[byte >> 4]], axis=1)
    )


@pytest.mark.parametrize(("rounding", "up"), [("rp", True), ("rz", False)])
def test_scale_factors(rounding: str, up: bool) -> None:
    """ue8m0 keeps the exponent of the magnitude, rounded up or down, and converts back to bf16 exactly."""
    values = np.ldexp(np.linspace(1, 1.9, 32).astype(np.float32), np.arange(-16, 16)).astype(np.float32)
    out = run(f"cvt.{rounding}.satfinite.ue8m0x2.f32 %h0, %f0, %f0; cvt.rn.bf16x2.ue8m0x2 %r0, %h0;", values, values)
    power = np.ceil(np.log2(values)) if up else np.floor(np.log2(values))
    expected = np.exp2(power.astype(np.float64)).astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.uint32)
    np.testing.assert_array_equal(out, expected << 16 | expected)


@pytest.mark.parametrize(("line", "expected"), [
    ("add.rn.f32.f16 %f2, %h0, %f1;", lambda a, b: a + b),
    ("sub.rn.f32.f16 %f2, %h0, %f1;", lambda a, b: a - b),
    ("fma.rn.f32.f16 %f2, %h0, %h0, %f1;", lambda a, b: a * a + b),
])  # fmt: skip
def test_mixed_arithmetic(line: str, expected: object) -> None:
    """Halves enter f32 arithmetic without a conversion of their own."""
    a, b = np.linspace(-3, 3, 32).astype(np.float16), np.linspace(5, 6, 32).astype(np.float32)
    out = run(
        f"mov.b32 {{%h0, %h1}}, %f0; {line} mov.b32 %r0, %f2;",
        a.astype(np.float16).view(np.uint16).astype(np.uint32),
        b,
    )
    wide = expected(a.astype(np.float64), b.astype(np.float64))  # type: ignore[operator]
    np.testing.assert_array_equal(out.view(np.float32), wide.astype(np.float32))


def test_wide_registers() -> None:
    """A 128-bit register is packed from two halves, moved, and unpacked."""
    given = np.arange(32, dtype=np.uint32)
    body = (
        "mov.b32 %r1, %f0; cvt.u64.u32 %rd4, %r1; mov.u64 %rd5, 1000; mov.b128 %q0, {%rd5, %rd4}; mov.b128 %q1, %q0; "
        "mov.b128 {%rd6, %rd7}, %q1; add.s64 %rd6, %rd6, %rd7; cvt.u32.u64 %r0, %rd6;"
    )
    np.testing.assert_array_equal(run(body, given, given), given + 1000)
