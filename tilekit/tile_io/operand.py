"""The image of one operand's tile in shared memory: what the loader writes and the matrix instruction reads."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.dtypes import DType
from tilekit.tensor.layout import Layout
from tilekit.tensor.swizzle import Swizzle
from tilekit.tensor.tile_tensor import AddressSpace, TileTensor
from tilekit.tiles.call import Major

SPAN = 128
"""Bytes of one swizzled row, and so the width of a TMA box and of a k-block."""


ATOM = 16
"""Bytes that the other swizzles keep together."""

ATOM_32B = Swizzle(2, 5, 2)
"""The 128-byte swizzle that keeps 32 bytes together: they trade places by the row's low two bits."""


@dataclass(frozen=True)
class OperandTile:
    """`rows` of M or N by one k-block of `depth` slices of 128 bytes, each swizzled over 128 bytes.

    K-major, a row of the image is one row of the operand: 128 bytes along K. MN-major, a row of the image is 128 bytes
    along M or N at one k, and the tile is a sequence of such chunks, each `k` rows long (`reference`: PTX ISA, Matrix
    Descriptor; CUTLASS calls the two canonical layouts K-SW128 and MN-SW128). The swizzle keeps 16 bytes together, but
    of 32-bit elements along M or N 32 bytes: a tensor core reads them in no other arrangement (PTX ISA, tcgen05,
    Shared memory layout and swizzling; SWIZZLE_128B_BASE32B in CUTLASS and DeepGEMM).

    An MN-major tile of few rows may have chunks as narrow as itself: of 64, 32 or 16 bytes, swizzled over as many, 16
    not at all. The copy engine is slow where a box ends outside of its tensor, and brings no neighbour's elements.

    Attributes
    ----------
    name, dtype, rows, major, depth
        As above.
    chunk_bytes
        Of a row of an MN-major image.
    """

    name: str
    dtype: DType
    rows: int
    major: Major
    depth: int = 1
    chunk_bytes: int = SPAN

    @property
    def k(self) -> int:
        """Elements of a k-block."""
        return self.depth * self.slice_k

    @property
    def slice_k(self) -> int:
        """Elements along K of one slice."""
        return SPAN // self.dtype.bytes

    @property
    def image_rows(self) -> int:
        """Rows the image holds: MN-major, whole chunks."""
        return self.rows if self.major == "k" else -(-self.rows // self.chunk) * self.chunk

    @property
    def slice_bytes(self) -> int:
        """Bytes of one slice's image."""
        return self.image_rows * SPAN

    @property
    def bytes(self) -> int:
        """Bytes of the image: the slices one behind the other."""
        return self.depth * self.slice_bytes

    @property
    def chunk(self) -> int:
        """Elements along M or N in one row of an MN-major image."""
        return self.chunk_bytes // self.dtype.bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the image."""
        return SPAN if self.major == "k" else self.chunk_bytes

    @property
    def tensor(self) -> TileTensor:
        """One slice as a `TileTensor` indexed (row, k)."""
        k = self.slice_k
        if self.major == "k":
            layout = Layout((self.rows, k), (k, 1))
        else:
            layout = Layout(((self.chunk, self.image_rows // self.chunk), k), ((1, self.chunk * k), self.chunk))
        return TileTensor(layout, self.dtype.name, space=AddressSpace.SHARED, swizzle=self.swizzle)

    @property
    def swizzle(self) -> Swizzle:
        """The swizzle of the image."""
        if self.major == "mn" and self.dtype.bits == 32:
            return ATOM_32B
        return Swizzle.tma(self.row_bytes if self.row_bytes > ATOM else None)
