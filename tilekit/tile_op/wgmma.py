"""TileOp on Hopper: warpgroup matrix multiply-accumulate, both operands in shared memory, accumulators in registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.tensor.tile_tensor import TileTensor
from tilekit.tile_io.operand import OperandTile
from tilekit.tile_pipeline.payload import Stage

ATOM_ROWS = 64
"""Rows of M that one instruction computes."""

MAX_N = 256
"""Columns of N that one instruction computes at most."""

ADDRESS_MASK = 0x3FFFF
"""The part of a shared address that a matrix descriptor encodes."""

K_BYTES = 32
"""Bytes along K that one instruction reads, whatever the type: k16 of 16-bit types, k32 of 8-bit ones."""


@dataclass(frozen=True)
class MatrixDescriptor:
    """The constant part of a shared-memory matrix descriptor (PTX ISA, Matrix Descriptor Format).

    Attributes
    ----------
    leading, stride
        Byte offsets LBO and SBO.
    step
        Bytes from one instruction's k-slice to the next.
    """

    leading: int
    stride: int
    step: int

    @classmethod
    def of(cls, tile: TileTensor, *, major: str) -> MatrixDescriptor:
        """Read the offsets off a tile's layout (row, k), swizzled over 128 bytes.

        K-major: SBO is the distance of 8 rows, LBO unused (1 by convention). MN-major: SBO is the distance of 8
        k-rows, LBO that of neighbouring 64-element chunks of M or N.
        """
        size = tile.dtype.bits // 8
        if major == "k":
            return cls(leading=16, stride=8 * tile.layout(1, 0) * size, step=K_BYTES)
        k_row = tile.layout(0, 1) * size
        chunk = k_row // size
        leading = tile.layout(chunk, 0) * size if tile.layout[0].size > chunk else 16
        return cls(leading=leading, stride=8 * k_row, step=(K_BYTES // size) * k_row)

    @property
    def low(self) -> int:
        """The low word without the address."""
        return (self.leading >> 4) << 16

    @property
    def high(self) -> int:
        """The high word: SBO, and swizzle mode 1 (128 bytes) in the top two bits."""
        return (self.stride >> 4) | 1 << 30


class Wgmma:
    """Multiplies the tiles of a stage into accumulators.

    The consumer warpgroups split the tile along M: warpgroup g computes rows ``g * rows … (g + 1) * rows - 1`` in
    `atoms` instructions of 64 rows each.

    Parameters
    ----------
    a, b
        The operand tiles; `b.rows` is the instruction's n.
    warpgroups
        Warpgroups that share the tile.
    """

    def __init__(self, a: OperandTile, b: OperandTile, *, warpgroups: int) -> None:
        self.a = a
        self.b = b
        self.atoms = a.rows // (ATOM_ROWS * warpgroups)
        self._a_descriptor = MatrixDescriptor.of(a.tensor, major=a.major)
        self._b_descriptor = MatrixDescriptor.of(b.tensor, major=b.major)

    @property
    def rows(self) -> int:
        """Rows of M that a warpgroup computes."""
        return self.atoms * ATOM_ROWS

    @property
    def columns(self) -> int:
        """Columns of N that a warpgroup computes."""
        return self.b.rows

    def accumulators(self, w: Writer) -> list[RegisterTile]:
        """Declare a thread's accumulators, one tile of n / 2 registers for each 64 rows.

        Thread t of the warpgroup holds, of atom a, in register ``4 i + j``: row ``16 (t / 32) + (t % 32) / 4 + 8 (j /
        2)``, column ``8 i + 2 (t % 4) + j % 2`` (PTX ISA, wgmma D fragment).
        """
        return [w.tile(F32, self.columns // 2, "acc") for _ in range(self.atoms)]

    def clear(self, w: Writer, accumulators: list[RegisterTile]) -> None:
        """Zero the accumulators with ordinary moves: what an empty sum needs."""
        for tile in accumulators:
            for register in tile:
                register.assign(0.0)

    def bind(self, w: Writer, tiles: dict[str, SharedArray], warpgroup: Value) -> BoundWgmma:
        """Prepare the descriptors of `warpgroup`; once a role."""
        return BoundWgmma(w, self, tiles, warpgroup)


class BoundWgmma:
    """A `Wgmma` in a role: descriptors at hand, ready to multiply stages."""

    def __init__(self, w: Writer, op: Wgmma, tiles: dict[str, SharedArray], warpgroup: Value) -> None:
        self._op = op
        a, b = tiles[op.a.name], tiles[op.b.name]
        self._a_stride, self._b_stride = a.stride >> 4, b.stride >> 4
        first_a = w.shared_base.retyped(U32) + a.offset + warpgroup * (op.rows * 128)
        first_b = w.shared_base.retyped(U32) + b.offset
        # In a cluster an address carries the CTA's rank in its bits 24 and up; the descriptor takes 18 bits, and what
        # lies above them would fall into the leading offset (seen on an H200: wrong chunks of MN-major operands in
        # every CTA but the first).
        self._a_low = ((first_a & ADDRESS_MASK) >> 4) | op._a_descriptor.low
        self._b_low = ((first_b & ADDRESS_MASK) >> 4) | op._b_descriptor.low

    def multiply(self, w: Writer, accumulators: list[RegisterTile], stage: Stage, *, accumulate: Value) -> None:
        """Issue a stage's instructions; the first k-slice overwrites the accumulators unless `accumulate` holds."""
        op = self._op
        a_low = self._a_low + stage.index * self._a_stride
        b_low = self._b_low + stage.index * self._b_stride
        w.ptx.wgmma.fence()
        for index in range(op.a.k * op.a.dtype.bytes // K_BYTES):
            b = w.ptx.wgmma.descriptor(low=b_low + (index * op._b_descriptor.step >> 4), high=op._b_descriptor.high)
            for atom, tile in enumerate(accumulators):
                offset = atom * ATOM_ROWS * 128 + index * op._a_descriptor.step
                a = w.ptx.wgmma.descriptor(low=a_low + (offset >> 4), high=op._a_descriptor.high)
                self._issue(w, tile, a, b, accumulate if index == 0 else True)

    def commit(self, w: Writer) -> None:
        """Close the group of instructions issued since the last commit."""
        w.ptx.wgmma.commit()

    def wait(self, w: Writer, pending: int) -> None:
        """Wait until at most `pending` groups are in flight."""
        w.ptx.wgmma.wait(pending=pending)

    def _issue(self, w: Writer, acc: RegisterTile, a: Value, b: Value, accumulate: Value | bool) -> None:
        op = self._op
        common = {"acc": acc, "a": a, "b": b, "accumulate": accumulate, "n": op.columns}
        if op.a.dtype.bytes == 1:
            w.ptx.wgmma.mma_8bit(**common, a_type=op.a.dtype.name, b_type=op.b.dtype.name)
        else:
            w.ptx.wgmma.mma_16bit(
                **common, type=op.a.dtype.name, a_mn_major=int(op.a.major == "mn"), b_mn_major=int(op.b.major == "mn")
            )
