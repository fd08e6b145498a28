"""PTX modules: the dialect, and how its text is laid out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilekit.assembly.dialect import FragmentFormat, Scopes
from tilekit.assembly.ptx.election import converged
from tilekit.assembly.ptx.fragment_text import check_text, local_names, renamed
from tilekit.assembly.ptx.spelling import SHARED_SYMBOL, declared_type, number_type, spell
from tilekit.assembly.shared import BASE_ALIGNMENT
from tilekit.assembly.trace import Line, Placement, Register, Scope, Trace
from tilekit.assembly.types import MAP
from tilekit.targets import DEFAULT

_ORIGIN_COLUMN = 100
_REGISTER_LIST = 100


class PtxDialect:
    """A `tilekit.assembly.dialect.Dialect`."""

    isa = "ptx"
    fragments = FragmentFormat(
        suffix=".ptx",
        target=re.compile(r"(?P<architecture>sm_\d+a?) ptx (?P<major>\d+)\.(?P<minor>\d+)"),
        example=f"{DEFAULT.name} ptx 8.0",
        guard=re.compile(r"@!?\$\{(\w+)\}"),
        scopes=Scopes(local_names, renamed),
        check=check_text,
    )
    reserved = frozenset({SHARED_SYMBOL})
    shared_at_launch = True

    def module(self, trace: Trace) -> str:
        """Return the module with its one entry."""
        major, minor = _version(trace)
        parameters = ",\n".join(
            f"    .param .align 64 .b8 {p.name}_param[128]"
            if p.type is MAP
            else f"    .param .{number_type(p.type)} {p.name}_param"
            for p in trace.parameters
        )
        granted = trace.registers == trace.target.launch_registers(trace.threads)
        head = [
            f".version {major}.{minor}",
            f".target {trace.target.name}",
            ".address_size 64",
            "",
            f".extern .shared .align {BASE_ALIGNMENT} .b8 {SHARED_SYMBOL}[];",
            "",
            f".visible .entry {trace.name}(",
            parameters,
            ")",
            # The count at entry, which setmaxnreg needs: ptxas drops it otherwise (C7508).
            f".maxntid {trace.threads}, 1, 1",
            f".minnctapersm {trace.resident}" if granted else f".maxnreg {trace.registers}",
        ]
        if trace.cluster > 1:
            head += [".explicitcluster", f".reqnctapercluster {trace.cluster}, 1, 1"]
        notes = [f"role {r.name} warps={r.warps.start}-{r.warps.stop - 1}" for r in trace.roles]
        notes += trace.shared.annotations()
        statements = converged(trace.body) if trace.target.whole_warps else trace.body
        body = [*(f"    //@{note}" for note in notes), *_block(statements), "    ret;"]
        return "\n".join([*head, "{", *body, "}", ""])


def _version(trace: Trace) -> tuple[int, int]:
    """The version that the target and every fragment need."""
    statements = [line.statement for line in trace.body.lines()]
    needed = {statement.fragment.version for statement in statements if isinstance(statement, Placement)}
    return max(needed | {trace.target.isa_version})


def _block(scope: Scope) -> list[str]:
    """A ``{ }`` block's contents: declarations, then lines and nested blocks in order."""
    pad = "    " * scope.depth
    registers: dict[str, list[Register]] = {}
    for register in scope.registers:
        registers.setdefault(declared_type(register.type), []).append(register)
    text = [f"{pad}.reg .{kind} {part};" for kind, some in sorted(registers.items()) for part in _wrapped(some)]
    for item in scope.items:
        if isinstance(item, Line):
            _instructions(item, text)
        else:
            outer = "    " * (item.depth - 1)
            text += [f"{outer}{{", *_block(item), f"{outer}}}"]
    return text


def _instructions(line: Line, text: list[str]) -> None:
    """Append the instructions of a line, each with a comment that says whose it is."""
    origin, pad = line.origin, "    " * line.depth
    comment = f" //@ {line.role} {origin.component} {origin.file}:{origin.line}"
    for instruction in spell(line.statement):
        if instruction[-1] == ":" and instruction[0] != " ":
            text.append(f"{pad[:-4]}{instruction}")
        elif instruction.strip() in "{}":
            text.append(f"{pad}{instruction}")
        else:
            text.append(f"{pad}{instruction}".ljust(_ORIGIN_COLUMN) + comment)


def _wrapped(registers: list[Register]) -> Iterator[str]:
    """Join names into lists of readable width; a range such as ``acc_<64>`` stands alone."""
    part = ""
    for register in registers:
        name = register.name
        if register.count is not None:
            yield f"{name}<{register.count}>"
            continue
        if part and len(part) + len(name) > _REGISTER_LIST:
            yield part
            part = ""
        part = f"{part}, {name}" if part else name
    if part:
        yield part
