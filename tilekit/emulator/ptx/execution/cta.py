"""CTAs and clusters: shared memory, barriers and the warps that share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.agents import Sync
from tilekit.emulator.core.memory.memory import POISON, RANK_SHIFT, RESERVED_SHARED, Allocation
from tilekit.emulator.ptx.execution.warp import Fragment, TileRows, Warp
from tilekit.emulator.ptx.synchronisation.mbarrier_table import MbarrierTable
from tilekit.emulator.ptx.synchronisation.rendezvous import Barriers, Rendezvous

if TYPE_CHECKING:
    from tilekit.emulator.ptx.checks.exits import Visit
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.launch import Launch

Index = tuple[int, int, int]


class TileFile:
    """Registers of a warpgroup that asynchronous units write.

    Attributes
    ----------
    cells
        uint32[registers, 128]: row by register, column by thread.
    rows
        For each of the four warps its part, as unsigned integers and as floats, row by row and whole.
    """

    __slots__ = ("cells", "rows")

    def __init__(self, registers: int) -> None:
        self.cells = np.empty((registers, 128), np.uint32)
        quarters = np.split(self.cells, 4, axis=1)
        self.rows: list[TileRows] = [(list(q), list(q.view(np.float32)), q, q.view(np.float32)) for q in quarters]


class Warpgroup:
    """Four warps that execute wgmma together."""

    __slots__ = ("_file", "executed", "identity", "issued", "latest", "launch", "waiters", "warps")

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._file: TileFile | None = None
        self.warps: list[Warp] = []
        self.issued: list[Any] = []
        """Every wgmma of the warpgroup so far that has not been executed, and those after ``executed``."""
        self.executed = 0
        self.identity = 0
        self.latest: list[Any] = []
        """The race check's operations, one a warp, of the latest wgmma that was executed."""
        self.waiters: list[tuple[Warp, Fragment]] = []

    @property
    def file(self) -> TileFile:
        """Tile file of the four warps: made when it is first used, or taken over from a warpgroup that has ended."""
        if self._file is None:
            launch = self.launch
            free = launch.free_tiles
            self._file = free.pop() if free else TileFile(launch.program.tile_row_count)
            self._file.cells.fill(POISON)
        return self._file

    @property
    def tile(self) -> npt.NDArray[np.uint32]:
        """What is in it, row by register, column by thread."""
        return self.file.cells

    def dissolve(self) -> None:
        """Let go of the warps, and of the tile file."""
        self.warps.clear()
        if self._file is not None:
            self.launch.free_tiles.append(self._file)
            self._file = None


class Cta:
    """One CTA of a running cluster.

    Attributes
    ----------
    index
        ``%ctaid``.
    rank
        ``%cluster_ctarank``.
    shared
        Its shared memory; address ``rank << 24`` in the cluster's window.
    """

    def __init__(self, launch: Launch, cluster: Cluster, program: Program, rank: int, index: Index) -> None:
        self.launch = launch
        self.cluster = cluster
        self.rank = rank
        self.index = index
        width, height, _ = launch.cluster
        self.index_in_cluster = (rank % width, rank // width % height, rank // (width * height))
        self.sm = (cluster.number * len(cluster.indices) + rank) % launch.chip.sms
        self.shared_base = rank << RANK_SHIFT
        self.shared = Allocation(
            f"shared memory of CTA {rank}", "shared", self.shared_base, RESERVED_SHARED + launch.total_shared_bytes,
            low=RESERVED_SHARED, poison=True,
        )  # fmt: skip
        self.barriers = Barriers()
        self.register_pool = 0
        self.pool_waiters: list[tuple[Warp, Fragment]] = []
        self.tensor_memory: Any = None
        self.launch_refused: set[int] = set()
        """Warps that have seen cluster launch control find no cluster."""
        self.warpgroups: list[Warpgroup] = []
        self.warps: list[Warp] = []
        for position in launch.positions:
            if position.index % 4 == 0:
                self.warpgroups.append(Warpgroup(launch))
            group = self.warpgroups[-1]
            warp = Warp(program, self, position, group)
            group.warps.append(warp)
            self.warps.append(warp)
        self.live_warps = len(self.warps)
        self.visits: dict[object, Visit] = {}
        """The latest that each warp and unit outside of it does to its memory; see `ptx.checks.exits`."""
        self.met: list[Sync] = []
        """What those who came to cluster barriers without releasing it knew."""

    def shared_of(self, address: int) -> Cta | None:
        """The CTA of the cluster that a shared::cluster address belongs to."""
        rank = address >> RANK_SHIFT
        return self.cluster.ctas[rank] if rank < len(self.cluster.ctas) else None


class Cluster:
    """CTAs that are resident together and can reach each other's shared memory."""

    def __init__(self, launch: Launch, program: Program, number: int, index: Index) -> None:
        self.launch = launch
        self.number = number
        self.index = index
        width, height, depth = launch.cluster
        origin = (index[0] * width, index[1] * height, index[2] * depth)
        self.indices: list[Index] = [
            (origin[0] + x, origin[1] + y, origin[2] + z)
            for z in range(depth)
            for y in range(height)
            for x in range(width)
        ]
        self.ctas: list[Cta] = []
        for rank, position in enumerate(self.indices):
            self.ctas.append(Cta(launch, self, program, rank, position))
        self.barrier = Rendezvous("the cluster barrier")
        self.mbarriers = MbarrierTable()
        self.mbarrier_waiters: dict[int, list[tuple[Warp, Fragment]]] = {}
        """Fragments blocked on an mbarrier, by its address."""
        self.tensor_allocations: dict[tuple[int, int], Any] = {}
        """Each ``tcgen05.alloc`` under way, by the first CTA's rank and the number of CTAs."""
        self.tensor_waiters: list[tuple[Warp, Fragment]] = []
        self.live_warps = sum(cta.live_warps for cta in self.ctas)
        self.pending = 0
        """Asynchronous operations that still read or write this cluster's shared memory."""

    @property
    def warps(self) -> list[Warp]:
        """Every warp, by CTA."""
        return [warp for cta in self.ctas for warp in cta.warps]

    def dissolve(self) -> None:
        """Let go of everything, so that a finished cluster's memory is free at once and not when Python collects it.

        What is still in flight needs it all: then it is left alone, until the last of that has landed.
        """
        if self.pending:
            return
        for cta in self.ctas:
            for group in cta.warpgroups:
                group.dissolve()
            for warp in cta.warps:
                warp.bulk = warp.copies = warp.tensor = None
            cta.warps.clear()
        self.ctas.clear()
