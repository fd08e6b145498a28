"""Shared-memory matrix descriptors: where a matrix instruction finds its operand, read off the operand's layout."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.tensor.tile_tensor import TileTensor

ADDRESS_MASK = 0x3FFFF
"""The part of a shared address that a matrix descriptor encodes.

In a cluster an address carries the CTA's rank in its bits 24 and up; the descriptor takes 18 bits, and what lies above
them would fall into the leading offset (seen on an H200: wrong chunks of MN-major operands in every CTA but the first).
"""

K_ROW_BYTES = 128
"""Atoms of an MN-major operand that one stride steps over, in bytes: 8 of 16, or 4 of 32."""

K_BYTES = 32
"""Bytes along K that one matrix instruction reads: k8 of tf32, k16 of 16-bit types, k32 of 8-bit ones."""

_WGMMA_SWIZZLES = {1: 0, 32: 3, 64: 2, 128: 1}
"""The swizzles of wgmma, by the bytes they permute."""

_TCGEN05_SWIZZLES = {16: 2, 32: 1}
"""The swizzles over 128 bytes, by the bytes they keep together."""


def wgmma_mode(tile: TileTensor) -> int:
    """High word of a wgmma descriptor: the swizzle (PTX ISA, wgmma, Matrix Descriptor Format)."""
    return _WGMMA_SWIZZLES[tile.swizzle.span] << 30


def tcgen05_mode(tile: TileTensor) -> int:
    """High word of a tcgen05 descriptor: version 1, the swizzle (PTX ISA, tcgen05, Shared memory descriptor)."""
    return 1 << 14 | _TCGEN05_SWIZZLES[tile.swizzle.atom] << 29


@dataclass(frozen=True)
class MatrixDescriptor:
    """The constant part of a shared-memory matrix descriptor.

    Attributes
    ----------
    leading, stride
        Byte offsets LBO and SBO.
    step
        Bytes from one instruction's k-slice to the next.
    mode
        The high word's bits beside SBO: those of `wgmma_mode` or `tcgen05_mode`.
    """

    leading: int
    stride: int
    step: int
    mode: int

    @classmethod
    def of(cls, tile: TileTensor, *, major: str, mode: int) -> MatrixDescriptor:
        """Read the offsets off a tile's layout (row, k): K-major, swizzled over 128 bytes.

        K-major: SBO is the distance of 8 rows, LBO unused (1 by convention). MN-major: SBO is the distance of as many
        k-rows as 128 bytes have atoms (8 of 16 bytes, or 4 of 32), LBO that of neighbouring chunks of M or N;
        without a swizzle it is the other way round.
        """
        size = tile.dtype.bits // 8
        if major == "k":
            return cls(leading=16, stride=8 * tile.layout(1, 0) * size, step=K_BYTES, mode=mode)
        k_row = tile.layout(0, 1) * size
        chunk = k_row // size
        chunks = tile.layout(chunk, 0) * size if tile.layout[0].size > chunk else 16
        k_rows = K_ROW_BYTES // max(tile.swizzle.atom, 16) * k_row
        leading, stride = (chunks, k_rows) if tile.swizzle.bits else (k_rows, chunks)
        return cls(leading=leading, stride=stride, step=(K_BYTES // size) * k_row, mode=mode)

    @property
    def low(self) -> int:
        """The low word without the address."""
        return (self.leading >> 4) << 16

    @property
    def high(self) -> int:
        """The high word."""
        return (self.stride >> 4) | self.mode
