"""Sums shared by the CTAs of a cluster: each adds the shares of a part of the tile's columns, and stores that part.

Where there are more CTAs than parts of eight columns, some of them only send.

A share goes from registers to the shared memory of the CTA that adds it (``st.async``, which counts its bytes on a
barrier there), so nothing is kept in global memory and no CTA waits for a turn. Shares are added in the order of the
CTAs' ranks: the result is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from tilekit.assembly.fit import component
from tilekit.assembly.shared import SharedDeclaration, mbarriers
from tilekit.assembly.types import F32, SMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer, require_warpgroups
from tilekit.epilogue.shares import ShareKind, add_shares, finished_sum
from tilekit.tile_op.accumulators import AccumulatorLayout, AccumulatorTile, Warpgroup, require_columns
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.tile import Tile

QUAD = 16
"""Bytes of four f32: what a thread holds of 8 columns and sends at once."""


@component
class DsmemReduction:
    """Adds the shares that the CTAs of a cluster have of a tile, through distributed shared memory.

    For each warpgroup there is a buffer with a slot for every CTA, in which a thread's elements lie in an order of its
    own: only the same thread of the same warpgroup sends and reads them. `full` counts the bytes of all slots, `empty`
    the warps that have read them, in every CTA that was sent to.

    Parameters
    ----------
    w
        The writer; buffers and barriers are allocated in its shared memory.
    layout
        How a warpgroup holds the accumulators; its columns are divided among the CTAs.
    role
        The role that runs the epilogue.
    cluster
        This CTA's place in its cluster.
    shares
        As of a `SplitKReduction`.
    """

    def __init__(
        self, w: Writer, layout: AccumulatorLayout, *, role: Role, cluster: Cluster, shares: ShareKind = "f32"
    ) -> None:
        require_warpgroups("DsmemReduction", "role", role, layout.waves)
        self.warpgroups = len(role.warps) // layout.waves
        self.cluster = cluster
        self.shares = shares
        self.adders = self.adders_of(layout, cluster.k)
        self.layout = self.part_of(layout, cluster.k)
        parts, full, empty = self.declared(layout, ctas=cluster.k, warpgroups=self.warpgroups)
        self.slot_bytes = parts.size // cluster.k
        self.parts = w.shared.place(parts)
        role_only = {"arrive": (role.name,), "wait": (role.name,)}
        self.full = w.shared.place(full, **role_only, arrivals=1)
        self.empty = w.shared.place(empty, **role_only, arrivals=layout.waves * self.adders)

    @staticmethod
    def adders_of(layout: AccumulatorLayout, ctas: int) -> int:
        """How many of the CTAs have a part: as many as have equal ones, of whole quads."""
        return next(count for count in range(ctas, 0, -1) if layout.columns // 8 % count == 0)

    @classmethod
    def part_of(cls, layout: AccumulatorLayout, ctas: int) -> AccumulatorLayout:
        """How a warpgroup holds what its CTA adds and stores."""
        return replace(layout, columns=layout.columns // cls.adders_of(layout, ctas))

    @classmethod
    def declared(cls, layout: AccumulatorLayout, *, ctas: int, warpgroups: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the buffers and barriers; `layout` is that of the accumulators."""
        part = cls.part_of(layout, ctas)
        slot = part.blocks * part.columns // 8 * part.threads * QUAD
        return SharedDeclaration("sum.part", ctas * slot, warpgroups), *mbarriers("sum", ("full", "empty"), warpgroups)

    def initialise(self, w: Writer) -> None:
        """Initialise the barriers; one thread."""
        for array in (self.full, self.empty):
            for index in range(array.count):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + index * array.stride), count=array.arrivals)

    def part(self, tile: Tile) -> Tile:
        """What this CTA stores of a tile."""
        return replace(tile, column=tile.column + self.cluster.k_rank * self.layout.columns)

    def bind(self, w: Writer, group: Warpgroup) -> BoundDsmemReduction:
        """Prepare a thread's addresses; once a role."""
        return BoundDsmemReduction(w, self, group)


class BoundDsmemReduction:
    """A `DsmemReduction` in a role."""

    def __init__(self, w: Writer, total: DsmemReduction, group: Warpgroup) -> None:
        self._s = total
        self._phase = w.variable(U32, 0, "sum_phase")
        self._first = group.thread == 0
        self._full, self._empty = (
            w.shared_base + group.index * array.stride + array.offset for array in (total.full, total.empty)
        )
        self._slots = w.shared_base + group.index * total.parts.stride + total.parts.offset + group.thread * QUAD
        lane = w.lane()
        self._releases = lane < total.cluster.k
        rank = w.minimum(lane, total.cluster.k - 1)
        self._released: Value = w.cluster_address(self._empty, rank)

    def add(
        self, w: Writer, accumulators: AccumulatorTile, tile: Tile, store: Callable[[AccumulatorTile, Tile], None]
    ) -> None:
        """Send every CTA its part of this share, await the shares of this CTA's part, and `store` their sum."""
        s = self._s
        self._await_readers(w)
        adds = s.cluster.k_rank < s.adders if s.adders < s.cluster.k else None
        with w.when(self._first if adds is None else self._first & adds):
            w.ptx.mbarrier.arrive_expect(bar=self._full, bytes=s.cluster.k * s.slot_bytes)
        for rank in range(s.adders):
            self._send(w, accumulators, rank)
        accumulators.done(w)
        with nullcontext() if adds is None else w.when(adds):
            self._await_shares(w)
        self._phase.assign(self._phase ^ 1)
        with nullcontext() if adds is None else w.when(adds):
            store(_Sum(self), s.part(tile))

    def _await_readers(self, w: Writer) -> None:
        """Wait until all CTAs have read what was sent for the tile before, if there was one."""
        w.ptx.mbarrier.wait_parity(bar=self._empty, parity=self._phase ^ 1)

    def _send(self, w: Writer, accumulators: AccumulatorTile, rank: int) -> None:
        """Send the CTA of `rank` its part of this share."""
        s = self._s
        mine = self._slots + s.cluster.k_rank * s.slot_bytes
        slot = w.cluster_address(mine, rank)
        full = w.cluster_address(self._full, rank)
        for block, left, offset in _quads(s.layout):
            (fragment,) = accumulators.read(w, block, rank * s.layout.columns + left, 8)
            w.isa.memory.store_async_f32x4(address=slot + offset, values=fragment, bar=full)

    def _await_shares(self, w: Writer) -> None:
        """Wait until every share of this CTA's part is here."""
        w.ptx.mbarrier.wait_parity(bar=self._full, parity=self._phase)

    def read(self, w: Writer, offset: int) -> RegisterTile:
        """Add the shares of the thread's quad at `offset`, in the order of the ranks."""
        s = self._s
        quads = [
            w.isa.memory.load_shared_b32x4(address=(self._slots + (rank * s.slot_bytes + offset)).retyped(SMEM))
            for rank in range(s.cluster.k)
        ]
        sums = [value if s.shares != "f32" else value.retyped(F32) for value in quads[0]]
        for quad in quads[1:]:
            sums = [add_shares(w, s.shares, before, value) for before, value in zip(sums, quad, strict=True)]
        return RegisterTile([finished_sum(w, s.shares, total) for total in sums])

    def release(self, w: Writer) -> None:
        """Let every CTA send again; one arrival a warp in each."""
        w.warp_sync()
        w.ptx.mbarrier.arrive_remote(bar=self._released, active=self._releases)


class _Sum:
    """The sum of a CTA's part, as an epilogue reads accumulators."""

    def __init__(self, total: BoundDsmemReduction) -> None:
        self.layout = total._s.layout
        self._total = total

    def clear(self, w: Writer) -> None:
        raise AssertionError("shares of an empty sum are zero when they are sent")

    def read(self, w: Writer, block: int, left: int, columns: int) -> list[RegisterTile]:
        """Return the sums of `columns` columns of a block."""
        require_columns("_Sum.read", self.layout, block, left, columns)
        found: list[Value] = []
        for at, first, offset in _quads(self.layout):
            if at == block and left <= first < left + columns:
                found += self._total.read(w, offset)
        return [RegisterTile(found)]

    def done(self, w: Writer) -> None:
        """Everything has been read."""
        self._total.release(w)


def _quads(layout: AccumulatorLayout) -> list[tuple[int, int, int]]:
    """Block and first column of a thread's quads of a part, and where in a slot it keeps each (bytes)."""
    places = [(block, left) for block in range(layout.blocks) for left in range(0, layout.columns, 8)]
    return [(block, left, index * layout.threads * QUAD) for index, (block, left) in enumerate(places)]
