"""Many warps at once: launches whose CTAs cannot tell what the others do, and whose warps meet at barriers only.

NumPy takes little longer for some thousand lanes than for 32. Where CTAs do not communicate (see `independent`) many of
them run together as one group, instruction by instruction. That is as good an order as any other: the results are those
of every order, or there is a race.

A lockstep group passes no judgement. When anything is out of the ordinary - a fault, a barrier that a CTA comes to in
part, threads that touch the same bytes unordered, too many steps - memory is put back as it was and the launch starts
over warp by warp, in the order of its seed, and finds what it finds.
"""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import EmulatorError
from tilekit.emulator.core.memory.memory import RESERVED_SHARED
from tilekit.emulator.ptx.execution.lockstep_memory import LockstepMemory, SharedMemories, Unsure, Who
from tilekit.emulator.ptx.execution.warp import SPLIT, Lanes
from tilekit.emulator.ptx.language.independent import has_barriers

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.execution.warp import Mask
    from tilekit.emulator.ptx.launch import Launch

GROUP_WARPS = 512
"""Most warps of a group: so many that NumPy's cost of a call no longer counts, and that a few registers fit a cache."""

FEWEST_WARPS = 64
"""Launches with fewer warps run them one by one: a group's code has to be made first."""


MOST_SHARED = 1 << 22
"""Bytes of shared memory that the CTAs of a lockstep group have together, unless one has more."""


def group_ctas(ctas: int, warps: int, shared_bytes: int) -> int:
    """How many CTAs of so many warps run as one group, in a launch of ``ctas``: a power of two where those are few."""
    most = min(GROUP_WARPS // warps, MOST_SHARED // (RESERVED_SHARED + shared_bytes))
    return min(max(1, most), 1 << (ctas - 1).bit_length())


LOOK = 2520
"""Blocks between two looks at whether a lockstep group goes round in a circle: a multiple of most loops' lengths."""


class Formation:
    """What the lockstep groups of a launch have in common: lanes in the order of CTA, warp, lane.

    Attributes
    ----------
    ctas, warps, threads
        CTAs of a lockstep group; warps and threads of a CTA.
    barriers
        Whether the warps of a CTA meet.
    tid, warpid
        Special registers of each lane.
    live
        Lanes that have a thread.
    counts
        int64[blocks + 1, warps]: how often each block was run by the warps at each position.
    steps
        Blocks run by all warps.
    """

    def __init__(self, launch: Launch, program: Program) -> None:
        positions = launch.positions
        self.launch = launch
        self.program = program
        self.barriers = has_barriers(program.code)
        self.memory = LockstepMemory(launch, self.barriers)
        self.warps = len(positions)
        self.threads = math.prod(launch.block)
        self.ctas = program.warps // self.warps
        parts = [np.concatenate([position.tid[axis] for position in positions]) for axis in range(3)]
        self.tid = tuple(np.tile(part, self.ctas) for part in parts)
        self.warpid = np.tile(np.repeat(np.arange(self.warps, dtype=np.uint32), 32), self.ctas)
        self.live: Mask = np.tile(np.concatenate([position.live for position in positions]), self.ctas)
        self.counts = np.zeros((len(program.flow.blocks) + 1, self.warps), np.int64)
        self.steps = 0
        self._multiples: dict[int, npt.NDArray[np.int64]] = {}

    def shared(self) -> SharedMemories:
        """Fresh shared memory for the CTAs of a group."""
        size = RESERVED_SHARED + self.launch.total_shared_bytes
        pitch = -(-size // 16) * 16
        rows = np.repeat(np.arange(self.ctas, dtype=np.int64) * pitch, 32 * self.warps)
        return SharedMemories(rows, RESERVED_SHARED, size, self.launch)

    def multiples(self, size: int) -> npt.NDArray[np.int64]:
        """``size`` times the lane's number."""
        found = self._multiples.get(size)
        if found is None:
            found = self._multiples[size] = np.arange(self.program.lanes) * size
        return found

    def count(self, block: int, mask: Mask | None) -> None:
        """Note that the warps with an active lane ran a block."""
        if mask is None:
            self.counts[block] += self.ctas
            self.steps += self.program.warps
        else:
            active = mask.reshape(self.ctas, self.warps, 32).any(2)
            self.counts[block] += active.sum(0)
            self.steps += int(np.count_nonzero(active))


class LockstepGroup(Lanes):
    """The warps of a few CTAs, under the names by which generated code knows a warp.

    Attributes
    ----------
    ctaid
        Index of each lane's CTA.
    who
        The threads, as memory knows them.
    """

    __slots__ = (
        "_shared",
        "arrays",
        "at",
        "carry",
        "cta",
        "ctaid",
        "formation",
        "local",
        "memory",
        "program",
        "steps",
        "tid",
        "uniforms",
        "warpid",
        "who",
    )

    def __init__(self, formation: Formation, first: int) -> None:
        program, launch = formation.program, formation.launch
        ctas = np.arange(first, first + formation.ctas, dtype=np.int64)
        width, height, depth = launch.grid
        live = formation.live & np.repeat(ctas < width * height * depth, 32 * formation.warps)
        super().__init__(program, live, None if live.all() else live)
        self.formation = formation
        self.memory = formation.memory
        self.steps = formation.multiples
        self.program = program
        self.cta = SimpleNamespace(launch=launch, shared_base=0)
        index = ctas % width, ctas // width % height, ctas // (width * height)
        self.ctaid = tuple(np.repeat(part.astype(np.uint32), 32 * formation.warps) for part in index)
        self.tid = formation.tid
        self.warpid = formation.warpid
        self.who = Who.of(first, formation.ctas, 32 * formation.warps, barriers=formation.barriers)
        self._shared: SharedMemories | None = None
        self.arrays: list[Any] = program.poison.copy()
        self.uniforms: list[Any] = [0] * len(program.homes)
        self.carry: Mask = np.zeros(program.lanes, np.bool_)
        self.local: Any = None
        self.at = 0

    @property
    def shared(self) -> SharedMemories:
        """Shared memory of its CTAs, made when it is first used."""
        if self._shared is None:
            self._shared = self.formation.shared()
        return self._shared

    def run(self) -> None:
        """Run to the end, lowest block first where lanes have parted."""
        program, formation = self.program, self.formation
        budget = formation.launch.machine.budget
        blocks, before = 0, None
        while self.fragments:
            fragment = self.runnable()
            assert fragment is not None
            self.fragment = fragment
            block, mask, join = fragment.block, fragment.mask, fragment.join
            table = program.full if mask is None else program.masked
            while True:
                function = table[block] or program.compile_block(block, masked=mask is not None)
                following = function(self, mask)
                formation.count(block, mask)
                if following == SPLIT:
                    break
                if following == join:
                    self.reach_join()
                    break
                if following == self.exit_block:
                    self.exit_fragment()
                    break
                block = following
                blocks += 1
                if blocks % LOOK == 0:
                    now = (block, len(self.fragments), self.uniforms.copy(), self.arrays.copy())
                    read = program.read_from(block)
                    if before is not None and _same(before, now, read, mask):
                        raise Unsure  # perhaps a loop that never ends: warps one by one can tell
                    before = now
                if formation.steps > budget:
                    raise Unsure


def _same(before: tuple[Any, ...], now: tuple[Any, ...], read: list[int], mask: Mask | None) -> bool:
    """Whether a lockstep group is where it was, and the lanes that run have the same in the registers they read."""
    lanes: Any = slice(None) if mask is None else mask
    pairs = [(before[3][number], now[3][number]) for number in read]
    return before[:3] == now[:3] and all(
        one is other or one[..., lanes].tobytes() == other[..., lanes].tobytes() for one, other in pairs
    )


def run_in_lockstep(launch: Launch, program: Program) -> bool:
    """Run a whole launch; False, with memory as it was, where it has to be run warp by warp.

    Parameters
    ----------
    launch
        Not started.
    program
        Its kernel, analysed for a group.
    """
    formation = Formation(launch, program)
    total = math.prod(launch.grid)
    start = time.perf_counter()
    try:
        for first in range(0, total, formation.ctas):
            LockstepGroup(formation, first).run()
            launch.report_progress(min(first + formation.ctas, total), time.perf_counter() - start)
    except (Unsure, EmulatorError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        formation.memory.restore()
        return False
    for position, counts in zip(launch.positions, formation.counts.T.tolist(), strict=True):
        position.counts[:] = counts
    return True
