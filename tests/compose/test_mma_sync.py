"""`MmaSync` in a kernel, for every type and major it has; and its reads, proved free of bank conflicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilekit.compose as tk
from tests.compose.mma_sync import matmul
from tilekit.assembly.errors import TraceError
from tilekit.errors import TilekitError

MAJORS = [("k", "k"), ("mn", "k"), ("k", "mn"), ("mn", "mn")]
A, B = tk.OperandTile("a", tk.BF16, 128, "k"), tk.OperandTile("b", tk.BF16, 64, "k")


def check(
    kernel: tk.ComposedKernel, types: tuple[tk.DType, tk.DType], shape: tuple[int, int, int], **given: Any
) -> None:
    """Small whole numbers, whose sums are exact."""
    m, n, k = shape
    majors = given.get("majors", ("k", "k"))
    random = np.random.default_rng(m + n + k)
    a, b = random.integers(-3, 4, (m, k)), random.integers(-3, 4, (n, k))
    operands = (a.astype(types[0].numpy), b.astype(types[1].numpy))
    laid = [one if major == "k" else np.ascontiguousarray(one.T) for one, major in zip(operands, majors, strict=True)]
    assert (kernel(*laid) == a @ b.T).all()


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("majors", MAJORS)
@pytest.mark.parametrize("grid", [(4, 2), (4, 4), (2, 1)])
def test_majors_and_grids_of_warps(majors: tuple[str, str], grid: tuple[int, int]) -> None:
    """K-major or not, each warp its rows and columns: of chunks too that several warps share."""
    warps, columns = grid
    kernel = matmul(majors=majors, warps=warps, columns=columns)
    check(kernel, (tk.BF16, tk.BF16), (104, 72, 136), majors=majors)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("target", "a", "b"),
    [
        ("sm_80", tk.F16, tk.F16),
        ("sm_80", tk.F32, tk.F32),
        ("sm_80", tk.S8, tk.S8),
        ("sm_89", tk.E4M3, tk.E4M3),
        ("sm_89", tk.E5M2, tk.E4M3),
        ("sm_120a", tk.E4M3, tk.E5M2),
        ("sm_120a", tk.BF16, tk.BF16),
        ("sm_86", tk.BF16, tk.BF16),
    ],
)
def test_types(target: str, a: tk.DType, b: tk.DType) -> None:
    """Every type that the instruction has, on chips that have it."""
    check(matmul(target, dtype=a, b_dtype=b), (a, b), (96, 80, 272))


@pytest.mark.parametrize(("swizzle", "tile"), [(64, (64, 64)), (32, (128, 128))])
def test_narrow_swizzles(swizzle: int, tile: tuple[int, int]) -> None:
    """Slices of 64 and 32 bytes along K."""
    check(matmul(swizzle=swizzle, tile=tile), (tk.BF16, tk.BF16), (72, 130, 200))


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("rows", [True, False])
def test_reads_have_no_bank_conflicts(swizzle: int, major: str, rows: bool) -> None:
    """The 8 rows that ``ldmatrix`` reads for a matrix lie in all 32 banks, by the swizzle's algebra; unswizzled not."""
    tile = tk.OperandTile("a", tk.BF16, 128, major, 1, swizzle)  # type: ignore[arg-type]
    for access in tk.MmaSync.read_addresses(tile, rows=rows):
        for first in range(0, 32, 8):
            words = {(address // 4 + word) % 32 for address in access[first : first + 8] for word in range(4)}
            assert len(words) == 32
    line = tile.row_bytes
    plain = {(row * line // 4 + word) % 32 for row in range(8) for word in range(4)}
    assert len(plain) < 32


@pytest.mark.parametrize(
    ("a", "b", "grid", "message"),
    [
        (replace(A, dtype=tk.F16), B, (1, 1), "tile 'a' is of f16 and tile 'b' of bf16"),
        (A, replace(B, slices=2), (1, 1), "one k-block of both tiles"),
        (
            replace(A, dtype=tk.S8, major="mn"),
            replace(B, dtype=tk.S8),
            (1, 1),
            "elements have 8 bits.*nearest: major='k'",
        ),
        (replace(A, swizzle_bytes=0, slices=8), B, (1, 1), "'a' has swizzle_bytes=0; nearest: swizzle_bytes=32"),
        (A, B, (4, 3), "4 warps make no grid of columns=3; nearest: columns=2"),
        (A, replace(B, rows=40), (4, 4), r"'b' has 40 rows.*multiple of 64 \(4 warps have 16 each\); nearest: 64"),
        (replace(A, rows=96, major="mn"), B, (1, 1), "'a' has rows of 64 elements.*has 96.*nearest: 64 rows"),
    ],
)
def test_tiles_that_it_does_not_read(a: Any, b: Any, grid: tuple[int, int], message: str) -> None:
    """Types, majors, swizzles, rows and grids: refused when the op is made, with the nearest that it takes."""
    with pytest.raises(TraceError, match=f"{message}.*TK-TRACE-017"):
        tk.MmaSync(a, b, warps=grid[0], columns=grid[1])


def test_chips_that_lack_a_type_or_hold_sums_by_warpgroups() -> None:
    """8-bit floats on sm_80 are refused by the fragment's name; a warpgroup's epilogue is refused by the role."""
    with pytest.raises(TilekitError, match=r"mma.*mma_8bit|mma_8bit"):
        _ = matmul("sm_80", dtype=tk.E4M3).ptx
    w = tk.Writer("k", target="sm_90a", threads=128)
    a, b = (tk.OperandTile(name, tk.BF16, 64, "k") for name in "ab")
    tiles = tk.StandardPayload(a, b).allocate(w.shared, "inputs", 2)
    group = tk.Warpgroup.of(w, w.warp(), tk.Role("mma", range(4), frozenset({"mma"})))
    with pytest.raises(TraceError, match="those of 4 warps together; nearest: a role with matrix_waves=1"):
        tk.MmaSync(a, b, warps=4).bind(w, tiles, group)
