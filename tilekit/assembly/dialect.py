"""The boundary between tracing and spelling: what an instruction set must say to have kernels written in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilekit.assembly.trace import Trace
from tilekit.assembly.types import RegisterType

HOLE = re.compile(r"\$\{(\w+)\}")
"""Where a fragment's text has an operand; its name is the first group."""


class TextFault(Exception):  # noqa: N818  what is wrong with a text; the reader of the file says where it stands
    """What is wrong with a fragment's text, and in which of its lines, from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True)
class Scopes:
    """Names that fragments of an instruction set declare in scopes of their own, where it has such scopes.

    Attributes
    ----------
    local_names
        Those that a text declares; raises `TextFault`.
    renamed
        The text with other names for some of them.
    """

    local_names: Callable[[Sequence[str]], frozenset[str]]
    renamed: Callable[[Sequence[str], Mapping[str, str]], tuple[str, ...]]


class TextCheck(Protocol):
    """Checks that a text is of the instruction set."""

    def __call__(
        self,
        lines: Sequence[str],
        operands: Mapping[str, tuple[RegisterType, int | None]],
        words: Mapping[str, str],
        version: tuple[int, int],
        *,
        kept: Collection[str],
        kind: str,
    ) -> None:
        """Raise `TextFault` for the first thing that is wrong; `kept` are operands that the text may only read."""


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
    scopes
        Where text has names: how a fragment's own are found and changed. None where it has none that could meet others.
    check
        Checks a text where it is read; None where each line is read when it is placed.
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
    guard: re.Pattern[str]
    hole: re.Pattern[str] = HOLE
    scopes: Scopes | None = None
    check: TextCheck | None = None
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
