"""Python numbers as operands: checked against a register type here, spelled by a dialect."""

from __future__ import annotations

import operator
import struct
from dataclasses import dataclass

from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import with_article
from tilekit.assembly.types import PRED, RegisterType


@dataclass(frozen=True, slots=True)
class Number:
    """A constant that a register of `type` can hold: an integer, or a float for a float type."""

    value: int | float
    type: RegisterType


def number(value: object, type_: RegisterType) -> Number:
    """Return a Python number as a constant of `type_`; floats are rounded where they are spelled.

    Raises
    ------
    TraceError
        ``TK-TRACE-005``: no number, a fraction where an integer is needed, or out of the type's range.
    """
    if type_.kind == "float":
        try:
            struct.pack(">f", value)
        except (struct.error, OverflowError):
            raise TraceError(
                f"{value!r} given where {with_article(type_)} is needed; write a number of magnitude at most "
                "3.4028235e38",
                code="TK-TRACE-005",
            ) from None
        return Number(float(value), type_)  # type: ignore[arg-type]  # struct has taken it for a number
    try:
        whole = operator.index(value)  # type: ignore[arg-type]  # what it refuses is what is reported
    except TypeError:
        nearest = f"; nearest: {round(value)}" if isinstance(value, float) and abs(value) < 1 << 64 else ""
        raise TraceError(
            f"{value!r} given where {with_article(type_)} is needed; write an integer{nearest}", code="TK-TRACE-005"
        ) from None
    lowest = 0 if type_ is PRED else -(1 << (type_.bits - 1))
    highest = (1 << type_.bits) - 1
    if not lowest <= whole <= highest:
        raise TraceError(
            f"{whole} does not fit {with_article(type_)}, which holds {lowest} to {highest}; nearest: "
            f"{min(max(whole, lowest), highest)}",
            code="TK-TRACE-005",
        )
    return Number(whole, type_)
