"""Kernels that hold one GCN fragment and nothing else, and what LLVM's assembler says about many of them."""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

from fragment_entries import Case, extremes

from tilekit.assembly.fragment import Fragment, FragmentOperand
from tilekit.assembly.fragment_files import every_fragment
from tilekit.assembly.instruction_sets import GCN
from tilekit.assembly.types import PRED, SMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.errors import ArgumentError, AssemblerError
from tilekit.runtime.assembler import assemble
from tilekit.targets import CHIPS

AMD_CHIPS = ("gfx942", "gfx950")
FORMAT_REGISTERS = (8, 8, 6, 6, 4)
"""Registers of an operand of the matrix instruction of narrow floats, by its format's number."""

_MESSAGE = re.compile(r"^<stdin>:(\d+):\d+: error: (.*)$", re.M)


def gcn_fragments() -> list[tuple[str, Fragment]]:
    """Every fragment with the name of its file."""
    return sorted(every_fragment(GCN), key=lambda found: found[0])


def claimed_chips(fragment: Fragment) -> list[str]:
    """The chips that have its instructions."""
    return [name for name in AMD_CHIPS if fragment.runs_on(CHIPS[name])]


def cases(group: str, fragment: Fragment) -> list[Case]:
    """The fragment at both ends of every range and at every alternative of its immediates."""
    names = [i.name for i in fragment.immediates]
    choices = itertools.product(*(extremes(i) for i in fragment.immediates))
    return [Case(group, fragment, tuple(zip(names, choice, strict=True))) for choice in choices]


def registers_of(operand: FragmentOperand, immediates: dict[str, Any]) -> int:
    """Registers of a list operand: as many as its format has, where it has any number."""
    return operand.length or FORMAT_REGISTERS[immediates[f"{operand.name}_format"]]


def entry(case: Case, chip: str) -> Writer:
    """A kernel that places the fragment twice on the same registers: names and labels must not clash."""
    w = Writer("alone", target=chip, threads=64)
    immediates = dict(case.immediates)
    given: dict[str, Value | RegisterTile] = {}
    for operand in case.fragment.inputs.values():
        if operand.length is not None:
            given[operand.name] = w.tile(operand.type, registers_of(operand, immediates), operand.name)
        elif operand.type is PRED:
            given[operand.name] = w.thread() < 7
        elif operand.type.bits < 32:
            given[operand.name] = w.constant(operand.type, 1)
        elif operand.file == "scalar" and operand.type is SMEM:  # an address that no launch can pass
            given[operand.name] = w.parameter(operand.name, U32).retyped(SMEM)
        elif operand.file == "scalar":
            given[operand.name] = w.parameter(operand.name, operand.type)
        else:
            given[operand.name] = w.new(operand.type, operand.name, uniform=False)
    for _ in range(2):
        w.place(case.fragment, **given, **immediates)
    return w


def symbol(case: Case) -> str:
    """A name for the kernel that holds a case: a fragment may stand in several folders."""
    return f"{case.fragment.file.parent.name}_{case.entry}"


@cache
def rejected(chip: str) -> dict[str, list[str]]:
    """What the assembler says against each fragment that claims a chip, by `symbol`."""
    chosen = [
        c for group, fragment in gcn_fragments() if chip in claimed_chips(fragment) for c in cases(group, fragment)
    ]
    return said_of({symbol(case): entry(case, chip).text() for case in chosen}, chip)


def said_of(kernels: dict[str, str], chip: str) -> dict[str, list[str]]:
    """What the assembler says against kernels, all of them in one text."""
    lines, owners = [f'.amdgcn_target "amdgcn-amd-amdhsa--{chip}"', ".text"], [""] * 2
    for name, text in kernels.items():
        code = re.sub(r"\.L(?=\w)", f".L{name}.", text[text.index("alone:\n") + 7 : text.index(".size")].rstrip())
        lines += [f"{name}:", *code.splitlines()]
        owners += [name] * (len(lines) - len(owners))
    found: dict[str, list[str]] = {}
    try:
        assemble("\n".join(lines) + "\n", chip, kernel_name="any")
    except AssemblerError as error:
        if error.code != "TK-ASM-001":
            raise
        for message in _MESSAGE.finditer(error.log):
            found.setdefault(owners[int(message[1]) - 1], []).append(message[2])
    except ArgumentError as error:
        if error.code != "TK-ASM-007":  # no kernel is described: every line was assembled
            raise
    return found
