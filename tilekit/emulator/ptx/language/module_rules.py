"""What a whole module may be: directives and types by ``.version`` and ``.target``, and sizes that every chip limits.

`parser` reads what is grammar; these rules need to know what the text is written for.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilekit.emulator.core.errors import PtxSyntaxError
from tilekit.emulator.ptx.chips import CHIPS
from tilekit.emulator.ptx.language.availability import Dialect
from tilekit.emulator.ptx.language.syntax import Function, PtxModule

_DIRECTIVES = {
    "reqnctapercluster": "sm_90",
    "maxclusterrank": "sm_90",
    "explicitcluster": "sm_90",
    "blocksareclusters": "sm_90 9.0",
    "abi_preserve": "9.0",
    "abi_preserve_control": "9.0",
    "noreturn": "6.4",
}
"""What directives of a function need."""
_TYPES = {"b128": "8.3"}
"""What types of registers and variables need."""
_RUNTIME = ("vprintf", "__assertfail", "malloc", "free")
"""Functions that every program has: they need no ``.extern``."""
CONSTANT_BYTES = 1 << 16
"""Bytes of a module's variables in ``.const``."""
_PARAMETER_BYTES = ((8, 1), 32764, 4352)
"""Bytes of a kernel's parameters: from this version on, and before."""


def check_module(module: PtxModule, dialect: Dialect) -> None:
    """Refuse a module that its target does not allow.

    Raises
    ------
    PtxSyntaxError
        At the function's line, or the head's.
    """
    for problem in module_problems(module, dialect):
        raise problem


def module_problems(module: PtxModule, dialect: Dialect) -> Iterator[PtxSyntaxError]:
    """Find what `check_module` refuses, one after the other."""
    constants = sum(variable.size for variable in module.variables.values() if variable.space == "const")
    if constants > CONSTANT_BYTES:
        yield _error(module.header_line, f"variables in .const take {constants:,} bytes: at most {CONSTANT_BYTES:,}")
    for variable in module.variables.values():
        if variable.space == "const" and variable.external:
            yield _error(module.header_line, f"{variable.name} in .const is defined nowhere")
        yield from _check_type(variable.type, variable.name, dialect, module.header_line)
    shared = sum(variable.size for variable in module.variables.values() if variable.space == "shared")
    for function in module.functions.values():
        yield from _check_function(function, dialect, shared)


def _check_function(function: Function, dialect: Dialect, shared: int) -> Iterator[PtxSyntaxError]:
    for name in function.directives:
        needs = _DIRECTIVES.get(name)
        if needs and (missing := dialect.lacks_one_of(needs)):
            yield _error(function.directive_lines[name], f".{name} {missing}")
    for kind in {register.type for register in function.registers} & _TYPES.keys():
        yield from _check_type(kind, function.name, dialect, function.line)
    for variable in (*function.parameters, *function.variables):
        yield from _check_type(variable.type, variable.name, dialect, function.line)
    if not function.has_body and function.linkage != ".extern" and function.name not in _RUNTIME:
        yield _error(
            function.line, f"{function.name} is declared and has no body: write .extern if it is defined elsewhere"
        )
    if not function.is_entry:
        return
    end = 0
    for parameter in function.parameters:
        end = -(-end // parameter.align) * parameter.align + parameter.size
    since, most, before = _PARAMETER_BYTES
    limit = most if dialect.numbers >= since else before
    if end > limit:
        yield _error(function.line, f"parameters of {function.name} take {end:,} bytes: at most {limit:,}")
    chip = CHIPS.get(dialect.target.name)
    static = shared + sum(variable.size for variable in function.variables if variable.space == "shared")
    if chip is not None and static > chip.shared_per_cta:
        yield _error(
            function.line,
            f"{function.name} declares {static:,} bytes of shared memory: {chip.name} has {chip.shared_per_cta:,}",
        )


def _check_type(kind: str, name: str, dialect: Dialect, line: int) -> Iterator[PtxSyntaxError]:
    needs = _TYPES.get(kind)
    if needs and (missing := dialect.lacks_one_of(needs)):
        yield _error(line, f"{name}: .{kind} {missing}")


def _error(line: int, message: str) -> PtxSyntaxError:
    return PtxSyntaxError(message, line=line, column=1)
