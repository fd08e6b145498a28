"""A kernel as machine instructions whose registers have no place yet: what lowering makes and the passes after it read.

Lowering (`tilekit.assembly.gcn.lowering`) turns a trace into `Code`; `tilekit.assembly.gcn.allocation` gives every
`Virtual` its place, `tilekit.assembly.gcn.waits` puts in ``s_waitcnt``, and `tilekit.assembly.gcn.hazards` wait states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tilekit.assembly.provenance import Origin

File: TypeAlias = Literal["vector", "scalar", "accumulator"]
"""VGPRs, SGPRs, and AGPRs; all of 32 bits a lane, or a wave."""

Counter: TypeAlias = Literal["vmcnt", "lgkmcnt"]
"""What counts outstanding operations (CDNA4 ISA, 4.4): vector memory; LDS, scalar memory and messages."""

Lanes: TypeAlias = Literal["any", "fewer", "more"]
"""What a write of EXEC does to the active lanes: it may change them at will, only drops some, or only adds some."""


@dataclass(slots=True, eq=False)
class Virtual:
    """Consecutive registers that are to have a place: a value, or a tile.

    Attributes
    ----------
    name
        Of the value in Python, for reports.
    file
        Where it is to be.
    words
        How many registers.
    alignment
        What the first one's index is a multiple of.
    fixed
        Index of the first one where it cannot be chosen: what the hardware fills at the start.
    """

    name: str
    file: File
    words: int = 1
    alignment: int = 1
    fixed: int | None = None


@dataclass(slots=True, frozen=True)
class Part:
    """Some consecutive words of a `Virtual`."""

    register: Virtual
    first: int
    words: int


@dataclass(slots=True, eq=False)
class Instruction:
    """One line of assembly.

    Attributes
    ----------
    text
        The line, with ``{0}``, ``{1}``, … for `operands`.
    operands
        What stands there.
    reads, writes
        What it reads, and what it writes; both for what it changes.
    clobbers
        Registers of their own that it writes: ``vcc``, ``scc``, ``m0``, ``exec``.
    partial
        Whether lanes may be masked off: then it reads active lanes alone, and what it writes keeps its old value in the
        others. An instruction that writes nothing, such as a store, says it too.
    lanes
        What it does to the active lanes, where it writes EXEC.
    counter
        The counter that it raises until it is complete. Those of scalar instructions complete in any order.
    waits
        Counters that must be zero before it: a barrier's, behind which other waves read what this one wrote.
    to_lds
        Whether it fills LDS itself (load-to-LDS), so that no register says when it is complete.
    depth, role, origin
        Of the statement that it comes from.
    """

    text: str
    operands: tuple[Part, ...] = ()
    reads: tuple[Part, ...] = ()
    writes: tuple[Part, ...] = ()
    clobbers: frozenset[str] = frozenset()
    partial: bool = False
    lanes: Lanes = "any"
    counter: Counter | None = None
    to_lds: bool = False
    waits: frozenset[Counter] = frozenset()
    depth: int = 0
    role: str = ""
    origin: Origin | None = None


@dataclass(slots=True, eq=False)
class Label:
    """A place to go to."""

    name: str


@dataclass(slots=True, eq=False)
class Branch:
    """A jump; without a `condition` (``scc0``, ``execz``, …) always."""

    target: str
    condition: str | None = None
    origin: Origin | None = None


@dataclass(slots=True, eq=False)
class Commit:
    """The end of a group of operations that raise ``vmcnt`` (as ``cp.async.commit_group``)."""


@dataclass(slots=True, eq=False)
class Wait:
    """Wait until all but the youngest `pending` groups are complete; ``None``: and everything after them, too."""

    pending: int | None = None
    counter: Counter = "vmcnt"
    origin: Origin | None = None


Item: TypeAlias = Instruction | Label | Branch | Commit | Wait


@dataclass(slots=True)
class Code:
    """A kernel's items in order; lowering ends it with ``s_endpgm``."""

    items: list[Item] = field(default_factory=list)
