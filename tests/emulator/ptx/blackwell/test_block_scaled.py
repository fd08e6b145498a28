"""Block-scaled tcgen05.mma: scales by tcgen05.cp from the 128x4 layout, products against plain sums."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from operands import descriptor, offset, place
from tensor_kernel import IMAGE_BASE, run

from tilekit.emulator import MemoryFault, ProtocolError

VALUES = np.array([-4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4], np.float32)
FORMATS = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of block-scaled instruction."""

    kind: str
    suffix: str
    block: int
    scale_type: str
    a_type: str = "e2m1"
    b_type: str = "e2m1"
    m: int = 128
    n: int = 64
    group: int = 1

    def __str__(self) -> str:
        return (
            f"{self.kind}{self.suffix}-{self.scale_type}-{self.a_type}-{self.b_type}-m{self.m}n{self.n}-cg{self.group}"
        )

    @property
    def depth(self) -> int:
        """K of one instruction."""
        return 32 if self.kind == "mxf8f6f4" else 64

    @property
    def vector(self) -> int:
        """Scales of a row in one instruction."""
        return self.depth // self.block

    def idesc(self, scale: int) -> int:
        """The instruction descriptor with a scale factor id."""
        a, b = (FORMATS[self.a_type], FORMATS[self.b_type]) if self.kind == "mxf8f6f4" else (1, 1)
        bits = a << 7 | b << 10 | self.n // 8 << 17 | (self.scale_type == "ue8m0") << 23 | self.m // 16 << 24
        return bits | scale << 29 | scale << 4


CASES = [
    Case("mxf8f6f4", "", 32, "ue8m0", "e4m3", "e5m2"),
    Case("mxf8f6f4", ".block32", 32, "ue8m0", "e2m1", "e3m2", n=128),
    Case("mxf8f6f4", ".scale_vec::1X", 32, "ue8m0", "e4m3", "e4m3", n=256),
    Case("mxf4", "", 32, "ue8m0", n=72),
    Case("mxf4", ".scale_vec::2X", 32, "ue8m0"),
    Case("mxf4nvf4", ".block32", 32, "ue8m0"),
    Case("mxf4nvf4", ".block16", 16, "ue4m3", n=128),
    Case("mxf4nvf4", ".scale_vec::4X", 16, "ue8m0"),
    Case("mxf8f6f4", "", 32, "ue8m0", "e4m3", "e4m3", m=256, group=2),
    Case("mxf4nvf4", ".block16", 16, "ue4m3", m=256, n=128, group=2),
]


def scale_image(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The 128x4 atoms of four scales a row: byte (r % 32) * 16 + (r / 32) * 4 + j of each 512."""
    rows = -(-len(codes) // 128) * 128
    image = np.zeros(rows * 4, np.uint8)
    for r in range(len(codes)):
        for j in range(4):
            image[r // 128 * 512 + r % 32 * 16 + r % 128 // 32 * 4 + j] = codes[r, j]
    return image


def draw_scales(
    rng: np.random.Generator, rows: int, kind: str
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Codes and values of four scales a row."""
    if kind == "ue8m0":
        codes = rng.integers(124, 131, (rows, 4)).astype(np.uint8)
        return codes, codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    values = rng.choice(np.array([0.25, 0.5, 1, 1.5, 2, 3], np.float32), (rows, 4))
    return values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), values


def build(case: Case) -> tuple[str, list[npt.NDArray[np.uint8]], npt.NDArray[np.float64]]:
    """Instructions, images and the expected product, for as many instructions as four scales serve."""
    rng = np.random.default_rng(len(str(case)))
    steps = 4 // case.vector
    total = steps * case.depth
    a, b = rng.choice(VALUES, (case.m, total)), rng.choice(VALUES, (case.n, total))
    a_codes, a_scales = draw_scales(rng, case.m, case.scale_type)
    b_codes, b_scales = draw_scales(rng, case.n, case.scale_type)
    packed = case.kind != "mxf8f6f4"
    group = f"cta_group::{case.group}"
    body: list[str] = []
    images = []
    for rank in range(case.group):
        rows_a, rows_b = case.m // case.group, case.n // case.group
        image = np.zeros(64 * 1024, np.uint8)
        body = ["  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;"]
        end = 0
        for column, codes in ((448, a_codes[rank * rows_a :][:rows_a]), (480, b_codes)):
            atoms = scale_image(codes)
            image[end : end + len(atoms)] = atoms
            for atom in range(0, len(atoms), 512):
                desc = descriptor(end + atom, None, 16, 128)
                body += [
                    f"  mov.u64 %dc, {desc:#x}; add.s64 %dc, %dc, %wide;",
                    f"  add.u32 %r40, %tm, {column + atom // 128}; tcgen05.cp.{group}.32x128b.warpx4 [%r40], %dc;",
                ]
            end += len(atoms)
        end = -(-end // 1024) * 1024
        body.append("  add.u32 %r40, %tm, 448; add.u32 %r41, %tm, 480;")
        for step in range(steps):
            ks = slice(step * case.depth, (step + 1) * case.depth)
            for name, part, kind in (
                ("%da", a[rank * rows_a :][:rows_a, ks], case.a_type),
                ("%db", b[rank * rows_b :][:rows_b, ks], case.b_type),
            ):
                place(
                    image,
                    IMAGE_BASE,
                    end,
                    part,
                    kind,
                    lambda r, byte: offset(r, byte, "32B", 0, 256),
                    "32B",
                    packed=packed,
                )
                desc = descriptor(end, "32B", 16, 256)
                body.append(f"  mov.u64 {name}, {desc:#x}; add.s64 {name}, {name}, %wide;")
                end += -(-len(part) * 32 // 1024) * 1024
            body.append(
                f"  tcgen05.mma.{group}.kind::{case.kind}.block_scale{case.suffix} [%tm], %da, %db, "
                f"{case.idesc(step * case.vector):#x}, [%r40], [%r41], {int(step > 0)};"
            )
        images.append(image[:end])
    scaled_a = a.astype(np.float64) * np.repeat(a_scales, case.block, axis=1)[:, :total]
    scaled_b = b.astype(np.float64) * np.repeat(b_scales, case.block, axis=1)[:, :total]
    return "\n".join(body), images, scaled_a @ scaled_b.T


@pytest.mark.parametrize("case", CASES, ids=str)
def test_scaled_product(case: Case) -> None:
    """Every block of A and B is multiplied by its own scale, whichever bytes of the scale words it uses."""
    body, images, expected = build(case)
    cells, report = run(body, images, columns=case.n)
    np.testing.assert_array_equal(cells.view(np.float32).reshape(-1, case.n), expected)
    assert report.clean, str(report)


def test_small_pair() -> None:
    """With M = 128 over a pair each half of B's columns has its scales in one half of the lanes."""
    case = Case("mxf8f6f4", "", 32, "ue8m0", "e4m3", "e4m3", m=128, n=64, group=2)
    rng = np.random.default_rng(3)
    a, b = rng.choice(VALUES, (128, 32)), rng.choice(VALUES, (64, 32))
    a_codes, a_scales = draw_scales(rng, 128, "ue8m0")
    b_codes, b_scales = draw_scales(rng, 64, "ue8m0")
    images = []
    body: list[str] = []
    for rank in range(2):
        image = np.zeros(16384, np.uint8)
        image[:512] = scale_image(a_codes[64 * rank :][:64])
        for half in range(2):  # Rows 32 * half and on of a 64-row copy hold the scales of 32 columns of B.
            image[1024 + 512 * half :][:512].reshape(32, 16)[:, :4] = b_codes[32 * half :][:32]
        body = ["  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;"]
        for column, start, shape in ((448, 0, "32x128b.warpx4"), (480, 1024, "64x128b.warpx2::01_23")):
            body += [
                f"  mov.u64 %dc, {descriptor(start, None, 16, 128):#x}; add.s64 %dc, %dc, %wide;",
                f"  add.u32 %r40, %tm, {column}; tcgen05.cp.cta_group::2.{shape} [%r40], %dc;",
            ]
        for name, start, part in (("%da", 4096, a[64 * rank :][:64]), ("%db", 8192, b[32 * rank :][:32])):
            place(image, IMAGE_BASE, start, part, "e4m3", lambda r, k: offset(r, k, "32B", 0, 256), "32B")
            body.append(f"  mov.u64 {name}, {descriptor(start, '32B', 16, 256):#x}; add.s64 {name}, {name}, %wide;")
        body += [
            "  add.u32 %r40, %tm, 448; add.u32 %r41, %tm, 480;",
            "  tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale "
            f"[%tm], %da, %db, {case.idesc(0):#x}, [%r40], [%r41], 0;",
        ]
        images.append(image)
    cells, report = run("\n".join(body), images, columns=32)
    halves = cells.view(np.float32).reshape(2, 2, 64, 32)  # CTA, half of the lanes, row, column
    product = halves.transpose(0, 2, 1, 3).reshape(128, 64)
    np.testing.assert_array_equal(product, (a * a_scales[:, :1]).astype(np.float64) @ (b * b_scales[:, :1]).T)
    assert report.clean, str(report)


def test_scales_must_be_replicated() -> None:
    """A copy that reaches only half of the 32-lane quarters is noticed."""
    body, images, _ = build(CASES[0])
    broken = body.replace("32x128b.warpx4", "64x128b.warpx2::02_13")
    with pytest.raises((ProtocolError, MemoryFault), match=r"quarter|never written"):
        run(broken, images)


def test_scales_must_be_copied() -> None:
    """An instruction whose scales were never written is a fault that says so."""
    body, images, _ = build(CASES[0])
    lines = [line for line in body.splitlines() if "tcgen05.cp" not in line]
    with pytest.raises(MemoryFault, match=r"scales of A.*never written"):
        run("\n".join(lines), images)
