"""TileOp with a scale for every few elements of K: tcgen05.mma.block_scale, its scales in tensor memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import TMEM, U32
from tilekit.assembly.writer import Writer
from tilekit.dtypes import E4M3, UE8M0, DType
from tilekit.tile_op.descriptors import ADDRESS_MASK, K_BYTES
from tilekit.tile_op.tcgen05 import BoundTcgen05, Tcgen05
from tilekit.tiles.operand import SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import Stage

ATOM_ROWS = 128
"""Rows of A, or columns of B, whose scales lie together."""

ATOM_SCALES = 4
"""Scales of each of them that do."""

ATOM_BYTES = ATOM_ROWS * ATOM_SCALES
ATOM_COLUMNS = 4
"""Columns of tensor memory that an atom takes (PTX ISA, tcgen05.mma, Layout of the Scale Factor matrices)."""

COPY_DESCRIPTOR = 1 << 14 | 8 * 16 >> 4
"""High word of the descriptor of an atom: version 1, no swizzle, 8 rows of 16 bytes from each other."""


@dataclass(frozen=True)
class ScaleFormat:
    """How operands are scaled in blocks along K.

    Attributes
    ----------
    name, kind
        Of the format, and of the fragment that multiplies it.
    types
        Of operands: element types, or what a byte holds.
    scale
        Type of a scale.
    block
        Elements of K that share a scale.
    packed
        Elements in a byte.
    """

    name: str
    kind: str
    types: tuple[str, ...]
    scale: DType
    block: int
    packed: int

    @property
    def vector(self) -> int:
        """Scales of a row that an instruction takes."""
        return K_BYTES * self.packed // self.block

    @property
    def atom_k(self) -> int:
        """Bytes of K that an atom of scales is for."""
        return ATOM_SCALES * self.block // self.packed


MXFP8 = ScaleFormat("mxfp8", "mxf8f6f4", ("e4m3", "e5m2"), UE8M0, block=32, packed=1)
MXFP4 = ScaleFormat("mxfp4", "mxf4", ("e2m1x2",), UE8M0, block=32, packed=2)
NVFP4 = ScaleFormat("nvfp4", "nvf4", ("e2m1x2",), E4M3, block=16, packed=2)
FORMATS = {one.name: one for one in (MXFP8, MXFP4, NVFP4)}


@dataclass(frozen=True)
class ScaleTile:
    """The scales of an operand's tile: atoms along K for each 128 rows, those of the first rows first.

    Attributes
    ----------
    name
        Of the tile, and of the array in a call.
    atoms
        Along K, in a stage.
    blocks
        Of 128 rows.
    """

    name: str
    atoms: int
    blocks: int
    alignment = ATOM_ROWS
    """What the copy engine, and an atom's descriptor, ask for."""

    @property
    def bytes(self) -> int:
        """Of the image."""
        return self.atoms * self.blocks * ATOM_BYTES

    def place(self, atom: int, block: int = 0) -> int:
        """The first of an atom's columns of tensor memory: blocks behind each other, those of an atom of K together."""
        return (atom * self.blocks + block) * ATOM_COLUMNS


class BlockScaledTcgen05(Tcgen05):
    """Multiplies the tiles of a stage, each block of K by its scales.

    Scales lie in a region of tensor memory beside the accumulators, one stage of them: the thread that multiplies
    copies them there, and what it issues executes in its order. With pairs each CTA holds the scales of its own rows,
    and those of all columns.

    Parameters
    ----------
    a, b, group
        As for `Tcgen05`: 128 rows of a CTA, and a multiple of 128 columns.
    scaled
        How they are scaled.
    """

    def __init__(self, a: OperandTile, b: OperandTile, *, group: int, scaled: ScaleFormat) -> None:
        self.scaled, self.kinds, self.kind = scaled, (scaled.types,), scaled.kind
        super().__init__(a, b, group=group)
        self.k = K_BYTES * scaled.packed
        atoms = a.slices * SWIZZLE_BYTES // scaled.atom_k
        blocks = {"scale_a": a.rows // ATOM_ROWS, "scale_b": self.n // ATOM_ROWS}
        self.scales = tuple(ScaleTile(name, atoms, count) for name, count in blocks.items())
        self.scale_columns = sum(tile.place(atoms) for tile in self.scales)

    def encode(self) -> int:
        """Encode shape, types and the scales' type (PTX ISA, tcgen05.mma, Instruction descriptor)."""
        codes = {"e4m3": 0, "e5m2": 1, "e2m1x2": 1}
        types = codes[self.a.dtype.name] << 7 | codes[self.b.dtype.name] << 10
        return types | (self.n >> 3) << 17 | int(self.scaled.scale == UE8M0) << 23 | (self.m >> 4) << 24

    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Any = None) -> BoundTcgen05:
        """Prepare the descriptors; once a role."""
        return BoundBlockScaled(w, self, tiles)


class BoundBlockScaled(BoundTcgen05):
    """A `BlockScaledTcgen05` in the thread that issues."""

    _op: BlockScaledTcgen05

    def __init__(self, w: Writer, op: BlockScaledTcgen05, tiles: dict[str, SharedArray]) -> None:
        super().__init__(w, op, tiles)
        first, base = op.claimed(w), w.shared_base.retyped(U32)
        self._places = first, first + op.scales[0].place(op.scales[0].atoms)
        self._images = [(((base + tiles[t.name].offset) & ADDRESS_MASK) >> 4) | 1 << 16 for t in op.scales]
        self._strides = [tiles[tile.name].stride >> 4 for tile in op.scales]

    def prepare(self, w: Writer, stage: Stage) -> None:
        """Copy a stage's scales."""
        for tile, image, stride, first in zip(self._op.scales, self._images, self._strides, self._places, strict=True):
            images = image + stage.index * stride
            for block, atom in product(range(tile.blocks), range(tile.atoms)):
                low = images + ((block * tile.atoms + atom) * ATOM_BYTES >> 4)
                source = w.ptx.tcgen05.descriptor(low=low, high=COPY_DESCRIPTOR)
                place = first + tile.place(atom, block)
                w.ptx.tcgen05.copy_scales(address=place, source=source, group=self._op.group)

    def further(self, index: int) -> dict[str, Any]:
        """Where an instruction's scales are: the columns, and which of the four bytes of a word."""
        atom, first = divmod(index * self._op.scaled.vector, ATOM_SCALES)
        places = {
            tile.name: (place + tile.place(atom)).retyped(TMEM)
            for place, tile in zip(self._places, self._op.scales, strict=True)
        }
        return {"idesc": self._op.descriptor | first << 4 | first << 29, **places}
