"""What products of the chips reach at best, as it was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a chip reaches at best, measured on it rather than read off its data sheet.

    Attributes
    ----------
    read_tbps : float
        Reading device memory, TB/s.
    sustained, burst : dict of int to float
        TFLOP/s of the tensor cores by operand bits, on random normal data: at the power limit, and in the first
        milliseconds. The instructions alone, from operands that stay in shared memory.
    """

    read_tbps: float
    sustained: dict[int, float]
    burst: dict[int, float]


CEILINGS: Final = {"H200": Ceilings(4.6, {16: 858.0, 8: 1673.0}, {16: 930.0, 8: 1803.0})}
"""By a part of the device's name. benchmarks/README.md says how they were measured."""
