"""Arrays as they lie in memory that does not exist: what a spec is made from before there are operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilekit.arrays import ArrayView
    from tilekit.dtypes import DType

__all__ = ["layout"]

_APART: Final = 1 << 40
"""Between the addresses of such arrays, so that they do not overlap."""


def layout(number: int, shape: tuple[int, ...], dtype: DType, *, transposed: bool = False) -> ArrayView:
    """View an array in memory that does not exist, C-ordered, or with its last dimensions exchanged."""
    from tilekit.arrays import ArrayView, c_strides

    strides = c_strides(shape)
    if transposed:
        (*outer, rows, columns), (*steps, across, along) = shape, strides
        shape, strides = (*outer, columns, rows), (*steps, along, across)
    return ArrayView((1 + number) * _APART, shape, strides, dtype, "cpu", "numpy", None)
