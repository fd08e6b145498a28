"""Scales of blocks of 128 elements of K: in a stage beside the operands, or read a k-block ahead; and their products.

A's are one a row and k-block, and lie in a stage where the copy engine can load them. B's are one for 128 columns and a
k-block, a few for a tile, and are read by the threads that need them. What the instruction takes as its A may be either
(`swapped`), so the one are told from the other as fine and coarse ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache, partial
from math import gcd
from typing import Any, NamedTuple, cast

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.kernels.matmul.spec import Groups
from tilekit.tile_io.ahead import Ahead
from tilekit.tile_io.tma import MAX_BOX, TmaBox
from tilekit.tile_op.accumulators import AccumulatorLayout, Warpgroup
from tilekit.tile_op.scaled_accumulators import OVERLAPPED_REGISTERS, Factors, Four
from tilekit.tile_op.wgmma import ATOM_ROWS
from tilekit.tiles.stage import Stage
from tilekit.tiles.tile import Tile

BLOCK = 128
"""Elements of K, and columns of B, that share a scale."""

UNIT = 4
"""Scales of which a copy begins at a multiple: 16 bytes. Groups that lie behind each other begin anywhere."""


class ScaleTile(NamedTuple):
    """The image of A's scales in a stage: f32, one a row.

    Attributes
    ----------
    rows, bytes
        Of the image: those of the tile, and as many as its instructions read.
    shifted
        Whether tiles begin at any row, and so up to three rows behind the image's first one.
    name, alignment
        As of any tile of a stage.
    """

    rows: int
    bytes: int
    shifted: bool
    name: str = "scale_a"
    alignment: int = 128


class ScaleLoader:
    """Loads A's scales by TMA, from an array whose rows lie behind each other.

    Parameters
    ----------
    w, tile
        The writer, and the image to fill.
    swapped
        Whether A's rows are the tile's columns.
    counted
        Whether groups begin a whole number of rows apart, each with scales of its own.
    """

    prefetches = False

    def __init__(self, w: Writer, tile: ScaleTile, *, swapped: bool, counted: bool) -> None:
        self.name, self.tile, self.swapped = tile.name, tile, swapped
        self.copied = tile.rows if tile.rows <= MAX_BOX else ATOM_ROWS
        box = TmaBox((self.copied, 1, 1) if counted else (self.copied, 1), None)
        self.map = w.tensor_map(f"{tile.name}_map", lambda call: box.describe(call, tile.name))
        self.rows = group_rows(w) if counted else None

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def bind(self, w: Writer, stages: SharedArray) -> BoundScaleLoader:
        """Prepare the addresses; once a role."""
        return BoundScaleLoader(w, self, stages)


def group_rows(w: Writer) -> Value:
    """Declare how far apart groups begin."""
    return w.parameter("scale_a_rows", U32, lambda call: call.number("group_rows"))


class BoundScaleLoader:
    """A `ScaleLoader` in a role, turned to a tile."""

    writer = None

    def __init__(self, w: Writer, loader: ScaleLoader, stages: SharedArray) -> None:
        self._loader, self._stride, self._base = loader, stages.stride, w.shared_base + stages.offset

    def at(self, w: Writer, tile: Tile) -> BoundScaleLoader:
        """Turn to an output tile."""
        loader, self._batch = self._loader, tile.batch
        row = tile.column if loader.swapped else tile.row - (0 if loader.rows is None else tile.batch * loader.rows)
        self._row = row // UNIT * UNIT if loader.tile.shifted else row
        return self

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start loading the scales of the k-block that begins at element `k`."""
        loader, full = self._loader, stage.counting("the ScaleLoader")
        more = {} if loader.rows is None else {"z": self._batch}
        copy = partial(w.ptx.tma.load_2d if loader.rows is None else w.ptx.tma.load_3d, map=loader.map, full=full)
        with w.when(stage.leader) if stage.leader is not None else nullcontext():
            for first in range(0, loader.tile.rows, loader.copied):
                target = self._base + (stage.index * self._stride + 4 * first)
                copy(dst=target, x=self._row + first, y=k // BLOCK, **more)


class BlockScales(Factors):
    """The factors of a thread's accumulators, k-block by k-block.

    Parameters
    ----------
    w, layout
        The writer, and how a warpgroup holds a tile.
    swapped
        Whether B's columns are the tile's rows.
    staged
        Where A's scales lie in a stage; None where they are read from global memory.
    groups
        As of a `MatmulSpec`; each has scales of B of its own.
    """

    k_block = BLOCK

    def __init__(
        self, w: Writer, layout: AccumulatorLayout, *, swapped: bool, staged: SharedArray | None, groups: Groups | None
    ) -> None:
        self.layout, self.swapped, self._staged = layout, swapped, cast(SharedArray, staged)
        self._fine = None if staged is not None else Ahead(w, "scale_a", block=BLOCK, grouped=groups == "counts")
        self._rows = group_rows(w) if groups == "counts" and staged is None else None
        self._shifted = groups == "ends"
        self._coarse = Ahead(w, "scale_b", block=BLOCK, grouped=groups is not None)
        pairs = [8 * i + odd for i in range(layout.columns // 8) for odd in (0, 1)]
        self._offsets = pairs if swapped else layout.rows_of_a_thread
        self.registers = OVERLAPPED_REGISTERS if groups else len(pairs) * (1 if staged is not None else 2) * swapped
        extent = layout.tile_rows if swapped else layout.columns
        self._most = (BLOCK - gcd(extent, BLOCK)) % BLOCK  # how far into a block a tile may begin
        self._blocks = -(-(self._most + extent) // BLOCK)

    def bind(self, w: Writer, group: Warpgroup) -> None:
        """Find this thread's rows and columns; once a role."""
        fragment, (row, column) = self.layout.fragment, self.layout.corner(w, group.thread)
        self._part = group.part * self.layout.tile_rows
        self._row, self._column = fragment.row(group.thread) + row + self._part, column
        self._across = fragment.column(group.thread) + column

    def turn(self, w: Writer, tile: Tile) -> None:
        """Turn to an output tile."""
        coarse = tile.row + self._part if self.swapped else tile.column + self._column
        self._offset = coarse % BLOCK
        self._shift = tile.row % UNIT if self._shifted else 0
        self._coarse.turn(w, tile, coarse // BLOCK, range(self._blocks))
        if self._fine is not None:
            rows = tile.row - (0 if self._rows is None else tile.batch * self._rows) + self._row
            self._fine.turn(w, tile, tile.column + self._across if self.swapped else rows, self._offsets)

    def take(self, w: Writer, stage: Stage | None = None) -> None:
        """Turn to the next k-block, whose scales of A may lie in `stage`."""
        self._b = self._coarse.take(w)
        self._a = self._fine.take(w) if self._fine is not None else list(self._load(w, stage))

    def _load(self, w: Writer, stage: Any) -> Iterator[Value]:
        first = (self._across if self.swapped else self._row) + self._shift
        at = w.shared_base + stage.index * self._staged.stride + self._staged.offset + first * 4
        for offset in self._offsets[:: 2 if self.swapped else 1]:
            if self.swapped:
                yield from w.isa.memory.load_shared_f32x2(address=at + 4 * offset)
            else:
                yield w.isa.memory.load_shared_f32(address=at + 4 * offset)

    def factors(self, w: Writer, block: int) -> Callable[[int, int], Four]:
        """The factors of four accumulators of a block: by their fragment and, in eights, their columns."""

        @cache
        def coarse(position: int) -> Value:
            low, high = position // BLOCK, (position + self._most) // BLOCK
            if low == high:
                return self._b[low]
            return w.select(self._offset >= BLOCK * high - position, self._b[high], self._b[low], F32)

        @cache
        def product(index: int, position: int) -> Value:
            return self._a[index] * coarse(position)

        step = gcd(self.layout.columns, BLOCK)

        def four(fragment: int, eight: int) -> Four:
            if self.swapped:
                left, right = (product(2 * eight + odd, block * self.layout.rows) for odd in (0, 1))
                return left, right, left, right
            first = 2 * (block * self.layout.fragments + fragment)
            upper, lower = (product(first + which, 8 * eight // step * step) for which in (0, 1))
            return upper, upper, lower, lower

        return four
