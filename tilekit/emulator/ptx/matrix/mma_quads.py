"""``mma.sync.m8n8k4`` of f16: four products at once, each by the eight lanes of a quad pair.

Lanes 4q to 4q + 3 and 16 + 4q to 16 + 4q + 3 hold product q. See PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16
floating point type". Volta's tensor core had it; later machines compute it with ordinary arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.formats import decode, encode

__all__ = ["QuadMma", "multiply_quads"]

Words = npt.NDArray[np.uint32]

# Lane 16h + 4q + t of the warp, as axes: h (low or high group), q (product), t (lane of four).
_LANES = (2, 4, 4)


@dataclass(frozen=True)
class QuadMma:
    """One form of ``mma.sync.aligned.m8n8k4.<a_layout>.<b_layout>.<d_type>.f16.f16.<c_type>``.

    Attributes
    ----------
    a_layout, b_layout
        ``row`` or ``col``: which elements of A and B a lane holds.
    d_type, c_type
        f32 or f16; an f32 C needs an f32 D.
    """

    a_layout: str
    b_layout: str
    d_type: str
    c_type: str

    def __post_init__(self) -> None:
        if self.c_type == "f32" and self.d_type == "f16":
            raise ValueError("d_type = 'f16': must be f32 where C is f32")


def _vectors(words: Words) -> npt.NDArray[np.float32]:
    """The four f16 of each lane: [q, 4h + t, element]."""
    values = decode(np.ascontiguousarray(words.T).view(np.uint16), "f16").reshape(*_LANES, 4)
    return values.transpose(1, 0, 2, 3).reshape(4, 8, 4)


def _across(words: Words) -> npt.NDArray[np.float32]:
    """The same where lane t holds column t of A (row t of B): [q, 4h + element, t]."""
    values = decode(np.ascontiguousarray(words.T).view(np.uint16), "f16").reshape(*_LANES, 4)
    return values.transpose(1, 0, 3, 2).reshape(4, 8, 4)


def _places() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row and column of element i of an f32 accumulator, [32 lanes, 8]."""
    lane, i = np.arange(32)[:, None], np.arange(8)[None, :]
    return (lane & 1) + (i & 2) + (lane >> 4) * 4, (i & 4) + (lane & 2) + (i & 1)


_ROWS, _COLUMNS = _places()
_QUAD = (np.arange(32) >> 2 & 3)[:, None]


def multiply_quads(op: QuadMma, a: Words, b: Words, c: Words) -> Words:
    """Return the registers of ``D = A * B + C``.

    Parameters
    ----------
    a, b : uint32[2, 32]
    c : uint32[8, 32], or uint32[4, 32] for f16

    Returns
    -------
    d : uint32[8, 32], or uint32[4, 32] for f16
    """
    left = _vectors(a) if op.a_layout == "row" else _across(a)
    right = _vectors(b) if op.b_layout == "col" else _across(b)
    total: npt.NDArray[Any] = left @ right.transpose(0, 2, 1) + _accumulator(op.c_type, c)
    if op.d_type == "f32":
        return np.ascontiguousarray(total.astype(np.float32)[_QUAD, _ROWS, _COLUMNS].T).view(np.uint32)
    rows = encode(total, "f16").view(np.uint32).reshape(4, 2, 4, 4)  # q, h, t, pairs of columns
    return np.ascontiguousarray(rows.transpose(3, 1, 0, 2).reshape(4, 32))


def _accumulator(c_type: str, c: Words) -> npt.NDArray[np.float32]:
    """C of each product: [q, 8, 8]."""
    if c_type == "f16":
        values = decode(np.ascontiguousarray(c.T).view(np.uint16), "f16").reshape(*_LANES, 8)
        return values.transpose(1, 0, 2, 3).reshape(4, 8, 8)
    result = np.empty((4, 8, 8), np.float32)
    result[_QUAD, _ROWS, _COLUMNS] = c.view(np.float32).T
    return result
