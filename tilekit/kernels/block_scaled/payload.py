"""What a stage holds where operands are scaled in blocks: their tiles and their scales, copied as they lie."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tile_op.block_scaled import ATOM_BYTES, ATOM_ROWS, ScaleFormat, ScaleTile
from tilekit.tile_pipeline.payload import Payload
from tilekit.tiles.call import Call
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage
from tilekit.tiles.tile import Tile

UNITS = ATOM_BYTES // 8
"""Elements of 64 bits, which the copy engine moves scales as, in an atom."""

MOST_ATOMS = 256 // UNITS
"""Atoms of one copy: a box has 256 elements at most."""


class BlockScaledPayload(Payload):
    """A tile of A and a tile of B, each with its scales."""

    def __init__(self, a: OperandTile, b: OperandTile, scales: tuple[ScaleTile, ...]) -> None:
        super().__init__((a, b, *scales), k=a.k)


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
        self.tile, self.scaled, self.operand = tile, scaled, operand
        self.fragment = "load_2d_pair" if paired else "load_2d"
        self.copied = min(tile.atoms, MOST_ATOMS)
        self.map = w.tensor_map(f"{tile.name}_map", self.describe)

    @property
    def name(self) -> str:
        """Of the tile."""
        return self.tile.name

    def describe(self, call: Call) -> TensorMap:
        """The map of the call's scales: rows of atoms, one for each 128 rows of the operand."""
        atoms = max(1, -(-call.k // self.scaled.atom_k))
        rows = call.matrix(self.tile.name[-1]).extents[1]
        address = call.address(f"scale_{self.operand}") or call.address("d") // TMA_ALIGNMENT * TMA_ALIGNMENT
        return TensorMap.tiled(
            address,
            "u64",
            (atoms * UNITS, max(1, -(-rows // ATOM_ROWS))),
            (atoms * ATOM_BYTES,),
            (self.copied * UNITS, 1),
        )

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def bind(self, w: Writer, stages: SharedArray) -> BoundScaleLoader:
        """Prepare addresses; once a role."""
        return BoundScaleLoader(self, w.shared_base + stages.offset, stages.stride)


@dataclass(frozen=True)
class BoundScaleLoader:
    """A `ScaleLoader` in a role."""

    loader: ScaleLoader
    base: Value
    stride: int
    writer = None

    def at(self, w: Writer, tile: Tile) -> ScaleCopies:
        """Turn to an output tile: A's scales go along its rows, B's along its columns."""
        return ScaleCopies(self, (tile.row if self.loader.name == "scale_a" else tile.column) // ATOM_ROWS)


@dataclass(frozen=True)
class ScaleCopies:
    """The copies of the scales of one output tile, whose first 128 rows are the operand's `block`-th."""

    bound: BoundScaleLoader
    block: Operand

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start the copies that fill `stage` from byte `k` of K on."""
        loader = self.bound.loader
        target = self.bound.base + stage.index * self.bound.stride
        load = getattr(w.ptx.tma, loader.fragment)
        first = k // loader.scaled.atom_k * UNITS
        for block in range(loader.tile.blocks):
            for atom in range(0, loader.tile.atoms, loader.copied):
                load(
                    dst=target + (block * loader.tile.atoms + atom) * ATOM_BYTES,
                    map=loader.map,
                    x=first + atom * UNITS,
                    y=self.block + block,
                    full=stage.counting("the ScaleLoader"),
                )
