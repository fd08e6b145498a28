"""How arrays lie: views of memory that does not exist, from which a spec is made, and operands cut from padded rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from tilekit.arrays import ArrayView
    from tilekit.dtypes import DType

__all__ = ["Lying", "layout"]

_APART: Final = 1 << 40
"""Between the addresses of such arrays, so that they do not overlap."""

_ALIGNED: Final = 16
"""Bytes, of whose multiples the copy engine needs pitches."""


def layout(number: int, shape: tuple[int, ...], dtype: DType) -> ArrayView:
    """View a C-ordered array in memory that does not exist."""
    from tilekit.arrays import ArrayView, c_strides

    return ArrayView((1 + number) * _APART, shape, c_strides(shape), dtype, "cpu", "numpy", None)


@dataclass(frozen=True, slots=True)
class Lying:
    """How an operand lies: cut from a C-ordered array whose rows are padded to 16 bytes, with its axes moved.

    Attributes
    ----------
    shape : tuple of int
        As it lies; the last `rows` axes are one row, which is padded as a whole.
    dtype : DType
    swaps : tuple of (int, int)
        Axes that are exchanged, one pair after another, to make the operand of it.
    rows : int
    """

    shape: tuple[int, ...]
    dtype: DType
    swaps: tuple[tuple[int, int], ...] = ()
    rows: int = 1

    @property
    def stored(self) -> tuple[int, ...]:
        """Shape of the C-ordered array."""
        step = _ALIGNED // self.dtype.bytes
        return (*self.shape[: -self.rows], -(-self._row // step) * step)

    @property
    def _row(self) -> int:
        return prod(self.shape[-self.rows :])

    def cut(self, stored: Any) -> Any:
        """Return the operand as a view of such an array, of any library."""
        values = stored[..., : self._row].reshape(self.shape)
        for swap in self.swaps:
            values = values.swapaxes(*swap)
        return values

    def view(self, number: int) -> ArrayView:
        """View the operand in memory that does not exist."""
        from tilekit.arrays import ArrayView, c_strides

        # No memory is touched: NumPy cuts and turns an array of which every element is the same byte.
        whole = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), self.stored, c_strides(self.stored))
        image = self.cut(whole)
        return ArrayView((1 + number) * _APART, image.shape, image.strides, self.dtype, "cpu", "numpy", None)
