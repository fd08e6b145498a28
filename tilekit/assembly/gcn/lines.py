"""Lines of fragments as instructions: what each reads and writes, by the tables that the emulator executes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tilekit.assembly.errors import FragmentError
from tilekit.assembly.gcn.code import Counter, File
from tilekit.assembly.gcn.notation import HOLE
from tilekit.emulator.core.errors import EmulatorError
from tilekit.emulator.gcn.checks.forms import check_form
from tilekit.emulator.gcn.compiler.effects import effects, queue_of
from tilekit.emulator.gcn.compiler.flow import writes_exec
from tilekit.emulator.gcn.language.parser import parse
from tilekit.emulator.gcn.language.syntax import EXEC, M0, VCC, Instruction
from tilekit.emulator.gcn.memory.outstanding import SCALARS

_ACCUMULATORS = 512
_SPECIAL = {"vcc": 3 << SCALARS + VCC, "exec": 3 << SCALARS + EXEC, "m0": 1 << SCALARS + M0}
_LETTERS = {"vector": "v", "scalar": "s", "accumulator": "a"}


@dataclass(frozen=True, slots=True)
class Place:
    """Some words of an operand, as a hole names them."""

    name: str
    first: int
    words: int


@dataclass(frozen=True, slots=True)
class LineEffects:
    """One line of a fragment whose operands have register files and sizes.

    Attributes
    ----------
    text, places
        The line with ``{0}``, ``{1}``, …, and what stands there.
    reads, writes
        Which of these it reads and writes.
    clobbers
        Registers of their own that it writes.
    counter, to_lds
        As `tilekit.assembly.gcn.code.Instruction` has them.
    narrows
        Whether it changes which lanes are active.
    """

    text: str
    places: tuple[Place, ...]
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]
    clobbers: frozenset[str]
    counter: Counter | None
    to_lds: bool
    narrows: bool


def waited_for(operands: str, where: str) -> list[Counter]:
    """The counters of an ``s_waitcnt`` in a fragment: how many may stay is worked out, so it can only ask for all.

    Raises
    ------
    FragmentError
        ``TK-FRAG-001`` for a count.
    """
    found = re.findall(r"(vmcnt|lgkmcnt)\((\d+)\)", operands)
    if not found or any(count != "0" for _, count in found):
        raise FragmentError(
            f"{where}: `s_waitcnt{operands}` counts operations; counts are worked out, and a fragment may wait for "
            "all: vmcnt(0), lgkmcnt(0)",
            code="TK-FRAG-001",
        )
    return [counter for counter, _ in found]


@lru_cache(4096)
def effects_of(line: str, registers: tuple[tuple[str, File, int], ...], where: str, chip: str) -> LineEffects:
    """Read one line, given the file and the size of each operand that is in registers.

    Raises
    ------
    FragmentError
        ``TK-FRAG-001`` for a line that is no instruction of the chip, or words that an operand does not have.
    """
    files = {name: (file, words) for name, file, words in registers}
    firsts = _firsts(registers)
    places: list[Place] = []

    def placed(hole: re.Match[str]) -> str:
        name, low, high = hole.groups()
        first = int(low or 0)
        words = files[name][1] if low is None else int(high or low) - first + 1
        if not 0 < words <= files[name][1] - first:
            raise FragmentError(
                f"{where}: {hole.group()} has words that {name} does not have; it has {files[name][1]}",
                code="TK-FRAG-001",
            )
        places.append(Place(name, first, words))
        return _spelled(files[name][0], firsts[name] + first, words)

    try:
        module = parse(HOLE.sub(placed, line))
        if len(module.instructions) != 1:
            raise FragmentError(f"{where}: `{line.strip()}` is no instruction", code="TK-FRAG-001")
        instruction = module.instructions[0]
        check_form(instruction, chip)
    except EmulatorError as error:
        raise FragmentError(
            f"{where}: `{line.strip()}` is no instruction of {chip}: {error.message}", code="TK-FRAG-001"
        ) from error
    found = effects(instruction, _ACCUMULATORS)
    numbers = iter(range(len(places)))
    bits = {place: _bits(place, files, firsts) for place in places}
    written = found.writes | found.load
    return LineEffects(
        HOLE.sub(lambda _: f"{{{next(numbers)}}}", line.strip()),
        tuple(places),
        tuple(place for place in dict.fromkeys(places) if bits[place] & found.reads),
        tuple(place for place in dict.fromkeys(places) if bits[place] & written),
        frozenset(name for name, those in _SPECIAL.items() if those & written),
        {0: "vmcnt", 1: "lgkmcnt", None: None}[_queue(instruction)],
        instruction.flag("lds") or instruction.name.startswith("global_load_lds"),
        writes_exec(instruction),
    )


def _queue(instruction: Instruction) -> int | None:
    return 1 if instruction.name.startswith("s_mem") else queue_of(instruction)


def _firsts(registers: tuple[tuple[str, File, int], ...]) -> Mapping[str, int]:
    """Registers that stand for operands while a line is read: each of its own, aligned as the real ones are."""
    free = {"vector": 0, "scalar": 0, "accumulator": 0}
    firsts = {}
    for name, file, words in registers:
        alignment = 4 if words > 2 else 2
        firsts[name] = -(-free[file] // alignment) * alignment
        free[file] = firsts[name] + words
    return firsts


def _spelled(file: File, first: int, words: int) -> str:
    letter = _LETTERS[file]
    return f"{letter}{first}" if words == 1 else f"{letter}[{first}:{first + words - 1}]"


def _bits(place: Place, files: Mapping[str, tuple[File, int]], firsts: Mapping[str, int]) -> int:
    base = {"vector": 0, "scalar": SCALARS, "accumulator": _ACCUMULATORS}[files[place.name][0]]
    return ((1 << place.words) - 1) << (base + firsts[place.name] + place.first)
