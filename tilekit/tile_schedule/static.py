"""A static persistent schedule: every cluster knows from its own number which tiles it computes."""

from __future__ import annotations

from collections.abc import Iterator

from tilekit.assembly.writer import Role, Writer
from tilekit.tile_schedule.raster import RasterOrder, Tile
from tilekit.tiles.call import Call, Schedule


class StaticScheduler:
    """Tiles ``cluster, cluster + clusters, …`` of a raster.

    Parameters
    ----------
    order
        The raster.
    """

    yields_early = True
    """Whether the next kernel may start as soon as this one has: every tile has its CTA from the beginning."""

    def __init__(self, order: RasterOrder) -> None:
        self.order = order

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output."""
        return self.order.schedule(call)

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare."""

    def ask(self, w: Writer) -> None:
        """Nothing to ask for."""

    def first(self, w: Writer) -> Tile:
        """Where a CTA begins; a grid has no more clusters than there are tiles."""
        return self.order.bind().tile(w, self.order.cluster.index(w))

    def tiles(self, w: Writer, role: Role) -> Iterator[Tile]:
        """Device loop over this CTA's tiles."""
        cluster, order = self.order.cluster, self.order.bind()
        for index in w.range(self.order.count, start=cluster.index(w), step=cluster.count(w), name="tile"):
            yield order.tile(w, index)
