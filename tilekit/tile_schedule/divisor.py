"""Division by a number of the launch: a product and a shift in place of ptxas's forty instructions."""

from __future__ import annotations

from collections.abc import Callable

from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tiles.call import Call

_BITS = 31
"""Of the numbers that are divided."""


def reciprocal(divisor: int) -> tuple[int, int]:
    """Factor and shift with which ``number * factor >> shift`` is ``number // divisor`` of every number below 2^31.

    The factor is 2^shift / divisor rounded up: too large by less than 1, which over 2^31 numbers adds up to less than
    the 1 / divisor that a quotient may be short of the next (Granlund and Montgomery, 1994).
    """
    shift = _BITS + (divisor - 1).bit_length()
    return -(-(1 << shift) // divisor), shift


class Divisor:
    """A number of the launch by which others below 2^31 are divided.

    Parameters
    ----------
    w
        The writer; factor and shift are kernel parameters.
    name
        What the parameters' names begin with.
    divisor
        The number, from 1 to 2^31 - 1, given the call.
    """

    def __init__(self, w: Writer, name: str, divisor: Callable[[Call], int]) -> None:
        self.factor = w.parameter(f"{name}_factor", U32, lambda call: reciprocal(divisor(call))[0])
        self.shift = w.parameter(f"{name}_shift", U32, lambda call: reciprocal(divisor(call))[1])

    def divide(self, w: Writer, number: Value) -> Value:
        """``number // divisor``."""
        quotient: Value = w.isa.convert.low_word(wide=w.widen_multiply(number, self.factor) >> self.shift)
        return quotient
