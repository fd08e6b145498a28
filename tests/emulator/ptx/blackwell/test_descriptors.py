"""Instruction and shared-memory descriptors: the fields of known constants, and every rule they can break."""

from __future__ import annotations

import re

import pytest

from tilekit.emulator.ptx.matrix.tcgen05_descriptors import (
    MmaForm,
    OperandLayout,
    SharedDescriptor,
    decode_instruction_descriptor,
    shared_descriptor_problems,
)

F16, PAIR = MmaForm("f16", 1), MmaForm("f16", 2)
MX8, NV4 = MmaForm("mxf8f6f4", 1, 1), MmaForm("mxf4nvf4", 1, 4)


@pytest.mark.parametrize(
    ("form", "bits", "expected"),
    [
        (F16, 0x08400490, (128, 256, "bf16", "bf16", "f32")),
        (PAIR, 0x10400490, (256, 256, "bf16", "bf16", "f32")),
        (F16, 0x08200010, (128, 128, "f16", "f16", "f32")),
        (MmaForm("tf32", 1), 0x08400910, (128, 256, "tf32", "tf32", "f32")),
        (MmaForm("f8f6f4", 2), 0x10400010, (256, 256, "e4m3", "e4m3", "f32")),
        (MmaForm("i8", 1), 0x084004A0, (128, 256, "s8", "s8", "s32")),
        (MX8, 0x08C00000, (128, 256, "e4m3", "e4m3", "f32")),
        (MmaForm("mxf8f6f4", 2, 1), 0x10C00000, (256, 256, "e4m3", "e4m3", "f32")),
        (NV4, 0x08400480, (128, 256, "e2m1", "e2m1", "f32")),
        (MmaForm("mxf4", 2, 2), 0x10C00480, (256, 256, "e2m1", "e2m1", "f32")),
    ],
)
def test_known_constants(form: MmaForm, bits: int, expected: tuple[int, int, str, str, str]) -> None:
    """Descriptors that libraries use decode to what they are used for, without a complaint."""
    shape, problems = decode_instruction_descriptor(form, bits)
    assert (shape.m, shape.n, shape.a_type, shape.b_type, shape.d_type) == expected
    assert problems == ()


def test_scale_ids() -> None:
    """The scale factor ids of A and B lie in bits 30:29 and 5:4."""
    for scale in range(4):
        shape, problems = decode_instruction_descriptor(MX8, 0x08C00000 | scale << 29 | scale << 4)
        assert (shape.a_scale, shape.b_scale, shape.scale_type) == (scale, scale, "ue8m0")
        assert problems == ()


@pytest.mark.parametrize(
    ("form", "bits", "message"),
    [
        (F16, 0x08400490 | 1 << 6, "reserved bits 0x40"),
        (F16, 0x08400490 | 1 << 23, "reserved"),
        (MX8, 0x08C00000 | 1 << 31, "reserved"),
        (F16, 0x08400490 | 1 << 2, "sparsity bit is 1"),
        (MmaForm("f16", 1, sparse=True), 0x08400490, "sparsity bit is 0"),
        (F16, 0x08400490 | 1, "selector"),
        (F16, 0x08400090 | 7 << 10, "format of B = 7"),
        (F16, 0x08400480, "format of D = 0: f16 operands accumulate in f32"),
        (MmaForm("tf32", 1), 0x08400900, "format of D"),
        (F16, 0x08400490 | 1 << 3, "saturate"),
        (MmaForm("i8", 1), 0x084004A0 | 1 << 13, "cannot be negated"),
        (MmaForm("f8f6f4", 1), 0x08400010 | 5 << 7 | 1 << 15, "A is transposed: 4- and 6-bit"),
        (MmaForm("f16", 1, a_in_tensor_memory=True), 0x08400490 | 1 << 15, "A in tensor memory must be K-major"),
        (F16, 0x08400490 | 1 << 30, "only .ws shifts B"),
        (MX8, 0x08400000, "scale type = 0"),
        (MmaForm("mxf4", 1, 2), 0x08C00480 | 1 << 29, "scale factor id of A = 1"),
        (NV4, 0x08400480 | 2 << 4, "scale factor id of B = 2"),
        (F16, 0x06400490, "M = 96: kind::f16 with cta_group::1 takes 64, 128; nearest legal 64"),
        (PAIR, 0x08400490 & ~(63 << 17) | 3 << 17, "N = 24.*nearest legal 16"),
        (F16, 0x08000490, "N = 0"),
        (MmaForm("i8", 1), 0x084004A0 & ~(63 << 17) | 5 << 17, "N = 40"),
        (MmaForm("f16", 1, weight_stationary=True), 0x08400490 & ~(63 << 17) | 16 << 17, ""),
        (MmaForm("f16", 1, weight_stationary=True), 0x08400490 & ~(63 << 17) | 12 << 17, "N = 96.*64, 128, 256"),
        (MX8, 0x04C00000, "M = 64"),
    ],
)
def test_instruction_rules(form: MmaForm, bits: int, message: str) -> None:
    """Each rule that a descriptor breaks is named, with the nearest legal value where there is one."""
    found = "\n".join(decode_instruction_descriptor(form, bits)[1])
    assert bool(found) == bool(message), found
    assert re.search(message, found), found


K_MAJOR, MN_MAJOR = OperandLayout(False, 128), OperandLayout(True, 128, 16)
GOOD = 1 << 46 | 2 << 61 | 64 << 32 | 1 << 16


@pytest.mark.parametrize(
    ("layout", "bits", "message"),
    [
        (K_MAJOR, GOOD, ""),
        (K_MAJOR, GOOD + 2, ""),
        (K_MAJOR, GOOD & ~(7 << 46), r"version\) = 0"),
        (K_MAJOR, GOOD | 1 << 14, "reserved"),
        (K_MAJOR, GOOD | 1 << 55, "reserved"),
        (K_MAJOR, GOOD | 1 << 52, "bit 52"),
        (K_MAJOR, GOOD | 1 << 61, "swizzle = 3"),
        (K_MAJOR, GOOD & ~(0x3FFF << 32) | 65 << 32, "stride byte offset = 1040.*nearest legal 1024"),
        (K_MAJOR, GOOD + 8, "begins inside a 1024-byte"),
        (OperandLayout(False, 64, 4), GOOD & ~(7 << 61) | 6 << 61, "64 bytes along K do not fit its 32-byte span"),
        (MN_MAJOR, GOOD & ~(0x3FFF << 16) | 128 << 16, ""),
        (MN_MAJOR, GOOD, "leading byte offset = 16"),
        (MN_MAJOR, GOOD & ~(7 << 61) | 1 << 61, "for transposed tf32 operands only"),
        (OperandLayout(False, 128), 1 << 46 | 7 << 32, ""),
    ],
)
def test_shared_rules(layout: OperandLayout, bits: int, message: str) -> None:
    """Reserved bits, version, swizzle, offsets and starts that no layout has are named."""
    found = "\n".join(shared_descriptor_problems(layout, bits))
    assert bool(found) == bool(message), found
    assert re.search(message, found), found


def test_transposed_tf32_needs_its_swizzle() -> None:
    """A transposed tf32 operand is only possible with 32-byte atoms."""
    layout = OperandLayout(True, 128, 8, 4)
    found = shared_descriptor_problems(layout, GOOD & ~(0x3FFF << 16) | 128 << 16, tf32=True)
    assert "needs swizzle 1" in found[0]


def test_fields() -> None:
    """Offsets are in bytes after decoding."""
    decoded = SharedDescriptor.decode(GOOD | 0x123 | 5 << 49)
    assert (decoded.start, decoded.leading, decoded.stride) == (0x1230, 16, 1024)
    assert (decoded.version, decoded.base_offset, decoded.swizzle) == (1, 5, "128B")


def legal_columns(form: MmaForm, m: int, b_mn_major: bool) -> set[int]:
    """Every N that the PTX ISA's tables of shapes have (dense and sparse alike), and what transposed bytes leave."""
    wide = 16 * form.group
    if form.weight_stationary:
        columns = {64, 128} if form.sparse else {64, 128, 256}
    elif form.vector:
        columns = set(range(8 * form.group, 257, 8 * form.group))
    elif form.kind == "i8":
        columns = set(range(wide, 257, wide)) | ({8, 24} if form.group == 1 else set())
    else:
        step = 8 if m == 64 else 16
        columns = set(range(step, 257, step))
    narrow = form.kind in ("f8f6f4", "i8", "mxf8f6f4")
    return {n for n in columns if not (b_mn_major and narrow) or n % wide == 0}


@pytest.mark.parametrize("form", [
    F16, PAIR, MmaForm("tf32", 1), MmaForm("f8f6f4", 1), MmaForm("f8f6f4", 2), MmaForm("i8", 1), MmaForm("i8", 2),
    MX8, MmaForm("mxf8f6f4", 2, 1), NV4, MmaForm("mxf4", 2, 2), MmaForm("f16", 1, sparse=True),
    MmaForm("i8", 1, weight_stationary=True), MmaForm("f16", 1, weight_stationary=True, sparse=True),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("transposed", [False, True])
def test_every_shape(form: MmaForm, transposed: bool) -> None:
    """M and N are taken where the tables have them, and nowhere else; what is refused says so of M or N."""
    transposed = transposed and not form.packed  # 4-bit operands have no transposed form.
    rows: tuple[int, ...] = (64, 128) if form.group == 1 else (128, 256)
    if form.weight_stationary:
        rows = (32, 64, 128)
    elif form.vector:
        rows = (128,) if form.group == 1 else (128, 256)
    scaled = 1 << 23 | (0 if form.kind == "mxf8f6f4" else 1 << 7 | 1 << 10)
    same = {"f16": 1 << 4 | 1 << 7 | 1 << 10, "tf32": 1 << 4 | 2 << 7 | 2 << 10, "f8f6f4": 1 << 4,
            "i8": 2 << 4 | 1 << 7 | 1 << 10}  # fmt: skip
    types = same.get(form.kind, scaled)
    for m in range(0, 272, 16):
        columns = legal_columns(form, m, transposed) if m in rows else set()
        for n in range(0, 272, 8):
            bits = types | form.sparse << 2 | transposed << 16 | n // 8 << 17 | m // 16 << 24
            problems = decode_instruction_descriptor(form, bits)[1]
            assert (not problems) == (n in columns), (m, n, problems)
            assert all(problem.startswith(("M = ", "N = ")) for problem in problems)
