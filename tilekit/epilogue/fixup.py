"""Sums of tiles whose k-blocks several CTAs have (stream-K): who has the head adds what the others have kept.

The others keep their shares in a workspace without waiting. Shares are added in the order of K, each when
it is there, so the result is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Barrier, Count
from tilekit.assembly.writer import Writer
from tilekit.epilogue.workspace import Workspace, foreign_share
from tilekit.tile_op.accumulators import AccumulatorLayout, AccumulatorTile, Warpgroup
from tilekit.tile_schedule.stream_k import StreamShare
from tilekit.tiles.tile import Tile


@component
class Fixup:
    """Adds the shares of a tile through a workspace, in which each CTA has a slot for the one that it may have to keep.

    Parameters
    ----------
    w, layout, warpgroups, first_barrier
        Of the `Workspace`.
    """

    def __init__(self, w: Writer, layout: AccumulatorLayout, *, warpgroups: Count, first_barrier: Barrier) -> None:
        self._workspace = Workspace(w, layout, warpgroups=warpgroups, first_barrier=first_barrier)

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare: counters are zeroed where they are allocated."""

    def part(self, tile: Tile) -> Tile:
        """What a CTA stores of a tile: all of it, if its share is the head."""
        return tile

    def bind(self, w: Writer, group: Warpgroup) -> BoundFixup:
        """Prepare a thread's addresses; once a role."""
        return BoundFixup(self._workspace, group)


class BoundFixup:
    """A `Fixup` in a role."""

    def __init__(self, workspace: Workspace, group: Warpgroup) -> None:
        self._workspace = workspace.bind(group)

    def add(
        self, w: Writer, accumulators: AccumulatorTile, tile: Tile, store: Callable[[AccumulatorTile, Tile], None]
    ) -> None:
        """Keep this share; or, if it is a tile's head, add the other shares to it and `store` the sum."""
        share = tile.share
        if not isinstance(share, StreamShare):
            raise foreign_share("Fixup", share, "StreamKScheduler")
        with w.when(~share.stores):
            self._keep(w, accumulators, share)
        with w.when(share.stores):
            self._add_others(w, accumulators, share)
            store(accumulators, tile)

    def _keep(self, w: Writer, accumulators: AccumulatorTile, share: StreamShare) -> None:
        """Write the accumulators to this CTA's slot, and say so."""
        self._workspace.slot(w, share.slot).take(w, self._workspace, accumulators)

    def _add_others(self, w: Writer, accumulators: AccumulatorTile, share: StreamShare) -> None:
        """Add the shares behind this one to the accumulators, one after the other."""
        workspace = self._workspace
        for other in w.range(share.others, name="other"):
            slot = workspace.slot(w, share.behind(other))
            with w.when(workspace.first):
                slot.await_kept(w)
            workspace.meet(w)
            for block, left, columns in workspace.pieces():
                slot.add_to(w, accumulators.read(w, block, left, columns), block, left)
