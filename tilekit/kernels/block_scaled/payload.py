"""What a stage holds beside operands that are scaled in blocks: their scales, copied as they lie in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tile_op.block_scaled import ATOM_BYTES, ATOM_ROWS, ScaleFormat, ScaleTile
from tilekit.tiles.call import Call
from tilekit.tiles.stage import Stage
from tilekit.tiles.tile import Tile

UNITS = ATOM_BYTES // 8
"""Elements of 64 bits, which the copy engine moves scales as, in an atom."""

MOST_ATOMS = 256 // UNITS
"""Atoms of one copy: a box has 256 elements at most."""


class ScaleLoader:
    """Loads the scales of a stage, which lie in memory as the tensor core reads them, zeros where they end.

    Parameters
    ----------
    w
        The writer; the loader declares its tensor map as a kernel parameter.
    tile
        The image to fill.
    scaled
        The format.
    operand
        Whose scales of the call they are, ``"a"`` or ``"b"``.
    paired
        Whether the bytes count on a barrier of the CTA pair's leader.
    """

    prefetches = False

    def __init__(self, w: Writer, tile: ScaleTile, scaled: ScaleFormat, operand: str, *, paired: bool) -> None:
        self.tile, self.scaled, self.operand, self.name = tile, scaled, operand, tile.name
        self.fragment = "load_2d_pair" if paired else "load_2d"
        self.copied = min(tile.atoms, MOST_ATOMS)
        self.map = w.tensor_map(f"{tile.name}_map", self.describe)

    def describe(self, call: Call) -> TensorMap:
        """The map of the call's scales: rows of atoms, one for each 128 rows of the operand."""
        atoms = max(1, -(-call.k // self.scaled.atom_k))
        rows = call.matrix(self.tile.name[-1]).extents[1]
        address = call.address(f"scale_{self.operand}") or call.address("d") // TMA_ALIGNMENT * TMA_ALIGNMENT
        dims, box = (atoms * UNITS, max(1, -(-rows // ATOM_ROWS))), (self.copied * UNITS, 1)
        return TensorMap.tiled(address, "u64", dims, (atoms * ATOM_BYTES,), box)

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def bind(self, w: Writer, stages: SharedArray) -> BoundScaleLoader:
        """Prepare addresses; once a role."""
        return BoundScaleLoader(self, w.shared_base + stages.offset, stages.stride)


@dataclass(frozen=True)
class BoundScaleLoader:
    """A `ScaleLoader` in a role, and its copies for one output tile, whose first 128 rows are the `block`-th."""

    loader: ScaleLoader
    base: Value
    stride: int
    block: Operand = 0
    writer = None

    def at(self, w: Writer, tile: Tile) -> BoundScaleLoader:
        """Turn to an output tile: A's scales go along its rows, B's along its columns."""
        return replace(self, block=(tile.row if self.loader.name == "scale_a" else tile.column) // ATOM_ROWS)

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start the copies that fill `stage` from byte `k` of K on."""
        loader, tile = self.loader, self.loader.tile
        images, load = self.base + stage.index * self.stride, getattr(w.ptx.tma, loader.fragment)
        first = k // loader.scaled.atom_k * UNITS
        for block, atom in product(range(tile.blocks), range(0, tile.atoms, loader.copied)):
            target = images + (block * tile.atoms + atom) * ATOM_BYTES
            x, y = first + atom * UNITS, self.block + block
            load(dst=target, map=loader.map, x=x, y=y, full=stage.counting("the ScaleLoader"))
