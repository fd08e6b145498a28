"""Global memory in which CTAs keep what they have of a sum for each other, and counters that say how far they are.

A thread keeps its own elements, in an order of its own, 16 bytes at a time beside its neighbours': only the same thread
of the same warpgroup of another CTA reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import GMEM
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.epilogue.shares import ShareKind, add_shares
from tilekit.tile_op.accumulators import WARPGROUP_OF_EPILOGUE, AccumulatorLayout, AccumulatorTile, Warpgroup

COLUMNS_AT_ONCE = 64
"""Columns that are read or written together."""

KEPT = 1
"""What a counter says while a share is in its slot: 0 before and after."""


def foreign_share(reduction: str, share: object, nearest: str) -> TraceError:
    """The error for a reduction that gets no share of a tile's sum, or one of another kind."""
    given = "whole tiles" if share is None else f"tiles with a {type(share).__name__}"
    return TraceError(
        f"{reduction} adds shares of a tile's sum, but the scheduler hands out {given}; nearest: {nearest}",
        code="TK-FIT-001",
    )


class Workspace:
    """Slots for CTA tiles of 32-bit sums, each with a counter a warpgroup.

    Parameters
    ----------
    w
        The writer; the addresses of ``workspace`` (f32) and ``turns`` (u32, zero before the first launch and after
        each) become kernel parameters. They are zeroed where they are allocated.
    layout
        How a warpgroup holds the accumulators.
    warpgroups
        Warpgroups that share a tile.
    first_barrier
        Named barrier of the first warpgroup that runs the epilogue; each has its own. One of a single warp needs none.
    kind
        What is kept.
    """

    def __init__(
        self, w: Writer, layout: AccumulatorLayout, *, warpgroups: int, first_barrier: int, kind: ShareKind = "f32"
    ) -> None:
        self.layout = layout
        self.kind = kind
        self.warpgroups = warpgroups
        self.first_barrier = first_barrier
        if layout.waves > 1:
            w.barriers.claim(first_barrier, warpgroups, meeting=WARPGROUP_OF_EPILOGUE, threads=layout.threads)
        self.address = w.parameter(
            "workspace", GMEM, lambda call: call.allocate("workspace", 4 * call.schedule.slots * self.floats)
        )
        self.counters = w.parameter(
            "turns", GMEM, lambda call: call.allocate("turns", 4 * call.schedule.slots * self.warpgroups)
        )

    @property
    def floats(self) -> int:
        """Elements of f32 that a CTA tile takes."""
        return self.warpgroups * self.layout.blocks * self.layout.rows * self.layout.columns

    def bind(self, group: Warpgroup) -> BoundWorkspace:
        """For a thread; once a role."""
        return BoundWorkspace(self, group)


class BoundWorkspace:
    """A `Workspace` in a role."""

    def __init__(self, workspace: Workspace, group: Warpgroup) -> None:
        self._workspace = workspace
        self._group = group
        self._barrier = group.index + workspace.first_barrier
        self.thread = group.thread
        self.first = group.thread == 0

    def slot(self, w: Writer, slot: Value) -> Slot:
        """Return the warpgroup's part of a slot."""
        s, layout = self._workspace, self._workspace.layout
        place = slot * s.warpgroups + self._group.part
        counter = (s.counters + w.widen_multiply(place, 4)).retyped(GMEM)
        floats = layout.blocks * layout.rows * layout.columns
        start = s.address + w.widen_multiply(place, 4 * floats) + w.widen_multiply(self._group.thread, 16)
        return Slot(layout, counter, start.retyped(GMEM), s.kind)

    def meet(self, w: Writer) -> None:
        """Wait for the warpgroup."""
        layout = self._workspace.layout
        if layout.waves == 1:
            w.warp_sync()
        else:
            w.barrier(id=self._barrier, threads=layout.threads)

    def pieces(self) -> list[tuple[int, int, int]]:
        """Block, first column and number of columns of all that a thread holds, a piece at a time."""
        layout = self._workspace.layout
        return [
            (block, left, min(COLUMNS_AT_ONCE, layout.columns - left))
            for block in range(layout.blocks)
            for left in range(0, layout.columns, COLUMNS_AT_ONCE)
        ]


@dataclass(frozen=True)
class Slot:
    """A thread's place in the workspace.

    Attributes
    ----------
    layout
        How the warpgroup holds the accumulators.
    counter
        Address of the counter.
    start
        Address of the thread's first elements.
    kind
        What is kept.
    """

    layout: AccumulatorLayout
    counter: Value
    start: Value
    kind: ShareKind

    def keep(self, w: Writer, fragments: list[RegisterTile], block: int, left: int) -> None:
        """Write the registers of columns of a block, from `left` on."""
        for index, registers in enumerate(fragments):
            for address, four in self._quads(registers, block, index, left):
                w.isa.memory.store_global_f32x4(address=address, values=four)

    def take(self, w: Writer, workspace: BoundWorkspace, accumulators: AccumulatorTile) -> None:
        """Write all accumulators, and say so; by the whole warpgroup."""
        pieces = workspace.pieces()
        for block, left, columns in pieces:
            fragments = accumulators.read(w, block, left, columns)
            if (block, left, columns) == pieces[-1]:
                accumulators.done(w)
            self.keep(w, fragments, block, left)
        workspace.meet(w)
        with w.when(workspace.first):
            w.isa.semaphore.release(address=self.counter, turn=KEPT)

    def await_kept(self, w: Writer) -> None:
        """Wait until a share is here; one thread.

        No other thread reads the counter in this launch, and the next one finds it as this one did.
        """
        w.isa.semaphore.wait(address=self.counter, turn=KEPT)
        w.isa.semaphore.release(address=self.counter, turn=0)

    def load(self, w: Writer, fragments: list[RegisterTile], block: int, left: int) -> list[Value]:
        """Start to read what is kept here of the same registers, in their order."""
        return [
            value
            for index, registers in enumerate(fragments)
            for address, _ in self._quads(registers, block, index, left)
            for value in w.isa.memory.load_global_f32x4(address=address)
        ]

    def add_to(self, w: Writer, fragments: list[RegisterTile], block: int, left: int) -> None:
        """Add what is kept here to the same registers."""
        for index, registers in enumerate(fragments):
            for address, four in self._quads(registers, block, index, left):
                kept = w.isa.memory.load_global_f32x4(address=address)
                for register, value in zip(four, kept, strict=True):
                    register.assign(add_shares(w, self.kind, register, value))

    def _quads(self, registers: RegisterTile, block: int, fragment: int, left: int) -> list[tuple[Value, RegisterTile]]:
        """A fragment's registers by fours, and where the thread keeps them."""
        layout = self.layout
        before = ((block * layout.fragments + fragment) * layout.columns + left) // 8
        return [
            ((self.start + (before + four) * layout.threads * 16).retyped(GMEM), registers[4 * four : 4 * four + 4])
            for four in range(len(registers) // 4)
        ]


def add_kept(w: Writer, slots: Sequence[Slot], fragments: list[RegisterTile], block: int, left: int) -> None:
    """Add what is kept in slots to registers of columns of a block, in order; all are on their way at once."""
    loaded = [(slot.kind, slot.load(w, fragments, block, left)) for slot in slots]
    for kind, kept in loaded:
        for register, value in zip(chain.from_iterable(fragments), kept, strict=True):
            register.assign(add_shares(w, kind, register, value))
