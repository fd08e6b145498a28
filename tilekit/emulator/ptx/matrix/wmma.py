"""Fragments of ``wmma``: which element of a matrix each register of each lane holds.

PTX leaves the fragments unspecified. These are what ptxas gives sm_80 and later: the fragments of the ``mma.sync`` that
it compiles ``wmma.mma`` to, with m8n32 computed as the transposed product, and f16 A and B repeated to eight registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.formats import decode, encode
from tilekit.emulator.ptx.matrix.mma import BITS, Mma, operand_rows, product

__all__ = ["Wmma"]

Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
_SHAPES = {
    **dict.fromkeys(("f16", "bf16", "s8", "u8"), ((16, 16, 16), (8, 32, 16), (32, 8, 16))),
    "tf32": ((16, 16, 8),),
    "f64": ((8, 8, 4),),
    **dict.fromkeys(("s4", "u4"), ((8, 8, 32),)),
    "b1": ((8, 8, 128),),
}


@dataclass(frozen=True)
class Wmma:
    """The matrices of ``wmma`` of one shape and type.

    Attributes
    ----------
    m, n, k
        Shape.
    dtype
        Type of A and B: f16, bf16, tf32, f64, s8, u8, s4, u4 or b1.
    """

    m: int
    n: int
    k: int
    dtype: str

    def __post_init__(self) -> None:
        shapes = _SHAPES[self.dtype]
        if (self.m, self.n, self.k) not in shapes:
            legal = ", ".join(f"m{m}n{n}k{k}" for m, n, k in shapes)
            raise ValueError(f"shape = m{self.m}n{self.n}k{self.k}: the shapes of {self.dtype} are {legal}")

    @cached_property
    def transposed(self) -> bool:
        """Whether B times A, transposed, is what is computed."""
        return (self.m, self.n) == (8, 32)

    @cached_property
    def each(self) -> int:
        """Elements of A or B in a register."""
        return max(32 // BITS[self.dtype], 1)

    def _halves(self, name: str) -> int:
        """2 for the operand that is the left one of mma.sync m16n8, 1 for the right one, or both of m8n8."""
        left = (name == "a") != self.transposed
        return 2 if left and self.m + self.n > 16 else 1

    def registers(self, name: str, c_type: str = "") -> int:
        """Registers of a fragment a lane; ``c_type`` is the type of an accumulator."""
        if name in "ab":
            return 8 if self.dtype == "f16" else self._different(name)
        return self.m * self.n // 32 // (2 if c_type == "f16" else 1)

    def _different(self, name: str) -> int:
        return (self.m if name == "a" else self.n) * self.k // 32 // self.each

    def operand_places(self, name: str) -> Places:
        """Row and column in A or B of every element: [registers, 32, elements of a register]."""
        size, halves = (self.m if name == "a" else self.n), self._halves(name)
        # [tile, j, half, g, t, element]: see operand_rows
        count = self.k // (4 * self.each)
        shape = (size // (8 * halves), count, halves, 8, 4, self.each)
        tile, j, half, g, t, e = np.indices(shape).reshape(6, -1, 32, self.each)
        across, along = (tile * halves + half) * 8 + g, (4 * j + t) * self.each + e
        repeat = self.registers(name) // len(across)
        across, along = np.tile(across, (repeat, 1, 1)), np.tile(along, (repeat, 1, 1))
        return (across, along) if name == "a" else (along, across)

    def accumulator_places(self, c_type: str) -> Places:
        """Row and column in C or D of every element: [registers, 32, elements of a register]."""
        rows, columns = (self.n, self.m) if self.transposed else (self.m, self.n)
        halves = self._halves("b" if self.transposed else "a")
        tile, block, half, pair, g, t = np.indices((rows // (8 * halves), columns // 8, halves, 2, 8, 4))
        row, column = (tile * halves + half) * 8 + g, block * 8 + 2 * t + pair
        row, column = (part.reshape(-1, 2, 32) for part in (row, column))
        if c_type == "f16":
            row, column = row.transpose(0, 2, 1), column.transpose(0, 2, 1)
        else:
            row, column = row.reshape(-1, 32, 1), column.reshape(-1, 32, 1)
        return (column, row) if self.transposed else (row, column)

    def matrix(self, name: str, registers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The decoded A [m, k] or B [k, n] of a fragment."""
        halves = self._halves(name)
        different = registers[: self._different(name)]
        tiles = (self.m if name == "a" else self.n) // (8 * halves)
        rows = np.concatenate([operand_rows(part, self.dtype, halves) for part in np.split(different, tiles)])
        return rows if name == "a" else rows.T

    def accumulator(self, registers: npt.NDArray[Any], c_type: str) -> npt.NDArray[Any]:
        """The decoded C [m, n] of a fragment."""
        kind = {"f16": np.uint16, "f32": np.float32, "f64": np.float64, "s32": np.int32}[c_type]
        places = self.accumulator_places(c_type)
        values = np.ascontiguousarray(registers).view(kind).reshape(places[0].shape)
        result = np.empty((self.m, self.n), kind)
        result[places] = values
        return decode(result, "f16") if c_type == "f16" else result

    def fragment(self, matrix: npt.NDArray[Any], c_type: str) -> npt.NDArray[Any]:
        """The registers of D: the inverse of `accumulator`, rounded to the type."""
        if c_type == "f16":
            patterns = np.ascontiguousarray(encode(matrix, "f16")[self.accumulator_places(c_type)])
            return patterns.view(np.uint32).reshape(-1, 32)
        kind = {"f32": np.float32, "f64": np.float64, "s32": np.int32}[c_type]
        values = np.ascontiguousarray(matrix.astype(kind)[self.accumulator_places(c_type)]).reshape(-1, 32)
        return values.view(np.uint64 if c_type == "f64" else np.uint32)

    def multiply(self, op: Mma, a: Any, b: Any, c: Any, c_type: str, d_type: str, *, exact: bool) -> npt.NDArray[Any]:
        """Return the registers of ``D = A * B + C``; ``op`` says types, rounding and saturation."""
        left, right, start = self.matrix("a", a), self.matrix("b", b), self.accumulator(c, c_type)
        return self.fragment(product(op, left, right, start, exact=exact), d_type)
