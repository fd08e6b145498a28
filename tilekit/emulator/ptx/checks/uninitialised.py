"""Reads of shared memory, and of accumulators of wgmma, that nothing wrote.

Fresh ones hold a pattern, and a read that returns it is reported.

It is a finding, not a fault: a kernel may load more than it uses. What such a value reaches is a NaN or a wild address,
so what does use it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.errors import Where, describe
from tilekit.emulator.core.memory.memory import POISON, Allocation
from tilekit.emulator.ptx.language.syntax import Instruction

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

Array = npt.NDArray[Any]


def check_read(warp: Warp, memory: Allocation, offset: int, values: Array, width: int) -> None:
    """Report loaded values that are the pattern of fresh memory; ``offset`` is the first byte read."""
    # A narrow value may well equal a part of the pattern: only what covers a word of it is told apart.
    if width == 2 and values.ndim == 2:
        hits = (values[:2] == POISON & 0xFFFF).all(axis=0)
    elif width >= 4:
        hits = values == (POISON if width == 4 else POISON << 32 | POISON)
    else:
        return
    if np.count_nonzero(hits):
        report(warp, memory, offset, warp.program.instruction(warp.at), "a load")


def check_operand(warp: Warp, memory: Allocation, extents: Array, instruction: Instruction, unit: str) -> None:
    """Report the extents (first byte, byte after the last) of a matrix operand that hold fresh memory."""
    for low, high in extents.tolist():
        words = memory.data[low:high].view(np.uint32)
        hits = words == POISON
        if np.count_nonzero(hits):
            report(warp, memory, low + 4 * int(np.argmax(hits)), instruction, unit)
            return


def check_accumulators(
    warp: Warp, cells: npt.NDArray[np.uint32], rows: slice | Sequence[int], instruction: Instruction
) -> None:
    """Report the first of a warpgroup's accumulators, uint32[rows, 128], that wgmma adds to as they were made."""
    hits = cells == POISON
    if np.count_nonzero(hits):
        first = int(np.argmax(hits.any(axis=1)))
        row = rows.start + first if isinstance(rows, slice) else rows[first]
        name = warp.program.registers[warp.program.tile_registers[row]].name
        warp.cta.launch.findings.add(
            Finding(
                "uninitialised",
                f"wgmma adds to {name}, which nothing has written, on line {instruction.line}",
                (f"of {warp.actor} of CTA {warp.cta.rank} and its warpgroup, at {describe(instruction)}",),
                "let the first product overwrite its accumulators (scale-d false), or write zeros to them",
                Where(warp.program.name, warp.actor, instruction),
            )
        )


def report(warp: Warp, memory: Allocation, offset: int, instruction: Instruction, unit: str) -> None:
    """Add the finding, once for each instruction and array."""
    launch = warp.cta.launch
    name = launch.shared_name(offset) or memory.describe(offset)
    launch.findings.add(
        Finding(
            "uninitialised",
            f"{unit} reads {name}, which no thread has written, on line {instruction.line}",
            (f"read by {warp.actor} of CTA {warp.cta.rank}, at {describe(instruction)}",),
            "wait for the copy that fills it, or write it first",
            Where(warp.program.name, warp.actor, instruction),
        )
    )
