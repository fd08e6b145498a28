"""Where matrix operands lie in shared memory, and the one place that reads them there.

A matrix descriptor says where an operand begins and how it goes on. Consecutive instructions are executed at once, so
there are several descriptors, in any order. Operands are listed as 16-byte chunks from a base below all of them: one
list serves every stage of a ring. A list has no chunk below its base, and none is read outside shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import MemoryFault, Where
from tilekit.emulator.core.memory.memory import Allocation
from tilekit.emulator.ptx.memory.swizzle import PERIOD, Swizzle

__all__ = ["CHUNK", "START", "Bounds", "Chunks", "Descriptor", "OperandOutside", "outside", "relative"]

CHUNK = np.dtype((np.void, 16))
START = 0x3FFF
"""Bits of a descriptor that hold the address at which its operand begins, in chunks."""
Bounds: TypeAlias = tuple[int, int]
"""First byte of shared memory that may be read, and the one after the last."""
_PERIOD_CHUNKS = PERIOD // CHUNK.itemsize


@dataclass(frozen=True)
class Descriptor:
    """The fields that wgmma's and tcgen05's descriptors of an operand share.

    Attributes
    ----------
    start
        Address of the first element in the CTA's shared memory, bytes.
    leading, stride
        Leading-dimension and stride-dimension byte offsets.
    base_offset
        Rows of 128 bytes by which the swizzle pattern is shifted, 0 to 7. Zero means the pattern of the absolute
        address, which is what a tensor copy wrote, wherever the tile starts.
    swizzle
        None or the swizzle's name.
    """

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: Swizzle | None

    def __str__(self) -> str:
        swizzle = f"swizzle {self.swizzle}" if self.swizzle else "no swizzle"
        shifted = f", base offset {self.base_offset}" if self.base_offset else ""
        return (
            f"start {self.start:#x}, leading byte offset {self.leading}, stride byte offset {self.stride}, "
            f"{swizzle}{shifted}"
        )


class OperandOutside(Exception):  # noqa: N818  the instruction that reads it makes it a fault
    """An operand lies, in part, outside the shared memory that may be read."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """The chunks of the operands of some instructions.

    Attributes
    ----------
    table : int64[...]
        Each chunk's distance from the base, in chunks, in the order in which they are read.
    low, high
        First byte from the base, and the byte after the last.
    """

    table: npt.NDArray[np.int64]
    low: int
    high: int

    @classmethod
    def of(cls, table: npt.NDArray[np.int64]) -> Chunks:
        """The chunks of a table, which is kept as it is from now on.

        Raises
        ------
        ValueError
            If one lies below the base: NumPy would take it from the other end of memory.
        """
        low, high = int(table.min()), int(table.max()) + 1
        if low < 0:
            raise ValueError(f"table: a chunk lies {-low} chunks below the base, which must be the lowest")
        table.setflags(write=False)
        return cls(table, low * CHUNK.itemsize, high * CHUNK.itemsize)

    @cached_property
    def runs(self) -> npt.NDArray[np.int64]:
        """Bytes from the base, first and after the last, of each run: int64[n, 2], ascending; runs do not touch."""
        chunks = np.unique(self.table)
        breaks = np.flatnonzero(np.diff(chunks) != 1)
        runs = np.stack([chunks[np.r_[0, breaks + 1]], chunks[np.r_[breaks, -1]] + 1], axis=1) * CHUNK.itemsize
        runs.setflags(write=False)
        return runs

    def read(self, shared: npt.NDArray[np.uint8], base: int, bounds: Bounds | None = None) -> npt.NDArray[np.uint8]:
        """Return the bytes of the chunks, as uint8[..., 16 * the table's last extent].

        Parameters
        ----------
        shared : uint8[bytes]
            The CTA's shared memory, a multiple of 16 bytes.
        base
            Where the base lies in it: a multiple of 16.
        bounds
            What of it may be read; None for all.

        Raises
        ------
        OperandOutside
            If a chunk lies outside.
        """
        first, end = bounds or (0, shared.size)
        if base < 0 or base + self.low < first or base + self.high > end:
            raise OperandOutside(f"bytes {base + self.low:#x} to {base + self.high:#x}, of {first:#x} to {end:#x}")
        return shared.view(CHUNK)[base // CHUNK.itemsize :].take(self.table).view(np.uint8)


@lru_cache(maxsize=4096)
def relative(descriptors: tuple[int, ...]) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Split off a base address, a multiple of the swizzles' period, at or below the start of every operand.

    Returns
    -------
    base
        In bytes.
    starts
        Where each operand begins, in chunks from the base.
    rest
        The descriptors' other bits, from the lowest.
    """
    base = min(bits & START for bits in descriptors) // _PERIOD_CHUNKS * _PERIOD_CHUNKS
    starts = tuple((bits & START) - base for bits in descriptors)
    return base * CHUNK.itemsize, starts, tuple(bits >> START.bit_length() for bits in descriptors)


def outside(
    unit: str,
    operand: str,
    extents: npt.NDArray[np.int64],
    shared: Allocation,
    bits: int,
    descriptor: Descriptor,
    name: str,
    where: Where,
) -> MemoryFault | None:
    """The fault of an instruction whose operand lies outside shared memory; None where it lies inside.

    Parameters
    ----------
    unit, operand
        What reads, and which operand.
    extents
        The bytes that it reads, as runs.
    name
        What the kernel's author calls the operand's start; may be empty.
    """
    low, high = int(extents.min()), int(extents.max())
    first, end = shared.bounds
    if first <= low and high <= end:
        return None
    if high > end:
        limit, far = f"beyond the end of {shared.name} at {end:#x}", high - end
        then = "Or has the launch too little dynamic shared memory?"
    else:
        limit, far = f"before the first usable byte of {shared.name} at {first:#x}", first - low
        then = "Or was the start never set?"
    return MemoryFault(
        f"{unit} reads {operand} from {low:#x}..{high:#x}, {limit}",
        where=where,
        table=f"descriptor of {operand} {bits:#018x}: {descriptor}"
        + (f"; {descriptor.start:#x} is {name}" if name else ""),
        hint=f"{far} bytes too far: is the start that of a stage that exists, and are the byte offsets those of the "
        f"tile? {then}",
        details={"operand": operand.lower(), "descriptor": bits},
    )
