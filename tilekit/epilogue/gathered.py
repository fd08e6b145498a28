"""Sums shared by several CTAs: each adds its share in turn to a workspace, and the last stores the tile.

The order is fixed, so the result is the same every time (CUTLASS calls it serial split-K with a semaphore).
"""

from __future__ import annotations

from collections.abc import Callable

from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.workspace import Slot, Workspace
from tilekit.tile_op.accumulators import AccumulatorLayout, AccumulatorTile, Warpgroup
from tilekit.tile_schedule.raster import Tile, TurnShare


class Turnstile:
    """Adds the shares of a tile through a workspace, in which a slot holds the sum so far, and its counter the turn.

    Parameters
    ----------
    w, layout, warpgroups, first_barrier
        Of the `Workspace`.
    """

    def __init__(self, w: Writer, layout: AccumulatorLayout, *, warpgroups: int, first_barrier: int) -> None:
        self._workspace = Workspace(w, layout, warpgroups=warpgroups, first_barrier=first_barrier)

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare: whoever allocates the counters zeroes them."""

    def part(self, tile: Tile) -> Tile:
        """What a CTA stores of a tile: all of it, if its share is the last."""
        return tile

    def bind(self, w: Writer, group: Warpgroup) -> BoundTurnstile:
        """Prepare a thread's addresses; once a role."""
        return BoundTurnstile(self._workspace, group)


class BoundTurnstile:
    """A `Turnstile` in a role."""

    def __init__(self, workspace: Workspace, group: Warpgroup) -> None:
        self._workspace = workspace.bind(group)

    def add(
        self, w: Writer, accumulators: AccumulatorTile, tile: Tile, store: Callable[[AccumulatorTile, Tile], None]
    ) -> None:
        """Wait for this share's turn, add it, and pass on; the last share is not kept, but goes to `store`."""
        workspace, share = self._workspace, tile.share
        assert isinstance(share, TurnShare), "the scheduler hands out turns"
        slot = workspace.slot(w, share.slot)
        total = _Total(slot, accumulators, share.turn != 0)
        with w.when(workspace.first):
            w.isa.turnstile.wait_turn(address=slot.counter, turn=share.turn)
        workspace.meet(w)
        with w.when(~share.stores):
            pieces = workspace.pieces()
            for block, left, columns in pieces:
                fragments = total.read(w, block, left, columns)
                if (block, left, columns) == pieces[-1]:
                    total.done(w)
                slot.keep(w, fragments, block, left)
            workspace.meet(w)
            with w.when(workspace.first):
                w.isa.turnstile.pass_turn(address=slot.counter, turn=share.turn + 1)
        with w.when(share.stores):
            store(total, tile)
            with w.when(workspace.first):
                # The next launch finds the counter as this one did.
                w.isa.turnstile.pass_turn(address=slot.counter, turn=0)


class _Total:
    """Accumulators to which the shares before are added as they are read."""

    def __init__(self, slot: Slot, accumulators: AccumulatorTile, more: Value) -> None:
        self.layout = accumulators.layout
        self._accumulators = accumulators
        self._slot = slot
        self._more = more

    def clear(self, w: Writer) -> None:
        self._accumulators.clear(w)

    def read(self, w: Writer, block: int, left: int, columns: int) -> list[RegisterTile]:
        """Return the sum of this share and those before."""
        fragments = self._accumulators.read(w, block, left, columns)
        with w.when(self._more):
            self._slot.add_to(w, fragments, block, left)
        return fragments

    def done(self, w: Writer) -> None:
        self._accumulators.done(w)
