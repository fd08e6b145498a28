"""Kernel text as golden files keep it: a change of a few instructions is a difference of about as many lines.

The writer numbers registers and labels through the whole kernel, so one more `add` renames every later one. Here a name
is free again once its value is dead, and one that a component keeps for later carries the component's file, so what is
far from a change keeps its names. `renamed` is that text, and still a kernel; `golden` is what is reviewed of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from tilekit.assembly.fragment_files import every_fragment
from tilekit.assembly.instruction_sets import PTX

_WORD = re.compile(r"(?<![\w.%$])[A-Za-z_]\w*(?![\w.])")
_LABEL = re.compile(r"\s*(\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\w+);")
_ORIGIN = re.compile(r"(?P<text>.*?) *//@ (?P<role>\S+) (?P<component>\S+) (?P<file>\S+):\d+")
_REGISTERS = re.compile(r"\s*\.reg \.(?P<type>\w+) (?P<names>[^;]+);")
_TILE = re.compile(r"\b(?P<tile>\w+_)\d+(?:, (?P=tile)\d+){3,}")
_REPEATED = re.compile(r"\b(?P<name>\w+)(?:, (?P=name)\b){3,}")
_MEMBER = re.compile(r"\b(?P<tile>\w+_)(?P<index>\d+)\b")
_COLUMN = 88


@dataclass
class _Life:
    """A register, a range of registers (`members` of them) or a label: its first and last line, and what it is for."""

    name: str
    type: str
    members: int
    first: int
    last: int
    hint: str = ""

    def spelled(self, number: int) -> str:
        """The name with this number among those of its hint."""
        return f"{self.hint}{number or ''}" + ("_" if self.members else "")


@dataclass(frozen=True)
class _Line:
    text: str
    component: str = ""
    file: str = ""


def renamed(ptx: str) -> str:
    """The kernel with registers whose names are used again once their values are dead; it still assembles."""
    return "".join(f"{line.text}\n" for line in _renamed(ptx, labels=False))


def golden(ptx: str) -> str:
    """The text to review: no declarations, a tile's registers as ``acc_0..127``, and whose lines they are."""
    kept = [line for line in _renamed(ptx, labels=True) if line.component or not _REGISTERS.fullmatch(line.text)]
    out, last = [], ""
    for text, component in _gathered(kept):
        text = _REPEATED.sub(lambda run: f"{run['name']} x{run[0].count(',') + 1}", _TILE.sub(_ends, text))
        if component and component != last:
            text = f"{text:<{_COLUMN}} // {component}"
        last = component or last
        out.append(text.rstrip() + "\n")
    return "".join(out)


def _renamed(ptx: str, *, labels: bool) -> list[_Line]:
    """The lines of a trace, declarations first, with names of registers, and of `labels` if asked for, used again."""
    lines, types = _read(ptx)
    lives = [life for life in _lives(lines, types) if labels or life.type != "label"]
    new, declared = _names(lines, lives)
    members = {f"{life.name}{i}": f"{new[life.name]}{i}" for life in lives for i in range(life.members)}
    spelling = members | {life.name: new[life.name] for life in lives if not life.members}
    out = []
    for line in lines:
        out.append(_Line(_WORD.sub(lambda word: spelling.get(word[0], word[0]), line.text), line.component, line.file))
        if line.text == "{":
            out += [_Line(f"    .reg .{type_} {name};") for name, type_ in sorted(declared.items())]
    return out


def _ends(run: re.Match[str]) -> str:
    """A list of a tile's consecutive registers as its ends; any other list as it is."""
    indices = [int(name.removeprefix(run["tile"])) for name in run[0].split(", ")]
    if indices != list(range(indices[0], indices[0] + len(indices))):
        return run[0]
    return f"{run['tile']}{indices[0]}..{indices[-1]}"


def _gathered(lines: list[_Line]) -> Iterator[tuple[str, str]]:
    """Lines and their components; lines one after the other that do the same to a tile's registers are one."""
    at = 0
    while at < len(lines):
        line = lines[at]
        count = 1
        if len(found := list(_MEMBER.finditer(line.text))) == 1:
            head, tile, tail = line.text[: found[0].start()], found[0]["tile"], line.text[found[0].end() :]
            first = int(found[0]["index"])
            while at + count < len(lines) and lines[at + count].text == f"{head}{tile}{first + count}{tail}":
                count += 1
            if count > 3:
                yield f"{head}{tile}{first}..{first + count - 1}{tail}", line.component
                at += count
                continue
        yield line.text, line.component
        at += 1


def _read(ptx: str) -> tuple[list[_Line], dict[str, str]]:
    """The lines without the writer's own declarations, and the types of what those declare."""
    lines, types = [], {}
    for text in ptx.splitlines():
        if match := _ORIGIN.fullmatch(text):
            component = re.sub(r"\.(genexpr|listcomp|lambda)$", "", match["component"])
            lines.append(_Line(match["text"], component, match["file"]))
        elif match := _REGISTERS.fullmatch(text):
            types.update(dict.fromkeys(match["names"].split(", "), match["type"]))
        else:
            lines.append(_Line(text))
    return lines, types


def _lives(lines: list[_Line], types: dict[str, str]) -> list[_Life]:
    """Registers and labels in the order in which they begin; what enters a loop lives to the loop's end."""
    local = {name for _, fragment in every_fragment(PTX) for name in fragment.locals}
    owner = {}
    for declared in types:
        name, _, count = declared.rstrip(">").partition("<")
        owner |= {f"{name}{i}": declared for i in range(int(count))} if count else {name: declared}
    labels = {match[1]: at for at, line in enumerate(lines) if (match := _LABEL.fullmatch(line.text))}
    owner |= {label: label for label in labels.keys() - local}
    found: dict[str, _Life] = {}
    for at, line in enumerate(lines):
        for word in _WORD.findall(line.text):
            if (declared := owner.get(word)) is None:
                continue
            if declared not in found:
                name, _, count = declared.rstrip(">").partition("<")
                type_ = types.get(declared, "label")
                found[declared] = _Life(name, type_, int(count or 0), at, at)
            found[declared].last = at
    loops = [
        (labels[match[1]], at)
        for at, line in enumerate(lines)
        if (match := _BRANCH.search(line.text)) and labels.get(match[1], at) < at and match[1] not in local
    ]
    for top, end in sorted(loops, key=lambda loop: loop[1] - loop[0]):
        for life in found.values():
            if life.first < top <= life.last < end:
                life.last = end
    return list(found.values())


def _names(lines: list[_Line], lives: list[_Life]) -> tuple[dict[str, str], dict[str, str]]:
    """The new name of each old one, and the registers that are then to be declared, with their types."""
    new: dict[str, str] = {}
    kinds: dict[str, str] = {}
    busy: dict[str, list[_Life]] = defaultdict(list)
    for life in lives:
        life.hint = _hint(lines, life)
        taken = {new[other.name] for other in busy[life.hint] if other.last >= life.first}
        number = 0
        while (name := life.spelled(number)) in taken or kinds.get(name, life.type) != life.type:
            number += 1
        new[life.name], kinds[name] = name, life.type
        busy[life.hint].append(life)
    sizes = {new[life.name]: 0 for life in lives}
    for life in lives:
        sizes[new[life.name]] = max(sizes[new[life.name]], life.members)
    registers = {name: type_ for name, type_ in kinds.items() if type_ != "label"}
    return new, {f"{name}<{sizes[name]}>" if sizes[name] else name: type_ for name, type_ in registers.items()}


def _hint(lines: list[_Line], life: _Life) -> str:
    """What a name is made of: its own without the number; with the file of its component where it says only which
    operation made it, and is used elsewhere."""
    hint = re.sub(r"_?\d*_?$", "", life.name) or life.name
    made, used = lines[life.first], lines[life.last]
    operation = made.text.split()[0].split(".")
    if life.type != "label" and hint in operation and made.component != used.component:
        return f"{PurePath(made.file).stem}_{hint}"
    return hint
