"""A warp: its registers, and its lanes where they have parted.

Lanes that part at a branch run as fragments and meet again at the branch's post-dominator, lowest block first; a
fragment that blocks lets the other side run. Uniform registers rely on this discipline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import Actor

if TYPE_CHECKING:
    from tilekit.emulator.core.symbols import SymbolMap
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.execution.cta import Cta, Warpgroup

Mask = npt.NDArray[np.bool_]
TileRows = tuple[list[Any], list[Any], npt.NDArray[np.uint32], npt.NDArray[np.float32]]
WAIT = -1
"""Returned by a block that must wait: its fragment is blocked and enters the same block again."""
SPLIT = -2
"""Returned by a branch at which lanes parted."""
YIELD = -3
"""Returned by a block that lets others run; the fragment's next block is set."""
POISON = {
    "b1": np.zeros(32, np.bool_),
    "u8": np.full(32, 0xFF, np.uint8),
    "u16": np.full(32, 0xFFFF, np.uint16),
    "s16": np.full(32, -1, np.int16),
    "f16": np.full(32, np.nan, np.float16),
    "u32": np.full(32, 0xFFFFFFFF, np.uint32),
    "s32": np.full(32, -1, np.int32),
    "f32": np.full(32, np.nan, np.float32),
    "u64": np.full(32, 0xFFFFFFFFFFFFFFFF, np.uint64),
    "s64": np.full(32, -1, np.int64),
    "f64": np.full(32, np.nan, np.float64),
    "u128": np.full((2, 32), 0xFFFFFFFFFFFFFFFF, np.uint64),
}
"""What registers hold before they are written, by the array type they are kept in."""
_NO_LANES: Mask = np.zeros(32, np.bool_)
_NO_LANES.flags.writeable = False


class Fragment:
    """Lanes of a warp that run together.

    Attributes
    ----------
    block
        Next block to run.
    mask
        Its lanes; None for all 32.
    join
        Block at which it merges into ``parent``; -1 for none.
    children
        Fragments that have not reached this one's block yet; it runs when there are none left.
    blocked
        What it waits for, or None.
    calls
        The calls that its lanes made together and have not returned from, innermost last.
    frame
        Where the frame of the function that it runs begins in each lane's local memory.
    ran
        Blocks it has run without an end, and
    parked
        whether it waits for the rest of its warp to catch up; see `forward_progress`.
    """

    __slots__ = (
        "block",
        "blocked",
        "calls",
        "children",
        "cluster_ticket",
        "collected",
        "expired",
        "frame",
        "join",
        "mask",
        "parent",
        "parked",
        "ran",
        "ticket",
        "timed_out",
    )

    def __init__(self, block: int, mask: Mask | None, join: int = -1, parent: Fragment | None = None) -> None:
        self.block = block
        self.mask = mask
        self.join = join
        self.parent = parent
        self.children = 0
        self.collected = _NO_LANES
        self.blocked: Any = None
        self.ticket: Any = None
        self.cluster_ticket: Any = None  # apart, since a CTA barrier may stand between a cluster's arrive and its wait
        self.timed_out = -1
        self.expired = False
        self.ran = 0
        self.parked = False
        self.calls: list[Any] = []
        self.frame: int = 0 if parent is None else parent.frame

    @property
    def lanes(self) -> int:
        """Number of its lanes."""
        return 32 if self.mask is None else int(np.count_nonzero(self.mask))


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """What the warps with one number have in common in all CTAs of a launch.

    Attributes
    ----------
    index
        The number.
    role
        What the kernel's author calls it; may be empty.
    tid
        Thread indices (x, y, z) of its lanes.
    live
        Lanes that have a thread.
    mask
        The same, or None where all have.
    threads
        How many these are.
    counts
        How often each block was run by the warps at this position.
    """

    index: int
    role: str
    tid: tuple[npt.NDArray[np.uint32], ...]
    live: Mask
    mask: Mask | None
    threads: int
    counts: list[int]


def positions(program: Program, block: tuple[int, int, int], symbols: SymbolMap) -> list[Position]:
    """The warps of a CTA of ``block`` threads."""
    width, height, depth = block
    threads = width * height * depth
    found = []
    for index in range(-(-threads // 32)):
        linear = np.arange(index * 32, index * 32 + 32, dtype=np.uint32)
        live = linear < threads
        tid = linear % width, linear // width % height, linear // (width * height)
        counts = [0] * (len(program.flow.blocks) + 1)
        count = int(np.count_nonzero(live))
        found.append(Position(index, symbols.role_of(index), tid, live, None if count == 32 else live, count, counts))
    return found


class Lanes:
    """Lanes that run together until they part: those of a warp, or of many.

    Attributes
    ----------
    exit_block
        Number of the block after the last one.
    fragment, fragments
        Who runs, and all there are.
    live
        Lanes that have a thread which has not exited.
    written
        Of each watched register, the lanes that have written it: None, a mask, or True for all.
    """

    __slots__ = ("exit_block", "fragment", "fragments", "live", "written")

    def __init__(self, program: Program, live: Mask, mask: Mask | None) -> None:
        self.exit_block = len(program.flow.blocks)
        self.live = live
        self.written: list[Any] = [None] * len(program.watched.slots)
        self.fragment = Fragment(0, mask)
        self.fragments = [self.fragment]

    def branch(self, condition: Mask, taken: int, other: int, join: int) -> int:
        """Next block of a branch whose predicate may differ between lanes."""
        fragment = self.fragment
        mask = fragment.mask
        if mask is None:
            chosen = int(np.count_nonzero(condition))
            total = self.live.size
        else:
            condition = condition & mask
            chosen = int(np.count_nonzero(condition))
            total = int(np.count_nonzero(mask))
        if chosen == 0:
            return other
        if chosen == total:
            return taken
        rest = ~condition if mask is None else mask & ~condition
        self.part([(taken, condition), (other, rest)], join)
        return SPLIT

    def switch(self, index: npt.NDArray[np.uint32], targets: tuple[int, ...], join: int) -> int:
        """Next block of an indexed branch whose index differs between lanes."""
        mask = self.fragment.mask
        active = index if mask is None else index[mask]
        values: list[int] = np.unique(active).tolist()
        if len(values) == 1:
            return targets[values[0]]
        sides = [(targets[v], (index == v) if mask is None else mask & (index == v)) for v in values]
        self.part(sides, join)
        return SPLIT

    def part(self, sides: list[tuple[int, Mask]], join: int) -> None:
        """Split the running fragment; its sides meet again at ``join``."""
        fragment = self.fragment
        self.fragments.remove(fragment)
        if fragment.parent is not None and fragment.join == join:
            parent = fragment.parent
            parent.children -= 1
        else:
            parent = fragment
            parent.block = join
            parent.collected = np.zeros_like(self.live)
        arrived = []
        for target, mask in sides:
            if target == join:
                arrived.append(mask)
            elif target == self.exit_block:
                self.live = self.live & ~mask
            else:
                self.fragments.append(Fragment(target, mask, join, parent))
                parent.children += 1
        for mask in arrived:
            parent.collected |= mask
        if parent.children == 0:
            self.merge(parent)

    def reach_join(self) -> None:
        """The running fragment has come to its join: it becomes part of its parent."""
        fragment = self.fragment
        parent = fragment.parent
        assert parent is not None
        self.fragments.remove(fragment)
        parent.collected |= True if fragment.mask is None else fragment.mask
        parent.children -= 1
        if parent.children == 0:
            self.merge(parent)

    def merge(self, parent: Fragment) -> None:
        """All sides of a parted fragment have arrived or exited."""
        if parent.block == self.exit_block or parent.block < 0 or not parent.collected.any():
            self._leave(parent)
            return
        parent.mask = None if parent.collected.all() else parent.collected
        if parent.parent is not None and parent.block == parent.join:
            grand = parent.parent
            grand.collected |= parent.collected
            grand.children -= 1
            if grand.children == 0:
                self.merge(grand)
            return
        self.fragments.append(parent)

    def exit_fragment(self) -> None:
        """The running fragment's lanes are finished."""
        fragment = self.fragment
        self.fragments.remove(fragment)
        if fragment.mask is not None:
            self.live = self.live & ~fragment.mask
        self._leave(fragment)

    def _leave(self, fragment: Fragment) -> None:
        parent = fragment.parent
        if parent is not None:
            parent.children -= 1
            if parent.children == 0:
                self.merge(parent)

    def runnable(self) -> Fragment | None:
        """The lowest fragment that is not blocked."""
        best = None
        for fragment in self.fragments:
            if fragment.blocked is None and (best is None or fragment.block < best.block):
                best = fragment
        return best


class Warp(Lanes):
    """One warp of a CTA.

    The short attribute names are those of generated code: ``arrays`` and ``uniforms`` by register number, and ``at``,
    the instruction that is running.
    """

    __slots__ = (
        "_actor",
        "agent",
        "arrays",
        "at",
        "bulk",
        "carry",
        "copies",
        "counts",
        "cta",
        "done",
        "gatherings",
        "in_flight",
        "index",
        "local",
        "parted",
        "polling",
        "position",
        "program",
        "queued",
        "register_count",
        "role",
        "stack_top",
        "tensor",
        "tid",
        "tile_rows",
        "unfenced",
        "uniforms",
        "warpgroup",
        "wgmma",
    )

    def __init__(self, program: Program, cta: Cta, position: Position, group: Warpgroup) -> None:
        super().__init__(program, position.live, position.mask)
        self.program = program
        self.cta = cta
        self.position = position
        self.index = position.index
        self.role = position.role
        self.tid = position.tid
        self.arrays: list[Any] = program.poison.copy()
        self.uniforms: list[Any] = [0] * len(program.homes)
        self.warpgroup = group
        self.tile_rows: TileRows | None = None
        self.at = 0
        self.in_flight = 0
        self.carry = _NO_LANES
        self.unfenced = -1
        self.counts = position.counts
        self.queued = False
        self.done = False
        self.parted = False  # whether its fragments take turns,
        self.polling = False  # and whether its latest turn ended in a loop that polls memory: see `forward_progress`
        self.local: Any = None
        self.stack_top: Any = None  # of each lane, once it has allocated on its stack
        self.agent: Any = None
        self.bulk: Any = None
        self.copies: Any = None
        self.wgmma: Any = None
        self.tensor: Any = None
        self.register_count = 0
        self.gatherings: dict[int, Any] = {}
        self._actor: Actor | None = None

    @property
    def actor(self) -> Actor:
        """Name for messages."""
        if self._actor is None:
            self._actor = Actor(self.cta.rank, self.index, self.role, self.cta.cluster.number)
        return self._actor

    @property
    def live_threads(self) -> int:
        """Number of its threads that have not exited."""
        position = self.position
        return position.threads if self.live is position.live else int(np.count_nonzero(self.live))

    @property
    def tile(self) -> npt.NDArray[np.uint32]:
        """The warp's part of the tile file: row by register, column by lane."""
        return self.warpgroup.file.rows[self.index % 4][2]

    def open_tile(self) -> TileRows:
        """The tile file as unsigned integers and as floats, row by row and whole, kept as ``tile_rows``."""
        self.tile_rows = self.warpgroup.file.rows[self.index % 4]
        return self.tile_rows

    def clock(self) -> int:
        """A clock that advances with the launch."""
        return self.cta.launch.machine.ticks()
