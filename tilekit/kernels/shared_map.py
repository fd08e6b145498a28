"""The map of a kernel's shared memory, as `explain` prints it."""

from __future__ import annotations

from collections.abc import Iterable

from tilekit.assembly.shared import SharedArray


def shared_memory_map(arrays: Iterable[SharedArray], used: int, available: int) -> list[str]:
    """Every object with its offset and bytes, behind what is used of what there is."""
    lines = [f"shared memory {used} of {available} B", f"{'  offset':<10}{'bytes':>8}  object"]
    for array in arrays:
        count = f"[{array.count}] x {array.stride} B" if array.count > 1 else ""
        lines.append(f"{array.offset:>8}{array.size:>10}  {array.name} {count}".rstrip())
    return lines
