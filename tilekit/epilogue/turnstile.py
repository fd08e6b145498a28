"""Sums shared by several CTAs: each adds its share in turn to a workspace, and the last stores the tile.

The order is fixed, so the result is the same every time (CUTLASS calls it serial split-K with a semaphore). A thread
keeps its own elements in the workspace, in an order of its own: nobody else reads them.
"""

from __future__ import annotations

from collections.abc import Callable

from tilekit.assembly.types import GMEM
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.tile_op.accumulators import WARPS_PER_GROUP, AccumulatorLayout, AccumulatorTile, Warpgroup
from tilekit.tile_schedule.raster import Tile

THREADS = 32 * WARPS_PER_GROUP
COLUMNS_AT_ONCE = 64
"""Columns added together."""


class Turnstile:
    """Adds the shares of a tile through a workspace in global memory.

    Parameters
    ----------
    w
        The writer; the addresses of ``workspace`` (f32) and ``turns`` (u32, zero before the first launch and after
        each) become kernel parameters.
    layout
        How a warpgroup holds the accumulators.
    warpgroups
        Warpgroups that share a tile.
    first_barrier
        Named barrier of the first warpgroup that runs the epilogue; each has its own.
    """

    def __init__(self, w: Writer, layout: AccumulatorLayout, *, warpgroups: int, first_barrier: int) -> None:
        self.layout = layout
        self.warpgroups = warpgroups
        self._first_barrier = first_barrier
        self._workspace = w.parameter("workspace", GMEM)
        self._turns = w.parameter("turns", GMEM)

    @property
    def floats(self) -> int:
        """Elements of f32 that a CTA tile takes in the workspace."""
        return self.warpgroups * self.layout.blocks * self.layout.rows * self.layout.columns

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare: whoever allocates the counters zeroes them."""

    def part(self, tile: Tile) -> Tile:
        """What a CTA stores of a tile: all of it, if its share is the last."""
        return tile

    def bind(self, w: Writer, group: Warpgroup) -> BoundTurnstile:
        """Prepare a thread's addresses; once a role."""
        return BoundTurnstile(self, group)


class BoundTurnstile:
    """A `Turnstile` in a role."""

    def __init__(self, turnstile: Turnstile, group: Warpgroup) -> None:
        self._t = turnstile
        self._group = group
        self._barrier = group.index + turnstile._first_barrier
        self._first = group.thread == 0

    def add(
        self, w: Writer, accumulators: AccumulatorTile, tile: Tile, store: Callable[[AccumulatorTile, Tile], None]
    ) -> None:
        """Wait for this share's turn, add it, and pass on; the last share is not kept, but goes to `store`."""
        t, layout, share = self._t, self._t.layout, tile.share
        assert share is not None, "the scheduler hands out shares"
        place = share.slot * t.warpgroups + self._group.part
        turn = (t._turns + w.widen_multiply(place, 4)).retyped(GMEM)
        floats = layout.blocks * layout.rows * layout.columns
        start = t._workspace + w.widen_multiply(place, 4 * floats) + w.widen_multiply(self._group.thread, 16)
        total = _Total(self, accumulators, start.retyped(GMEM), share.turn != 0)
        with w.when(self._first):
            w.ptx.turnstile.wait_turn(address=turn, turn=share.turn)
        w.ptx.barrier.sync(id=self._barrier, threads=THREADS)
        with w.when(~share.last):
            for block in range(layout.blocks):
                lefts = range(0, layout.columns, COLUMNS_AT_ONCE)
                for left in lefts:
                    columns = min(COLUMNS_AT_ONCE, layout.columns - left)
                    fragments = total.read(w, block, left, columns)
                    if block == layout.blocks - 1 and left == lefts[-1]:
                        total.done(w)
                    for index, registers in enumerate(fragments):
                        for address, four in total.quads(w, registers, block, index, left):
                            w.ptx.memory.store_global_f32x4(address=address, values=four)
            w.ptx.barrier.sync(id=self._barrier, threads=THREADS)
            with w.when(self._first):
                w.ptx.turnstile.pass_turn(address=turn, turn=share.turn + 1)
        with w.when(share.last):
            store(total, tile)
            with w.when(self._first):
                # The next launch finds the counter as this one did.
                w.ptx.turnstile.pass_turn(address=turn, turn=0)


class _Total:
    """Accumulators to which the shares before are added as they are read."""

    def __init__(self, turnstile: BoundTurnstile, accumulators: AccumulatorTile, start: Value, more: Value) -> None:
        self.layout = accumulators.layout
        self._accumulators = accumulators
        self._start = start
        self._more = more

    def clear(self, w: Writer) -> None:
        self._accumulators.clear(w)

    def read(self, w: Writer, block: int, left: int, columns: int) -> list[RegisterTile]:
        """Return the sum of this share and those before."""
        fragments = self._accumulators.read(w, block, left, columns)
        with w.when(self._more):
            for index, registers in enumerate(fragments):
                for address, four in self.quads(w, registers, block, index, left):
                    before = w.ptx.memory.load_global_f32x4(address=address)
                    for register, value in zip(four, before, strict=True):
                        register.assign(register + value)
        return fragments

    def done(self, w: Writer) -> None:
        self._accumulators.done(w)

    def quads(
        self, w: Writer, registers: RegisterTile, block: int, fragment: int, left: int
    ) -> list[tuple[Value, RegisterTile]]:
        """A fragment's registers by fours, and where in the workspace the thread keeps them."""
        layout = self.layout
        before = ((block * layout.fragments + fragment) * layout.columns + left) // 8
        return [
            ((self._start + (before + four) * THREADS * 16).retyped(GMEM), registers[4 * four : 4 * four + 4])
            for four in range(len(registers) // 4)
        ]
