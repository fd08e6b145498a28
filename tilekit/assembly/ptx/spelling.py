"""Statements as PTX instructions."""

from __future__ import annotations

from functools import cache

from tilekit.assembly.numbers import Number
from tilekit.assembly.ptx.literals import literal
from tilekit.assembly.trace import (
    Bound,
    EndIf,
    EndLoop,
    If,
    LoadParameter,
    Loop,
    Operation,
    Placement,
    SharedBase,
    Statement,
)
from tilekit.assembly.types import MAP, RegisterType
from tilekit.assembly.values import Value

SHARED_SYMBOL = "dynamic_smem"

_NUMBERS = {"unsigned": "u", "signed": "s", "float": "f"}


def bit_type(type_: RegisterType) -> str:
    """The type of bitwise instructions."""
    return "pred" if type_.kind == "predicate" else f"b{type_.bits}"


def number_type(type_: RegisterType) -> str:
    """The type of arithmetic; where there is none, bits."""
    return f"{_NUMBERS[type_.kind]}{type_.bits}" if type_.is_number else bit_type(type_)


def declared_type(type_: RegisterType) -> str:
    """The type of a ``.reg`` directive."""
    return number_type(type_) if type_.kind == "float" else bit_type(type_)


_MNEMONICS = {
    "move": ("mov", number_type),
    "add": ("add", number_type),
    "sub": ("sub", number_type),
    "mul": ("mul.lo", number_type),
    "div": ("div", number_type),
    "rem": ("rem", number_type),
    "min": ("min", number_type),
    "and": ("and", bit_type),
    "or": ("or", bit_type),
    "xor": ("xor", bit_type),
    "not": ("not", bit_type),
    "shl": ("shl", bit_type),
    "shr": ("shr", number_type),
    "lt": ("setp.lt", number_type),
    "le": ("setp.le", number_type),
    "gt": ("setp.gt", number_type),
    "ge": ("setp.ge", number_type),
    "eq": ("setp.eq", number_type),
    "ne": ("setp.ne", number_type),
    "select": ("selp", number_type),
    "widen": ("mul.wide", number_type),
}


@cache
def _mnemonic(name: str, type_: RegisterType) -> str:
    mnemonic, suffix = _MNEMONICS[name]
    if name == "mul" and type_.kind == "float":
        mnemonic = "mul"
    return f"{mnemonic}.{suffix(type_)}"


def spell(statement: Statement) -> list[str]:
    """The instructions and labels of a statement."""
    match statement:
        case Operation(name, type_, result, operands):
            return [f"{_mnemonic(name, type_)} {result.text}, {', '.join([operand(each) for each in operands])};"]
        case Placement(fragment, bound, lanes):
            lines = fragment.bind({name: operand(what) for name, what in bound.items()})
            return lines if lanes is None else [f"@{lanes.text} {line}" for line in lines]
        case If(condition, holds, end):
            return [f"@{'!' if holds else ''}{condition.text} bra {end};"]
        case EndIf(opened):
            return [f"{opened.end}:"]
        case Loop(top):
            return [f"{top}:", '.pragma "nounroll";']
        case EndLoop(opened, again):
            return [f"@{again.text} bra {opened.top};"]
        case LoadParameter(parameter, result) if parameter.type is MAP:
            # The map stays in parameter space (a grid constant): TMA reads it there without a copy.
            address = result.text
            return [f"mov.b64 {address}, {parameter.name}_param;", f"cvta.param.u64 {address}, {address};"]
        case LoadParameter(parameter, result):
            return [f"ld.param.{number_type(parameter.type)} {result.text}, [{parameter.name}_param];"]
        case SharedBase(result):
            return [f"mov.u32 {result.text}, {SHARED_SYMBOL};"]
        case str():
            return [statement]


def operand(what: Bound) -> str:
    """A register, a constant, a list of registers, or the words of an immediate."""
    if isinstance(what, Value):
        return what.text
    if isinstance(what, Number):
        return literal(what)
    return what if isinstance(what, str) else ", ".join([register.text for register in what])
