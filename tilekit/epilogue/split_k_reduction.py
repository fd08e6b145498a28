"""Sums shared by several CTAs: each keeps its share in a workspace, and the last adds them all and stores the tile.

Only the last waits for others, a thread for each, and reads them by twos where registers allow it, since their latency
is what it waits for. The order of adding is fixed, so the result is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Barrier, Count
from tilekit.assembly.types import U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.shares import ShareKind, finished_sum
from tilekit.epilogue.workspace import BoundWorkspace, Slot, Workspace, add_kept, foreign_share
from tilekit.tile_op.accumulators import AccumulatorLayout, AccumulatorTile, Warpgroup
from tilekit.tiles.tile import SplitShare, Tile

PAIRED_ACCUMULATORS = 96
"""Accumulators of a thread beside which there are registers for the elements of two shares: beside 136 with a bias, and
192 of any kind, they spill."""


@component
class SplitKReduction:
    """Adds the shares of a tile through a workspace, in which each share but the last has a slot.

    Parameters
    ----------
    w, layout, warpgroups, first_barrier
        Of the `Workspace`.
    shares
        ``"f32"``, as accumulators mostly are; ``"whole"`` for whole numbers, of which the accumulators hand on the bits
        in place of an f32's, and the sum is handed on so, too; ``"rounded"`` where the sum is handed on as an f32.
    """

    def __init__(
        self,
        w: Writer,
        layout: AccumulatorLayout,
        *,
        warpgroups: Count,
        first_barrier: Barrier,
        shares: ShareKind = "f32",
    ) -> None:
        self._workspace = Workspace(w, layout, warpgroups=warpgroups, first_barrier=first_barrier, kind=shares)
        self.shares = shares

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare: the allocation of the counters zeroes them."""

    def part(self, tile: Tile) -> Tile:
        """What a CTA stores of a tile: all of it, if its share is the last."""
        return tile

    def bind(self, w: Writer, group: Warpgroup) -> BoundSplitKReduction:
        """Prepare a thread's addresses; once a role."""
        return BoundSplitKReduction(self._workspace, group, self.shares)


class BoundSplitKReduction:
    """A `SplitKReduction` in a role."""

    def __init__(self, workspace: Workspace, group: Warpgroup, shares: ShareKind) -> None:
        self._workspace = workspace.bind(group)
        self._shares = shares

    def add(
        self, w: Writer, accumulators: AccumulatorTile, tile: Tile, store: Callable[[AccumulatorTile, Tile], None]
    ) -> None:
        """Keep this share; or, if it is the last, wait for the others and `store` the sum of all."""
        workspace, share = self._workspace, tile.share
        if not isinstance(share, SplitShare):
            raise foreign_share("SplitKReduction", share, "RasterOrder(shares=2) or more")
        with w.when(~share.stores):
            workspace.slot(w, share.slot).take(w, workspace, accumulators)
        with w.when(share.stores):
            with w.when(workspace.thread < share.others):
                workspace.slot(w, share.before(workspace.thread)).await_kept(w)
            workspace.meet(w)
            store(_Total(workspace, share, accumulators, self._shares), tile)


class _Total:
    """Accumulators to which the shares before are added as they are read."""

    def __init__(
        self, workspace: BoundWorkspace, share: SplitShare, accumulators: AccumulatorTile, kind: ShareKind
    ) -> None:
        self.layout = accumulators.layout
        self._workspace = workspace
        self._share = share
        self._kind = kind
        self._accumulators = accumulators
        self._held = self.layout.blocks * self.layout.rows * self.layout.columns // self.layout.threads

    def clear(self, w: Writer) -> None:
        self._accumulators.clear(w)

    def read(self, w: Writer, block: int, left: int, columns: int) -> list[RegisterTile]:
        """Return the sum of all shares."""
        fragments = self._accumulators.read(w, block, left, columns)
        self._add_others(w, fragments, block, left)
        if self._kind == "f32":
            return fragments
        return [RegisterTile([finished_sum(w, self._kind, total) for total in registers]) for registers in fragments]

    def _add_others(self, w: Writer, fragments: list[RegisterTile], block: int, left: int) -> None:
        others = self._share.others
        if self._held > PAIRED_ACCUMULATORS:
            for other in w.range(others, name="other"):
                self._slot(w, other).add_to(w, fragments, block, left)
            return
        odd = others & 1
        with w.when(odd == 1):
            self._slot(w, w.constant(U32, 0)).add_to(w, fragments, block, left)
        for pair in w.range(others >> 1, name="pair"):
            first = pair * 2 + odd
            add_kept(w, [self._slot(w, first), self._slot(w, first + 1)], fragments, block, left)

    def done(self, w: Writer) -> None:
        self._accumulators.done(w)

    def _slot(self, w: Writer, other: Value) -> Slot:
        return self._workspace.slot(w, self._share.before(other))
