"""The multistage driver: all warps load and multiply, some stages ahead of themselves.

A thread's copies of a stage are a group; while one stage is multiplied those of the next ones are on their way. All
warps meet once a stage: then what they have copied has landed, and the stage before it may be filled again. Fragments
of the next step along K, across the end of a stage too, are read while those of the one before are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import handed
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.profiler import timed
from tilekit.drivers.roles import match_bodies, one_thread, trace_roles
from tilekit.drivers.warp_specialized import BoundLoader, BoundOp, WarpSpecialized, each_tile
from tilekit.tile_io.payload_loader import TileCopies
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_pipeline.together_sync import TogetherSync
from tilekit.tiles.stage import AsyncWriter, Stage
from tilekit.tiles.tile import Tile


class SteppedOp(Protocol):
    """A matrix instruction in a role that reads ahead: step by step along a stage's K."""

    steps: int
    """Steps of a stage, an even number: fragments of two are in registers."""

    def read(self, w: Writer, stage: Value, step: int) -> None:
        """Read the fragments of a step."""

    def products(self, w: Writer, accumulators: Any, step: int) -> None:
        """Multiply the fragments of a step."""


@call_checked
@dataclass(frozen=True)
class Multistage(WarpSpecialized):
    """A kernel's components, ready to trace: those of `WarpSpecialized`, in a plan of a single role.

    The plan is `WarpPlan.together`, the ring's synchronisation a `TogetherSync`, and loads are the role's own threads'.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` for a component that does not offer what its protocol asks for, ``TK-TRACE-013`` for one that
        another role would have to serve.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.warps.roles) != 1 or not isinstance(self.inputs.sync, TogetherSync):
            raise TraceError(
                f"Multistage has one role, whose warps meet by a TogetherSync; given {len(self.warps.roles)} roles and "
                f"{type(self.inputs.sync).__name__}; nearest: WarpPlan.together and TogetherSync",
                code="TK-TRACE-013",
            )

    def trace(self, w: Writer) -> None:
        """Emit the whole kernel body."""
        warp = w.warp()
        (role,) = self.warps.roles
        if self.scheduler.yields_early:
            w.launch_dependents()
        with one_thread(w, warp, role):
            self.loader.prefetch(w)
            self.epilogue.prefetch(w)
            self.epilogue.initialise(w)
            if self.reduction is not None:
                self.reduction.initialise(w)
            self.accumulators.initialise(w)
            self.scheduler.initialise(w)
        w.wait_for_prerequisites()
        if self.starts is not None:
            with one_thread(w, warp, role):
                self.starts.take(w)
        self.cluster.sync(w, self.warps.threads)
        trace_roles(w, warp, match_bodies(self.warps.roles, {"mma": self._work}, self.bodies))

    def _work(self, w: Writer, warp: Value, role: Role) -> None:
        group = Warpgroup.of(w, warp, role)
        loader = handed(self.loader, "bind", self.loader.bind(w), BoundLoader)
        if loader.writer is None:
            raise TraceError(
                "Multistage has its role's threads copy; nearest: CpAsyncLoader for each tile", code="TK-TRACE-013"
            )
        accumulators = self.accumulators.producer(w, role)
        op = handed(self.op, "bind", self.op.bind(w, self.inputs.tiles, group), BoundOp)
        store, complete = self._storing(w, group), self.accumulators.consumer(w, group)
        stages = _Stages(w, self, cast(SteppedOp, op), loader.writer)
        clock = self._clock(w, "mma", group)
        for tile in each_tile(w, self.scheduler, role):
            with timed(clock, tile), accumulators.acquire(tile) as target:
                stages.multiply(tile, handed(loader, "at", loader.at(w, tile), TileCopies), target)
            with complete.acquire(tile) as finished:
                store.tile(finished, tile)
        store.finish()


class _Stages:
    """The stages in the registers of the role."""

    def __init__(self, w: Writer, driver: Multistage, op: SteppedOp, writer: AsyncWriter) -> None:
        self.w, self.op, self.writer = w, op, writer
        self.sync = cast(TogetherSync, driver.inputs.sync)
        self.count, self.depth = driver.inputs.stages, driver.inputs.payload.k
        if op.steps % 2:
            raise TraceError(
                f"Multistage reads a step ahead into one of two places, and a stage has {op.steps} steps along K; "
                "nearest: slices=2",
                code="TK-TRACE-017",
            )

    def multiply(self, tile: Tile, copies: TileCopies, target: Any) -> None:
        """The whole sum of a tile."""
        w = self.w
        ahead = w.variable(U32, tile.k_first, "ahead")
        for stage in range(self.count - 1):
            self._load(tile, copies, w.constant(U32, stage), ahead)
        target.clear(w)
        filled, read = w.variable(U32, self.count - 1, "filled"), w.variable(U32, 0, "read")
        self._arrive(tile.k_first < tile.k_end, read)
        for k in w.range(tile.k_end, start=tile.k_first, step=self.depth, name="k"):
            for step in range(self.op.steps):
                if step + 1 < self.op.steps:
                    self.op.read(w, read, step + 1)
                else:
                    self._advance(read)
                    self._arrive(k + self.depth < tile.k_end, read)
                if step == 0:
                    self._load(tile, copies, filled, ahead)
                    self._advance(filled)
                self.op.products(w, target, step)

    def _load(self, tile: Tile, copies: TileCopies, stage: Value, ahead: Value) -> None:
        """Start the copies of the next k-block, and go on by one; behind the last one, an empty group."""
        w = self.w
        with w.when(ahead < tile.k_end):
            copies.load(w, Stage(stage, None, type(self.sync).__name__), ahead)
        self.writer.commit(w)
        ahead.assign(ahead + self.depth)

    def _arrive(self, exists: Value, stage: Value) -> None:
        """The oldest stage on its way has landed; its first fragments are read where it `exists`."""
        w = self.w
        self.writer.wait(w, self.count - 2)
        with w.when(exists):
            self.writer.complete(w, stage)
        self.sync.meet(w)
        with w.when(exists):
            self.op.read(w, stage, 0)

    def _advance(self, stage: Value) -> None:
        stage.assign(stage + 1)
        stage.assign(self.w.select(stage == self.count, 0, stage))
