"""What a call may pass to a function of the module: alignment, arrays and types (PTX ISA 7.1 and 9.7.13)."""

from __future__ import annotations

from itertools import zip_longest

from tilekit.emulator.ptx.language.syntax import (
    TYPE_BYTES,
    CallList,
    Function,
    FunctionName,
    Immediate,
    Operand,
    RegisterOperand,
    SpecialRegister,
    SymbolOperand,
    Variable,
)


def call_problem(functions: dict[str, Function], operands: tuple[Operand, ...]) -> str:
    """What is wrong with the arguments and results of a call; empty where nothing is, or the function is unknown."""
    place = next((n for n, operand in enumerate(operands) if isinstance(operand, FunctionName)), None)
    name = operands[place] if place is not None else None
    function = functions.get(name.name) if isinstance(name, FunctionName) else None
    if function is None or place is None:
        return ""
    before, behind = operands[:place], operands[place + 1 :]
    if len(before) > 1 or len(behind) > 1 or not all(isinstance(listed, CallList) for listed in (*before, *behind)):
        return f"{function.name}: a call names its results, the function and its arguments: call (r), f, (a)"
    results, given = _listed(before), _listed(behind)
    for formals, actuals in ((function.results, results), (function.parameters, given)):
        for formal, actual in zip_longest(formals, actuals):
            if formal is None or actual is None:
                return ""  # how many there are is checked where the call is expanded
            if found := _passed(formal, actual):
                return f"{function.name}: {found}"
    return ""


def _listed(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    return next((operand.items for operand in operands if isinstance(operand, CallList)), ())


def _passed(formal: Variable, actual: Operand) -> str:
    if isinstance(actual, SpecialRegister):
        return f"mov {actual.name} to a register first: a call does not pass it"
    if isinstance(actual, RegisterOperand) and formal.space == "reg":
        bits = 1 if formal.type == "pred" else 8 * formal.size
        if actual.register.bits != bits or _clash(formal.type, actual.register.type):
            return f"{actual.register.name} is .{actual.register.type}, and {formal.name} is .{formal.type}"
    elif isinstance(actual, Immediate) and formal.space == "reg":
        if formal.type in ("f32", "f64") and actual.kind == "int":
            return f"an integer for the parameter {formal.name}, which is .{formal.type}: write {actual.value}.0"
    elif isinstance(actual, SymbolOperand) and formal.space == "reg":
        return f"{actual.variable.name} is a variable, and {formal.name} a register: load it first"
    elif isinstance(actual, SymbolOperand) and actual.variable.space == "frame":
        return _shaped(formal, actual.variable)
    return ""


def _shaped(formal: Variable, given: Variable) -> str:
    one, other = formal.size != TYPE_BYTES[formal.type], given.size != TYPE_BYTES[given.type]
    if one != other and formal.size and given.size:
        return f"{given.name} is {_kind(other)}, and {formal.name} is {_kind(one)}"
    if _alignment(formal) != _alignment(given):
        return f"{given.name} has .align {_alignment(given)}, and {formal.name} has .align {_alignment(formal)}"
    if _clash(formal.type, given.type):
        return f"{given.name} is .{given.type}, and {formal.name} is .{formal.type}"
    return ""


def _kind(array: bool) -> str:
    return "an array" if array else "a single element"


def _alignment(variable: Variable) -> int:
    return max(variable.align, TYPE_BYTES[variable.type])


def _clash(one: str, other: str) -> bool:
    """Whether one is an integer and the other a floating-point number; bits go with both."""
    return {one[0], other[0]} in ({"u", "f"}, {"s", "f"})
