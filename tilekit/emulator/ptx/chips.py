"""Limits of each chip that a launch is checked against (CUDA programming guide, table of technical specifications)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Chip:
    """One target.

    Attributes
    ----------
    name
        Target as PTX writes it.
    shared_per_cta
        Largest shared memory of a CTA that opts in, bytes.
    shared_per_sm
        Shared memory of an SM, bytes, of which each resident CTA's reserved kilobyte takes a part.
    clusters
        Largest portable cluster; 1 where there are none.
    """

    name: str
    sms: int
    shared_per_cta: int
    shared_per_sm: int
    clusters: int
    threads_per_cta: int = 1024
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    warps_per_sm: int = 64

    @cached_property
    def number(self) -> int:
        """Architecture as a number: 90 for ``sm_90a``."""
        return int("".join(c for c in self.name if c.isdigit()))


CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("sm_80", 108, 166912, 167936, 1),
        Chip("sm_86", 84, 101376, 102400, 1, warps_per_sm=48),
        Chip("sm_89", 128, 101376, 102400, 1, warps_per_sm=48),
        Chip("sm_90", 132, 232448, 233472, 8),
        Chip("sm_90a", 132, 232448, 233472, 8),
        Chip("sm_100a", 148, 232448, 233472, 8),
        Chip("sm_120a", 170, 101376, 102400, 8, warps_per_sm=48),
    )
}
