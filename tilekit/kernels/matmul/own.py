"""Components of the caller's in the family's kernels: what makes each, in the place of the family's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tilekit.annotations import call_checked, check_fields
from tilekit.assembly.fit import require_call, require_protocol
from tilekit.assembly.legal import illegal
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.drivers.consumer_schedule import ConsumerSchedule
from tilekit.drivers.warp_plan import RoleEntry, WarpPlan
from tilekit.drivers.warp_specialized import Epilogue, TileScheduler, WarpSpecialized
from tilekit.epilogue.direct import DirectEpilogue
from tilekit.epilogue.fusion import Fusion
from tilekit.kernels.matmul.own_payload import OwnPayload
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tiles.operand import OperandTile


@call_checked
@dataclass(frozen=True)
class OwnRole:
    """A further role beside those of the driver.

    Attributes
    ----------
    entry
        What it asks of the plan: a name, warps, what they may do.
    make
        ``(w, kernel)`` makes the role's body, ``(w, warp, role)``, of a kernel's driver, whose components it may use.
    """

    entry: RoleEntry
    make: Callable[..., Any]

    def __post_init__(self) -> None:
        check_fields(self)


@call_checked
@dataclass(frozen=True)
class OwnComponents:
    """What makes components of a matmul's; of those that are None the family makes its own.

    Each is called while the kernel is traced, and declares what its component needs: kernel parameters, no shared
    memory but a payload's tiles. Config, rules, picker and tuning are the family's.

    Attributes
    ----------
    loader_a, loader_b
        ``(w, tile, **how)`` makes an `OperandLoader` of the caller's a or b; `how` is what the chip's own loader takes
        (`TmaLoader`, `BufferToLdsLoader`), and its ring is filled as by that one.
    functions
        ``(w, columns=, rows=, precise=, batched=)`` makes a `Fusion` without a second matrix, in the place of bias,
        scales and activation.
    scheduler
        ``(w, raster)`` makes a `TileScheduler` of the raster's tiles, in the place of `StaticScheduler`.
    consumers
        ``(w)`` makes a `ConsumerSchedule`, in the place of `Cooperative`.
    epilogue
        ``(w, layout, functions, **how)`` makes an `Epilogue` of accumulators in registers, in the place of
        `StagedEpilogue` and `DirectEpilogue`; `how` is what the latter takes.
    role
        A further role.
    payload
        Factors of the sums of k-blocks, with the tiles and arrays that they come from.
    """

    loader_a: Callable[..., Any] | None = None
    loader_b: Callable[..., Any] | None = None
    functions: Callable[..., Any] | None = None
    scheduler: Callable[..., Any] | None = None
    consumers: Callable[..., Any] | None = None
    epilogue: Callable[..., Any] | None = None
    role: OwnRole | None = None
    payload: OwnPayload | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def names(self) -> list[str]:
        """Which components are the caller's."""
        return [one.name for one in fields(self) if getattr(self, one.name) is not None]

    @property
    def words(self) -> list[str]:
        """These, for `explain`, a payload with the arrays that it reads."""
        inputs = ", ".join(one.name for one in self.payload.inputs) if self.payload else ""
        return [f"{name}, of the caller's" + (f": {inputs}" if name == "payload" else "") for name in self.names]

    def loader(self, operand: str, w: Writer, tile: OperandTile, **how: Any) -> OperandLoader | None:
        """The loader of the caller's a or b, if that is theirs."""
        make = self.loader_a if operand == "a" else self.loader_b
        name = f"loader_{operand}"
        return None if make is None else self._make(make, name, OperandLoader, w=w, tile=tile, how=how)

    def fusion(self, w: Writer, *, columns: Value, rows: Value, precise: bool, batched: bool) -> Fusion | None:
        """The functions of the epilogue."""
        if self.functions is None:
            return None
        how = {"columns": columns, "rows": rows, "precise": precise, "batched": batched}
        fusion: Fusion = self._make(self.functions, "functions", Fusion, w=w, how=how)
        return fusion

    def schedule(self, w: Writer, raster: RasterOrder) -> TileScheduler | None:
        """The scheduler."""
        make = self.scheduler
        return None if make is None else self._make(make, "scheduler", TileScheduler, w=w, raster=raster)

    def turns(self, w: Writer) -> ConsumerSchedule | None:
        """How consumers divide the tiles."""
        return None if self.consumers is None else self._make(self.consumers, "consumers", ConsumerSchedule, w=w)

    def storing(self, w: Writer, layout: AccumulatorLayout, functions: Fusion, **how: Any) -> Epilogue:
        """The epilogue; the family's where it is not the caller's."""
        if self.epilogue is None:
            return DirectEpilogue(w, layout, functions, **how)
        given = {"w": w, "layout": layout, "functions": functions}
        made: Epilogue = self._make(self.epilogue, "epilogue", Epilogue, how=how, **given)
        return made

    def plan(self, plan: WarpPlan) -> WarpPlan:
        """A plan with the further role: on warps that idle beside a thread that loads, or on warps of its own."""
        if self.role is None:
            return plan
        load = plan["load"]
        idle = load.one_thread and len(load.warps) > self.role.entry.warps
        return plan.with_role(self.role.entry, beside="load" if idle else None)

    def with_role(self, w: Writer, kernel: WarpSpecialized) -> WarpSpecialized:
        """A driver with the body of the further role."""
        if self.role is None:
            return kernel
        require_call("OwnRole", "make", self.role.make, "w", "kernel")
        body = self.role.make(w, kernel)
        if not callable(body):
            raise illegal("OwnRole", "make", body, "a function that makes the role's body, (w, warp, role)")
        return replace(kernel, bodies={**kernel.bodies, self.role.entry.name: body})

    @staticmethod
    def _make(
        make: Callable[..., Any], name: str, protocol: type, *, how: Mapping[str, Any] | None = None, **of: Any
    ) -> Any:
        """Call what makes a component, `of` in its order and `how` by name; check both (``TK-FIT-001``)."""
        by_name = how or {}
        require_call("OwnComponents", name, make, *of, **by_name)
        component = make(*of.values(), **by_name)
        require_protocol("OwnComponents", name, component, protocol, verb="makes")
        return component
