"""Numbers in assembly text."""

from __future__ import annotations

import operator
import struct

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import F32, PRED, RegisterType


def literal(value: object, type_: RegisterType) -> str:
    """Spell a Python number as a constant of `type_`.

    Raises
    ------
    TraceError
        ``TK-TRACE-005``: no number, a fraction where an integer is needed, or out of the type's range.
    """
    if type_ is F32:
        return f32_literal(value)
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # what it refuses is what is reported
    except TypeError:
        nearest = f"; nearest: {round(value)}" if isinstance(value, float) and abs(value) < 1 << 64 else ""
        raise TraceError(
            f"{value!r} given where a {type_} is needed; write an integer{nearest}", code="TK-TRACE-005"
        ) from None
    lowest = 0 if type_ is PRED else -(1 << (type_.bits - 1))
    highest = (1 << type_.bits) - 1
    if not lowest <= number <= highest:
        raise TraceError(
            f"{number} does not fit a {type_}, which holds {lowest} to {highest}; nearest: "
            f"{min(max(number, lowest), highest)}",
            code="TK-TRACE-005",
        )
    return str(number)


def f32_literal(value: object) -> str:
    """Spell a float32 constant exactly, in PTX's hexadecimal form; the value is rounded to the nearest float32.

    Raises
    ------
    TraceError
        ``TK-TRACE-005``: no number, or a finite one beyond float32.
    """
    try:
        return "0f" + struct.pack(">f", value).hex().upper()
    except (struct.error, OverflowError):
        raise TraceError(
            f"{value!r} given where an f32 is needed; write a number of magnitude at most 3.4028235e38",
            code="TK-TRACE-005",
        ) from None
