"""Sparse A of ``tcgen05.mma.sp``: half of the elements are stored, and metadata in tensor memory says which.

Of each four consecutive elements of a row two are kept (of two one for tf32, of four pairs two for 4-bit types); four
bits of metadata hold the two positions, the first in the low bits. See PTX ISA, "Sparse matrices" of ``tcgen05.mma``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.ptx.matrix.tcgen05_descriptors import MmaForm
from tilekit.emulator.ptx.matrix.tmem import TensorMemory

__all__ = ["expand", "metadata_columns"]

_LEGAL = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110)


def metadata_columns(form: MmaForm, column: int, selector: int) -> tuple[int, int]:
    """Return the first column and the number of columns of metadata that an instruction reads."""
    if form.kind in ("f16", "tf32"):
        return (column & ~1) + selector, 1
    return column, 2


def expand(
    form: MmaForm, a: npt.NDArray[Any], memory: TensorMemory, lanes: tuple[tuple[int, int], ...], column: int
) -> npt.NDArray[Any]:
    """Return dense A: float[rows, 2 * k].

    Parameters
    ----------
    a : float[rows, k]
        The stored half.
    lanes
        Lanes of the rows of D, which the metadata shares.
    column
        First column of metadata.

    Raises
    ------
    ProtocolError
        If an index is not one of the legal patterns.
    """
    rows, stored = a.shape
    depth = 2 * stored
    span = {"tf32": 2, "mxf4": 8, "mxf4nvf4": 8}.get(form.kind, 4)
    places = np.concatenate([np.arange(low, high) for low, high in lanes])
    m, group = np.arange(rows)[:, None], np.arange(depth // span)
    k = group * span
    if form.kind in ("f16", "tf32"):
        half = 16 if form.kind == "f16" else 8
        lane, word = m % 8 + 8 * (k // half) + m // 16 * 16, 0 * k
        bit = k % half * (16 // half) + 16 * (m // 8 % 2)
    else:
        position = k * 4 // span
        lane, word, bit = m + 0 * k, position // 32, position % 32 + 0 * m
    words = memory.cells[places[lane], column + word]
    index = words >> bit.astype(np.uint32) & np.uint32(15)
    legal = (0b0100, 0b1110) if form.kind == "tf32" else _LEGAL
    wrong = ~np.isin(index, legal)
    if wrong.any():
        row, which = (int(x) for x in np.argwhere(wrong)[0])
        raise ProtocolError(
            f"sparsity metadata {int(index[row, which]):04b} of row {row}, k {which * span}: "
            f"legal are {', '.join(format(value, '04b') for value in legal)}"
        )
    dense = np.zeros((rows, depth), a.dtype)
    unit = span // 4 or 1  # Elements that stay together: pairs of 4-bit ones.
    if form.kind == "tf32":
        dense[m, k + (index == 0b1110)] = a
        return dense
    kept = a.reshape(rows, -1, 2, unit)
    for which in range(2):
        position = (index >> np.uint32(2 * which) & np.uint32(3)).astype(np.int64)
        for element in range(unit):
            dense[m, k + position * unit + element] = kept[:, :, which, element]
    return dense
