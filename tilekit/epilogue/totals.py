"""What totals of rows and of columns have in common: the tiles they are made over, and who comes last."""

from __future__ import annotations

from typing import Protocol

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tiles.call import Call


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
