"""When roles of attention worked on each tile: records of a `TileProfiler`, for roles that have no register to spare.

A record is begun in memory and ended there, and its address computed anew for each half: between the two only a count
of tiles is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilekit.assembly.types import PRED, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.drivers.profiler import TileProfiler
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tiles.heads import HeadTile


class HeadClock:
    """The records of a role's activities, of a kernel that notes its times; else nothing at all.

    Parameters
    ----------
    w
        The writer.
    profiler
        What notes times, if anything.
    heads
        Heads of a batch entry that have tiles of their own, u32: with them a tile's head is counted through the batch.
    group
        The warpgroup whose first thread writes; None of a single thread.
    """

    def __init__(self, w: Writer, profiler: TileProfiler | None, heads: Value, group: Warpgroup | None = None) -> None:
        self._w, self._profiler, self._heads, self._group = w, profiler, heads, group
        self._count = None if profiler is None else w.variable(U32, 0, "profiled")

    @contextmanager
    def tile(self) -> Iterator[None]:
        """Enter for all activities of a tile; the next tile has the next records."""
        yield
        if self._count is not None:
            self._count.assign(self._count + 1)

    @contextmanager
    def time(self, activity: str, tile: HeadTile) -> Iterator[None]:
        """Record how long the body takes."""
        if self._profiler is None or self._count is None:
            yield
            return
        w, record = self._w, self._record(activity)
        w.ptx.profile.begin(
            address=record.address,
            begin=w.isa.special.global_timer(),
            row=tile.position,
            column=tile.batch * self._heads + tile.head,
            sm=w.isa.special.sm_id(),
            turn=self._count + 1,
            active=record.active,
        )
        yield
        record = self._record(activity)
        w.ptx.profile.end(address=record.address, end=w.isa.special.global_timer(), active=record.active)

    def _record(self, activity: str) -> _Record:
        w, group, profiler, count = self._w, self._group, self._profiler, self._count
        assert profiler is not None
        assert count is not None
        active = w.constant(PRED, True) if group is None else group.thread == 0
        address = profiler.address(w, activity, group=None if group is None else group.index, turn=count)
        return _Record(address, active & (count < profiler.tiles))


@dataclass(frozen=True)
class _Record:
    """Where a record is, and whether there is room and this thread writes it."""

    address: Value
    active: Value
