"""The table of instruction forms: what may be written, and who gives it its meaning.

A form is registered by the function that emits its code (the ``ops_*`` modules), in a notation close to the manual's::

    @form("add", "sat? type=u32|s32", "d a b")

Modifiers are a set: producers differ in their order. A group is ``name=choice|choice`` or a lone flag, ``?`` makes it
optional; groups that share choices (``cvt.dtype.atype``) are filled in the order written. Operands: ``d`` result
register, ``d|p`` two results, ``dv`` result register or vector, ``{d}`` result vector, ``{d+}`` vector read and
written, ``a`` source, ``av`` source or vector, ``{a}`` source vector, ``[a]`` address, ``[t]`` tensor map with
coordinates, ``#`` integer constant, ``L`` label, ``T`` label table, ``F`` function or the register with its address,
``(a)`` list of variables, ``s`` source or ``ds`` result that may be a part of a register, ``?`` optional.
Anything that is not in the table is an error when the text is loaded; nothing is ever ignored.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from tilekit.emulator.core.errors import UnsupportedInstruction
from tilekit.emulator.ptx.language.availability import Dialect
from tilekit.emulator.ptx.language.operand_rules import problem as operand_problem
from tilekit.emulator.ptx.language.syntax import (
    AddressOperand,
    CallList,
    FunctionName,
    Immediate,
    Instruction,
    LabelOperand,
    Operand,
    PairOperand,
    Register,
    RegisterOperand,
    Sink,
    SymbolOperand,
    VectorOperand,
)

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler

Emitter = Callable[["BlockCompiler", "Decoded"], None]
Uniform = Callable[["Decoded", Callable[[Operand], bool]], tuple[bool, ...]]
Flow = Literal["next", "wait", "yield", "branch", "call", "stop", "exit"]

_ALIASES = {
    "$I": "u16|u32|u64|s16|s32|s64",
    "$B": "b16|b32|b64",
    "$M": "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64",
    "$S": "const|global|local|param|shared|shared::cta|shared::cluster|param::entry|param::func",
}


@dataclass(frozen=True, slots=True)
class Group:
    """One modifier position of a form."""

    name: str
    choices: tuple[str, ...]
    optional: bool

    def shown(self) -> str:
        """The position in the manual's notation; a long list of choices is shown by its name."""
        text = f".<{self.name}>" if len(self.choices) > 12 else "." + "|.".join(self.choices)
        return f"{{{text}}}" if self.optional else text if len(self.choices) == 1 else f"({text})"


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One row of the table."""

    opcode: str
    notation: str
    groups: tuple[Group, ...]
    operands: tuple[str, ...]
    emit: Emitter
    uniform: Uniform
    flow: Flow
    refusal: str = ""
    """Why the emulator does not execute it; empty when it does."""

    def __str__(self) -> str:
        modifiers = "".join(group.shown() for group in self.groups) or (".…" if self.notation == ANYTHING else "")
        return f"{self.opcode}{modifiers} {', '.join(self.operands)}".rstrip()


@dataclass(slots=True, eq=False)
class Decoded:
    """An instruction matched with its form."""

    instruction: Instruction
    form: Form
    fields: dict[str, str]
    index: int
    """Position in its kernel."""
    operands: tuple[Operand, ...]
    """As written, with registers split into webs."""
    guard: RegisterOperand | None
    defs: tuple[Register, ...] = field(default=())
    uses: tuple[Register, ...] = field(default=())

    def __getitem__(self, name: str) -> str:
        return self.fields[name]

    def get(self, name: str, default: str = "") -> str:
        """The modifier chosen for a group, or the default when it was left out."""
        return self.fields.get(name, default)

    def has(self, name: str) -> bool:
        """Whether an optional group was written."""
        return name in self.fields

    @property
    def aligned(self) -> bool:
        """Whether all lanes of a warp must execute it together: ``.aligned``, or ``bar``, which always is."""
        return "aligned" in self.instruction.modifiers or (self.form.opcode == "bar" and not self.has("level"))


TABLE: dict[str, list[Form]] = {}


def all_sources(decoded: Decoded, uniform: Callable[[Operand], bool]) -> tuple[bool, ...]:
    """Every result is warp-uniform when every source is."""
    spec = decoded.form.operands
    sources = all(
        uniform(operand)
        for kind, operand in zip(spec, decoded.operands, strict=False)
        if not kind.startswith(("d", "{d}"))
    )
    return (sources,) * len(decoded.defs)


def never(decoded: Decoded, uniform: Callable[[Operand], bool]) -> tuple[bool, ...]:
    """Results differ between lanes (or are kept as arrays because they are floating point)."""
    return (False,) * len(decoded.defs)


def always(decoded: Decoded, uniform: Callable[[Operand], bool]) -> tuple[bool, ...]:
    """Every lane receives the same result."""
    return (True,) * len(decoded.defs)


def _parse_groups(notation: str) -> tuple[Group, ...]:
    groups = []
    for alias, choices in _ALIASES.items():
        notation = notation.replace(alias, choices)
    for item in notation.split():
        optional = item.endswith("?")
        name, _, choices = item.rstrip("?").partition("=")
        groups.append(Group(name, tuple(choices.split("|")) if choices else (name,), optional))
    return tuple(groups)


def form(
    opcodes: str,
    notation: str,
    operands: str,
    *,
    uniform: Uniform = all_sources,
    flow: Flow = "next",
) -> Callable[[Emitter], Emitter]:
    """Register the decorated emitter for a form of each opcode (space separated)."""

    def register(emit: Emitter) -> Emitter:
        for opcode in opcodes.split():
            row = Form(opcode, notation, _parse_groups(notation), tuple(operands.split()), emit, uniform, flow)
            TABLE.setdefault(opcode, []).append(row)
        return emit

    return register


ANYTHING = "*"
"""Notation of a refusal for whatever modifiers and operands."""


def refuse(opcodes: str, notation: str, operands: str, reason: str) -> None:
    """Register a form that is known but not executed: loading it is an error that gives the reason.

    The notation may be `ANYTHING`.
    """

    def emit(g: BlockCompiler, i: Decoded) -> None:
        raise AssertionError(f"{i.form} is refused when it is decoded")

    for opcode in opcodes.split():
        parts = tuple(operands.split())
        groups = () if notation == ANYTHING else _parse_groups(notation)
        row = Form(opcode, notation, groups, parts, emit, never, "next", reason)
        TABLE.setdefault(opcode, []).append(row)


@lru_cache(4096)
def _match_rows(opcode: str, modifiers: tuple[str, ...]) -> tuple[tuple[Form, dict[str, str], str | None], ...]:
    """For each form of an opcode what `_match_modifiers` says; forms that fit come first, and else keep their order."""
    rows = [(row, *_match_modifiers(row, modifiers)) for row in TABLE[opcode]]
    return tuple(sorted(rows, key=lambda row: row[2] is not None))


def _match_modifiers(row: Form, modifiers: tuple[str, ...]) -> tuple[dict[str, str], str | None]:
    """The filled groups and the first modifier that fits none (or the missing group)."""
    if row.notation == ANYTHING:
        return {}, None
    fields: dict[str, str] = {}
    for modifier in modifiers:
        for group in row.groups:
            if group.name not in fields and modifier in group.choices:
                fields[group.name] = modifier
                break
        else:
            return fields, "." + modifier
    for group in row.groups:
        if not group.optional and group.name not in fields:
            return fields, "." + "|.".join(group.choices) + " (missing)"
    return fields, None


_PLAIN = ("d", "a", "av")
"""Kinds of operands that a register fits, unless it is a part of one, has a sign or, as a result, is negated."""


def _operand_fits(kind: str, operand: Operand) -> bool:
    kind = kind.rstrip("?")
    if isinstance(operand, RegisterOperand) and (operand.part or operand.minus):
        return kind == "s" or (kind == "ds" and not operand.minus)
    match kind:
        case "d" | "d+" | "ds":
            return isinstance(operand, Sink) or (isinstance(operand, RegisterOperand) and not operand.negated)
        case "d|p":
            return isinstance(operand, RegisterOperand | PairOperand | Sink)
        case "dv":
            return isinstance(operand, RegisterOperand | VectorOperand | Sink)
        case "{d}" | "{a}" | "{d+}":
            return isinstance(operand, VectorOperand)
        case "[a]":
            return isinstance(operand, AddressOperand) and operand.coordinates is None
        case "[t]":
            return isinstance(operand, AddressOperand) and operand.coordinates is not None
        case "#":
            return isinstance(operand, Immediate) and operand.kind == "int"
        case "L":
            return isinstance(operand, LabelOperand)
        case "T":
            return isinstance(operand, VectorOperand)
        case "F":
            return isinstance(operand, FunctionName | RegisterOperand)
        case "(a)":
            return isinstance(operand, CallList)
        case "av":
            return not isinstance(operand, AddressOperand | PairOperand | Sink | CallList | LabelOperand)
        case _:
            return not isinstance(
                operand, AddressOperand | PairOperand | Sink | CallList | VectorOperand | LabelOperand
            )


def _operands_fit(row: Form, operands: tuple[Operand, ...]) -> bool:
    if row.notation == ANYTHING:
        return True
    required = sum(not kind.endswith("?") for kind in row.operands)
    if not required <= len(operands) <= len(row.operands):
        return False
    for kind, operand in zip(row.operands, operands, strict=False):
        if type(operand) is RegisterOperand and kind in _PLAIN:  # most are
            if operand.part or operand.minus or (operand.negated and kind == "d"):
                return False
        elif not _operand_fits(kind, operand):
            return False
    return True


def _registers(operand: Operand) -> list[Register]:
    match operand:
        case RegisterOperand(register=register):
            return [register]
        case VectorOperand(items=items) | CallList(items=items):
            return [register for item in items for register in _registers(item)]
        case PairOperand(first=first, second=second):
            return _registers(first) + _registers(second)
        case AddressOperand(base=base, coordinates=coordinates):
            found = _registers(base)
            for item in coordinates or ():
                found += _registers(item)
            return found
    return []


def _like(opcodes: list[str]) -> str:
    if not opcodes:
        return "no known opcode is like it"
    nearest, *others = opcodes
    return f"the nearest form known is '{TABLE[nearest][0]}'" + (
        f"; opcodes like it: {', '.join(others)}" * bool(others)
    )


def decode(instruction: Instruction, index: int, dialect: Dialect | None = None) -> Decoded:
    """Match an instruction with the table; an instruction that a dialect does not have is refused.

    Raises
    ------
    UnsupportedInstruction
        Naming line, column, the instruction and the nearest known form.
    """
    if instruction.opcode not in TABLE:
        near = difflib.get_close_matches(instruction.opcode, TABLE, 3)
        raise UnsupportedInstruction(
            f"opcode {instruction.opcode!r} is not known, in: {instruction.text}",
            line=instruction.line,
            column=instruction.column,
            form=instruction.name,
            hint=_like(near),
        )
    best: tuple[int, Form, str] | None = None
    for row, matched, problem in _match_rows(instruction.opcode, instruction.modifiers):
        fields = dict(matched)
        if problem is None and not _operands_fit(row, instruction.operands):
            problem = f"the operands (expected {', '.join(row.operands) or 'none'})"
            score = len(instruction.modifiers) + 1
        else:
            score = len(fields)
        if problem is None:
            _check_available(instruction, row, dialect)
            _name_space(row, fields, instruction.operands)
            decoded = Decoded(instruction, row, fields, index, instruction.operands, instruction.guard)
            if wrong := operand_problem(decoded):
                raise UnsupportedInstruction(
                    f"{instruction.name}: {wrong}, in: {instruction.text}",
                    line=instruction.line,
                    column=instruction.column,
                    form=instruction.name,
                    hint=f"the form is '{row}'",
                )
            collect_registers(decoded)
            return decoded
        if best is None or score > best[0]:
            best = (score, row, problem)
    assert best is not None
    raise UnsupportedInstruction(
        f"{instruction.name}: {best[2]} fits no known form, in: {instruction.text}",
        line=instruction.line,
        column=instruction.column,
        form=instruction.name,
        hint=f"the nearest form known is '{best[1]}'",
    )


def _name_space(row: Form, fields: dict[str, str], operands: tuple[Operand, ...]) -> None:
    """Fill in the state space of an access that names none and addresses a variable: it is the variable's, as in ptxas.

    A variable's address in shared or local memory is no generic one.
    """
    for group in row.groups:
        if group.name != "space" or "space" in fields:
            continue
        for operand in operands:
            if isinstance(operand, AddressOperand) and isinstance(operand.base, SymbolOperand):
                space = operand.base.variable.space
                if space in ("shared", "local") and space in group.choices:
                    fields["space"] = space


def _check_available(instruction: Instruction, row: Form, dialect: Dialect | None) -> None:
    if problem := (dialect.lacks(instruction) if dialect else "") or row.refusal:
        error = UnsupportedInstruction(
            f"{instruction.name}: {problem}, in: {instruction.text}",
            line=instruction.line,
            column=instruction.column,
            form=instruction.name,
            hint=f"the form is '{row}'",
        )
        error.details["refusal"] = row.refusal
        raise error


def collect_registers(decoded: Decoded) -> None:
    """Note which registers the operands and the guard read and write."""
    defs: list[Register] = []
    uses: list[Register] = []
    for kind, operand in zip(decoded.form.operands, decoded.operands, strict=False):
        found = _registers(operand)
        if kind.startswith(("d", "{d")):
            defs += found
            if "+" in kind:
                uses += found
        else:
            uses += found
    if decoded.guard is not None:
        uses.append(decoded.guard.register)
    decoded.defs, decoded.uses = tuple(defs), tuple(uses)
