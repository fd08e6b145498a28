"""Which registers a statement reads, and which it writes."""

from __future__ import annotations

from tilekit.assembly.numbers import Number
from tilekit.assembly.trace import Bound, EndLoop, If, LoadParameter, Operation, Placement, SharedBase, Statement
from tilekit.assembly.values import Value


def accessed(statement: Statement) -> tuple[list[str], list[str]]:
    """Names of the registers that a statement reads, and of those that it writes."""
    match statement:
        case Operation(_, _, result, operands):
            return [what.text for what in operands if isinstance(what, Value)], [result.text]
        case SharedBase(result) | LoadParameter(_, result):
            return [], [result.text]
        case If(condition) | EndLoop(_, condition):
            return [condition.text], []
        case Placement(fragment, bound):
            reads = [v.text for o in fragment.operands if o.direction != "out" for v in values_of(bound[o.name])]
            writes = [v.text for o in fragment.operands if o.direction != "in" for v in values_of(bound[o.name])]
            return reads, writes
    return [], []


def values_of(what: Bound) -> list[Value]:
    """The registers of an operand."""
    if isinstance(what, Value):
        return [what]
    return [] if isinstance(what, (Number, str)) else list(what)
