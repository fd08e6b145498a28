"""A `Code` from lines that can be read at a glance.

``x = vector``, ``p = scalar 2``, ``acc = accumulator 16``, ``tid = vector @0``
    Registers: how many words, and where they must be.
``v_add_u32_e32 x, y, z``
    The first operand is written, the others are read; of stores and comparisons to SCC all are read. ``+x`` is read and
    written, ``acc[4:6]`` some of its words, and whatever is no register's name stays as it is.
``? v_mov_b32_e32 x, y``
    Lanes may be masked off. ``fewer``, ``more`` and ``any`` before an instruction say how it changes EXEC.
``top:``, ``s_branch top``, ``s_cbranch_scc1 top``, ``commit``, ``wait 1``, ``wait all``, ``wait lgkmcnt``
    Labels, branches, groups. ``waits lgkmcnt : s_barrier`` asks for a counter to be zero.
"""

from __future__ import annotations

import re

from tilekit.assembly.gcn.code import (
    Branch,
    Code,
    Commit,
    Counter,
    Instruction,
    Item,
    Label,
    Lanes,
    Part,
    Virtual,
    Wait,
)
from tilekit.assembly.provenance import Origin

_DECLARED = re.compile(r"(\w+) = (vector|scalar|accumulator)(?: (\d+))?(?: @(\d+))?$")
_OPERAND = re.compile(r"(\+?)(\w+)(?:\[(\d+)(?::(\d+))?\])?$")
_READ_ONLY = re.compile(
    r"\w+_store_|global_load_lds|ds_write|s_cmp|s_bitcmp|s_barrier|s_mov_b32 m0|s_(mov|and|or|andn2)_b64 exec"
)


def read(text: str) -> tuple[Code, dict[str, Virtual]]:
    """Return the kernel, and its registers by name."""
    registers: dict[str, Virtual] = {}
    items: list[Item] = []
    for number, line in enumerate(text.strip().splitlines(), 1):
        line = line.strip()
        declared = _DECLARED.match(line)
        if declared is not None:
            name, file, words, fixed = declared.groups()
            place = int(fixed) if fixed else None
            registers[name] = Virtual(name, file, int(words or 1), 1, place)  # type: ignore[arg-type]
        elif line:
            items.append(_item(line, registers, Origin("Test.case", "case.py", number)))
    return Code(items), registers


def _item(line: str, registers: dict[str, Virtual], origin: Origin) -> Item:
    if line.endswith(":"):
        return Label(line[:-1])
    if line == "commit":
        return Commit()
    word, _, rest = line.partition(" ")
    if word == "wait":
        return (
            Wait(None, "lgkmcnt", origin)
            if rest == "lgkmcnt"
            else Wait(None if rest == "all" else int(rest), origin=origin)
        )
    if word == "s_branch":
        return Branch(rest, None, origin)
    if word.startswith("s_cbranch_"):
        return Branch(rest, word.removeprefix("s_cbranch_"), origin)
    waits: frozenset[Counter] = frozenset()
    if word == "waits":
        counters, _, line = rest.partition(" : ")
        waits = frozenset(counters.split())  # type: ignore[arg-type]
    partial = line.startswith("? ")
    line = line.removeprefix("? ")
    lanes: Lanes = "any"
    clobbers = {name for name in ("vcc", "exec") if re.search(rf"\b{name}\b|save{name}", line.partition(",")[0])}
    word, _, rest = line.partition(" ")
    if word in ("fewer", "more", "any"):
        lanes, line = word, rest  # type: ignore[assignment]
        clobbers.add("exec")
    return _instruction(line, registers, partial, lanes, frozenset(clobbers), waits, origin)


def _instruction(
    line: str,
    registers: dict[str, Virtual],
    partial: bool,
    lanes: Lanes,
    clobbers: frozenset[str],
    waits: frozenset[Counter],
    origin: Origin,
) -> Instruction:
    name, _, rest = line.partition(" ")
    operands: list[Part] = []
    reads: list[Part] = []
    writes: list[Part] = []
    spelled = []
    for place, text in enumerate(rest.split(", ") if rest else []):
        first, _, modifiers = text.partition(" ")
        match = _OPERAND.match(first)
        if match is None or match[2] not in registers:
            spelled.append(text)
            continue
        register = registers[match[2]]
        begin = int(match[3] or 0)
        end = int(match[4]) if match[4] else begin + 1 if match[3] else register.words
        part = Part(register, begin, end - begin)
        written = place == 0 and not _READ_ONLY.match(line)
        if written:
            writes.append(part)
        if not written or match[1]:
            reads.append(part)
        spelled.append(f"{{{len(operands)}}}" + (f" {modifiers}" if modifiers else ""))
        operands.append(part)
    counter: Counter | None = None
    if name.startswith(("global_", "buffer_")):
        counter = "vmcnt"
    elif name.startswith(("ds_", "s_load", "s_buffer")):
        counter = "lgkmcnt"
    return Instruction(
        f"{name} {', '.join(spelled)}" if spelled else name,
        tuple(operands),
        tuple(reads),
        tuple(writes),
        clobbers=clobbers,
        partial=partial,
        lanes=lanes,
        counter=counter,
        to_lds=name.endswith("_lds") or "_lds_" in name,
        waits=waits,
        origin=origin,
    )
