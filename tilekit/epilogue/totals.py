"""What totals of rows and of columns have in common: the tiles they are made over, and who comes last.

A warp leaves what it makes of a tile's elements in a workspace, as parts, and counts itself; the warp that counts last
of those that share rows, or columns, combines the parts. It counts a tile when the elements of its next
one come, or when there is none. A count waits until the parts have arrived, and its answer takes as long again: by then
the one is past, and the other comes while those elements are worked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import GMEM, U32, U64
from tilekit.assembly.uses import Along
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import F32
from tilekit.epilogue.combining import Combine
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tiles.call import Call
from tilekit.tiles.tile import Tile

NONE = 0xFFFFFFFF
"""The place of no tile, and what a counter never comes to."""


class ClusterTiles(Protocol):
    """How many cluster tiles a call has."""

    @property
    def rows(self) -> int:
        """Along M."""

    @property
    def columns(self) -> int:
        """Along N."""


class ClusterExtents(Protocol):
    """CTAs of a cluster."""

    @property
    def m(self) -> int:
        """Along M."""

    @property
    def n(self) -> int:
        """Along N."""


class Tiles(Protocol):
    """What totals ask of a raster: the CTA tile, the cluster, and how many cluster tiles a call has."""

    @property
    def tile_m(self) -> int:
        """Rows of a CTA's tile."""

    @property
    def tile_n(self) -> int:
        """Columns of it."""

    @property
    def batched(self) -> bool:
        """Whether tiles have a batch index."""

    @property
    def cluster(self) -> ClusterExtents:
        """CTAs of a cluster."""

    def plan(self, call: Call) -> ClusterTiles:
        """Cluster tiles of a call."""


def require_whole_rows(what: str, layout: AccumulatorLayout, raster: Tiles) -> None:
    """Check that the rows of a fragment are one tile's, and their columns are those of the warps side by side.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` saying what is otherwise.
    """
    problem = None
    columns = layout.columns * layout.side_by_side
    if columns != raster.tile_n or len(layout.parts) > 1:
        held = "a warp holds" if layout.side_by_side == 1 else f"{layout.side_by_side} waves side by side hold"
        problem = f"{held} parts of rows (of {columns} columns), and the tile has {raster.tile_n}"
    elif raster.tile_m % layout.fragment.rows:
        problem = f"tiles of {raster.tile_m} rows share the {layout.fragment.rows} rows of a warp"
    if problem is not None:
        raise TraceError(f"{what}: {problem}; nearest: RasterOrder of the op's tile", code="TK-EPI-001")


class Totals(ABC):
    """A vector of f32: what the elements of each row, or of each column, combine to before they are rounded.

    Parameters
    ----------
    w
        The writer; the vector's address becomes a kernel parameter.
    what
        The component, for messages.
    name
        What the call names the vector.
    along
        Whether it has an element a row or a column.
    layout
        How a warpgroup holds the accumulators.
    raster
        The tiles.
    combine
        How elements are combined.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` for a layout or raster in which warps do not have whole rows of a tile.
    """

    def __init__(
        self,
        w: Writer,
        what: str,
        name: str,
        *,
        along: Along,
        layout: AccumulatorLayout,
        raster: Tiles,
        combine: Combine,
    ) -> None:
        require_whole_rows(f"{what} {name!r}", layout, raster)
        w.uses(self, "name", name, dtype=F32, along=along)
        self._layout = layout
        self._raster = raster
        self._combine: Combine = combine
        self._out = w.parameter(name, GMEM, lambda call: call.address(name))
        first = layout.row_of(0)
        self._firsts = [
            layout.row_of(block) - first + part * layout.fragment.rows
            for block in range(layout.blocks)
            for part in range(layout.fragments)
        ]

    @property
    def _fragments(self) -> int:
        """Fragments of a tile that are a warp's, one below the other."""
        return len(self._firsts)

    def first_row(self, w: Writer, row: Value) -> Value:
        """The first row of a warp, of whose lane's rows the first is `row`."""
        return row - self._layout.fragment.row(w.lane())

    def _across(self, call: Call) -> int:
        """CTA tiles along N, with those that only fill a cluster."""
        return self._raster.plan(call).columns * self._raster.cluster.n

    def _down(self, call: Call) -> int:
        """Rows of all CTA tiles along M."""
        return self._raster.plan(call).rows * self._raster.cluster.m * self._raster.tile_m

    @abstractmethod
    def counter(self, w: Writer, left: LeftTile) -> Value:
        """Where warps count a tile."""

    def due(self, w: Writer, left: LeftTile) -> Value | None:
        """Whether the warp is one of those that count a tile, a predicate; None where every one is."""
        return None

    @abstractmethod
    def expected(self, w: Writer, left: LeftTile) -> Value:
        """Warps that count there."""

    @abstractmethod
    def combine_parts(self, w: Writer, left: LeftTile) -> None:
        """Combine what all of them left, and set the counter back; by the warp that is last."""


@dataclass(frozen=True)
class LeftTile:
    """The tile that a warp has left behind.

    Attributes
    ----------
    row
        Each lane's first row; `NONE`: there is no tile.
    column, batch
        The tile's first column, and its batch index: the group, of groups of rows.
    group
        Of groups of rows.
    """

    row: Value
    column: Value
    batch: Value
    group: GroupRows | None = None


@dataclass(frozen=True)
class GroupRows:
    """The first row of a group, and the first that is none of it."""

    first: Value
    end: Value

    def assign(self, tile: Tile) -> None:
        """Take those of a tile's group."""
        if tile.row_first is not None and tile.row_end is not None:
            self.first.assign(tile.row_first)
            self.end.assign(tile.row_end)


class Uncounted:
    """The totals of an epilogue in a role: they count the tile that a warp has left behind, each in a lane of its own.

    Parameters
    ----------
    w
        The writer, where the role begins.
    totals
        The totals.
    grouped
        Whether rows of groups end within tiles.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` for more totals than lanes.
    """

    def __init__(self, w: Writer, totals: Sequence[Totals], *, grouped: bool = False) -> None:
        if len(totals) > w.lanes:
            raise TraceError(
                f"an epilogue of {len(totals)} totals: a warp counts them in a lane each, and has {w.lanes}; "
                f"nearest: {w.lanes} totals",
                code="TK-EPI-001",
            )
        self._totals = totals
        row, column, batch, self._before = (
            w.new(U32, name, uniform=False) for name in ("row_left", "column_left", "batch_left", "counted")
        )
        row.assign(NONE)
        group = [w.new(U32, name, uniform=False) for name in ("first_left", "end_left") if grouped]
        self._left = LeftTile(row, column, batch, GroupRows(*group) if grouped else None)

    def begin_tile(self, w: Writer) -> None:
        """Count the tile before this one, if there is one: its parts are where all see them by now."""
        w.warp_sync()  # a lane's count covers what the others have stored
        lane, counter = w.lane(), self._totals[0].counter(w, self._left)
        for place, total in enumerate(self._totals[1:], 1):
            counter = w.select(lane == place, total.counter(w, self._left), counter, U64)
        self._before.assign(NONE)
        counts = (lane < len(self._totals)) & (self._left.row != NONE)
        for place, total in enumerate(self._totals):
            due = total.due(w, self._left)
            if due is not None:
                counts = counts & ((lane != place) | due)
        with w.when(counts):
            self._before.assign(w.isa.memory.count_gpu(address=counter.retyped(GMEM), value=1))

    def finish_tile(self, w: Writer, row: Value, tile: Tile) -> None:
        """Combine the parts of the tile before this one if this warp counted it last; then leave this one behind.

        `row` is the lane's first row in the tile.
        """
        self._combine(w)
        if self._left.group is not None:
            self._left.group.assign(tile)
        self._left.row.assign(row)
        self._left.column.assign(tile.column)
        if isinstance(tile.batch, Value):
            self._left.batch.assign(tile.batch)

    def finish(self, w: Writer) -> None:
        """Count the last tile; once a role."""
        self.begin_tile(w)
        self._combine(w)

    def _combine(self, w: Writer) -> None:
        for place, total in enumerate(self._totals):
            before = w.broadcast(self._before, lane=place)
            with w.when((before != NONE) & (before + 1 == total.expected(w, self._left))):
                total.combine_parts(w, self._left)


def count(w: Writer, counter: Value) -> Value:
    """Count this warp; return how many came before, in every lane.

    What the warp has stored comes before its count, and the warp that counts last has to `acquire` what others stored.
    """
    w.warp_sync()  # the first lane's count covers what the others have stored
    before = w.variable(U32, 0, "counted")
    with w.when(w.lane() == 0):
        before.assign(w.isa.memory.count_gpu(address=counter, value=1))
    return w.broadcast(before, lane=0)


def acquire(w: Writer) -> None:
    """Have every lane see what those had stored that counted before: of all warps only the last pays for it."""
    with w.when(w.lane() == 0):
        w.isa.memory.acquire_gpu()
    w.warp_sync()


def reset(w: Writer, counter: Value) -> None:
    """Have the next launch find the counter as this one did."""
    with w.when(w.lane() == 0):
        w.isa.memory.store_release_gpu(address=counter, value=0)
