"""How elements of a row or column are combined: their sum, the largest, or the smallest."""

from __future__ import annotations

from math import inf
from typing import Literal, TypeAlias

from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer

Combine: TypeAlias = Literal["sum", "max", "min"]

NEUTRAL: dict[Combine, float] = {"sum": 0.0, "max": -inf, "min": inf}
"""What changes nothing."""


def combined(w: Writer, how: Combine, a: Value, b: Operand) -> Value:
    """Two elements combined; of the largest and smallest NaN is one that stays."""
    if how == "sum":
        return a + b
    combine = w.isa.elementwise.maximum if how == "max" else w.isa.elementwise.minimum
    return combine(a=a, b=b)  # type: ignore[no-any-return]


def combine_where(w: Writer, how: Combine, total: Value, value: Value, counts: Value) -> None:
    """Combine `total` with an element if it `counts`: an instruction where instructions have predicates."""
    elementwise = w.isa.elementwise
    combine = {"sum": elementwise.add_where, "max": elementwise.maximum_where, "min": elementwise.minimum_where}[how]
    combine(total=total, value=value, counts=counts)
