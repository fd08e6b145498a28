"""Counting what a launch does: instructions, lines that never ran, copies, bank conflicts, waits."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.banks import passes
from tilekit.emulator.core.errors import describe
from tilekit.emulator.core.memory.memory import WINDOW
from tilekit.emulator.core.statistics import BankSite, CopyTraffic, Stall, Statistics
from tilekit.emulator.ptx.compiler.instrument import InstrumentedProgram, Observer, wait_name
from tilekit.emulator.ptx.copies.bulk import Load, Store
from tilekit.emulator.ptx.execution.warp import WAIT
from tilekit.emulator.ptx.language.syntax import Instruction
from tilekit.emulator.ptx.memory import access
from tilekit.emulator.ptx.ops import matrix as ops_matrix
from tilekit.emulator.ptx.ops.cp_async import Copy

if TYPE_CHECKING:
    from tilekit.emulator.core.schedules import Pending
    from tilekit.emulator.ptx.compiler.control_flow import Block
    from tilekit.emulator.ptx.execution.warp import Fragment, Warp

__all__ = ["Counting", "wavefronts"]

BANKS = 32


def wavefronts(addresses: npt.NDArray[Any], size: int) -> tuple[int, int]:
    """Passes through the banks that one access of a warp needs, and how many its data alone would need.

    Shared memory has 32 banks of 4 bytes. Lanes are served together 32, 16 or 8 at a time where each accesses up to
    4, 8 or 16 bytes; in a pass every bank delivers one word, to all lanes that want it.

    Parameters
    ----------
    addresses
        Byte address of each lane; negative where a lane is inactive.
    size
        Bytes a lane: 1, 2, 4, 8 or 16.
    """
    together = {8: 16, 16: 8}.get(size, 32)
    groups = [slice(start, start + together) for start in range(0, len(addresses), together)]
    return passes(addresses, size, groups, BANKS)


class Counting(Observer):
    """Counts while a launch runs; `result` when it has ended."""

    def __init__(self) -> None:
        self.steps = 0
        self._program: InstrumentedProgram
        self._blocks: dict[str, Counter[int]] = defaultdict(Counter)
        self._copies: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._sites: dict[int, list[int]] = {}
        self._patterns: dict[tuple[bytes, int], tuple[int, int]] = {}
        self._waiting: dict[Fragment, tuple[str, int]] = {}
        self._waits: Counter[str] = Counter()
        self._stalled: Counter[str] = Counter()

    def attach(self, program: InstrumentedProgram) -> None:
        """Watch the loads and stores of shared memory."""
        self._program = program
        program.wrap(access.load_uniform, self._uniform)
        program.wrap(access.store_uniform, self._uniform)
        program.wrap(access.load_lanes, self._loads)
        program.wrap(access.store_lanes, self._stores)
        program.wrap(ops_matrix.load_matrix, self._matrix_loads)
        program.wrap(ops_matrix.store_matrix, self._matrix_stores)

    def ran(self, warp: Warp, block: Block, following: int) -> None:
        """Count a block, or the beginning or the end of a wait."""
        fragment = warp.fragment
        if following == WAIT:
            if fragment not in self._waiting:
                self._waiting[fragment] = wait_name(warp.fragment.blocked).partition(" phase ")[0], self.steps
            return
        self._blocks[warp.role or f"warp {warp.index}"][block.index] += 1
        if self._waiting:
            waited = self._waiting.pop(fragment, None)
            if waited is not None:
                self._waits[waited[0]] += 1
                self._stalled[waited[0]] += self.steps - waited[1]
        self.steps += block.end - block.start

    def issued(self, operation: Pending) -> None:
        """Count a copy."""
        if isinstance(operation, Load):
            size = operation.size * len(operation.targets)
        elif isinstance(operation, Store):
            size = operation.size
        elif isinstance(operation, Copy):
            size = operation.width * len(operation.pieces)
        else:
            return
        instruction = operation.where.instruction
        assert isinstance(instruction, Instruction)
        kind = re.split(r"\.(?:shared|global)", instruction.name)[0]
        kind += " multicast" if isinstance(operation, Load) and len(operation.targets) > 1 else ""
        kind += " to global" if isinstance(operation, Store) else " to shared"
        self._copies[kind] += 1
        self._bytes[kind] += size

    # -- banks -------------------------------------------------------------------------------------------------------

    def _count(self, warp: Warp, accesses: int, needed: int, ideal: int) -> None:
        site = self._sites.setdefault(warp.at, [0, 0, 0])
        site[0] += accesses
        site[1] += needed
        site[2] += needed - ideal

    def _lanes(self, warp: Warp, space: str, addresses: Any, size: int, mask: Any) -> None:
        first = int(addresses[0] if mask is None else addresses[int(np.argmax(mask))])
        if not (space.startswith("shared") or (space == "generic" and first // WINDOW == 1)):
            return
        relative = addresses.astype(np.int64) - first // 128 * 128
        relative += 1 << 24  # below the first lane's too, all are positive: the banks of 16 MiB are those of 0
        if mask is not None:
            relative = np.where(mask, relative, -1)
        key = relative.tobytes(), size
        if key not in self._patterns:
            self._patterns[key] = wavefronts(relative, size)
        self._count(warp, 1, *self._patterns[key])

    def _uniform(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def counted(warp: Warp, space: str, address: int, *rest: Any) -> Any:
            if space.startswith("shared") or (space == "generic" and address // WINDOW == 1):
                self._count(warp, 1, 1, 1)
            return plain(warp, space, address, *rest)

        return counted

    def _loads(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def counted(warp: Warp, space: str, addresses: Any, width: int, count: int, mask: Any, order: Any) -> Any:
            self._lanes(warp, space, addresses, width * count, mask)
            return plain(warp, space, addresses, width, count, mask, order)

        return counted

    def _stores(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def counted(warp: Warp, space: str, addresses: Any, values: Any, width: int, mask: Any, order: Any) -> Any:
            self._lanes(warp, space, addresses, width * len(values), mask)
            return plain(warp, space, addresses, values, width, mask, order)

        return counted

    def _matrix_loads(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def counted(warp: Warp, addresses: Any, count: int, transposed: bool) -> Any:
            self._lanes(warp, "shared", addresses[: 8 * count], 16, None)
            return plain(warp, addresses, count, transposed)

        return counted

    def _matrix_stores(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def counted(warp: Warp, addresses: Any, registers: Any, transposed: bool) -> Any:
            self._lanes(warp, "shared", addresses[: 8 * len(registers)], 16, None)
            return plain(warp, addresses, registers, transposed)

        return counted

    # -- result ------------------------------------------------------------------------------------------------------

    def result(self) -> Statistics:
        """The counts so far."""
        code = self._program.code
        blocks = self._program.flow.blocks
        ran = {index for counts in self._blocks.values() for index in counts}
        never = [code[i].instruction for b in blocks if b.index not in ran for i in range(b.start, b.end)]
        return Statistics(
            {role: self._by_opcode(counts) for role, counts in self._blocks.items()},
            tuple((instruction.line, _shown(instruction)) for instruction in never),
            len(code),
            {kind: CopyTraffic(count, self._bytes[kind]) for kind, count in self._copies.items()},
            tuple(sorted((self._site(at, *n) for at, n in self._sites.items()), key=lambda s: (-s.extra, s.line))),
            {name: Stall(waits, self._stalled[name]) for name, waits in self._waits.items()},
        )

    def _by_opcode(self, counts: Counter[int]) -> dict[str, int]:
        found: Counter[str] = Counter()
        for index, times in counts.items():
            block = self._program.flow.blocks[index]
            for position in range(block.start, block.end):
                found[self._program.instruction(position).name] += times
        return dict(found)

    def _site(self, position: int, accesses: int, needed: int, extra: int) -> BankSite:
        instruction = self._program.instruction(position)
        return BankSite(instruction.line, _shown(instruction), instruction.provenance, accesses, needed, extra)


def _shown(instruction: Instruction) -> str:
    """The instruction's text, long register lists shortened."""
    return describe(instruction).partition(": ")[2].partition("  [")[0]
