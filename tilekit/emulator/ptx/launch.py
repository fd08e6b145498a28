"""One launch: its shape, parameters, memory, order and counters; what every part of the emulator looks up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core import collector
from tilekit.emulator.core.blas import single_threaded
from tilekit.emulator.core.checks.agents import Sync
from tilekit.emulator.core.checks.deadlock import Blocked, GroupWait, deadlock, waiting_table
from tilekit.emulator.core.checks.findings import Findings
from tilekit.emulator.core.checks.shadow import Memory
from tilekit.emulator.core.dimensions import Dim3
from tilekit.emulator.core.errors import Deadlock, EmulatorError, LaunchError, ProtocolError, Where
from tilekit.emulator.core.memory.memory import PARAM_WINDOW, Allocation, GlobalMemory
from tilekit.emulator.core.report import LaunchReport
from tilekit.emulator.core.schedules import Policy, Progress, Starts
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.ptx.checks.exits import check_visits, left_in_a_phase
from tilekit.emulator.ptx.checks.prerequisite import grid_ahead
from tilekit.emulator.ptx.checks.proxies import ProxyOrder
from tilekit.emulator.ptx.checks.race_words import explain
from tilekit.emulator.ptx.chips import Chip
from tilekit.emulator.ptx.execution.lockstep import run_in_lockstep
from tilekit.emulator.ptx.execution.scheduler import Machine
from tilekit.emulator.ptx.execution.warp import positions
from tilekit.emulator.ptx.matrix.tensor_warp import check_exit
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.emulator.ptx.synchronisation.rendezvous import warp_exits

if TYPE_CHECKING:
    from tilekit.emulator.ptx.compiler.instrument import Observer
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.execution.cta import Cluster, TileFile
    from tilekit.emulator.ptx.execution.warp import Warp


class EmulatorDefectError(EmulatorError):
    """The emulator itself failed on an instruction: a defect of the emulator, with the place that shows it."""

    title = "emulator defect"


class Counters:
    """What the asynchronous units did."""

    __slots__ = ("bytes_loaded", "bytes_stored", "mma_flops", "wgmma_flops")

    def __init__(self) -> None:
        self.bytes_loaded = 0
        self.bytes_stored = 0
        self.wgmma_flops = 0
        self.mma_flops = 0


class Launch:
    """The context of a running launch.

    Attributes
    ----------
    order
        Happens-before bookkeeping; None unless everything is checked.
    protocol
        Whether rules of use are checked (every level but ``off``).
    exact
        Whether the products of wgmma and tcgen05 are rounded as hardware rounds them.
    exact_mma
        Whether those of a warp's mma are: only Hopper's rounding is known.
    positions
        The warps of a CTA.
    workspace
        Memory for the barriers of a cooperative launch's grid, or None.
    printed
        What the kernel printed, a text for each thread and call.
    lockstep
        The program for many warps at once, or None where they run one by one.
    observers
        Who is told of asynchronous operations; an instrumented program tells them of the rest.
    free_tiles
        Tile files of warpgroups that have ended, for others.
    ahead
        What tells of the end of the grid ahead, in a programmatic dependent launch; else None.
    """

    _number = 0

    def __init__(
        self,
        program: Program,
        chip: Chip,
        memory: GlobalMemory,
        symbols: SymbolMap,
        *,
        grid: Dim3,
        block: Dim3,
        cluster: Dim3,
        shared_bytes: int,
        cooperative: bool,
        parameters: bytes,
        schedule: Policy,
        seed: int,
        check: str,
        starts: Starts,
        exact: bool,
        step_budget: int,
        progress: Progress | None,
        observers: Sequence[Observer] = (),
        lockstep: Program | None = None,
        prerequisite: Iterable[Allocation] = (),
    ) -> None:
        Launch._number += 1
        self.number = Launch._number
        self.program = program
        self.chip = chip
        self.memory = memory
        self.symbols = symbols
        self.grid = grid
        self.block = block
        self.cluster = cluster
        self.clusters: Dim3 = (grid[0] // cluster[0], grid[1] // cluster[1], grid[2] // cluster[2])
        self.explicit_cluster = cluster != (1, 1, 1)
        self.shared_bytes = shared_bytes
        self.total_shared_bytes = program.layout.total_bytes(shared_bytes)
        self.parameters = Allocation("parameters", "param", PARAM_WINDOW, len(parameters))
        self.parameters.data[: len(parameters)] = np.frombuffer(parameters, np.uint8)
        self.parameters.writable = False
        self.schedule: Policy = schedule
        self.seed = seed
        self.check = check
        self.protocol = check != "off"
        self.exact = exact
        self.exact_mma = exact and chip.number == 90
        self.order = ProxyOrder() if check == "full" else None
        self.findings = Findings(explain, symbols, program.layout.dynamic_base, program.name)
        self.counters = Counters()
        self.tensor_maps: dict[bytes, TensorMap] = {}
        self.printed: list[str] = []
        self.registers_per_thread = _registers_per_thread(program, chip, block)
        self.max_resident_clusters = _resident_clusters(self)
        self.workspace = _workspace(self) if cooperative else None
        self.progress = progress
        self.observers = tuple(observers)
        self.lockstep = lockstep
        self.on_warp_exit: list[Callable[[Warp], None]] = [warp_exits, check_exit, check_visits]
        self._names: dict[int, str] = {}
        self.positions = positions(program, block, symbols)
        self.machine = Machine(self, program, schedule, seed, step_budget, starts)
        self.free_tiles: list[TileFile] = []
        self._shadowed: list[Allocation] = []
        self.ahead: Sync | None = None
        self._prerequisite = tuple(prerequisite)

    def run(self) -> LaunchReport:
        """Run to the end.

        Raises
        ------
        EmulatorError
            The first fault, or the races found.
        """
        start = time.perf_counter()
        if self.order is not None:
            self._shadow_global()
            if self._prerequisite:
                self.ahead = grid_ahead(self.order, self._prerequisite)
        try:
            with np.errstate(all="ignore"), single_threaded(), collector.held_back():
                if self.lockstep is None or not run_in_lockstep(self, self.lockstep):
                    self.machine.run()
                self._forget()  # before the collector looks through it
        except EmulatorError as error:
            if self.order is not None:
                self.machine.land_rest()
                self.findings.attach(error)
            raise
        finally:
            self._forget()
            if self.workspace is not None:
                self.memory.free(self.workspace)
        if self.order is not None:
            self.findings.raise_races()
            self.findings.raise_late()
        executed = self._executed()
        return LaunchReport(
            kernel=self.program.name,
            grid=self.grid,
            block=self.block,
            cluster=self.cluster,
            shared_bytes=self.shared_bytes,
            schedule=self.schedule,
            seed=self.seed,
            check=self.check,
            steps=sum(executed.values()),
            instructions=executed,
            bytes_loaded=self.counters.bytes_loaded,
            bytes_stored=self.counters.bytes_stored,
            flops=self.counters.wgmma_flops + self.counters.mma_flops,
            seconds=time.perf_counter() - start,
            findings=tuple(self.findings),
            remarks=self.findings.remarks,
            printed="".join(self.printed),
        )

    def shared_name(self, offset: int) -> str:
        """What the kernel's author calls a byte of a CTA's shared memory; empty when it has no name."""
        name = self._names.get(offset)
        if name is None:
            layout = self.program.layout
            name = self.symbols.name(offset - layout.dynamic_base) or layout.static_name(offset)
            self._names[offset] = name
        return name

    @property
    def workspace_address(self) -> int:
        """Where the grid's barriers are; 0 when it has none."""
        return 0 if self.workspace is None else self.workspace.start

    # -- life of clusters and warps ----------------------------------------------------------------------------------

    def _shadow_global(self) -> None:
        for allocation in self.memory.allocations():
            if allocation.writable or allocation in self._prerequisite:  # reads alone do not race
                self.watch(allocation)

    def watch(self, allocation: Allocation) -> None:
        """Check the accesses to a part of global memory for races, when that is asked for."""
        if self.order is not None:
            allocation.shadow = Memory(allocation.name, allocation.start, allocation.size, self.findings.race)
            self._shadowed.append(allocation)

    def _forget(self) -> None:
        """Give up what is known of accesses to global memory."""
        for allocation in self._shadowed:
            allocation.shadow = None
        self._shadowed.clear()

    def cluster_started(self, cluster: Cluster) -> None:
        """Give the cluster's warps their agents and its shared memory its shadow."""
        if self.order is None:
            return
        for cta in cluster.ctas:
            cta.shared.shadow = Memory(
                "shared memory", cta.shared.start, cta.shared.size, self.findings.race, cta=cta.rank
            )
            for warp in cta.warps:
                warp.agent = self.order.warp(warp.actor)

    def warp_finished(self, warp: Warp) -> None:
        """Check what the warp leaves behind."""
        if self.protocol and warp.in_flight:
            raise ProtocolError(
                "a warp exits with a wgmma or tcgen05.ld that it has not waited for",
                hint="end with wgmma.wait_group 0, or tcgen05.wait::ld, before the registers are given up",
            ).at(self.machine.place(warp))
        if self.protocol and warp.bulk is not None:
            unread = [s for group in (*warp.bulk.committed, warp.bulk.open) for s in group if not s.awaited]
            if unread:
                raise ProtocolError(
                    f"a warp exits with {len(unread)} bulk store{'s' if len(unread) > 1 else ''} whose source may "
                    "still be read",
                    hint="wait with cp.async.bulk.wait_group.read 0 (or wait_group 0) before the CTA ends",
                ).at(unread[0].where)

    def cluster_finished(self, cluster: Cluster) -> None:
        """Report barriers left in the middle of a phase."""
        if self.protocol:
            for barrier in cluster.mbarriers.unfinished():
                self.findings.add(left_in_a_phase(barrier, self.program.name))

    def _executed(self) -> dict[str, int]:
        """Instructions executed, by role."""
        sizes = [block.end - block.start for block in self.program.flow.blocks]
        executed: Counter[str] = Counter()
        for position in self.positions:
            total = sum(count * size for count, size in zip(position.counts, sizes, strict=False))
            executed[position.role or f"warp {position.index}"] += total
        return dict(executed)

    def report_progress(self, done: int, seconds: float) -> None:
        """Tell the caller how many CTAs have finished."""
        if self.progress is not None:
            self.progress(done, self.grid[0] * self.grid[1] * self.grid[2], seconds)

    # -- faults ------------------------------------------------------------------------------------------------------

    def _blocked(self, clusters: Iterable[Cluster]) -> tuple[list[Blocked], list[Any]]:
        rows: list[Blocked] = []
        exited = []
        for cluster in clusters:
            for warp in cluster.warps:
                if warp.done:
                    exited.append(warp.actor)
                for fragment in warp.fragments:
                    first = warp.program.flow.blocks[fragment.block].start
                    instruction = warp.program.instruction(first)
                    wait = fragment.blocked.describe() if fragment.blocked is not None else GroupWait("a turn to run")
                    rows.append(Blocked(warp.actor, instruction, wait))
        return rows, exited

    def deadlock(self, clusters: Iterable[Cluster]) -> Deadlock:
        """The error when nothing can run."""
        rows, exited = self._blocked(clusters)
        return deadlock(rows, exited=exited, symbols=self.symbols).at(Where(self.program.name))

    def position_table(self, clusters: Iterable[Cluster]) -> str:
        """Where every warp is."""
        return waiting_table(self._blocked(clusters)[0], self.symbols)

    def internal_fault(self, error: Exception) -> EmulatorError:
        """The error for a failure inside the emulator."""
        return EmulatorDefectError(
            f"{type(error).__name__}: {error}",
            hint="this is a defect of the emulator: please report it with the PTX text",
        )


def _registers_per_thread(program: Program, chip: Chip, block: Dim3) -> int:
    """Registers that ptxas would give each thread for setmaxnreg: the whole file, divided."""
    limit = program.function.directives.get("maxnreg")
    if limit:
        return limit[0]
    threads = -(-block[0] * block[1] * block[2] // 128) * 128
    return min(chip.registers_per_thread, chip.registers_per_sm // threads // 8 * 8)


def _resident_clusters(launch: Launch) -> int:
    """Clusters that the chip can hold at once."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    by_warps = launch.chip.warps_per_sm // -(-threads // 32)
    by_shared = launch.chip.shared_per_sm // (launch.total_shared_bytes + 1024)
    ctas = launch.chip.sms * max(1, min(by_warps, by_shared, 32))
    size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
    if ctas < size:
        raise LaunchError(
            f"a cluster of {size} CTAs on a device that holds {ctas} of them at once",
            hint=f"the device has {launch.chip.sms} multiprocessors: give Device(multiprocessors=...) more",
        )
    return ctas // size


def _workspace(launch: Launch) -> Allocation:
    """Memory for the barriers of a grid, all of whose clusters must be there at once."""
    count = launch.clusters[0] * launch.clusters[1] * launch.clusters[2]
    if count > launch.max_resident_clusters:
        kind = "CTAs" if launch.cluster == (1, 1, 1) else "clusters"
        raise LaunchError.argument(
            "cooperative",
            True,
            f"for at most {launch.max_resident_clusters} {kind} at once: the grid has {count}",
            False,
        )
    return launch.memory.allocate(256, "workspace of the cooperative launch")
