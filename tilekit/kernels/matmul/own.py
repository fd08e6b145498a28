"""Components of the caller's in the family's kernels: what makes each, in the place of the family's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from tilekit.annotations import check_fields
from tilekit.assembly.fit import require_protocol
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.drivers.consumer_schedule import ConsumerSchedule
from tilekit.drivers.warp_specialized import TileScheduler
from tilekit.epilogue.fusion import Fusion
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tiles.operand import OperandTile


@dataclass(frozen=True)
class OwnComponents:
    """What makes components of a matmul's; of those that are None the family makes its own.

    Each is called while the kernel is traced, and declares what its component needs: kernel parameters, no shared
    memory. Config, rules, picker and tuning are the family's.

    Attributes
    ----------
    loader_a, loader_b
        ``(w, tile, **how)`` makes an `OperandLoader` of the caller's a or b, which TMA fills; `how` is what `TmaLoader`
        takes.
    functions
        ``(w, columns=, rows=, precise=, batched=)`` makes a `Fusion` without a second matrix, in the place of bias,
        scales and activation.
    scheduler
        ``(w, raster)`` makes a `TileScheduler` of the raster's tiles, in the place of `StaticScheduler`.
    consumers
        ``(w)`` makes a `ConsumerSchedule`, in the place of `Cooperative`.
    """

    loader_a: Callable[..., Any] | None = None
    loader_b: Callable[..., Any] | None = None
    functions: Callable[..., Any] | None = None
    scheduler: Callable[..., Any] | None = None
    consumers: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def names(self) -> list[str]:
        """Which components are the caller's."""
        return [one.name for one in fields(self) if getattr(self, one.name) is not None]

    def loader(self, operand: str, w: Writer, tile: OperandTile, **how: Any) -> OperandLoader | None:
        """The loader of the caller's a or b, if that is theirs."""
        make = self.loader_a if operand == "a" else self.loader_b
        return None if make is None else self._made(make(w, tile, **how), f"loader_{operand}", OperandLoader)

    def fusion(self, w: Writer, *, columns: Value, rows: Value, precise: bool, batched: bool) -> Fusion | None:
        """The functions of the epilogue."""
        if self.functions is None:
            return None
        made = self.functions(w, columns=columns, rows=rows, precise=precise, batched=batched)
        fusion: Fusion = self._made(made, "functions", Fusion)
        return fusion

    def schedule(self, w: Writer, raster: RasterOrder) -> TileScheduler | None:
        """The scheduler."""
        return None if self.scheduler is None else self._made(self.scheduler(w, raster), "scheduler", TileScheduler)

    def turns(self, w: Writer) -> ConsumerSchedule | None:
        """How consumers divide the tiles."""
        return None if self.consumers is None else self._made(self.consumers(w), "consumers", ConsumerSchedule)

    @staticmethod
    def _made(component: Any, name: str, protocol: type) -> Any:
        """Check what was made against its protocol (``TK-FIT-001``)."""
        require_protocol("OwnComponents", name, component, protocol)
        return component
