"""Matrices of ``ldmatrix``, ``stmatrix`` and ``movmatrix``: rows in shared memory, and the registers they lie in.

See PTX ISA, ``ldmatrix`` and ``stmatrix``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = [
    "bytes_from_registers",
    "bytes_to_registers",
    "load_matrices",
    "matrices_from_registers",
    "matrices_to_registers",
    "widened",
]


def load_matrices(shared: npt.NDArray[np.uint8], addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the 16-byte rows at shared addresses, as ``ldmatrix`` fetches them.

    Parameters
    ----------
    shared : uint8[bytes]
        The CTA's shared memory, a multiple of 16 bytes.
    addresses : int64[8 * count]
        Addresses that the first 8, 16 or 32 lanes supply: multiples of 16.

    Returns
    -------
    rows : uint8[8 * count, 16]
    """
    if (addresses & 15).any():
        lane = int(np.flatnonzero(addresses & 15)[0])
        raise ValueError(f"addresses[{lane}] = {int(addresses[lane]):#x}: must be a multiple of 16")
    return shared.view(_ROW).take(addresses >> 4).view(np.uint8).reshape(-1, 16)


def matrices_to_registers(rows: npt.NDArray[np.uint8], transposed: bool = False) -> npt.NDArray[np.uint32]:
    """Return the registers in which ``ldmatrix .m8n8 .b16`` leaves matrices.

    Parameters
    ----------
    rows : uint8[8 * count, 16]
        The rows of 1, 2 or 4 matrices of 8x8 16-bit elements.
    transposed
        ``.trans``: each lane gets elements of two rows instead of two elements of a row.

    Returns
    -------
    registers : uint32[count, 32]
        Register i of lane 4g + t holds elements (g, 2t) and (g, 2t + 1) of matrix i, the first in the low half.
    """
    if not transposed:
        return np.ascontiguousarray(rows).view(np.uint32).reshape(-1, 32)
    elements = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, 8, 8)
    return np.ascontiguousarray(elements.transpose(0, 2, 1)).view(np.uint32).reshape(-1, 32)


def matrices_from_registers(registers: npt.NDArray[np.uint32], transposed: bool = False) -> npt.NDArray[np.uint8]:
    """Return the rows that ``stmatrix .m8n8 .b16`` stores: the inverse of `matrices_to_registers`.

    Parameters
    ----------
    registers : uint32[count, 32]
    transposed
        ``.trans``.

    Returns
    -------
    rows : uint8[8 * count, 16]
        Row r of matrix i goes to the address that lane 8i + r supplies.
    """
    elements = np.ascontiguousarray(registers).view(np.uint16).reshape(-1, 8, 8)
    if transposed:
        elements = np.ascontiguousarray(elements.transpose(0, 2, 1))
    return elements.view(np.uint8).reshape(-1, 16)


_ROW = np.dtype((np.void, 16))


def bytes_to_registers(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the registers in which ``ldmatrix .m16n16 .trans`` leaves 8-bit matrices.

    Parameters
    ----------
    rows : uint8[16 * count, 16]
        The rows of 1 or 2 matrices.

    Returns
    -------
    registers : uint32[2 * count, 32]
        Register 2i + h of lane 4g + t holds column g + 8h of rows 4t to 4t + 3 of matrix i, the first lowest.
    """
    elements = np.ascontiguousarray(rows).reshape(-1, 4, 4, 2, 8)  # t, row of four, h, g
    return np.ascontiguousarray(elements.transpose(0, 3, 4, 1, 2)).view(np.uint32).reshape(-1, 32)


def bytes_from_registers(registers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Return the rows that ``stmatrix .m16n8 .trans .b8`` stores.

    Parameters
    ----------
    registers : uint32[count, 32]
        Register i of lane 4g + t holds rows g and g + 8 of columns 2t and 2t + 1 of matrix i of 16x8 elements: as the
        accumulators of mma lie, (g, 2t) lowest, then (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).

    Returns
    -------
    rows : uint8[8 * count, 16]
        Column c of matrix i goes to the address that lane 8i + c supplies.
    """
    elements = np.ascontiguousarray(registers).view(np.uint8).reshape(-1, 8, 4, 2, 2)  # g, t, half, column
    return np.ascontiguousarray(elements.transpose(0, 2, 4, 3, 1)).reshape(-1, 16)


def widened(rows: npt.NDArray[np.uint8], source: str) -> npt.NDArray[np.uint8]:
    """Return rows of sixteen 4-bit or 6-bit elements as bytes, the element in the low bits.

    Parameters
    ----------
    rows : uint8[n, 16]
        Elements packed from the lowest bit on; what follows them is padding.
    source
        ``b4x16_p64`` or ``b6x16_p32``.

    Returns
    -------
    bytes : uint8[n, 16]
    """
    bits = 4 if source == "b4x16_p64" else 6
    unpacked = np.unpackbits(rows[:, : 2 * bits], axis=1, bitorder="little").reshape(len(rows), 16, bits)
    return np.packbits(unpacked, axis=2, bitorder="little")[:, :, 0]
