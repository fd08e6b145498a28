"""Shared-memory matrix descriptors: where a matrix instruction finds its operand, read off the operand's image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilekit.tensor.swizzle import Swizzle
from tilekit.tiles.operand import ATOM_32B, ATOM_ROWS, PLAIN_BYTES, OperandTile

ADDRESS_MASK = 0x3FFFF
"""The part of a shared address that a matrix descriptor encodes.

In a cluster an address carries the CTA's rank in its bits 24 and up; the descriptor takes 18 bits, and what lies above
them would fall into the leading offset (seen on an H200: wrong chunks of MN-major operands in every CTA but the first).
"""

K_BYTES = 32
"""Bytes along K that one matrix instruction reads: k8 of tf32, k16 of 16-bit types, k32 of 8-bit ones."""

WGMMA_MODES = {
    Swizzle.identity(): 0,
    Swizzle.tma(32): 3 << 30,
    Swizzle.tma(64): 2 << 30,
    Swizzle.tma(128): 1 << 30,
}
"""High words of wgmma descriptors, by the image's swizzle (PTX ISA, wgmma, Matrix Descriptor Format)."""

TCGEN05_MODES = {
    Swizzle.identity(): 1 << 14,
    ATOM_32B: 1 << 14 | 1 << 29,
    Swizzle.tma(128): 1 << 14 | 2 << 29,
    Swizzle.tma(64): 1 << 14 | 4 << 29,
    Swizzle.tma(32): 1 << 14 | 6 << 29,
}
"""High words of tcgen05 descriptors: version 1 and the swizzle (PTX ISA, tcgen05, Shared memory descriptor)."""


@dataclass(frozen=True)
class MatrixDescriptor:
    """The constant part of a shared-memory matrix descriptor.

    Attributes
    ----------
    leading, stride
        Byte offsets LBO and SBO.
    step
        Bytes from one instruction's k-slice to the next, in a slice of the tile.
    steps
        Instructions that a slice of the tile feeds; without a swizzle, K-major, two slices feed one.
    slice_bytes
        Bytes from what so many instructions read to what the next ones do.
    mode
        The high word's bits beside SBO.
    """

    leading: int
    stride: int
    step: int
    steps: int
    slice_bytes: int
    mode: int

    @classmethod
    def of(cls, tile: OperandTile, modes: Mapping[Swizzle, int]) -> MatrixDescriptor:
        """Read the offsets off a tile's image, for an instruction set that writes swizzles by `modes`.

        K-major: SBO is the distance of 8 rows; LBO that of core matrices along K, where there is no swizzle, else
        unused (1 by convention). MN-major: SBO is the distance of as many k-rows as an atom has (8, or 4 where 32 bytes
        stay together), LBO that of neighbouring chunks of M or N; without a swizzle the two change places.
        """
        mode = modes[tile.swizzle]
        if tile.major == "k":
            stride = ATOM_ROWS * tile.row_bytes
            if not tile.swizzle_bytes:
                return cls(tile.slice_bytes, stride, step=0, steps=1, slice_bytes=2 * tile.slice_bytes, mode=mode)
            steps = tile.row_bytes // K_BYTES
            return cls(16, stride, step=K_BYTES, steps=steps, slice_bytes=tile.slice_bytes, mode=mode)
        k = 8 * K_BYTES // tile.bits
        chunks = tile.offset_of(tile.chunk) if tile.image_rows > tile.chunk else PLAIN_BYTES
        k_rows = (ATOM_ROWS // 2 if tile.swizzle == ATOM_32B else ATOM_ROWS) * tile.row_bytes
        leading, stride = (chunks, k_rows) if tile.swizzle_bytes else (k_rows, chunks)
        return cls(
            leading,
            stride,
            step=k * tile.row_bytes,
            steps=tile.slice_k // k,
            slice_bytes=tile.slice_bytes,
            mode=mode,
        )

    @classmethod
    def across(cls, tile: OperandTile, modes: Mapping[Swizzle, int], *, k: int) -> MatrixDescriptor:
        """Read the offsets off a K-major image that is read across its rows, `k` of them an instruction.

        The rows are then K, and the contiguous elements are N: SBO is the distance of 8 rows, LBO that of the slices,
        which are chunks of N.
        """
        return cls(
            leading=tile.slice_bytes,
            stride=ATOM_ROWS * tile.row_bytes,
            step=k * tile.row_bytes,
            steps=tile.rows // k,
            slice_bytes=0,
            mode=modes[tile.swizzle],
        )

    def offset(self, instruction: int) -> int:
        """Bytes from the image to what the k-block's instruction of that number reads."""
        part, within = divmod(instruction, self.steps)
        return part * self.slice_bytes + within * self.step

    @property
    def low(self) -> int:
        """The low word without the address."""
        return (self.leading >> 4) << 16

    @property
    def high(self) -> int:
        """The high word."""
        return (self.stride >> 4) | self.mode
