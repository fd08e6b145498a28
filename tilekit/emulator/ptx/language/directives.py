"""Directives behind a function's name: how many numbers each takes, what excludes what (PTX ISA 11.4)."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.emulator.core.errors import nearest
from tilekit.emulator.ptx.language.syntax import Function
from tilekit.emulator.ptx.language.token_reader import TokenReader


@dataclass(frozen=True, slots=True)
class _Directive:
    """How often a number may stand behind it, of what size, and where it may be written."""

    fewest: int
    most: int
    least: int = 1
    entry: bool = True
    device: bool = False
    """Of a ``.func``."""


_DIRECTIVES = {
    ".maxntid": _Directive(1, 3),
    ".reqntid": _Directive(1, 3),
    ".minnctapersm": _Directive(1, 1),
    ".maxnreg": _Directive(1, 1),
    ".reqnctapercluster": _Directive(1, 3, 0),
    ".maxclusterrank": _Directive(1, 1, 0),
    ".explicitcluster": _Directive(0, 0),
    ".blocksareclusters": _Directive(0, 0),
    ".noreturn": _Directive(0, 0, entry=False, device=True),
    ".abi_preserve": _Directive(1, 1, 0, entry=False, device=True),
    ".abi_preserve_control": _Directive(1, 1, 0, entry=False, device=True),
}
_CONFLICTS = (("maxntid", "reqntid"), ("reqnctapercluster", "maxclusterrank"))


def read_directives(reader: TokenReader, function: Function) -> None:
    """Take a function's directives, up to its body."""
    kind = ".entry" if function.is_entry else ".func"
    while reader.tokens[reader.at].kind == "dotted":
        token = reader.tokens[reader.at]
        if token.text == ".pragma":
            reader.pragma()
            continue
        found = _DIRECTIVES.get(token.text)
        if found is None or not (found.entry if function.is_entry else found.device):
            if reader.starts_module_statement():
                return
            legal = [name for name, each in _DIRECTIVES.items() if (each.entry if function.is_entry else each.device)]
            close = nearest(token.text, legal)
            hint = f"; did you mean {close}?" if close else ""
            reader.fail(f"unknown directive {token.text} of {kind} {function.name}{hint}")
        reader.at += 1
        name = token.text[1:]
        function.directives[name] = _numbers(reader, token.text, found)
        function.directive_lines[name] = token.line
        for one, other in _CONFLICTS:
            if name in (one, other) and one in function.directives and other in function.directives:
                reader.fail(f".{one} and .{other} exclude each other: write one of them", token)
        if name == "noreturn" and function.results:
            reader.fail(f"{function.name} is .noreturn and has a result", token)
    directives = function.directives
    if "blocksareclusters" in directives and not directives.keys() >= {"reqntid", "reqnctapercluster"}:
        reader.fail(".blocksareclusters needs .reqntid and .reqnctapercluster")


def _numbers(reader: TokenReader, name: str, directive: _Directive) -> tuple[int, ...]:
    numbers: list[int] = []
    while len(numbers) < directive.most and (not numbers or reader.accept(",")):
        token = reader.tokens[reader.at]
        number = 32 if reader.accept("WARP_SZ") else reader.literal(f"a number behind {name}", bits=32)
        if number < directive.least:
            reader.fail(f"{name} {number}: {directive.least} is the least", token)
        numbers.append(number)
    return tuple(numbers)
