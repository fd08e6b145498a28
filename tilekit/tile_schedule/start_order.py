"""Numbers for clusters in the order in which they start: for work that waits for other clusters' work.

PTX promises neither that clusters start in the order of their numbers nor that those of a grid run at once. Where the
numbers are given out at the start, a cluster that waits for work with a lower number waits for one that has started.
"""

from __future__ import annotations

from tilekit.assembly.fit import component
from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.types import DSMEM, GMEM
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.tiles.cluster import Cluster


@component
class StartOrder:
    """A counter in global memory from which every cluster of the grid takes a number when it starts.

    Parameters
    ----------
    w
        The writer; the address of ``starts`` (u32, zero before the first launch and after each, as it counts modulo the
        clusters of the grid) becomes a kernel parameter, and the number is noted in shared memory.
    cluster
        This CTA's place in its cluster.
    """

    def __init__(self, w: Writer, cluster: Cluster) -> None:
        self._cluster = cluster
        self._counter = w.parameter("starts", GMEM, lambda call: call.allocate("starts", 4))
        (number,) = self.declared()
        self._number = w.shared.place(number)

    @staticmethod
    def declared() -> tuple[SharedDeclaration, ...]:
        """Shared memory of the number."""
        return (SharedDeclaration("start.number", size=4, alignment=4),)

    def take(self, w: Writer) -> None:
        """Take the cluster's number: one thread of each CTA, once what uses the counter before is complete.

        The cluster must meet before any thread reads the number.
        """
        if self._cluster.size == 1:
            self._take(w)
            return
        with w.when(self._cluster.rank == 0):
            self._take(w)

    def _take(self, w: Writer) -> None:
        cluster = self._cluster
        number = w.ptx.start_order.take(address=self._counter, last=cluster.count(w) - 1)
        w.ptx.start_order.note(address=(w.shared_base + self._number.offset).retyped(DSMEM), number=number)
        for rank in range(1, cluster.size):
            w.ptx.start_order.note(address=cluster.map(w, self._number, rank), number=number)

    def index(self, w: Writer) -> Value:
        """Return the cluster's number."""
        number: Value = w.ptx.start_order.read(src=w.shared_base + self._number.offset)
        return number
