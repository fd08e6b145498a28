"""The scales of an operand, as a matrix or as the tensor core reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilekit.arrays import ArrayView
from tilekit.errors import ArgumentError
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tile_op.block_scaled import ATOM_BYTES, ATOM_ROWS, ATOM_SCALES, FORMATS, ScaleFormat


@dataclass(frozen=True)
class Scales:
    """The scales of an operand.

    Attributes
    ----------
    view
        Where they lie.
    plain
        Whether they lie as a matrix, a row of scales for each row; else as the tensor core reads them.
    rows, count
        Rows, or columns, of the operand, and scales of each.
    """

    view: ArrayView
    plain: bool
    rows: int
    count: int

    @property
    def laid_out(self) -> tuple[int, ...]:
        """The shape in which the tensor core reads them."""
        return self.blocks(self.rows, self.count)

    @staticmethod
    def blocks(rows: int, count: int) -> tuple[int, ...]:
        """The same of so many rows, and scales of each."""
        return -(-rows // ATOM_ROWS), -(-count // ATOM_SCALES), 32, ATOM_ROWS // 32, ATOM_SCALES


def read_scales(name: str, view: ArrayView, rows: int, k: int, found: ScaleFormat) -> Scales:
    """Check the scales of so many rows of `k` bytes."""
    count = -(-k * found.packed // found.block)
    plain, letter = Scales(view, True, rows, count), "M" if name == "scale_a" else "N"
    blocks = plain.laid_out
    flat = (blocks[0] * blocks[1] * ATOM_BYTES,)
    shape = tuple(view.shape)
    if shape == (rows, count):
        if min(view.strides) < 0:
            raise ArgumentError(
                f"{name} has strides {tuple(view.strides)}: scales may not run backwards; pass a copy, for example "
                f"{name}.copy() of an array",
                code="TK-SCALE-002",
            )
        return plain
    if shape not in (flat, blocks):
        raise ArgumentError(
            f"{name} has shape {shape}; legal for {letter}={rows} and K={k * found.packed} in blocks of {found.block}: "
            f"{(rows, count)}, or as the tensor core reads them {blocks} or flat {flat}; nearest: {(rows, count)}"
            + _hint(name, shape, rows, k, found),
            code="TK-SCALE-002",
        )
    require_laid_out(name, view)
    return replace(plain, plain=False)


def _hint(name: str, shape: tuple[int, ...], rows: int, k: int, found: ScaleFormat) -> str:
    """What scales of a wrong shape look like."""
    count = -(-k * found.packed // found.block)
    if shape == (count, rows):
        return f" ({name} looks transposed: pass {name}.T)"
    for other in FORMATS.values():
        if other.types == found.types and shape == (rows, -(-k * other.packed // other.block)):
            return f" (of {other.block} elements each, scales are {other.scale}: {other.name})"
    return ""


def require_laid_out(name: str, view: ArrayView) -> None:
    """Raise `ArgumentError` (``TK-SCALE-002``) for scales that do not lie as the tensor core reads them."""
    shape = tuple(view.shape)
    expected = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    wrong = [axis for axis, extent in enumerate(shape) if extent > 1 and view.strides[axis] != expected[axis]]
    if 0 not in shape and (wrong or view.address % TMA_ALIGNMENT):
        raise ArgumentError(
            f"{name} at address {view.address:#x} has strides {tuple(view.strides)}; scales that lie as the tensor "
            f"core reads them are contiguous and begin at a multiple of {TMA_ALIGNMENT} bytes; pass a copy in C order",
            code="TK-SCALE-002",
        )
