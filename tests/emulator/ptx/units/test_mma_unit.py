"""mma.sync, ldmatrix and stmatrix against lane-by-lane readings of the PTX fragment tables."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tilekit.emulator.ptx.matrix.matrix_rows import (
    bytes_from_registers,
    bytes_to_registers,
    load_matrices,
    matrices_from_registers,
    matrices_to_registers,
    widened,
)
from tilekit.emulator.ptx.matrix.mma import Mma, multiply_accumulate

DTYPES = {
    "f64": np.float64,
    "tf32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "f32": np.float32,
    "s32": np.int32,
}

FORMS = [
    (8, 4, "f64", "f64", "f64"), (16, 4, "f64", "f64", "f64"), (16, 8, "f64", "f64", "f64"),
    (16, 16, "f64", "f64", "f64"), (16, 4, "tf32", "tf32", "f32"), (16, 8, "tf32", "tf32", "f32"),
    (16, 8, "bf16", "bf16", "f32"), (16, 16, "bf16", "bf16", "f32"), (16, 8, "f16", "f16", "f16"),
    (16, 16, "f16", "f16", "f32"), (16, 16, "f16", "f16", "f16"), (16, 16, "e4m3", "e5m2", "f32"),
    (16, 32, "e4m3", "e4m3", "f32"), (16, 32, "e5m2", "e4m3", "f16"), (8, 16, "s8", "u8", "s32"),
    (16, 16, "u8", "s8", "s32"), (16, 32, "s8", "s8", "s32"), (16, 32, "u8", "u8", "s32"),
]  # fmt: skip


def fragment(matrix: npt.NDArray, where: list[list[list[tuple[int, int]]]]) -> npt.NDArray:
    """Pack registers[r][lane] from the matrix elements that each lists, lowest first."""
    words = [[np.array([matrix[p] for p in places]).tobytes() for places in lanes] for lanes in where]
    width = len(words[0][0])
    flat = np.frombuffer(b"".join(b"".join(lanes) for lanes in words), np.uint64 if width == 8 else np.uint32)
    return flat.reshape(len(where), 32).copy()


def a_places(m: int, k: int, e: int) -> list:
    """PTX's A fragment: registers alternate between rows g and g + 8, then move on by 4e along k."""
    return [
        [[(lane // 4 + 8 * h, 4 * e * j + lane % 4 * e + i) for i in range(e)] for lane in range(32)]
        for j in range(k // (4 * e))
        for h in range(m // 8)
    ]


def b_places(k: int, e: int) -> list:
    """PTX's B fragment, as (k, n)."""
    return [
        [[(4 * e * j + lane % 4 * e + i, lane // 4) for i in range(e)] for lane in range(32)]
        for j in range(k // (4 * e))
    ]


def c_places(m: int, packed: bool) -> list:
    """PTX's C and D fragments: columns 2t and 2t + 1 of rows g and g + 8."""
    pairs = [[0, 1]] if packed else [[0], [1]]
    return [
        [[(lane // 4 + 8 * h, lane % 4 * 2 + p) for p in pair] for lane in range(32)]
        for h in range(m // 8)
        for pair in pairs
    ]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form(form: tuple[int, int, str, str, str]) -> None:
    """Position-coded small integers in PTX's fragments give the exact product in PTX's fragment."""
    m, k, a_type, b_type, c_type = form
    op = Mma(*form)
    random = np.random.default_rng(7)
    low = 0 if "u8" in (a_type, b_type) else -4
    a = random.integers(low, 5, (m, k)).astype(np.float32).astype(DTYPES[a_type])
    b = random.integers(low, 5, (k, 8)).astype(np.float32).astype(DTYPES[b_type])
    c = random.integers(-40, 40, (m, 8)).astype(DTYPES[c_type])
    each = 1 if a_type == "f64" else 4 // a.itemsize
    fragments = fragment(a, a_places(m, k, each)), fragment(b, b_places(k, each))
    accumulators = fragment(c, c_places(m, c_type == "f16"))
    assert (len(fragments[0]), len(fragments[1]), len(accumulators)) == (op.a_registers, op.b_registers, op.c_registers)
    result = multiply_accumulate(op, *fragments, accumulators)
    exact = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    np.testing.assert_array_equal(result, fragment(exact.astype(DTYPES[c_type]), c_places(m, c_type == "f16")))


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_overflow(saturate: bool) -> None:
    """s32 accumulation wraps, or saturates with satfinite."""
    op = Mma(16, 32, "u8", "u8", "s32", saturate=saturate)
    ones = np.full((4, 32), 0xFFFFFFFF, np.uint32)
    result = multiply_accumulate(op, ones, ones[:2], np.full((4, 32), 2**31 - 10, np.uint32)).view(np.int32)
    assert (result == (2**31 - 1 if saturate else 32 * 255 * 255 - 10 - 2**31)).all()


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_and_stmatrix(count: int, transposed: bool) -> None:
    """Lane 4g + t of matrix i holds elements (g, 2t) and (g, 2t + 1), transposed or not; stmatrix inverts it."""
    shared = np.arange(4096, dtype=np.uint16).view(np.uint8)
    addresses = 16 * np.random.default_rng(8).permutation(512)[: 8 * count]
    rows = load_matrices(shared, addresses)
    registers = matrices_to_registers(rows, transposed)
    assert registers.shape == (count, 32)
    for i, lane in product(range(count), range(32)):
        for p in range(2):
            row, column = lane // 4, lane % 4 * 2 + p
            if transposed:
                row, column = column, row
            address = addresses[8 * i + row] + 2 * column
            assert registers[i, lane] >> 16 * p & 0xFFFF == shared[address : address + 2].view(np.uint16)[0]
    np.testing.assert_array_equal(matrices_from_registers(registers, transposed), rows)


def test_ldmatrix_of_bytes() -> None:
    """Lane 4g + t gets column g of four rows of a 16x16 matrix of bytes, and column g + 8 in the next register."""
    rows = np.random.default_rng(9).integers(0, 256, (32, 16), np.uint8)
    registers = bytes_to_registers(rows).view(np.uint8).reshape(4, 32, 4)
    for i, h, lane, b in product(range(2), range(2), range(32), range(4)):
        assert registers[2 * i + h, lane, b] == rows[16 * i + lane % 4 * 4 + b, lane // 4 + 8 * h]


def test_stmatrix_of_bytes() -> None:
    """A fragment of mma's accumulators, as bytes, is stored column by column."""
    matrices = np.random.default_rng(9).integers(0, 256, (2, 16, 8), np.uint8)
    fragments = np.zeros((2, 32, 4), np.uint8)
    for i, lane, h, p in product(range(2), range(32), range(2), range(2)):
        fragments[i, lane, 2 * h + p] = matrices[i, lane // 4 + 8 * h, lane % 4 * 2 + p]
    rows = bytes_from_registers(fragments.view(np.uint32)[..., 0])
    np.testing.assert_array_equal(rows.reshape(2, 8, 16), matrices.transpose(0, 2, 1))


@pytest.mark.parametrize(("source", "bits"), [("b4x16_p64", 4), ("b6x16_p32", 6)])
def test_widening(source: str, bits: int) -> None:
    """Sixteen packed elements become the low bits of sixteen bytes; the padding is ignored."""
    values = np.random.default_rng(9).integers(0, 1 << bits, (3, 16))
    rows = np.full((3, 16), 0xEE, np.uint8)
    for row, packed in zip(values, rows, strict=True):
        whole = sum(int(value) << bits * n for n, value in enumerate(row))
        packed[: 2 * bits] = np.frombuffer(whole.to_bytes(2 * bits, "little"), np.uint8)
    np.testing.assert_array_equal(widened(rows, source), values)


def test_ldmatrix_refuses_misaligned_rows() -> None:
    """A row address that is no multiple of 16 is named with its lane."""
    with pytest.raises(ValueError, match=r"addresses\[2\] = 0x28"):
        load_matrices(np.zeros(256, np.uint8), np.array([0, 16, 40, 48, 64, 80, 96, 112]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((16, 8, "s8", "s8", "s32"), "m, k = 16, 8: the shapes of s8 are m8n8k16, m16n8k16, m16n8k32"),
        ((16, 16, "f16", "bf16", "f32"), "b_type = 'bf16': f16 goes with f16"),
        ((16, 16, "bf16", "bf16", "f16"), "c_type = 'f16': bf16 accumulates in f32"),
        ((16, 16, "f8", "f8", "f32"), "a_type = 'f8'"),
        ((16, 256, "b1", "b1", "s32"), "bitwise = '': b1 has 'xor' or 'and'"),
        ((16, 8, "tf32", "tf32", "f32", False, "", "rz"), "rounding = 'rz': tf32 has 'rn'"),
        ((16, 64, "f16", "f16", "f32", False, "", "rn", True), "the sparse shapes of f16 are m16n8k16, m16n8k32"),
        ((16, 16, "f16", "f16", "f32", True), "saturate"),
    ],
)
def test_illegal_forms_are_refused(arguments: tuple, message: str) -> None:
    """A form that mma.sync does not have is refused by the argument that is wrong."""
    with pytest.raises(ValueError, match=message):
        Mma(*arguments)
