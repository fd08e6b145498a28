"""Text of a fragment: which names it declares, other names for them, and whether it is PTX at all."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilekit.assembly.dialect import HOLE, TextFault
from tilekit.assembly.ptx.spelling import SHARED_SYMBOL, declared_type
from tilekit.assembly.types import RegisterType
from tilekit.emulator.core.errors import EmulatorError, TextError, UnsupportedInstruction
from tilekit.emulator.ptx.language.lexer import Token, tokenize
from tilekit.emulator.ptx.language.syntax import Function, Instruction
from tilekit.targets import DEFAULT

_SPACES = (".reg", ".local", ".shared", ".param", ".global", ".const")
_DECLARES = re.compile(r"\.(reg|local|shared|param|global|const)\b|[\w$]\s*:(?!:)")
"""What a text that declares a name has in it."""


@dataclass(frozen=True, slots=True)
class _Name:
    """Where a text has a name that may be the fragment's own; a declared one has the depth of its scope.

    Attributes
    ----------
    members
        Of ``name<4>``, the four names that it declares.
    """

    text: str
    start: int
    end: int
    line: int
    depth: int | None = None
    members: tuple[str, ...] = ()


def local_names(lines: Sequence[str]) -> frozenset[str]:
    """Registers, variables and labels that the text declares.

    Raises
    ------
    TextFault
        For a name that is declared outside of braces, where the second place of the fragment would declare it again.
    """
    text = "\n".join(lines)
    if _DECLARES.search(text) is None:
        return frozenset()
    found: set[str] = set()
    for name in _names(text):
        if name.depth is None:
            continue
        if not name.depth:
            raise TextFault(
                f"{name.text!r} is declared outside of braces, and would be declared again where the fragment is "
                "placed a second time. Nearest: { before the text and } behind it",
                name.line,
            )
        found.update(name.members or (name.text,))
    return frozenset(found)


def renamed(lines: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """The text with other names for what it declares; opcodes and modifiers that read alike stay."""
    text = "\n".join(lines)
    for name in sorted(_names(text), key=lambda name: name.start, reverse=True):
        new = ", ".join(names.get(member, member) for member in name.members or (name.text,))
        if name.members and not names.keys() & set(name.members):
            continue
        text = text[: name.start] + new + text[name.end :]
    return tuple(text.split("\n"))


def check_text(
    lines: Sequence[str],
    operands: Mapping[str, tuple[RegisterType, int | None]],
    words: Mapping[str, str],
    version: tuple[int, int],
    *,
    kept: Collection[str],
    kind: str,
) -> None:
    """Check that the text is PTX in which every name is an operand or declared, and that it does what it says.

    An instruction is one of the emulator's table, known there to be run or to be another chip's. Where a build-time
    operand or a list of any length is part of it, its opcode alone is looked at.

    Parameters
    ----------
    lines
        Of the fragment.
    operands
        Register operands: type, and length of a list (None for one register).
    words
        What stands for each immediate.
    version
        Of PTX.
    kept
        Operands that the text may only read: the kernel goes on with them.
    kind
        What the header says that it does.

    Raises
    ------
    TextFault
        With the line in the text and what was expected.
    """
    head = [f".version {version[0]}.{version[1]}", f".target {DEFAULT.name}", ".address_size 64"]
    head += [f".extern .shared .align 16 .b8 {SHARED_SYMBOL}[];", ".visible .entry fragment()", "{"]
    bound = dict(words)
    for name, (type_, length) in operands.items():
        registers = [f"_{name}_"] if length is None else [f"_{name}_{i}" for i in range(length or 2)]
        head.append(f".reg .{declared_type(type_)} {', '.join(registers)};")
        bound[name] = ", ".join(registers)
    body = [HOLE.sub(lambda hole: bound[hole[1]], line) for line in lines]

    from tilekit.emulator.ptx.language.parser import parse_module  # for fragments from elsewhere alone

    try:
        function = parse_module("\n".join([*head, *body, "ret;", "}", ""])).functions["fragment"]
    except TextError as error:
        line = (error.line or 0) - len(head)
        if line > len(body):  # only behind the text it shows that something in it is not closed
            raise TextFault(f"the text ends in the middle: {error.message}", len(body)) from error
        raise TextFault(error.message, max(line, 1)) from error
    read_only = {f"_{name}_{end}": name for name in kept for end in ("", *range(operands[name][1] or 2))}
    open_ = {*words, *(name for name, (_, length) in operands.items() if length == 0)}
    try:
        known = True
        for instruction in function.instructions[:-1]:
            line = instruction.line - len(head)
            end = next((number for number in range(line - 1, len(lines)) if ";" in lines[number]), len(lines))
            holes = {hole[1] for hole in HOLE.finditer("\n".join(lines[line - 1 : end + 1]))}
            _check_instruction(instruction, line, read_only, kind)
            known &= _has_form(instruction, decided=not holes & open_)
        if known and not open_:
            _check_widths(function)
    except UnsupportedInstruction as error:
        said = "; ".join(filter(None, (error.message.partition(", in: ")[0], error.hint)))
        said = _REGISTER.sub(lambda register: f"${{{register[1]}}}", said)
        raise TextFault(said, (error.line or 0) - len(head)) from error


def _has_form(instruction: Instruction, *, decided: bool) -> bool:
    """Whether the emulator runs an instruction as it stands; `decided` where nothing of it is a call's to choose.

    Raises
    ------
    UnsupportedInstruction
        Where there is no such opcode or, of what is decided, no such form.
    """
    from tilekit.emulator.ptx.language.forms import TABLE, decode
    from tilekit.emulator.ptx.ops import table  # noqa: F401  what forms there are

    try:
        decode(instruction, 0)
    except UnsupportedInstruction as error:
        if error.details.get("refusal") or (instruction.opcode in TABLE and not decided):
            return False
        raise
    return True


def _check_widths(function: Function) -> None:
    """Make the emulator's code of a text, which looks at how wide and how many its registers are.

    Raises
    ------
    UnsupportedInstruction
        For the first that does not fit.
    """
    from tilekit.emulator.ptx.chips import CHIPS
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.language.forms import decode

    code = [decode(instruction, index) for index, instruction in enumerate(function.instructions)]
    program = Program(function, code, CHIPS[DEFAULT.name], {}, aligned_warps=True)
    for index in range(len(program.flow.blocks)):
        program.compile_block(index, masked=False)


_REGISTER = re.compile(r"\b_(\w+?)_\d*\b")
"""A register that stands for an operand; see `check_text`."""
_LEAVES = ("ret", "exit")
_REACHES = frozenset(
    {"ld", "ldu", "st", "atom", "red", "cp", "prefetch", "ldmatrix", "stmatrix", "multimem"}
    | {"bar", "barrier", "mbarrier", "fence", "membar", "mma", "wgmma", "tcgen05", "setmaxnreg"}
)
"""What is no arithmetic: a role must say that it may."""


def _check_instruction(instruction: Instruction, line: int, kept: Mapping[str, str], kind: str) -> None:
    """Check what one instruction does, as far as the emulator knows it."""
    if instruction.opcode in _LEAVES:
        raise TextFault(
            f"{instruction.opcode} ends the thread, which the kernel goes on with; nearest: a branch to a label at the "
            "end of the text",
            line,
        )
    own = {"local", "param"} & set(instruction.modifiers)
    if kind == "scalar" and instruction.opcode in _REACHES and not own:
        raise TextFault(
            f"{instruction.name} is no arithmetic, and every role may place what is scalar; nearest: another kind, as "
            "memory is, which only some roles may place",
            line,
        )
    from tilekit.emulator.ptx.language.forms import decode
    from tilekit.emulator.ptx.ops import table  # noqa: F401  what forms there are

    try:
        written = decode(instruction, 0).defs
    except EmulatorError:
        return
    for register in written:
        if register.name in kept:
            name = kept[register.name]
            raise TextFault(
                f"writes {name!r}, which is declared `in` and the kernel's to keep; nearest: inout, or a register of "
                "the fragment's own",
                line,
            )


def _names(text: str) -> Iterator[_Name]:
    """Every name of the text where one may be declared or used; no opcode, no modifier, no operand."""
    holes = [match.span() for match in HOLE.finditer(text)]
    masked = HOLE.sub(lambda hole: "_" * len(hole[0]), text)
    try:
        tokens = tokenize(masked).tokens
    except TextError as error:
        raise TextFault(error.message, error.line or 1) from error
    inside = {position for start, end in holes for position in range(start, end)}
    depth, at = 0, 0
    while tokens[at].kind != "end":
        token = tokens[at]
        if token.text in "{}":
            depth += 1 if token.text == "{" else -1
            at += 1
        elif token.kind == "word" and tokens[at + 1].text == ":":
            yield _name(token, depth)
            at += 2
        elif token.text in _SPACES:
            end = _end(tokens, at)
            yield from _declared(tokens[at + 1 : end], depth)
            at = end + 1
        else:
            end = _end(tokens, at)
            if token.text == "@":
                guard = at + 2 if tokens[at + 1].text == "!" else at + 1
                yield from _used(tokens[at + 1 : guard + 1], inside)
                at = guard + 1
            # What stands first is the opcode.
            yield from _used(tokens[min(at + 1, end) : end], inside)
            at = end + 1


def _end(tokens: Sequence[Token], at: int) -> int:
    """Where the statement that begins at `at` ends: at its semicolon, or at the end of the text."""
    while tokens[at].text != ";" and tokens[at + 1].kind != "end":
        at += 1
    return at if tokens[at].text == ";" else at + 1


def _used(tokens: Sequence[Token], holes: set[int]) -> Iterator[_Name]:
    return (_name(token) for token in tokens if token.kind == "word" and token.start not in holes)


def _declared(tokens: Sequence[Token], depth: int) -> Iterator[_Name]:
    """The names of a declaration: a word first, or behind a comma that is in no brackets."""
    nested, awaited = 0, True
    for at, token in enumerate(tokens):
        nested += (token.text in ("{", "[", "(")) - (token.text in ("}", "]", ")"))
        if token.kind == "word" and awaited and not nested:
            count = tokens[at + 2] if len(tokens) > at + 3 and tokens[at + 1].text == "<" else None
            if count is not None and count.text.isdigit():
                members = tuple(f"{token.text}{i}" for i in range(int(count.text)))
                yield _Name(token.text, token.start, tokens[at + 3].end, token.line, depth, members)
            else:
                yield _name(token, depth)
            awaited = False
        elif token.text == "," and not nested:
            awaited = True


def _name(token: Token, depth: int | None = None) -> _Name:
    return _Name(token.text, token.start, token.end, token.line, depth)
