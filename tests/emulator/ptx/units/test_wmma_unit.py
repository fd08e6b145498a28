"""wmma, mma.sp and mma.m8n8k4 of f16: fragments as the manual's formulas and ptxas's addresses have them."""

from __future__ import annotations

from itertools import product as combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilekit.emulator import Device, MemoryFault
from tilekit.emulator.ptx.matrix.mma import Mma, expand, multiply_accumulate
from tilekit.emulator.ptx.matrix.mma_quads import QuadMma, multiply_quads
from tilekit.emulator.ptx.matrix.wmma import Wmma

Array = npt.NDArray[Any]
HEADER = ".version 8.8\n.target sm_80\n.address_size 64\n"
BF16 = np.dtype("V2")


def as_memory(values: Array, dtype: str) -> Array:
    """Small whole numbers as bytes in a type; 4-bit and 1-bit ones packed along rows."""
    if dtype in ("s4", "u4"):
        codes = values.astype(np.int8).view(np.uint8) & 15
        return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    if dtype == "b1":
        return np.packbits(values.astype(np.uint8), axis=1, bitorder="little")
    if dtype == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    kinds = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "f64": np.float64, "s8": np.int8,
             "u8": np.uint8, "s32": np.int32}  # fmt: skip
    return values.astype(kinds[dtype])


def stored(matrix: Array, layout: str, dtype: str, pad: int) -> tuple[Array, int]:
    """A matrix in memory with padded rows (or columns), and its stride in elements."""
    rows = matrix if layout == "row" else matrix.T
    padded = np.zeros((rows.shape[0], rows.shape[1] + pad), rows.dtype)
    padded[:, : rows.shape[1]] = rows
    return as_memory(padded, dtype), padded.shape[1]


def registers(name: str, count: int) -> str:
    """A list of registers."""
    return "{" + ", ".join(f"%{name}{n}" for n in range(count)) + "}"


FORMS = [
    *[(*s, t, t, "f32") for s in ((16, 16, 16), (8, 32, 16), (32, 8, 16)) for t in ("f16", "bf16")],
    *[(*s, "f16", "f16", "f16") for s in ((16, 16, 16), (8, 32, 16), (32, 8, 16))],
    *[(*s, t, t, "s32") for s in ((16, 16, 16), (8, 32, 16), (32, 8, 16)) for t in ("s8", "u8")],
    (16, 16, 8, "tf32", "tf32", "f32"), (8, 8, 4, "f64", "f64", "f64"), (8, 8, 32, "s4", "s4", "s32"),
    (8, 8, 32, "u4", "u4", "s32"), (8, 8, 128, "b1", "b1", "s32"),
]  # fmt: skip


def gemm_text(m: int, n: int, k: int, a: str, c: str, layouts: tuple[str, str, str], strides: Any) -> str:
    """A kernel of one warp: load three fragments, multiply, store."""
    shape, matrices = f"m{m}n{n}k{k}", Wmma(m, n, k, a)
    counts = {name: matrices.registers(name, c) for name in "abcd"}
    wide = "b64" if a == "f64" else "b32"
    kinds = c if a == "f16" else f"{c}.{a}.{a}.{c}"
    kinds = f"{c}.{c}" if a == "f16" else kinds
    bits, tail = (".and.popc", "") if a == "b1" else ("", "")
    rounding = ".rn" if a == "f64" else ""
    return f"""{HEADER}.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)
{{ .reg .b64 %p, %q, %s, %t; .reg .{wide} %a<8>, %b<8>, %c<8>, %d<8>;
  ld.param.u64 %p, [pa]; ld.param.u64 %q, [pb]; ld.param.u64 %s, [pc]; ld.param.u64 %t, [pd];
  wmma.load.a.sync.aligned.{layouts[0]}.{shape}.global.{a} {registers("a", counts["a"])}, [%p], {strides[0]};
  wmma.load.b.sync.aligned.{layouts[1]}.{shape}.global.{a} {registers("b", counts["b"])}, [%q], {strides[1]};
  wmma.load.c.sync.aligned.{layouts[2]}.{shape}.global.{c} {registers("c", counts["c"])}, [%s], {strides[2]};
  wmma.mma{bits}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}{rounding}.{kinds}{tail} {registers("d", counts["d"])},
    {registers("a", counts["a"])}, {registers("b", counts["b"])}, {registers("c", counts["c"])};
  wmma.store.d.sync.aligned.{layouts[2]}.{shape}.global.{c} [%t], {registers("d", counts["d"])}, {strides[2]};
  ret; }}
"""


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_shape_in_every_layout(form: Any, assemble: Any) -> None:
    """Loads, product and store of a warp give the exact product, for every shape, type and order in memory."""
    m, n, k, a_type, b_type, c_type = form
    random = np.random.default_rng(3)
    low, high = {"b1": (0, 2), "u4": (0, 8), "u8": (0, 8)}.get(a_type, (-4, 5))
    a, b = random.integers(low, high, (m, k)), random.integers(low, high, (k, n))
    c = random.integers(-40, 40, (m, n))
    orders = [("row", "col")] if a_type in ("s4", "u4", "b1") else list(combinations(("row", "col"), repeat=2))
    texts = []
    for (order_a, order_b), order_c in combinations(orders, ("row", "col")):
        pads = [{"s4": 32, "u4": 32, "b1": 128, "s8": 16, "u8": 16}.get(t, 8) for t in (a_type, b_type, "f32")]
        (image_a, step_a), (image_b, step_b) = stored(a, order_a, a_type, pads[0]), stored(b, order_b, b_type, pads[1])
        image_c, step_c = stored(c, order_c, c_type, 8)
        text = gemm_text(m, n, k, a_type, c_type, (order_a, order_b, order_c), (step_a, step_b, step_c))
        out = np.zeros_like(image_c)
        Device("sm_80").load(text)["k"].launch(1, 32, [image_a, image_b, image_c, out])
        want, _ = stored(a @ b + c, order_c, c_type, 8)
        np.testing.assert_array_equal(out, want, err_msg=f"{order_a} {order_b} {order_c}")
        texts.append(text)
    assemble(texts[0])


def test_mixed_accumulators() -> None:
    """f16 products may read an f16 C and write an f32 D, and the other way round."""
    matrices, random = Wmma(16, 16, 16, "f16"), np.random.default_rng(4)
    a, b, c = (random.integers(-3, 4, (16, 16)).astype(np.float32) for _ in range(3))
    op = Mma(16, 16, "f16", "f16", "f32")
    for c_type, d_type in (("f16", "f32"), ("f32", "f16")):
        fragments = [matrix.astype(np.float16)[matrices.operand_places(n)] for matrix, n in ((a, "a"), (b, "b"))]
        words = [np.ascontiguousarray(f).view(np.uint32).reshape(-1, 32) for f in fragments]
        d = matrices.multiply(op, *words, matrices.fragment(c, c_type), c_type, d_type, exact=False)
        np.testing.assert_array_equal(matrices.accumulator(d, d_type), a @ b + c)


def test_accumulators_lie_as_in_mma() -> None:
    """Lane 4g + t holds columns 2t and 2t + 1 of rows g and g + 8, then those of columns 8 to 15 (as ptxas has it)."""
    rows, columns = Wmma(16, 16, 16, "f16").accumulator_places("f32")
    for lane in range(32):
        want = [(lane // 4 + 8 * h, 8 * n + lane % 4 * 2 + p) for n in (0, 1) for h in (0, 1) for p in (0, 1)]
        assert list(zip(rows[:, lane, 0], columns[:, lane, 0], strict=True)) == want
    rows, columns = Wmma(8, 32, 16, "s8").accumulator_places("s32")
    assert list(zip(rows[:, 5, 0], columns[:, 5, 0], strict=True)) == [(2 + i % 2, 1 + 8 * (i // 2)) for i in range(8)]


def test_alignment() -> None:
    """An address or a stride that is not aligned is a fault that says what is legal."""
    text = gemm_text(16, 16, 16, "f16", "f32", ("row", "row", "row"), (20, 16, 16))
    arrays = [np.zeros(999, np.float16), np.zeros(999, np.float16), np.zeros(999, np.float32), np.zeros(999, "f4")]
    with pytest.raises(MemoryFault, match="stride of 20 elements: must be a multiple of 8") as fault:
        Device("sm_80").load(text)["k"].launch(1, 32, arrays)
    assert "24" in fault.value.hint
    shifted = text.replace("16, 16, 16", "16").replace("[%p], 20", "[%p + 16], 16")
    with pytest.raises(MemoryFault, match="multiple of 32, the bytes of a fragment"):
        Device("sm_80").load(shifted)["k"].launch(1, 32, arrays)


# -- sparse ----------------------------------------------------------------------------------------------------------

SPARSE = [
    ("f16", 16, "f32"), ("f16", 32, "f16"), ("bf16", 16, "f32"), ("bf16", 32, "f32"), ("tf32", 8, "f32"),
    ("tf32", 16, "f32"), ("s8", 32, "s32"), ("u8", 64, "s32"), ("s4", 64, "s32"), ("u4", 128, "s32"),
    ("e4m3", 64, "f32"),
]  # fmt: skip
PAIRS = [(i, j) for i in range(4) for j in range(i + 1, 4)]


def words_of(matrix: Array, dtype: str) -> Array:
    """Rows of values as rows of 32-bit words."""
    if dtype in ("s4", "u4"):
        return np.ascontiguousarray(as_memory(matrix, dtype)).view(np.uint32)
    if dtype == "e4m3":
        import ml_dtypes

        return np.ascontiguousarray(matrix.astype(ml_dtypes.float8_e4m3fn)).view(np.uint32)
    return np.ascontiguousarray(as_memory(matrix, dtype)).view(np.uint32)


@pytest.mark.parametrize(("dtype", "k", "c_type"), SPARSE)
def test_sparse_products(dtype: str, k: int, c_type: str) -> None:
    """Any choice of non-zero elements, with its metadata in each of the lanes that a selector may name."""
    op = Mma(16, k, dtype, dtype, c_type, sparse=True)
    random = np.random.default_rng(5)
    chunk = {"tf32": 2, "s4": 8, "u4": 8}.get(dtype, 4)
    chunks = k // chunk
    low = 0 if dtype[0] == "u" else -4
    lanes = chunks // 4
    for selector in range(4 // lanes):
        whole, kept = np.zeros((16, k)), []
        nibbles = np.zeros((16, chunks), np.uint32)
        for row, c in combinations(range(16), range(chunks)):
            i, j = ((0, 1), (2, 3))[random.integers(2)] if dtype == "tf32" else PAIRS[random.integers(6)]
            nibbles[row, c] = i | j << 2
            wide = {"tf32": [i // 2], "s4": [2 * i, 2 * i + 1, 2 * j, 2 * j + 1]}
            places = wide.get("s4" if dtype in ("s4", "u4") else dtype, [i, j])
            values = random.integers(low, 5, len(places))
            whole[row, [c * chunk + p for p in places]] = values
            kept += values.tolist()
        stored_a = words_of(np.array(kept).reshape(16, k // 2), dtype)
        b = random.integers(low, 5, (k, 8)).astype(np.float64)
        columns = words_of(b.T, dtype)
        a_words = stored_a.reshape(2, 8, -1, 4).transpose(2, 0, 1, 3).reshape(-1, 32)
        b_words = columns.reshape(8, -1, 4).transpose(1, 0, 2).reshape(-1, 32)
        metadata = np.full(32, 0x44444444, np.uint32)
        for g, lane in combinations(range(8), range(lanes)):
            word = 0
            for n in range(8):
                if dtype in ("f16", "bf16", "tf32"):
                    word |= int(nibbles[g + 8 * (n // 4), 4 * lane + n % 4]) << 4 * n
                else:
                    word |= int(nibbles[g + 8 * (lane % 2), 8 * (lane // 2) + n]) << 4 * n
            metadata[4 * g + selector * lanes + lane] = word
        zero = np.zeros((op.c_registers, 32), np.uint32)
        d = multiply_accumulate(op, a_words, b_words, zero, metadata=metadata, selector=selector)
        want = whole @ b
        for lane, h, p in combinations(range(32), range(2), range(2)):
            word = d[h, lane] >> 16 * p & 0xFFFF if c_type == "f16" else d[2 * h + p, lane]
            got = np.array([word]).astype(np.uint16 if c_type == "f16" else np.uint32)
            value = got.view({"f16": np.float16, "f32": np.float32, "s32": np.int32}[c_type])[0]
            assert value == want[lane // 4 + 8 * h, lane % 4 * 2 + p]


def test_bad_metadata() -> None:
    """Indices that name an element twice, and lanes that do not exist, are refused."""
    with pytest.raises(ValueError, match=r"metadata = 0b0101 of chunk 0 of row 0: must be two different indices"):
        expand(np.zeros((1, 2)), np.array([[0b0101]], np.uint8), "f16")
    with pytest.raises(ValueError, match="must be 0b0100 or 0b1110"):
        expand(np.zeros((1, 1)), np.array([[0b1100]], np.uint8), "tf32")
    op = Mma(16, 32, "f16", "f16", "f32", sparse=True)
    registers4 = np.zeros((4, 32), np.uint32)
    with pytest.raises(ValueError, match="selector = 2: 2 lanes of four hold the metadata, so 0 to 1"):
        multiply_accumulate(
            op, registers4, registers4, registers4, metadata=np.full(32, 0x44444444, np.uint32), selector=2
        )


# -- bits, and quad pairs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bitwise", ["xor", "and"])
@pytest.mark.parametrize(("m", "k"), [(8, 128), (16, 128), (16, 256)])
def test_bits(bitwise: str, m: int, k: int) -> None:
    """Products of b1 count the ones of a xor, or of an and."""
    op, random = Mma(m, k, "b1", "b1", "s32", bitwise=bitwise), np.random.default_rng(6)
    a, b = random.integers(0, 2, (m, k)), random.integers(0, 2, (8, k))
    a_words = as_memory(a, "b1").view(np.uint32).reshape(m // 8, 8, -1, 4).transpose(2, 0, 1, 3).reshape(-1, 32)
    b_words = as_memory(b, "b1").view(np.uint32).reshape(8, -1, 4).transpose(1, 0, 2).reshape(-1, 32)
    d = multiply_accumulate(op, a_words, b_words, np.full((m // 4, 32), 7, np.uint32)).view(np.int32)
    combined = a[:, None] ^ b[None] if bitwise == "xor" else a[:, None] & b[None]
    want = combined.sum(-1) + 7
    for lane, h, p in combinations(range(32), range(m // 8), range(2)):
        assert d[2 * h + p, lane] == want[lane // 4 + 8 * h, lane % 4 * 2 + p]


@pytest.mark.parametrize("layouts", [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")])
@pytest.mark.parametrize("types", [("f32", "f32"), ("f16", "f16"), ("f32", "f16")])
def test_quad_pairs(layouts: tuple[str, str], types: tuple[str, str]) -> None:
    """mma.m8n8k4 of f16 is four products, each by eight lanes, in the fragments of the manual's formulas."""
    random = np.random.default_rng(7)
    a, b, c = random.integers(-3, 4, (4, 8, 4)), random.integers(-3, 4, (4, 4, 8)), random.integers(-9, 9, (4, 8, 8))
    fa, fb = np.zeros((32, 4), np.float16), np.zeros((32, 4), np.float16)
    for lane, i in combinations(range(32), range(4)):
        q, high, t = lane // 4 % 4, lane >= 16, lane % 4
        fa[lane, i] = a[q, t + 4 * high, i] if layouts[0] == "row" else a[q, i + 4 * high, t]
        fb[lane, i] = b[q, t, i + 4 * high] if layouts[1] == "row" else b[q, i, t + 4 * high]

    def place(lane: int, i: int, kind: str) -> tuple[int, int, int]:
        q, high = lane // 4 % 4, 4 * (lane >= 16)
        if kind == "f16":
            return q, lane % 4 + high, i
        return q, (lane & 1) + (i & 2) + high, (i & 4) + (lane & 2) + (i & 1)

    kinds = {"f16": np.float16, "f32": np.float32}
    fc = np.zeros((32, 8), kinds[types[1]])
    for lane, i in combinations(range(32), range(8)):
        fc[lane, i] = c[place(lane, i, types[1])]
    words = [np.ascontiguousarray(f.view(np.uint32).T) for f in (fa, fb, fc)]
    d = np.ascontiguousarray(multiply_quads(QuadMma(*layouts, *types), *words).T).view(kinds[types[0]])
    want = a @ b + c
    for lane, i in combinations(range(32), range(8)):
        assert d[lane, i] == want[place(lane, i, types[0])]
