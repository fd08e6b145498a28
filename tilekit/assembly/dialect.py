"""The boundary between tracing and spelling: what an instruction set must say to have kernels written in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from tilekit.assembly.trace import Trace


@dataclass(frozen=True)
class FragmentFormat:
    """How fragment files of an instruction set look, beyond the header that all share.

    Attributes
    ----------
    suffix
        Of the files' names.
    target
        The header's ``target`` line: the groups ``architecture``, and ``major`` and ``minor`` where the assembler's
        language has versions.
    example
        A ``target`` line for messages.
    local
        A line that declares names in the fragment's own scope: in the first group, or in a list in the second.
    guard
        An operand that guards an instruction.
    hole
        Where the text has an operand; its name is the first group.
    files
        Register files that an operand's line may name, where the instruction set has several.
    given
        What a fragment may ask for beside its operands, in a line ``given``: what the hardware fills at the start.
    temporaries
        Whether lines ``temp`` declare registers of the fragment's own.
    """

    suffix: str
    target: re.Pattern[str]
    example: str
    local: re.Pattern[str]
    guard: re.Pattern[str]
    hole: re.Pattern[str] = re.compile(r"\$\{(\w+)\}")
    files: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    temporaries: bool = False


class Dialect(Protocol):
    """Spells traces.

    Attributes
    ----------
    isa
        The instruction set, as targets name it; also the folder of its fragments.
    fragments
        How its fragment files look.
    reserved
        Names that no register may have.
    shared_at_launch
        Whether a launch says how much shared memory a CTA has; else the text does.
    """

    isa: str
    fragments: FragmentFormat
    reserved: frozenset[str]
    shared_at_launch: bool

    def __hash__(self) -> int:
        """Fragments are read once a dialect."""

    def module(self, trace: Trace) -> str:
        """Return the assembly text: header, parameters, registers, every statement with its origin, and the end."""
