"""A static schedule: every cluster knows from a number of its own which tiles it computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilekit.assembly.fit import checked, component
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.start_order import StartOrder
from tilekit.tiles.call import Call, Schedule
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.tile import Tile


@component
class StaticScheduler:
    """Tiles ``cluster, cluster + clusters, …`` of a raster.

    Parameters
    ----------
    order
        The raster.
    starts
        What numbers the clusters, where it is not the grid.
    """

    yields_early = True
    """Whether the next kernel may start as soon as this one has: every tile has its CTA from the beginning."""

    def __init__(self, order: RasterOrder, starts: StartOrder | None = None) -> None:
        self.order = order
        self.numbers: Cluster | StartOrder = order.cluster if starts is None else starts

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Rows and columns of a CTA's tile."""
        return self.order.tile_shape

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output: where clusters are numbered as they start, one for every tile and share."""
        made = self.order.schedule(call)
        return made if self.numbers is self.order.cluster else replace(made, clusters=self.order.plan(call).tiles)

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def ask(self, w: Writer) -> None:
        """Nothing to ask for."""

    def first(self, w: Writer) -> Tile:
        """Where a CTA begins; a grid has no more clusters than there are tiles."""
        return self.order.bind().tile(w, self.numbers.index(w))

    @checked
    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles."""
        cluster, order = self.order.cluster, self.order.bind()
        for index in w.range(self.order.count, start=self.numbers.index(w), step=cluster.count(w), name="tile"):
            yield order.tile(w, index)
