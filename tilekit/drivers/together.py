"""What drivers share whose waves all load, multiply and store: one role, and the way of a finished sum out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import check_components, handed
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.agreement import check_agreement
from tilekit.drivers.profiler import TileProfiler, timed
from tilekit.drivers.roles import match_bodies, one_thread, trace_roles
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.drivers.warp_specialized import (
    BoundEpilogue,
    BoundLoader,
    Epilogue,
    Reduction,
    StageLoader,
    TileScheduler,
    each_tile,
)
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.mfma import Mfma
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tile_pipeline.payload import Payload
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.tile import Tile


def refuse_beside(driver: str, beside: Sequence[Any], nearest: str) -> None:
    """Raise `TraceError` (``TK-TRACE-017``) for tiles beside A and B, of which a schedule has no halves."""
    if beside:
        raise TraceError(
            f"{driver} has a stage of A and B alone, given {len(beside)} tiles beside them; nearest: {nearest}",
            code="TK-TRACE-017",
        )


class KTiles(Protocol):
    """A schedule of k-tiles in the registers of the role."""

    accumulators: RegisterAccumulators
    """Where it leaves the sum."""

    def multiply(self, tile: Tile, a: Any, b: Any, *beside: Any) -> None:
        """The whole sum of a tile, whose operands `a` and `b` load, and what else a stage holds those `beside`."""


@dataclass(frozen=True, kw_only=True)
class Together:
    """A kernel's components, ready to trace. What a driver adds is the order of a k-tile's instructions.

    Attributes
    ----------
    warps, cluster
        A plan of a single role, `WarpPlan.together`, and this CTA's place in its cluster.
    payload, tiles
        What a stage holds, and where its tiles lie.
    loader, op, accumulators, scheduler, epilogue
        The components. The op has its waves' rows and columns in two pieces.
    k
        K of the problem, u32.
    reduction
        Adds the shares of a tile where several CTAs have them.
    profiler
        Notes when waves work on each tile.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` for a component that does not offer what its protocol asks for, ``TK-PART-001`` for components
        that do not speak of the same tiles.
    """

    warps: WarpPlan
    cluster: Cluster
    payload: Payload
    tiles: dict[str, Any]
    loader: StageLoader
    op: Mfma
    accumulators: RegisterAccumulators
    scheduler: TileScheduler
    epilogue: Epilogue
    k: Value
    reduction: Reduction | None = None
    profiler: TileProfiler | None = None

    def __post_init__(self) -> None:
        check_components(self)
        check_agreement(
            type(self).__name__,
            loader=self.loader,
            op=self.op,
            payload=self.payload,
            scheduler=self.scheduler,
            epilogue=self.epilogue,
        )

    @abstractmethod
    def k_tiles(self, w: Writer, warp: Value, role: Role, group: Warpgroup, loader: BoundLoader) -> KTiles:
        """The driver's schedule; once a role."""

    def trace(self, w: Writer) -> None:
        """Emit the whole kernel body."""
        warp = w.warp()
        with one_thread(w, warp, self.warps["mma"]):
            self.loader.prefetch(w)
            self.epilogue.prefetch(w)
            self.epilogue.initialise(w)
            if self.reduction is not None:
                self.reduction.initialise(w)
            self.accumulators.initialise(w)
            self.scheduler.initialise(w)
        self.cluster.sync(w, self.warps.threads)
        trace_roles(w, warp, match_bodies(self.warps.roles, {"mma": self._work}, {}))

    def _work(self, w: Writer, warp: Value, role: Role) -> None:
        group = Warpgroup.of(w, warp, role)
        loader = handed(self.loader, "bind", self.loader.bind(w), BoundLoader)
        k_tiles = self.k_tiles(w, warp, role, group, loader)
        epilogue = handed(self.epilogue, "bind", self.epilogue.bind(w, group), BoundEpilogue)
        reduction = self.reduction.bind(w, group) if self.reduction is not None else None
        multiplies, stores = (
            None if self.profiler is None else self.profiler.clock(w, activity, group=group.index, thread=group.thread)
            for activity in ("mma", "epilogue")
        )
        for tile in each_tile(w, self.scheduler, role):
            with timed(multiplies, tile):
                k_tiles.multiply(tile, *loader.at(w, tile).tiles)  # type: ignore[attr-defined]
            with timed(stores, tile):
                if reduction is None:
                    epilogue.store(w, k_tiles.accumulators, tile)
                else:
                    reduction.add(w, k_tiles.accumulators, tile, lambda total, part: epilogue.store(w, total, part))
        epilogue.finish(w)
