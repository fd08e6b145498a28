"""Counting what a launch does: instructions, matrix work, bytes moved, bank conflicts, coalescing, waits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.errors import describe
from tilekit.emulator.core.statistics import BankSite, CopyTraffic, Stall
from tilekit.emulator.gcn.banks import Passes, conflicts
from tilekit.emulator.gcn.checks.instruction_kinds import passes
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.observation.instrument import InstrumentedProgram, Observer
from tilekit.emulator.gcn.observation.statistics import DispatchStatistics, LineSite, MatrixWork, Traffic

if TYPE_CHECKING:
    from tilekit.emulator.gcn.execution.batch import Batch
    from tilekit.emulator.gcn.execution.workgroup import WaveState
    from tilekit.emulator.gcn.launch import Launch

__all__ = ["LINE_BYTES", "Counting"]

LINE_BYTES = 128
"""A cache line of both chips."""


class Counting(Observer):
    """Counts while a launch runs; `result` when it has ended."""

    def __init__(self) -> None:
        self.steps = 0
        self._program: InstrumentedProgram
        self._launch: Launch
        self._blocks: dict[str, Counter[int]] = defaultdict(Counter)
        self._copies: Counter[str] = Counter()
        self._copied: Counter[str] = Counter()
        self._banks: dict[int, list[int]] = {}
        self._lines: dict[int, list[int]] = {}
        self._of: dict[int, Instruction] = {}
        self._patterns: dict[tuple[bytes, int, bool], Passes] = {}
        self._traffic: dict[str, list[int]] = {}
        self._waiting: dict[WaveState, int] = {}
        self._waits = self._stalled = 0

    def attach(self, program: InstrumentedProgram) -> None:
        """Remember the program, for its blocks."""
        self._program = program

    def start(self, launch: Launch) -> None:
        """Remember the launch, for its chip."""
        self._launch = launch

    def ran(self, waves: Sequence[WaveState], block: int, answer: int) -> None:
        """Count a block, and the beginning or the end of waits."""
        for wave in waves:
            actor = wave.order.actor
            self._blocks[actor.role or f"wave {actor.warp}"][block] += 1
            began = self._waiting.pop(wave, None)
            if began is not None and self.steps > began:
                self._waits += 1
                self._stalled += self.steps - began
        self.steps += len(waves) * len(self._program.blocks[block].instructions)

    def waits(self, batch: Batch) -> None:
        """Note when waits begin."""
        self._waiting.update(dict.fromkeys(batch.waves, self.steps))

    # -- memory ------------------------------------------------------------------------------------------------------

    def accessed(self, batch: Batch, space: str, i: Instruction, address: Any, size: int, lanes: Any) -> None:
        """Count the bytes of an access, and how well its lanes go together."""
        count = batch.W * 64 if lanes is None else int(np.count_nonzero(lanes))
        if not count:
            return
        to_lds = i.flag("lds") or i.name.startswith("global_load_lds")
        self._add(f"{space} {_action(i, to_lds=to_lds and space == 'LDS')}", count, size)
        self._of[id(i)] = i
        where = np.asarray(address)
        for wave in range(batch.W):
            row = np.broadcast_to(where, (batch.W, 64))[wave]
            row = row if lanes is None else np.where(lanes[wave], row, -1)
            if (row < 0).all():
                continue
            if space == "LDS":
                self._bank(i, row, size)
                if to_lds:
                    self._copies[i.name] += 1
                    self._copied[i.name] += size * int(np.count_nonzero(row >= 0))
            elif space == "global":
                self._coalesce(i, row, size)

    def _add(self, kind: str, count: int, size: int) -> None:
        entry = self._traffic.setdefault(kind, [0, 0])
        entry[0] += count
        entry[1] += count * size

    def loads_scalars(self, batch: Batch, i: Instruction, size: int) -> None:
        """Count a scalar load, once a wave."""
        self._add("scalar loads", batch.W, size)

    def _bank(self, i: Instruction, row: Any, size: int) -> None:
        write = not i.name.startswith("ds_read")
        key = row.tobytes(), size, write
        found = self._patterns.get(key)
        if found is None:
            found = self._patterns[key] = conflicts(row, size, self._launch.chip.name, write=write)
        site = self._banks.setdefault(id(i), [0, 0, 0])
        for place, value in enumerate((1, found.needed, found.extra)):
            site[place] += value

    def _coalesce(self, i: Instruction, row: Any, size: int) -> None:
        active = row[row >= 0]
        first, last = active // LINE_BYTES, (active + size - 1) // LINE_BYTES
        lines = np.unique(np.concatenate([first, last])).size
        distinct = np.unique(active).size * size
        site = self._lines.setdefault(id(i), [0, 0, 0, 0])
        for place, value in enumerate((1, lines, -(-distinct // LINE_BYTES), distinct)):
            site[place] += value

    # -- result ------------------------------------------------------------------------------------------------------

    def result(self) -> DispatchStatistics:
        """The counts so far."""
        blocks = self._program.blocks
        ran = {number for counts in self._blocks.values() for number in counts}
        never = [i for number, block in enumerate(blocks) if number not in ran for i in block.instructions]
        opcodes = {role: self._by_opcode(counts) for role, counts in self._blocks.items()}
        return DispatchStatistics(
            opcodes,
            tuple((i.line, _shown(i)) for i in sorted(never, key=lambda i: i.line)),
            len(self._program.code),
            {kind: CopyTraffic(count, self._copied[kind]) for kind, count in self._copies.items()},
            tuple(sorted((self._bank_site(at) for at in self._banks), key=lambda site: (-site.extra, site.line))),
            {"s_barrier": Stall(self._waits, self._stalled)} if self._waits else {},
            {kind: Traffic(*entry) for kind, entry in self._traffic.items()},
            tuple(sorted((self._line_site(at) for at in self._lines), key=lambda site: (-site.extra, site.line))),
            self._matrix(),
        )

    def _by_opcode(self, counts: Counter[int]) -> dict[str, int]:
        found: Counter[str] = Counter()
        for number, times in counts.items():
            for i in self._program.blocks[number].instructions:
                found[i.name] += times
        return dict(found)

    def _matrix(self) -> dict[str, MatrixWork]:
        found: dict[str, list[int]] = {}
        for counts in self._blocks.values():
            for number, times in counts.items():
                for i in self._program.blocks[number].instructions:
                    if i.name.startswith(("v_mfma", "v_smfmac")):
                        entry = found.setdefault(i.name, [0, 0])
                        entry[0] += times
                        entry[1] += times * passes(i, self._launch.chip.name)
        return {name: MatrixWork(*entry) for name, entry in found.items()}

    def _bank_site(self, at: int) -> BankSite:
        i = self._of[at]
        return BankSite(i.line, _shown(i), i.provenance, *self._banks[at])

    def _line_site(self, at: int) -> LineSite:
        i = self._of[at]
        return LineSite(i.line, _shown(i), i.provenance, *self._lines[at])


def _action(i: Instruction, *, to_lds: bool) -> str:
    if to_lds:
        return "loads to it"
    if "_store" in i.name or i.name.startswith("ds_write"):
        return "stores"
    return "loads" if "_load" in i.name or i.name.startswith("ds_read") else "atomics"


def _shown(i: Instruction) -> str:
    return describe(i).partition(": ")[2].partition("  [")[0]
