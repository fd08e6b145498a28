"""Time stamps in the kernel: when each role worked on each tile. Not a single instruction where it is off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from tilekit.annotations import call_checked
from tilekit.assembly.fit import component
from tilekit.assembly.legal import Whole, illegal, require_symbol, require_whole
from tilekit.assembly.types import GMEM, PRED, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import MAX_PROFILE, Writer
from tilekit.tiles.tile import Tile

PROFILE = "profile"
"""What the records' memory is called."""

RECORD_BYTES = 32
"""Begin and end (u64, ns), row, column, SM, and 1 + the tile's number within its CTA (u32); zeros where none is."""


@dataclass(frozen=True)
class Lane:
    """One row of the picture: an activity of a role, of one of its warpgroups."""

    activity: str
    group: int

    def __str__(self) -> str:
        return f"{self.activity} {self.group}" if self.group else self.activity


@component
class TileProfiler:
    """Records of every CTA, lane and tile, in that order.

    Parameters
    ----------
    w
        The writer; the records' address becomes the kernel parameter ``profile``.
    tiles
        Records of a lane; later tiles of a CTA leave none.
    activities
        What is timed, each with the warpgroups that do it.

    Raises
    ------
    TraceError
        ``TK-PART-001`` for activities that are not such.
    """

    def __init__(self, w: Writer, *, tiles: Annotated[int, Whole(1, MAX_PROFILE)], activities: dict[str, int]) -> None:
        if not isinstance(activities, dict) or not activities:
            raise illegal("TileProfiler", "activities", activities, "names, each with a number of warpgroups")
        for name, groups in activities.items():
            require_symbol("TileProfiler", "activities", name)
            require_whole("TileProfiler", f"activities[{name!r}]", groups, Whole(1, w.threads // w.target.lanes))
        self.lanes = [Lane(name, group) for name, groups in activities.items() for group in range(groups)]
        self.tiles = tiles
        w.profiler = self
        self._address = w.parameter(PROFILE, GMEM, lambda call: call.allocate(PROFILE, call.ctas * self.cta_bytes))

    @classmethod
    def of(cls, w: Writer, activities: dict[str, int]) -> TileProfiler | None:
        """Declare what notes the times, of a kernel that is to note them; None for any other.

        Parameters
        ----------
        w
            The writer, which says of how many tiles.
        activities
            As for the class.
        """
        return cls(w, tiles=w.profile_tiles, activities=activities) if w.profile_tiles else None

    @property
    def cta_bytes(self) -> int:
        """Bytes of a CTA's records."""
        return len(self.lanes) * self.tiles * RECORD_BYTES

    def address(self, w: Writer, activity: str, *, turn: Value, group: Value | int | None = None) -> Value:
        """Where the record of a CTA's tile number `turn` is, by an activity of one of its warpgroups."""
        first = self.lanes.index(Lane(activity, 0))
        lane = w.constant(U32, first) if group is None else group + first
        place = (w.cta() * len(self.lanes) + lane) * self.tiles + turn
        return (self._address + w.widen_multiply(place, RECORD_BYTES)).retyped(GMEM)

    def clock(
        self, w: Writer, activity: str, *, group: Value | int | None = None, thread: Value | None = None
    ) -> TileClock:
        """Prepare a role's records; `group` and `thread` of several threads that work together, the first writes."""
        first = self.lanes.index(Lane(activity, 0))
        lane = w.constant(U32, first) if group is None else group + first
        cta = w.cta()
        place = (cta * len(self.lanes) + lane) * self.tiles
        address = self._address + w.widen_multiply(place, RECORD_BYTES)
        active = w.constant(PRED, True) if thread is None else thread == 0
        return TileClock(w, address.retyped(GMEM), active, self.tiles)


class TileClock:
    """The records of one lane, as they are written."""

    def __init__(self, w: Writer, address: Value, active: Value, tiles: int) -> None:
        self._w = w
        self._address = address
        self._active = active
        self._tiles = tiles
        self._count = w.variable(U32, 0, "profiled")

    @contextmanager
    def time(self, tile: Tile) -> Iterator[None]:
        """Record how long the body takes for `tile`."""
        w = self._w
        begin = w.isa.special.global_timer()
        yield
        end = w.isa.special.global_timer()
        address = self._address + w.widen_multiply(self._count, RECORD_BYTES)
        active = self._active & (self._count < self._tiles)
        self._count.assign(self._count + 1)
        w.isa.profile.record(
            address=address.retyped(GMEM),
            begin=begin,
            end=end,
            row=tile.row,
            column=tile.column,
            sm=w.isa.special.sm_id(),
            turn=self._count,
            active=active,
        )


@call_checked
@contextmanager
def timed(clock: TileClock | None, tile: Tile) -> Iterator[None]:
    """Time the body, or not."""
    if clock is None:
        yield
    else:
        with clock.time(tile):
            yield
