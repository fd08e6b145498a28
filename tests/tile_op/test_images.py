"""Which image an instruction reads: every swizzle and none, exact; and what it refuses."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest

from tests.composed import Array, Composed, ComposedBlackwell, integers
from tilekit.assembly.errors import TraceError
from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32, DType
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.wgmma import Wgmma
from tilekit.tiles.call import Major
from tilekit.tiles.operand import OperandTile, SwizzleBytes

SWIZZLES: tuple[SwizzleBytes, ...] = (0, 32, 64, 128)


def tile(name: str, rows: int, major: Major, swizzle_bytes: SwizzleBytes, dtype: DType = BF16) -> OperandTile:
    """A tile with a k-block of 128 bytes, whatever its swizzle."""
    made = OperandTile(name, dtype, rows, major, swizzle_bytes=swizzle_bytes)
    return dataclasses.replace(made, slices=1024 // dtype.bits // made.slice_k)


def as_laid(matrix: Array, major: Major) -> Array:
    """The operand (rows, k) as it lies in memory."""
    return matrix if major == "k" else np.ascontiguousarray(matrix.T)


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("majors", list(product(("k", "mn"), repeat=2)), ids="-".join)
@pytest.mark.parametrize("swizzles", list(product(SWIZZLES, repeat=2)), ids=lambda pair: "-".join(map(str, pair)))
def test_wgmma_reads_every_swizzle(swizzles: tuple[SwizzleBytes, SwizzleBytes], majors: tuple[Major, Major]) -> None:
    """Each operand in each swizzle and each major: the product is exact at ragged edges, and nothing is found."""
    a, b = (tile(*what) for what in zip("ab", (128, 64), majors, swizzles, strict=True))
    kernel = Composed(a, b, warpgroups=2)
    m, n, k = 136, 72, 136
    left, right = integers(m, k, 1), integers(n, k, 2)
    d, report = kernel.run(as_laid(left, majors[0]), as_laid(right, majors[1]), m, n, k, seed=sum(swizzles))
    np.testing.assert_array_equal(d, left.astype(np.float32) @ right.astype(np.float32).T)
    assert report.clean


@pytest.mark.parametrize("dtype", [F16, F32, E4M3, E5M2], ids=str)
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_wgmma_reads_every_type(dtype: DType, swizzle: SwizzleBytes) -> None:
    """The same of the other element types, which differ in how many of them a row of the image holds."""
    a, b = tile("a", 64, "k", swizzle, dtype), tile("b", 24, "k", swizzle, dtype)
    kernel = Composed(a, b)
    m, n, k = 72, 40, 208
    left, right = integers(m, k, 3, dtype.numpy), integers(n, k, 4, dtype.numpy)
    d, report = kernel.run(left, right, m, n, k)
    np.testing.assert_array_equal(d, left.astype(np.float32) @ right.astype(np.float32).T)
    assert report.clean


@pytest.mark.parametrize("majors", [("k", "k"), ("mn", "mn")], ids="-".join)
@pytest.mark.parametrize("swizzles", [(0, 32), (32, 64), (64, 0), (128, 64)], ids=lambda pair: "-".join(map(str, pair)))
def test_tcgen05_reads_every_swizzle(swizzles: tuple[SwizzleBytes, SwizzleBytes], majors: tuple[Major, Major]) -> None:
    """Its descriptors follow from the tile too, its accumulators lie behind what others have claimed.

    And a commit may give a stage back one k-block later.
    """
    a, b = (tile(*what) for what in zip("ab", (128, 64), majors, swizzles, strict=True))
    kernel = ComposedBlackwell(a, b, claims=sum(swizzles) // 4, in_flight=int(majors[0] == "mn"))
    m, n, k = 136, 72, 136
    left, right = integers(m, k, 1), integers(n, k, 2)
    d, report = kernel.run(as_laid(left, majors[0]), as_laid(right, majors[1]), m, n, k, seed=sum(swizzles))
    np.testing.assert_array_equal(d, left.astype(np.float32) @ right.astype(np.float32).T)
    assert report.clean, str(report)


REFUSED: dict[str, tuple[OperandTile, OperandTile, str]] = {
    "k-blocks differ": (
        OperandTile("a", BF16, 64, "k", 2),
        OperandTile("b", BF16, 64, "k"),
        r"'a' holds 128 elements.*'b' 64.*nearest: slices=1 for 'a'",
    ),
    "half an instruction": (
        OperandTile("a", BF16, 64, "k", 3, 0),
        OperandTile("b", BF16, 64, "k", 3, 0),
        r"'a'.*3 slices.*slices=4, or swizzle_bytes=32",
    ),
    "types that do not meet": (
        OperandTile("a", BF16, 64, "k"),
        OperandTile("b", F16, 64, "k"),
        r"'a' is of bf16.*'b' of f16",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_instruction_reads(case: str) -> None:
    """The op and the tile, or both tiles, are named, with the nearest that is legal."""
    a, b, message = REFUSED[case]
    with pytest.raises(TraceError, match=f"wgmma.*{message}.*TK-TRACE-017"):
        Wgmma(a, b, warpgroups=1)
    with pytest.raises(TraceError, match=f"tcgen05.mma.*{message}.*TK-TRACE-017"):
        Tcgen05(a, b, group=1)


def test_wgmma_transposes_16_bits_alone() -> None:
    """Of 8-bit and 32-bit types it reads K-major images only."""
    for dtype in (E4M3, F32):
        a, b = OperandTile("a", dtype, 64, "k"), OperandTile("b", dtype, 128, "mn")
        with pytest.raises(TraceError, match=r"wgmma cannot read tile 'b'.*major='k'.*TK-TRACE-017"):
            Wgmma(a, b, warpgroups=1)


def test_tcgen05_reads_tf32_along_m_or_n_in_one_arrangement() -> None:
    """Where 32 bytes stay together: with 128 bytes only."""
    a, b = OperandTile("a", F32, 128, "mn", 1, 64), OperandTile("b", F32, 64, "k")
    with pytest.raises(TraceError, match=r"tcgen05.mma cannot read tile 'a'.*swizzle_bytes=128.*TK-TRACE-017"):
        Tcgen05(a, b, group=1)


def test_swizzles_have_widths() -> None:
    """A swizzle that no hardware has is refused with the nearest."""
    with pytest.raises(TraceError, match=r"swizzle_bytes=96.*nearest: 64.*TK-TRACE-017"):
        OperandTile("a", BF16, 64, "k", 1, 96)  # type: ignore[arg-type]
