"""The image of one operand's tile in shared memory: what the loader writes and the matrix instruction reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import Whole, illegal, require_symbol, require_whole, require_word
from tilekit.assembly.values import Value
from tilekit.emulator.ptx.memory.tensor_elements import ELEMENT_TYPES
from tilekit.tensor.dtypes import NamedType
from tilekit.tensor.layout import Layout
from tilekit.tensor.swizzle import Swizzle
from tilekit.tensor.tile_tensor import AddressSpace, TileTensor
from tilekit.tiles.call import Major

SWIZZLE_BYTES: Final = 128
"""Bytes of one swizzled row where nothing else is asked for, and so the width of a TMA box and of a k-block."""

SwizzleBytes = Literal[0, 32, 64, 128]

PLAIN_BYTES = 16
"""Bytes of a row without a swizzle: that of a core matrix, 8 rows of 16 bytes (PTX ISA, Matrix Descriptor)."""

ATOM_ROWS = 8
"""Rows of a swizzle atom, and of a core matrix."""

ATOM_32B = Swizzle(2, 5, 2)
"""The 128-byte swizzle that keeps 32 bytes together: they trade places by the row's low two bits."""


_ROWS, _SLICES = Whole(ATOM_ROWS, step=ATOM_ROWS), Whole(1)

_SHARED_BITS = {name: 8 * element.shared_bytes // element.atom for name, element in ELEMENT_TYPES.items()}


class ElementType(Protocol):
    """What a tile must know of its elements."""

    @property
    def name(self) -> str:
        """As the PTX ISA has it."""

    @property
    def bits(self) -> int:
        """Of an element in global memory."""

    @property
    def tensor_map(self) -> str:
        """The type that a tensor map moves it as."""


@call_checked
@dataclass(frozen=True)
class OperandTile:
    """`rows` of M or N by one k-block of several slices, each swizzled over `swizzle_bytes`.

    K-major, a row of the image is one row of the operand: `row_bytes` along K. MN-major, a row of the image is
    `row_bytes` along M or N at one k, and the tile is a sequence of such chunks, each a slice's k long (`reference`:
    PTX ISA, Matrix Descriptor; CUTLASS calls the canonical layouts K-SW128, MN-SW128 and so on, those without a swizzle
    INTERLEAVE). The swizzle keeps 16 bytes together, but of 32-bit elements along M or N 32 bytes: a tensor core reads
    them in no other arrangement (PTX ISA, tcgen05, Shared memory layout and swizzling; SWIZZLE_128B_BASE32B in CUTLASS
    and DeepGEMM).

    Attributes
    ----------
    name
        Of the tile, its tensor map and its images.
    dtype
        Element type.
    rows
        Of M or N.
    major
        The contiguous dimension.
    slices
        Slices of a k-block, one behind the other.
    swizzle_bytes
        0 for none: then a slice is 16 bytes along K, or chunks are 16 bytes along M or N.
    trimmed
        Whether an MN-major tile is loaded without what a product does not use: of the last chunk come the tile's own
        elements alone, and in the place of a chunk that lies outside of the operand comes one inside, which takes the
        copy engine less time (docs/hardware-facts.md). Else chunks are whole, and zero outside.
    """

    name: str
    dtype: ElementType
    rows: int
    major: Major
    slices: int = 1
    swizzle_bytes: SwizzleBytes = 128
    trimmed: bool = False

    def __post_init__(self) -> None:
        element = getattr(self.dtype, "tensor_map", None)
        if not isinstance(element, str) or element not in _SHARED_BITS:
            raise illegal("OperandTile", "dtype", self.dtype, "an element type (tilekit.compose.BF16, ...)")
        require_symbol("OperandTile", "name", self.name)
        require_whole("OperandTile", "rows", self.rows, _ROWS)
        require_word("OperandTile", "major", self.major, ("k", "mn"))
        require_whole("OperandTile", "slices", self.slices, _SLICES)
        require_word("OperandTile", "trimmed", self.trimmed, (True, False))
        require_whole("OperandTile", "swizzle_bytes", self.swizzle_bytes, Whole(0, 128))
        if self.swizzle_bytes not in (0, 32, 64, 128):
            nearest = min((0, 32, 64, 128), key=lambda legal: abs(legal - self.swizzle_bytes))
            raise TraceError(
                f"tile {self.name!r}: swizzle_bytes={self.swizzle_bytes}; legal: 32, 64, 128, and 0 for none; nearest: "
                f"{nearest}",
                code="TK-TRACE-017",
            )

    @property
    def bits(self) -> int:
        """Of an element in shared memory: the copy engine pads some types of 4 and 6 bits to bytes."""
        return _SHARED_BITS[self.dtype.tensor_map]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the image."""
        return self.swizzle_bytes or PLAIN_BYTES

    @property
    def k(self) -> int:
        """Elements of a k-block."""
        return self.slices * self.slice_k

    @property
    def slice_k(self) -> int:
        """Elements along K of one slice: K-major those of a row; MN-major those of 128 bytes."""
        return 8 * (self.row_bytes if self.major == "k" else SWIZZLE_BYTES) // self.bits

    @property
    def chunk(self) -> int:
        """Elements along M or N in one row of an MN-major image."""
        return 8 * self.row_bytes // self.bits

    @property
    def image_rows(self) -> int:
        """Rows the image holds: MN-major, whole chunks."""
        return self.rows if self.major == "k" else -(-self.rows // self.chunk) * self.chunk

    @property
    def rest(self) -> int:
        """Elements along M or N that are loaded of the last chunk, where it is trimmed; 0 where chunks are whole."""
        return self.rows % self.chunk if self.trimmed and self.major == "mn" else 0

    @property
    def loaded_rows(self) -> int:
        """Rows of the image that are loaded."""
        return self.rows if self.rest else self.image_rows

    @property
    def slice_bytes(self) -> int:
        """Bytes of one slice's image."""
        return self.offset_of(self.image_rows)

    @property
    def bytes(self) -> int:
        """Bytes of the image: the slices one behind the other."""
        return self.slices * self.slice_bytes

    @property
    def transfer_bytes(self) -> int:
        """Bytes that a load of the image counts on a barrier: what the copy engine pads with does not count."""
        element = ELEMENT_TYPES[self.dtype.tensor_map]
        return self.loaded_rows * self.k * self.bits // 8 * element.global_bytes // element.shared_bytes

    @property
    def alignment(self) -> int:
        """What the address of an image is a multiple of: an atom of the swizzle, or a core matrix."""
        return ATOM_ROWS * self.row_bytes

    def offset_of(self, rows: int) -> int:
        """Bytes from a slice's first row of M or N to the one so many rows on; MN-major, whole chunks."""
        return rows * (self.row_bytes if self.major == "k" else self.slice_k * self.bits // 8)

    @property
    def tensor(self) -> TileTensor:
        """One slice as a `TileTensor` indexed (row, k)."""
        k = self.slice_k
        if self.major == "k":
            layout = Layout((self.rows, k), (k, 1))
        else:
            layout = Layout(((self.chunk, self.image_rows // self.chunk), k), ((1, self.chunk * k), self.chunk))
        element = NamedType(self.dtype.name, self.bits)
        return TileTensor(layout, element, space=AddressSpace.SHARED, swizzle=self.swizzle)

    @property
    def swizzle(self) -> Swizzle:
        """The swizzle of the image, on byte offsets from a multiple of its period."""
        if self.major == "mn" and self.bits == 32 and self.swizzle_bytes == SWIZZLE_BYTES:
            return ATOM_32B
        return Swizzle.tma(self.swizzle_bytes or None)

    def swizzled_byte(self, byte: int, row: int) -> int:
        """The same as `swizzled`, of numbers."""
        return self.swizzle(row * self.row_bytes + byte) - row * self.row_bytes

    def swizzled(self, byte: Value, row: Value) -> Value:
        """Where a byte of the image's row lies in that row: what ``ldmatrix`` reads and threads write.

        Atoms trade places by the row's number.
        """
        swizzle = self.swizzle
        if not swizzle.bits:
            return byte
        rows_alike = (1 << (swizzle.base + swizzle.shift)) // self.row_bytes
        atom = byte & (self.row_bytes - swizzle.atom)
        turn = (row // rows_alike if rows_alike > 1 else row) % (1 << swizzle.bits)
        return (atom ^ (turn * swizzle.atom)) | byte % swizzle.atom
