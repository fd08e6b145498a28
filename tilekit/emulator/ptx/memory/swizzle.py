"""Shared-memory bank swizzles, as the tensor-copy engine and the tensor core apply them.

A swizzle is an XOR of some address bits into lower ones. Both units apply it to the *absolute* shared-memory
address of a CTA, so where a tile starts decides how it looks. See PTX ISA, "Swizzling modes" (tensors) and "Matrix
descriptor" (wgmma), and the CUDA driver API's ``CUtensorMapSwizzle``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

__all__ = ["PERIOD", "SPAN", "Swizzle", "chunk_places", "chunk_size", "swizzled"]

Swizzle: TypeAlias = Literal["32B", "64B", "128B", "128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B"]

# mode -> (mask, shift) pairs: address ^= (address >> shift) & mask, all taken from the same original address.
_XORS: dict[Swizzle | None, tuple[tuple[int, int], ...]] = {
    None: (),
    "32B": ((0x10, 3),),
    "64B": ((0x30, 3),),
    "128B": ((0x70, 3),),
    "128B_atom_32B": ((0x60, 2),),
    "128B_atom_32B_flip_8B": ((0x60, 2), (0x08, 4)),
    "128B_atom_64B": ((0x40, 1),),
}

SPAN: dict[Swizzle | None, int] = {
    None: 16,
    "32B": 32,
    "64B": 64,
    "128B": 128,
    "128B_atom_32B": 128,
    "128B_atom_32B_flip_8B": 128,
    "128B_atom_64B": 128,
}
"""Bytes within which each mode moves data: the widest inner box dimension a tensor map may have under it."""

PERIOD = 1024
"""Bytes after which every mode's pattern has come back to its start: only ``address % PERIOD`` matters."""


@overload
def swizzled(address: int, mode: Swizzle | None) -> int: ...
@overload
def swizzled(address: npt.NDArray[np.int64], mode: Swizzle | None) -> npt.NDArray[np.int64]: ...
def swizzled(address: int | npt.NDArray[np.int64], mode: Swizzle | None) -> int | npt.NDArray[np.int64]:
    """Return where the byte at a linear shared address lies under a swizzle.

    Parameters
    ----------
    address
        Absolute shared-memory address, or an array of them, in bytes.
    mode
        Swizzle, or None for none. Every mode is its own inverse.
    """
    result = address
    for mask, shift in _XORS[mode]:
        result = result ^ ((address >> shift) & mask)
    return result


def chunk_size(mode: Swizzle | None) -> int:
    """Return the bytes that a mode always keeps together: 16, or 8 for the mode that also flips halves."""
    return 8 if mode == "128B_atom_32B_flip_8B" else 16


@lru_cache(maxsize=4096)
def chunk_places(mode: Swizzle | None, phase: int, rows: int, row_chunks: int) -> npt.NDArray[np.intp]:
    """Return where the chunks of a box of rows lie in its shared-memory image.

    Each row starts a new span of the mode, however few chunks it has; a full image maps onto itself, so that there
    ``places`` is also its own inverse.

    Parameters
    ----------
    mode
        Swizzle.
    phase
        Shared address of the image modulo `PERIOD`; a multiple of the mode's span.
    rows, row_chunks
        Extent of the box in chunks of `chunk_size` bytes.

    Returns
    -------
    places : int[rows * row_chunks]
        Chunk indices into the image; read-only, because it is cached.
    """
    size = chunk_size(mode)
    linear = phase + SPAN[mode] * np.arange(rows, dtype=np.int64)[:, None] + size * np.arange(row_chunks)
    places = ((swizzled(linear, mode) - phase) // size).astype(np.intp).reshape(-1)
    places.setflags(write=False)
    return places
