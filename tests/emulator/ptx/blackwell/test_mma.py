"""tcgen05.mma against sums written out element by element, through whole kernels."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
from operands import SIZES, SPANS, descriptor, offset, offset_mn, place
from tensor_kernel import IMAGE_BASE, run, text

from tilekit.emulator import Device, RaceError

FORMATS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1}
ACCUMULATORS = {"f16": 0, "f32": 1, "s32": 2}
DEPTHS = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32}
VALUES = np.array([-4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4], np.float32)


@dataclasses.dataclass(frozen=True)
class Case:
    """One instruction."""

    kind: str
    a_type: str
    b_type: str
    d_type: str = "f32"
    m: int = 128
    n: int = 32
    group: int = 1
    a_swizzle: str | None = "128B"
    b_swizzle: str | None = "128B"
    a_mn: bool = False
    b_mn: bool = False
    negate: int = 0

    def __str__(self) -> str:
        layout = "".join(
            "mk"[not t] + (s or "none") for t, s in ((self.a_mn, self.a_swizzle), (self.b_mn, self.b_swizzle))
        )
        types = f"{self.kind}-{self.a_type}-{self.b_type}-{self.d_type}"
        return f"{types}-m{self.m}n{self.n}-cg{self.group}-{layout}-{self.negate}"

    @property
    def columns(self) -> int:
        """Columns of tensor memory that D takes."""
        return self.n // 2 if self.group == 2 and self.m == 128 else self.n

    @property
    def idesc(self) -> int:
        """The instruction descriptor."""
        bits = ACCUMULATORS[self.d_type] << 4 | FORMATS[self.a_type] << 7 | FORMATS[self.b_type] << 10
        bits |= (self.negate & 1) << 13 | (self.negate >> 1) << 14 | self.a_mn << 15 | self.b_mn << 16
        return bits | self.n // 8 << 17 | self.m // 16 << 24


CASES = [
    Case("f16", "f16", "f16"),
    Case("f16", "bf16", "bf16", n=256),
    Case("f16", "bf16", "f16", negate=1),
    Case("f16", "f16", "f16", d_type="f16", n=64),
    Case("f16", "bf16", "bf16", a_swizzle="64B", b_swizzle="32B"),
    Case("f16", "f16", "f16", a_swizzle=None, b_swizzle=None, n=48),
    Case("f16", "bf16", "bf16", a_mn=True, b_mn=True, n=128),
    Case("f16", "bf16", "bf16", a_mn=True, b_mn=True, a_swizzle="64B", b_swizzle="32B", n=64),
    Case("f16", "f16", "f16", a_mn=True, b_mn=True, a_swizzle=None, b_swizzle=None, n=64),
    Case("f16", "f16", "f16", m=64, n=24),
    Case("tf32", "tf32", "tf32", n=64, negate=2),
    Case("tf32", "tf32", "tf32", a_mn=True, b_mn=True, a_swizzle="128B_atom_32B", b_swizzle="128B_atom_32B", n=64),
    Case("f8f6f4", "e4m3", "e5m2", negate=3),
    Case("f8f6f4", "e5m2", "e4m3", d_type="f16", a_mn=True, b_mn=True, n=128),
    Case("f8f6f4", "e2m1", "e3m2", n=64),
    Case("f8f6f4", "e2m3", "e2m1", a_swizzle="32B", b_swizzle=None, n=16),
    Case("i8", "s8", "u8", d_type="s32", n=48),
    Case("i8", "u8", "s8", d_type="s32", a_mn=True, n=32),
    Case("f16", "bf16", "bf16", m=256, n=64, group=2),
    Case("f16", "f16", "f16", m=128, n=64, group=2),
    Case("f16", "bf16", "bf16", m=256, n=128, group=2, a_mn=True, b_mn=True),
    Case("f8f6f4", "e4m3", "e2m1", m=128, n=32, group=2),
    Case("tf32", "tf32", "tf32", m=256, n=32, group=2),
    Case("i8", "s8", "s8", d_type="s32", m=256, n=64, group=2),
]


def draw(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> npt.NDArray[np.float32]:
    """Values that every format holds exactly."""
    values = rng.choice(VALUES, shape)
    if kind in ("s8", "u8"):
        values = np.rint(values * 7)
    return np.abs(values) if kind == "u8" else values


def operand(
    image: npt.NDArray[np.uint8], start: int, values: npt.NDArray[np.float32], kind: str, mode: str | None, mn: bool
) -> tuple[int, int]:
    """Lay an operand of one instruction out; returns its descriptor and the byte after it."""
    rows, depth = values.shape
    size = SIZES.get(kind, 1)
    span = SPANS[mode]
    if mn:
        blocks = -(-rows * size // span)
        if mode is None:
            leading, stride = 16 * 8 * blocks, 128
        else:
            stride = span * (4 if mode == "128B_atom_32B" else 8)
            leading = stride * depth // (4 if mode == "128B_atom_32B" else 8)

        def where(row: int, k: int) -> int:
            return offset_mn(row, k, size, mode, leading, stride)

        total = depth * blocks * span
    else:
        leading, stride = (16 * rows, 128) if mode is None else (16, 8 * span)

        def where(row: int, k: int) -> int:
            return offset(row, k * size, mode, leading, stride)

        total = 32 * rows if mode is None else rows * span
    place(image, IMAGE_BASE, start, values, kind, where, mode)
    return descriptor(0, mode, leading, stride) | start >> 4, -(-(start + total) // 1024) * 1024


def accumulator(case: Case, cells: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """D[m][n] from tensor memory, by the table of layouts."""
    result = np.zeros((case.m, case.n))
    values = cells.view(np.float32) if case.d_type == "f32" else cells.view(np.int32)
    if case.d_type == "f16":
        values = (cells & 0xFFFF).astype(np.uint16).view(np.float16)
    for m in range(case.m):
        for n in range(case.n):
            if case.m == 64:
                place = 0, m % 16 + 32 * (m // 16), n
            elif case.group == 2 and case.m == 128:
                half = case.n // 2
                place = m // 64, m % 64 + 64 * (n // half), n % half
            else:
                place = m // 128, m % 128, n
            result[m, n] = values[place]
    return result


@pytest.mark.parametrize("case", CASES, ids=str)
def test_product(case: Case) -> None:
    """Two instructions, the first without and the second with D: every element is the exact sum of its products."""
    rng = np.random.default_rng(len(str(case)))
    depth = DEPTHS[case.kind]
    a = draw(rng, (case.m, 2 * depth), case.a_type)
    b = draw(rng, (case.n, 2 * depth), case.b_type)
    images, body = [], []
    for rank in range(case.group):
        rows_a, rows_b = case.m // case.group, case.n // case.group
        image = np.zeros(160 * 1024, np.uint8)
        end, body = 0, []
        for step in range(2):
            ks = slice(step * depth, (step + 1) * depth)
            part_a, part_b = a[rank * rows_a :][:rows_a, ks], b[rank * rows_b :][:rows_b, ks]
            da, end = operand(image, end, part_a, case.a_type, case.a_swizzle, case.a_mn)
            db, end = operand(image, end, part_b, case.b_type, case.b_swizzle, case.b_mn)
            body += [
                "  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;",
                f"  mov.u64 %da, {da:#x}; add.s64 %da, %da, %wide;",
                f"  mov.u64 %db, {db:#x}; add.s64 %db, %db, %wide;",
                f"  tcgen05.mma.cta_group::{case.group}.kind::{case.kind} [%tm], %da, %db, {case.idesc:#x}, {step};",
            ]
        images.append(image[:end])
    cells, report = run("\n".join(body), images, columns=case.columns)
    sign = -1 if case.negate in (1, 2) else 1
    np.testing.assert_array_equal(accumulator(case, cells), sign * a.astype(np.float64) @ b.T.astype(np.float64))
    assert report.clean, str(report)


@pytest.mark.parametrize("instruction", ["mma.cta_group::1.kind::f16 [%tm], %da, %da, 0x4040490, 0",
                                         "cp.cta_group::1.128x256b [%tm], %da"])  # fmt: skip
def test_operands_need_a_proxy_fence(instruction: str) -> None:
    """Operands that threads stored to shared memory must be fenced before the tensor core reads them."""
    fenced = text(
        f"""  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;
  mov.u64 %da, {descriptor(0, "128B", 16, 1024):#x}; add.s64 %da, %da, %wide;
  tcgen05.{instruction};""",
        columns=8,
    )
    unfenced = fenced.replace("  fence.proxy.async.shared::cta;\n", "")
    arguments = [np.zeros((1, 16384), np.uint8), np.zeros(8192, np.uint32), np.zeros(8192, np.uint32), np.uint32(16384)]
    device = Device("sm_100a")
    assert device.load(fenced)["probe"].launch(1, 128, arguments, shared_bytes=1024 + 16384).clean
    with pytest.raises(RaceError, match=r"no fence\.proxy\.async"):
        device.load(unfenced)["probe"].launch(1, 128, arguments, shared_bytes=1024 + 16384)
