"""Which registers a statement reads, and which it writes."""

from __future__ import annotations

from tilekit.assembly.numbers import Number
from tilekit.assembly.trace import Bound, EndLoop, If, LoadParameter, Operation, Placement, SharedBase, Statement
from tilekit.assembly.values import Value


def accessed(statement: Statement) -> tuple[list[str], list[str]]:
    """Names of the registers that a statement reads, and of those that it writes."""
    reads, writes = [value.text for value in read_by(statement)], []
    match statement:
        case Operation(_, _, result) | SharedBase(result) | LoadParameter(_, result):
            writes = [result.text]
        case Placement(fragment, bound):
            writes = [v.text for o in fragment.operands if o.direction != "in" for v in values_of(bound[o.name])]
    return reads, writes


def read_by(statement: Statement) -> list[Value]:
    """The registers that a statement reads."""
    match statement:
        case Operation(_, _, _, operands):
            return [what for what in operands if isinstance(what, Value)]
        case If(condition) | EndLoop(_, condition):
            return [condition]
        case Placement(fragment, bound):
            return [value for o in fragment.operands if o.direction != "out" for value in values_of(bound[o.name])]
    return []


def values_of(what: Bound) -> list[Value]:
    """The registers of an operand."""
    if isinstance(what, Value):
        return [what]
    return [] if isinstance(what, (Number, str)) else list(what)
