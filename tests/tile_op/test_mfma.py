"""What AMD's matrix instruction and the loader of its tiles take, and how accumulators are told to an epilogue."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tilekit.assembly.errors import FragmentError, TraceError
from tilekit.assembly.types import U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.dtypes import BF16, E4M3, F16, F32
from tilekit.epilogue.row_sums import RowSums
from tilekit.tile_io.buffer import BufferLoader
from tilekit.tile_io.buffer_to_lds import BufferToLdsLoader
from tilekit.tile_op.accumulator_fragments import QUAD_FRAGMENT, AccumulatorFragment
from tilekit.tile_op.mfma import MFMA_FRAGMENT, Mfma
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import OperandTile

A, B = OperandTile("a", BF16, 64, "k"), OperandTile("b", BF16, 48, "k")
LOAD = Role("load", range(4), frozenset({"load"}))


class Lane(int):
    """A lane's number, with the arithmetic of a device value."""

    def __floordiv__(self, other: int) -> Lane:
        return Lane(int(self) // other)


@pytest.mark.parametrize(("fragment", "lanes"), [(QUAD_FRAGMENT, 32), (MFMA_FRAGMENT, 64)])
@pytest.mark.parametrize("pieces", [1, 3])
def test_each_element_has_one_register(fragment: AccumulatorFragment, lanes: int, pieces: int) -> None:
    """Rows and columns of a fragment are shared out among lanes and fours, each element once."""
    columns = pieces * fragment.columns
    fours = fragment.rows * columns // lanes // 4
    found = []
    for lane, four, half, odd in product(range(lanes), range(fours), range(2), range(2)):
        row: Any = fragment.row(Lane(lane))  # type: ignore[arg-type]
        column: Any = fragment.column(Lane(lane))  # type: ignore[arg-type]
        found.append((row + fragment.apart * half, column + fragment.left(four) + odd))
    assert sorted(found) == list(product(range(fragment.rows), range(columns)))


def test_fours_of_registers() -> None:
    """wgmma has fours already; of two MFMAs, one below the other, each gives two registers to a four."""
    w = Writer("k", target="gfx950", threads=64)
    registers = RegisterTile([w.constant(U32, index) for index in range(16)])
    assert list(map(id, QUAD_FRAGMENT.fours(registers))) == list(map(id, registers))
    place = {id(register): index for index, register in enumerate(registers)}
    found = [place[id(register)] for register in MFMA_FRAGMENT.fours(registers)]
    assert found == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]


@pytest.mark.parametrize(
    ("a", "b", "waves", "message"),
    [
        (replace(A, dtype=F16), B, 1, "tile 'a' is of f16 and tile 'b' of bf16"),
        (replace(A, dtype=E4M3), replace(B, dtype=F16), 1, "mfma multiplies bf16; f16; e4m3 with e5m2; e4m3fnuz with"),
        (A, replace(B, slices=2), 1, "one k-block of both tiles"),
        (replace(A, major="mn"), B, 1, "cannot read tile 'a'.*nearest: major='k'"),
        (A, replace(B, slices=2, swizzle_bytes=64), 1, "tile 'b' has swizzle_bytes=64; nearest: swizzle_bytes=128"),
        (A, B, 4, r"tile 'a' has 64 rows.*multiple of 128 \(4x1 waves have 32 rows each\); nearest: 128"),
        (replace(A, rows=128), B, (4, 2, 2), r"'b' has 48 rows.*64 \(2x2 waves have 16 columns each of each half\)"),
        (A, B, (4, 3, 1), r"4 waves make no grid of columns=3; nearest: columns=2"),
        (A, replace(B, rows=40), 2, "tile 'b' has 40 rows.*multiple of 16.*nearest: (32|48)"),
    ],
)
def test_tiles_that_it_does_not_read(
    a: OperandTile, b: OperandTile, waves: int | tuple[int, int, int], message: str
) -> None:
    """Types, majors, swizzles, rows and grids of waves: refused when the op is made, with the nearest that it takes."""
    count, columns, pieces = waves if isinstance(waves, tuple) else (waves, 1, 1)
    with pytest.raises(TraceError, match=f"{message}.*TK-TRACE-017"):
        Mfma(a, b, waves=count, columns=columns, pieces=pieces)


@pytest.mark.parametrize(
    ("tile", "role", "message"),
    [
        (replace(A, major="mn"), LOAD, "K contiguous.*major='mn'"),
        (replace(A, dtype=F32), LOAD, "elements of 32 bits"),
        (replace(A, swizzle_bytes=64), LOAD, "swizzle_bytes=64"),
        (B, LOAD, r"4 warps of role 'load' load 32 rows of tile 'b' at once, and it has 48; nearest: 64 rows"),
        (A, replace(LOAD, one_thread=True), "one thread of role 'load'.*nearest: one_thread=False"),
    ],
)
def test_tiles_that_threads_do_not_load(tile: OperandTile, role: Role, message: str) -> None:
    """Images that are not the instruction's, and rows that threads cannot share out."""
    with pytest.raises(TraceError, match=f"{message}.*TK-TRACE-017"):
        BufferLoader(Writer("k", target="gfx950", threads=512), tile, role=role)


def test_waves_that_do_not_load_whole_swizzles() -> None:
    """Words of 4 bytes fill two lines a wave: fewer waves than have eight lines are refused."""
    role = Role("load", range(2), frozenset({"load"}))
    with pytest.raises(TraceError, match=r"2 warps of role 'load' load 4 lines.*nearest: 4 warps.*TK-TRACE-017"):
        BufferToLdsLoader(Writer("k", target="gfx942", threads=128), A, role=role)
    assert BufferToLdsLoader(Writer("k", target="gfx950", threads=128), A, role=role).lines_apart == 16


def test_on_another_chip() -> None:
    """A loader through buffers is GCN's own, and refused with its name elsewhere."""
    w = Writer("k", target="sm_90a", threads=512)
    loader = BufferLoader(w, A, role=LOAD)
    place = w.shared.allocate("a", size=A.bytes, count=2, alignment=1024, kind="tile")
    zero: Value = w.constant(U32, 0)
    with pytest.raises(FragmentError, match=r"buffer\.py.*places fragments of GCN; this kernel is for sm_90a"):
        loader.bind(w, place, None).at(w, zero, 0, 0)


def test_sums_of_rows_are_of_whole_rows() -> None:
    """Row sums of waves whose columns are not a tile's are refused with both."""
    w = Writer("k", target="gfx950", threads=64)
    k = w.parameter("k", U32, lambda call: call.k)
    raster = RasterOrder(w, tile_m=64, tile_n=96, cluster=Cluster.read(w, 1, 1), k=k, k_block=64)
    with pytest.raises(TraceError, match=r"row sums 'sums': a warp holds .* \(of 48 columns\), .* has 96.*TK-EPI-001"):
        RowSums(w, "sums", layout=Mfma(A, B, waves=2).layout, raster=raster)
    with pytest.raises(TraceError, match=r"3 waves side by side hold .* 48 columns.*TK-EPI-001"):
        RowSums(w, "sums", layout=Mfma(A, B, waves=3, columns=3).layout, raster=raster)
