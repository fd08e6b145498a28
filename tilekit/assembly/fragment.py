"""Fragments: a few lines of real assembly with typed operands, called from Python.

They are read from files (`tilekit.assembly.fragment_files`), whose headers say what is here.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from tilekit.assembly.dialect import Dialect
from tilekit.assembly.errors import FragmentError
from tilekit.assembly.types import RegisterType
from tilekit.targets import Target

KINDS = {
    "scalar": "arithmetic, conversion and special registers: allowed everywhere",
    "control": "warp and CTA control: barriers among threads, register budgets, elections",
    "sync": "arrive on, initialise or expect bytes on an mbarrier; fences",
    "wait": "wait for an mbarrier",
    "load": "start a copy from global to shared memory",
    "store": "start or finish a copy from shared to global memory",
    "mma": "matrix instructions",
    "tmem": "allocate tensor memory; loads and stores of it",
    "memory": "ordinary loads and stores of the executing thread",
}

_OPERAND = re.compile(r"(\w+)(?:\[(\*|\d+)\])?$")
_SPAN = re.compile(r"(\d+)\.\.(\d+)(?: step (\d+))?$")


@dataclass(frozen=True)
class FragmentOperand:
    """A register operand of a fragment: direction, type, list length (None = one register, 0 = any), register file."""

    name: str
    direction: str
    type: RegisterType
    length: int | None
    file: str = ""

    @property
    def wanted(self) -> str:
        """What a call must pass, in the header's notation."""
        return f"{self.type}" if self.length is None else f"{self.type}[{self.length or '*'}]"


@dataclass(frozen=True)
class Immediate:
    """A build-time operand.

    Attributes
    ----------
    name, rule
        Its name, and the rule in the header's notation.
    values
        What it may be: a range of integers, or words.
    texts
        Of words, what stands for each in the text.
    """

    name: str
    rule: str
    values: range | tuple[str, ...]
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, rule: str) -> Immediate | None:
        """Read a rule such as ``8..256 step 8`` or ``bf16|f16``; None if it cannot be read."""
        span = _SPAN.match(rule)
        if span is not None:
            low, high, step = (int(part or 1) for part in span.groups())
            return cls(name, rule, range(low, high + 1, step)) if low <= high and step else None
        words = [part.partition("=") for part in rule.split("|")]
        if not all(word.isidentifier() and (text.isidentifier() or not sign) for word, sign, text in words):
            return None
        return cls(name, rule, tuple(word for word, _, _ in words), tuple(text or word for word, _, text in words))

    def spell(self, value: object) -> str | None:
        """The text for `value`, or None where the rule forbids it."""
        if isinstance(self.values, tuple):
            return dict(zip(self.values, self.texts, strict=True)).get(value) if isinstance(value, str) else None
        try:
            number = operator.index(value)  # type: ignore[arg-type]  # what it refuses is what is reported
        except TypeError:
            return None
        return str(number) if number in self.values else None

    def nearest(self, value: object) -> str:
        """The legal value nearest to `value`."""
        if isinstance(self.values, tuple):
            return next(iter(difflib.get_close_matches(str(value), self.values, 1, 0.0)), self.values[0])
        number = value if isinstance(value, (int, float)) else self.values[0]
        return str(min(self.values, key=lambda legal: abs(legal - number)))


@dataclass(frozen=True)
class Fragment:
    """One fragment: header and text.

    Attributes
    ----------
    version
        That of the assembler's language which has it; (0, 0) where the language has none.
    guards
        Operands that guard an instruction: only a register can.
    locals
        Registers, variables and labels that the text declares in its own scope; they would hide an operand of that
        name.
    numbers
        Of the text's lines, in the file.
    temporaries
        Registers of its own that the header declares.
    given
        What it reads of what the hardware fills at the start.
    """

    name: str
    file: Path
    line: int
    about: str
    see: str
    kind: str
    target: str
    version: tuple[int, int]
    needs: frozenset[str]
    aligned: bool
    uniform: bool
    operands: tuple[FragmentOperand, ...]
    immediates: tuple[Immediate, ...]
    text: tuple[str, ...] = field(repr=False)
    guards: frozenset[str] = field(repr=False)
    locals: frozenset[str] = field(repr=False)
    numbers: tuple[int, ...] = field(repr=False)
    temporaries: tuple[FragmentOperand, ...] = field(repr=False)
    given: tuple[str, ...] = field(repr=False)
    hole: re.Pattern[str] = field(repr=False)

    def __hash__(self) -> int:
        """Fragments differ by where they stand."""
        return hash((self.file, self.line))

    def error(self, message: str, code: str = "TK-FRAG-002") -> FragmentError:
        """Build the error for a wrong call of this fragment."""
        return FragmentError(f"fragment {self.name} ({self.file.name}:{self.line}): {message}", code=code)

    @cached_property
    def inputs(self) -> dict[str, FragmentOperand]:
        """The operands that a call passes, by name."""
        return {operand.name: operand for operand in self.operands if operand.direction != "out"}

    def runs_on(self, target: Target) -> bool:
        """Whether `target` has the fragment's instructions."""
        return self.target in target.architectures and self.needs <= target.capabilities

    def lacks(self, target: Target) -> str:
        """What `target` would need to run it: an architecture, or capabilities."""
        if self.target not in target.architectures:
            return self.target
        return ", ".join(sorted(self.needs - target.capabilities))

    @cached_property
    def call(self) -> str:
        """How it is called: ``group.name``; of a file that is not tilekit's the path in place of the group."""
        return f"{self.file.stem if self.own else self.file}.{self.name}"

    @property
    def stays_in_registers(self) -> bool:
        """Whether it is known not to reach memory; of a file that is not tilekit's nothing is."""
        return self.own and self.kind in ("scalar", "control")

    @cached_property
    def own(self) -> bool:
        """Whether it is of one of tilekit's files."""
        return self.file.is_relative_to(fragment_root())

    def with_locals(self, names: Mapping[str, str], dialect: Dialect) -> Fragment:
        """The same fragment with other names for some of its locals."""
        assert dialect.fragments.scopes is not None, "only what has scopes has locals"
        text = dialect.fragments.scopes.renamed(self.text, names)
        return replace(self, text=text, locals=frozenset(names.get(name, name) for name in self.locals))

    def bind(self, bound: Mapping[str, str]) -> list[str]:
        """Return the fragment's lines with every hole filled."""
        return [self.hole.sub(lambda hole: bound[hole.group(1)], line) for line in self.text]


def fragment_root() -> Path:
    """Return the folder that holds `ptx/`: inside an installed wheel, or the top of a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_fragments"
    return installed if installed.is_dir() else package.parent
