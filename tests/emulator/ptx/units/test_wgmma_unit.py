"""wgmma against a reference that looks up every element of every operand by the canonical layouts."""

from __future__ import annotations

import re
from itertools import product

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tilekit.emulator.ptx.matrix.operand_chunks import OperandOutside
from tilekit.emulator.ptx.matrix.wgmma import (
    MatrixDescriptor,
    Wgmma,
    descriptor_problems,
    load_a,
    load_b,
    multiply_accumulate,
    operand_extents,
    registers_a,
)

SPAN = {None: 16, "32B": 32, "64B": 64, "128B": 128}
MODE = {None: 0, "128B": 1, "64B": 2, "32B": 3}
DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
}


def descriptor(start: int, leading: int, stride: int, swizzle: str | None) -> int:
    """Pack a descriptor field by field."""
    return (start & 0x3FFFF) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | MODE[swizzle] << 62


def element_address(bits: int, mn_major: bool, mn: int, k: int, size: int) -> int:
    """The shared address of one element: the canonical layouts, then the XOR on the absolute address."""
    start, leading, stride = (bits & 0x3FFF) * 16, (bits >> 16 & 0x3FFF) * 16, (bits >> 32 & 0x3FFF) * 16
    swizzle = {value: key for key, value in MODE.items()}[bits >> 62 & 3]
    span = SPAN[swizzle]
    if swizzle is None:
        if mn_major:
            linear = start + mn // 8 * stride + k // 8 * leading + k % 8 * 16 + mn % 8 * size
        else:
            linear = start + mn // 8 * stride + mn % 8 * 16 + k * size // 16 * leading + k * size % 16
        return linear
    if mn_major:
        per = span // size
        linear = start + mn // per * leading + k // 8 * stride + k % 8 * span + mn % per * size
    else:
        linear = start + mn // 8 * stride + mn % 8 * span + k * size
    mask = {"32B": 1, "64B": 3, "128B": 7}[swizzle]
    base_offset = bits >> 49 & 7
    return linear ^ ((linear >> 7) - base_offset & mask) << 4


def elements(
    shared: npt.NDArray[np.uint8], bits: int, mn_major: bool, rows: int, dtype: str
) -> npt.NDArray[np.float64]:
    """The [rows, k] operand of one instruction, one element at a time."""
    storage = np.dtype(DTYPES[dtype])
    depth = 32 // storage.itemsize
    result = np.empty((rows, depth))
    for mn, k in product(range(rows), range(depth)):
        address = element_address(bits, mn_major, mn, k, storage.itemsize)
        word = shared[address : address + storage.itemsize].view(storage)[0]
        if dtype == "tf32":
            word = (np.float32(word).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        result[mn, k] = float(word)
    return result


def accumulator(registers: npt.NDArray[np.uint32], d_type: str, n: int) -> npt.NDArray[np.float64]:
    """The accumulator matrix in registers of 32 lanes a warp: row 16w + 8h + g, column 8i + 2t + c."""
    lanes = registers.shape[1]
    result = np.empty((lanes // 2, n))
    for row, column in product(range(lanes // 2), range(n)):
        warp, half, group = row // 16, row // 8 % 2, row % 8
        lane = 32 * warp + 4 * group + column % 8 // 2
        if d_type == "f16":
            word = registers[column // 8 * 2 + half, lane]
            result[row, column] = np.uint16(word >> 16 * (column % 2) & 0xFFFF).view(np.float16)
        else:
            word = registers[column // 8 * 4 + half * 2 + column % 2, lane]
            result[row, column] = word.view(np.float32 if d_type == "f32" else np.int32)
    return result


def shared_memory(dtype: str, seed: int, size: int = 65536) -> npt.NDArray[np.uint8]:
    """Shared memory full of small integers of a type, whose sums of products are exact."""
    values = np.random.default_rng(seed).integers(0 if dtype == "u8" else -4, 5, size)
    return values.astype(np.float32).astype(DTYPES[dtype]).view(np.uint8)[:size]


LAYOUTS = [
    # mn_major, swizzle, leading, stride
    (False, "128B", 16, 1024),
    (False, "64B", 16, 512),
    (False, "32B", 16, 256),
    (False, "128B", 16, 2048),
    (False, None, 128, 256),
    (False, None, 1024, 128),
    (True, "128B", 8192, 1024),
    (True, "64B", 2048, 512),
    (True, "32B", 1024, 256),
    (True, None, 2048, 128),
]


@pytest.mark.parametrize("a_layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("b_layout", LAYOUTS, ids=str)
def test_every_canonical_layout(a_layout: tuple, b_layout: tuple) -> None:
    """Any layout of A with any layout of B gives the product of the elements the layouts name."""
    op = Wgmma(64, "bf16", "bf16", "f32", a_mn_major=a_layout[0], b_mn_major=b_layout[0])
    shared = shared_memory("bf16", 1)
    a_bits = descriptor(2048, a_layout[2], a_layout[3], a_layout[1])
    b_bits = descriptor(32768, b_layout[2], b_layout[3], b_layout[1])
    registers = multiply_accumulate(op, load_a(op, shared, [a_bits]), load_b(op, shared, [b_bits]), None)
    a = elements(shared, a_bits, op.a_mn_major, 64, "bf16")
    b = elements(shared, b_bits, op.b_mn_major, 64, "bf16")
    np.testing.assert_array_equal(accumulator(registers, "f32", 64), a @ b.T)


@pytest.mark.parametrize(
    ("a_type", "b_type", "d_type", "n"),
    [
        ("f16", "f16", "f32", 8), ("f16", "f16", "f16", 24), ("bf16", "bf16", "f32", 256), ("tf32", "tf32", "f32", 40),
        ("e4m3", "e4m3", "f32", 16), ("e4m3", "e5m2", "f16", 32), ("e5m2", "e4m3", "f32", 136), ("s8", "s8", "s32", 32),
        ("s8", "u8", "s32", 48), ("u8", "s8", "s32", 24), ("u8", "u8", "s32", 16),
    ],
)  # fmt: skip
def test_every_type_accumulates_and_negates(a_type: str, b_type: str, d_type: str, n: int) -> None:
    """Each type multiplies exactly, onto accumulators that are already there, with A negated where that exists."""
    integer = d_type == "s32"
    op = Wgmma(n, a_type, b_type, d_type, negate_a=not integer)
    shared = np.concatenate([shared_memory(a_type, 2, 16384), shared_memory(b_type, 3, 49152)])
    a_bits, b_bits = descriptor(1024 + 32, 16, 1024, "128B"), descriptor(16384 + 64, 16, 1024, "128B")
    a, b = elements(shared, a_bits, False, 64, a_type), elements(shared, b_bits, False, n, b_type)
    first = multiply_accumulate(op, load_a(op, shared, [a_bits]), load_b(op, shared, [b_bits]), None)
    assert first.shape == (op.registers, 128)
    second = multiply_accumulate(op, load_a(op, shared, [a_bits]), load_b(op, shared, [b_bits]), first)
    np.testing.assert_array_equal(accumulator(second, d_type, n), 2 * (1 if integer else -1) * (a @ b.T))


@pytest.mark.parametrize("mn_major", [False, True])
@pytest.mark.parametrize("d_type", ["f32", "f16"])
def test_fused_steps_equal_single_steps(mn_major: bool, d_type: str) -> None:
    """Four k-steps taken at once leave the registers that four instructions leave, for a warp's rows too."""
    op = Wgmma(72, "f16", "f16", d_type, a_mn_major=mn_major, b_mn_major=mn_major)
    shared = shared_memory("f16", 4, 131072)
    step = 2048 if mn_major else 32
    a_bits = [descriptor(5120 + step * i, 8192, 1024, "128B") for i in range(4)]
    b_bits = [descriptor(66560 + step * i, 8192, 1024, "128B") for i in range(4)]
    registers = None
    for a_one, b_one in zip(a_bits, b_bits, strict=True):
        registers = multiply_accumulate(op, load_a(op, shared, [a_one]), load_b(op, shared, [b_one]), registers)
    assert registers is not None
    b = load_b(op, shared, b_bits)
    np.testing.assert_array_equal(multiply_accumulate(op, load_a(op, shared, a_bits), b, None), registers)
    for warp in range(4):
        alone = multiply_accumulate(op, load_a(op, shared, a_bits, warp), b, None)
        np.testing.assert_array_equal(alone, registers[:, 32 * warp : 32 * warp + 32])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"])
@pytest.mark.parametrize("lanes", [32, 128])
def test_a_from_registers(dtype: str, lanes: int) -> None:
    """A fragments hold row 16w + 8h + g and bytes 16j + 4t of each k-step in register 2j + h of lane 4g + t."""
    op = Wgmma(16, dtype, dtype, "s32" if dtype in ("s8", "u8") else "f32")
    size = np.dtype(DTYPES[dtype]).itemsize
    shared = shared_memory(dtype, 5, 8192)
    steps = 3
    matrix = shared[: lanes // 2 * 32 * steps].reshape(lanes // 2, 32 * steps)
    registers = np.empty((4 * steps, lanes), np.uint32)
    for step, j, h, lane in product(range(steps), range(2), range(2), range(lanes)):
        row, byte = 16 * (lane // 32) + 8 * h + lane % 32 // 4, 32 * step + 16 * j + 4 * (lane % 4)
        registers[4 * step + 2 * j + h, lane] = matrix[row, byte : byte + 4].view(np.uint32)[0]
    b_bits = [descriptor(4096 + 32 * i, 16, 1024, "128B") for i in range(steps)]
    result = multiply_accumulate(op, registers_a(op, registers), load_b(op, shared, b_bits), None)
    b = np.concatenate([elements(shared, bits, False, 16, dtype) for bits in b_bits], axis=1)
    a = matrix.view(DTYPES[dtype]).astype(np.float64)
    assert a.shape == (lanes // 2, 32 // size * steps)
    np.testing.assert_array_equal(accumulator(result, op.d_type, 16), a @ b.T)


def test_integers_wrap_or_saturate() -> None:
    """s32 sums wrap around, or stay at the limits after every instruction with satfinite."""
    shared = np.full(16384, 255, np.uint8)
    bits = [descriptor(32 * i, 16, 1024, "128B") for i in range(4)]
    start = np.full((8, 128), 2**31 - 5_000_000, np.int64).astype(np.int32).view(np.uint32)
    for saturate, expected in ((False, 2**31 - 5_000_000 + 4 * 32 * 255 * 255 - 2**32), (True, 2**31 - 1)):
        op = Wgmma(16, "u8", "u8", "s32", saturate=saturate)
        result = multiply_accumulate(op, load_a(op, shared, bits), load_b(op, shared, bits), start)
        assert (result.view(np.int32) == expected).all()


def test_integers_are_exact_over_many_steps() -> None:
    """Sums beyond 2**24 stay exact, however many steps are fused."""
    shared = np.random.default_rng(6).integers(200, 256, 65536).astype(np.uint8)
    op = Wgmma(8, "u8", "u8", "s32")
    bits = [descriptor(8192 * (i // 4) + 32 * (i % 4), 16, 1024, "128B") for i in range(24)]
    result = multiply_accumulate(op, load_a(op, shared, bits), load_b(op, shared, bits), None)
    a = np.concatenate([elements(shared, b, False, 64, "u8") for b in bits], axis=1)
    np.testing.assert_array_equal(accumulator(result, "s32", 8), a @ a[:8].T)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("base_offset", [0, 1, 6])
@pytest.mark.parametrize("start", [2048, 2048 + 384, 2048 + 128 + 32])
def test_base_offset_shifts_the_pattern(layout: tuple, start: int, base_offset: int) -> None:
    """Wherever a tile starts, the pattern is that of the absolute address less base-offset rows (as on an H200)."""
    mn_major, swizzle, leading, stride = layout
    op = Wgmma(32, "bf16", "bf16", "f32", b_mn_major=mn_major)
    shared = shared_memory("bf16", 9)
    a_bits = descriptor(32768, 16, 1024, "128B")
    b_bits = descriptor(start, leading, stride, swizzle) | base_offset << 49
    result = multiply_accumulate(op, load_a(op, shared, [a_bits]), load_b(op, shared, [b_bits]), None)
    a, b = elements(shared, a_bits, False, 64, "bf16"), elements(shared, b_bits, mn_major, 32, "bf16")
    np.testing.assert_array_equal(accumulator(result, "f32", 32), a @ b.T)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("operand", ["a", "b"])
def test_extents_are_the_bytes_read(layout: tuple, operand: str) -> None:
    """The runs reported cover exactly the bytes of the operand's elements."""
    mn_major, swizzle, leading, stride = layout
    op = Wgmma(40, "f16", "f16", "f32", a_mn_major=mn_major, b_mn_major=mn_major)
    bits = descriptor(3072, leading, stride, swizzle)
    rows = 64 if operand == "a" else 40
    expected = set()
    for mn, k in product(range(rows), range(16)):
        address = element_address(bits, mn_major, mn, k, 2)
        expected |= {address, address + 1}
    extents = operand_extents(op, operand, [bits])  # type: ignore[arg-type]
    covered = [byte for begin, end in extents for byte in range(begin, end)]
    assert len(covered) == len(set(covered))
    assert set(covered) == expected
    assert (extents[1:, 0] > extents[:-1, 1]).all()


def test_a_later_step_may_lie_lower() -> None:
    """Steps taken together may be those of a ring's last and first stage: both are read where they lie."""
    shared = np.random.default_rng(5).integers(0, 255, 49152, dtype=np.uint8)
    op = Wgmma(64, "f16", "f16", "f32")
    bits = [descriptor(start, 16, 1024, "128B") for start in (0x8400, 0x400)]
    single = np.concatenate([load_b(op, shared, [one]) for one in bits])
    np.testing.assert_array_equal(load_b(op, shared, bits), single)
    lows = operand_extents(op, "b", bits)[:, 0]
    assert (lows.min(), lows.max() >= 0x8400) == (0x400, True)


def test_operands_beyond_shared_memory_are_refused() -> None:
    """An operand that runs past the end of shared memory is refused, not read from the start."""
    op = Wgmma(64, "bf16", "bf16", "f32")
    with pytest.raises(OperandOutside):
        load_b(op, np.zeros(8192, np.uint8), [descriptor(1024, 16, 1024, "128B")])


def test_descriptor_fields() -> None:
    """Every field is decoded from its own bits."""
    bits = descriptor(0x1A40, 0x2000, 0x400, "64B") | 5 << 49 | 1 << 60
    assert MatrixDescriptor.decode(bits) == MatrixDescriptor(0x1A40, 0x2000, 0x400, 5, "64B", 1 << 60)


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        (descriptor(0x1000, 16, 1024, "128B") | 1 << 46, "reserved bits"),
        (descriptor(0x1000, 16, 512, "128B"), r"stride byte offset = 512: .*1024.*nearest legal 1024"),
        (descriptor(0x1000, 16, 0, "64B"), r"stride byte offset = 0: .*nearest legal 512"),
    ],
)
def test_descriptor_problems_are_named(bits: int, message: str) -> None:
    """Each broken field gives one line that names it."""
    problems = descriptor_problems(Wgmma(64, "bf16", "bf16", "f32"), "a", bits)
    assert len(problems) == 1
    assert re.search(message, problems[0])


def test_legal_descriptors_have_no_problems() -> None:
    """The layouts that kernels use are accepted, also part-way into a tile's row, and unused fields do not matter."""
    kmajor, mnmajor = Wgmma(64, "bf16", "bf16", "f32"), Wgmma(64, "bf16", "bf16", "f32", b_mn_major=True)
    for offset in (0, 32, 64, 96):
        assert descriptor_problems(kmajor, "a", descriptor(0x2000 + offset, 0, 1024, "128B")) == []
    assert descriptor_problems(mnmajor, "b", descriptor(0x2000, 0, 1024, "128B")) == []
    assert descriptor_problems(Wgmma(8, "bf16", "bf16", "f32"), "b", descriptor(0x2000, 0, 0, "128B")) == []
    assert descriptor_problems(kmajor, "a", descriptor(0x2010, 128, 256, None)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((12, "bf16", "bf16", "f32"), "n = 12: .*nearest legal 16"),
        ((264, "bf16", "bf16", "f32"), "n = 264: .*nearest legal 256"),
        ((40, "s8", "s8", "s32"), "n = 40: must be a multiple of 16"),
        ((8, "f64", "f64", "f32"), "a_type = 'f64'"),
        ((8, "f16", "bf16", "f32"), "b_type = 'bf16': f16 goes with f16"),
        ((8, "bf16", "bf16", "f16"), "d_type = 'f16': bf16 accumulates in f32"),
        ((8, "e4m3", "e4m3", "f32", True), "must be K-major"),
        ((8, "s8", "s8", "s32", False, False, True), "cannot be negated"),
        ((8, "f16", "f16", "f32", False, False, False, False, True), "saturate"),
    ],
)
def test_illegal_forms_are_refused(arguments: tuple, message: str) -> None:
    """A form that wgmma does not have is refused by the argument that is wrong."""
    with pytest.raises(ValueError, match=message):
        Wgmma(*arguments)
