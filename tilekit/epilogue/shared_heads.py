"""Attention whose keys several CTAs share: each leaves its part of the output, and the last to come adds the parts up.

It does so in the order of the shares, so that a result does not depend on who comes last.
"""

from __future__ import annotations

from functools import partial, reduce
from math import inf, log
from typing import Any

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Barrier, Count
from tilekit.assembly.types import F32, GMEM, PRED, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType
from tilekit.epilogue.heads import LogSums
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.attention_wgmma import WARPGROUP_ROWS
from tilekit.tile_op.online_softmax import ROWS, BoundSoftmax
from tilekit.tile_schedule.heads import MOST_SHARES, HeadScheduler
from tilekit.tiles.call import Call, fits
from tilekit.tiles.heads import HeadCall, HeadTile

_AT_ONCE = 8
"""Shares whose parts are awaited together."""

_ROWS_AT_ONCE = 2
"""Rows that a warp adds up together."""

_WIDTH = 4
"""Columns that a thread adds up at a time."""

_WEIGHTS = 4
"""Weights that a thread reads at a time."""


@component
class SharedHeadEpilogue:
    """Parts of the output through a workspace, f32, and the tile that they add up to.

    Parameters
    ----------
    w
        The writer; the workspace, the output and its strides are kernel parameters.
    dtype, columns
        Of the output's elements, and how many a head has room for.
    scheduler
        What counts tiles and shares.
    group, positions
        Rows of a query, and queries of a tile.
    queries, factor
        Queries of the call, u32, and what takes a score to an exponent of 2.
    log_sums
        Where the logarithms go, if anywhere.
    barrier
        Named barrier of the warpgroup.
    """

    def __init__(
        self,
        w: Writer,
        *,
        dtype: DType,
        columns: Count,
        scheduler: HeadScheduler,
        group: Count,
        positions: Count,
        queries: Value,
        factor: Value,
        log_sums: LogSums | None,
        barrier: Barrier,
    ) -> None:
        self.dtype, self.columns = dtype, columns
        self.scheduler = scheduler
        self.group, self.positions = group, positions
        self.queries, self.factor = queries, factor
        self.log_sums = log_sums
        self.barrier = barrier
        self.place = w.shared.allocate("arrival", size=16)
        self.warps = w.target.matrix_threads // w.target.lanes
        self.weights = w.shared.allocate("share.weights", size=_ROWS_AT_ONCE * MOST_SHARES * 4, count=self.warps)

        def slots(call: Call) -> int:
            return scheduler.schedule(call).tiles * WARPGROUP_ROWS

        def allocated(name: str, size: int) -> Any:
            return lambda call: call.allocate(name, 4 * fits(name, slots(call) * size, 32, "TK-ATT-004"))

        self.parts = w.parameter("attention_parts", GMEM, allocated("attention_parts", columns))
        self.logs = w.parameter("attention_log_parts", GMEM, allocated("attention_log_parts", 1))
        self.counters = w.parameter(
            "attention_counters",
            GMEM,
            lambda call: call.allocate("attention_counters", 4 * scheduler.tile_count(call)),
        )
        self.out = w.parameter("out", GMEM, lambda call: call.address("o"))
        self.elements = w.parameter("elements", U32, lambda call: call.n)
        self.strides = [
            w.parameter(f"out_{name}", U32, partial(_stride, axis))
            for axis, name in enumerate(("batch", "query", "head"))
        ]

    def prefetch(self, w: Writer) -> None:
        """Nothing to bring close."""

    def bind(self, w: Writer, group: Warpgroup) -> BoundSharedHeads:
        """Prepare a thread's place; once a role."""
        return BoundSharedHeads(w, self, group)


class BoundSharedHeads:
    """A `SharedHeadEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: SharedHeadEpilogue, group: Warpgroup) -> None:
        self._e = e = epilogue
        self._threads = w.target.matrix_threads
        w.barriers.claim(e.barrier, 1, meeting="attention's shares", threads=self._threads)
        lane = w.lane()
        self._row = group.warp * 16 + (lane >> 2)
        self._column = (lane & 3) * 2
        self._thread, self._warp, self._lane = group.thread, group.warp, lane
        self._first_lane = (lane & 3) == 0
        self._arrival = w.shared_base + e.place.offset
        self._weights = w.shared_base + e.weights.offset + group.warp * e.weights.stride

    def store(self, w: Writer, sums: RegisterTile, softmax: BoundSoftmax, tile: HeadTile) -> None:
        """Leave this share's part; the last share of the tile to come adds all up."""
        slot, rows = self._slot(w, tile)
        self._leave(w, sums, softmax, slot, rows)
        self._left(w, tile, rows)

    def _slot(self, w: Writer, tile: HeadTile) -> tuple[Value, Value]:
        """Where the share's part goes, and how many rows it has."""
        e = self._e
        assert e.scheduler.shares is not None
        assert tile.share is not None
        assert tile.number is not None
        rows = w.minimum(e.queries - tile.row, e.positions) * e.group
        return tile.number * e.scheduler.shares + tile.share, rows

    def _left(self, w: Writer, tile: HeadTile, rows: Value) -> None:
        """Count the share, whose part has been left, and add all up if it is the last."""
        e = self._e
        shares = e.scheduler.shares
        assert shares is not None
        assert tile.number is not None
        w.barrier(id=e.barrier, threads=self._threads)
        counter = (e.counters + w.widen_multiply(tile.number, 4)).retyped(GMEM)
        with w.when(self._thread == 0):
            before = w.isa.memory.count_gpu(address=counter, value=1)
            w.isa.memory.acquire_gpu()  # the last one reads what the others left before they counted
            w.isa.memory.store_shared_b32(address=self._arrival, value=before)
        w.barrier(id=e.barrier, threads=self._threads)
        before = w.broadcast(w.isa.memory.load_shared_b32(address=self._arrival).retyped(U32), lane=0)
        with w.when(before == shares - 1):
            self._add_up(w, tile, tile.number * shares, shares, rows)
            with w.when(self._thread == 0):
                w.isa.memory.store_global_b32(address=counter, value=0)  # as the next launch finds it

    def finish(self, w: Writer) -> None:
        """Nothing is in flight."""

    # -- a share's part -----------------------------------------------------------------------------------------------

    def _leave(self, w: Writer, sums: RegisterTile, softmax: BoundSoftmax, slot: Value, rows: Value) -> None:
        e = self._e
        softmax.finish()
        for half in range(ROWS):
            row, total = self._row + 8 * half, softmax.sums[half]
            empty, valid = total == 0.0, row < rows
            inverse = w.select(empty, 0.0, w.isa.elementwise.divide(a=w.constant(F32, 1.0), b=total), F32)
            place = slot * WARPGROUP_ROWS + row
            part = e.parts + w.widen_multiply(place * e.columns + self._column, 4)
            for index in range(0, len(sums), 4):
                pair = [w.select(empty, 0.0, sums[index + 2 * half + odd] * inverse, F32) for odd in range(2)]
                address = (part + (index // 4 * 8 * 4)).retyped(GMEM)
                w.isa.memory.store_global_b32x2(address=address, values=RegisterTile(pair), valid=valid)
            exponent = w.isa.elementwise.fma(a=softmax.maxima[half], b=e.factor, c=w.isa.elementwise.log2(x=total))
            w.isa.memory.store_global_f32(
                address=(e.logs + w.widen_multiply(place, 4)).retyped(GMEM),
                value=w.select(empty, -inf, exponent, F32),
                valid=valid & self._first_lane,
            )

    # -- all of them --------------------------------------------------------------------------------------------------

    def _add_up(self, w: Writer, tile: HeadTile, slot: Value, shares: Value, rows: Value) -> None:
        """Add up the parts of a tile: a warp has two rows at a time, as far apart as there are warps."""
        e = self._e
        for row in w.range(rows, start=self._warp, step=_ROWS_AT_ONCE * self._e.warps, name="row"):
            behind = [row + index * self._e.warps for index in range(1, _ROWS_AT_ONCE)]
            there = [w.constant(PRED, True), *(one < rows for one in behind)]
            together = [row, *(w.select(known, one, row) for one, known in zip(behind, there[1:], strict=True))]
            for index, (one, valid) in enumerate(zip(together, there, strict=True)):
                logarithm = self._weigh(w, slot, shares, one, index)
                if e.log_sums is not None:
                    query, head = self._query(tile, one)
                    place = (tile.batch * (e.scheduler.heads * e.group) + head) * e.queries + tile.row + query
                    e.log_sums.store(w, place, logarithm, valid & (self._lane == 0))
            w.warp_sync()
            for first in range(0, e.columns, _WIDTH * w.target.lanes):
                column = w.minimum(self._lane * _WIDTH + first, e.columns - _WIDTH)
                mine = self._lane * _WIDTH + first < e.columns
                values = [[w.variable(F32, 0.0, "value") for _ in range(_WIDTH)] for _ in together]
                for share in w.range(shares, step=_AT_ONCE, name="share"):
                    self._add_parts(w, slot, shares, share, column, together, values)
                for one, valid, sums in zip(together, there, values, strict=True):
                    self._store_row(w, tile, column, one, valid & mine, sums)
            w.warp_sync()

    def _query(self, tile: HeadTile, row: Value) -> tuple[Value, Value]:
        """Of a row: which query of the tile it is, and of which head."""
        e = self._e
        query = row // e.group
        return query, tile.head * e.group + (row - query * e.group)

    def _weigh(self, w: Writer, slot: Value, shares: Value, row: Value, index: int) -> Value:
        """Leave the weights of a row's parts where the warp finds them, lanes having one each; return its logarithm."""
        e = self._e
        lanes = w.target.lanes
        logs = []
        for first in range(0, MOST_SHARES, lanes):
            share = self._lane + first
            valid = share < shares
            place = (slot + share) * WARPGROUP_ROWS + row
            address = (e.logs + w.widen_multiply(place, 4)).retyped(GMEM)
            found = w.isa.memory.load_coherent_f32(address=address, valid=valid)
            logs.append(w.select(valid, found, -inf, F32))
        most = self._across(w, reduce(lambda a, b: w.isa.elementwise.maximum(a=a, b=b), logs), maximum=True)
        base = w.select(most == -inf, 0.0, most, F32)
        powers = [w.isa.elementwise.exp2(x=exponent - base) for exponent in logs]
        total = self._across(w, reduce(lambda a, b: a + b, powers), maximum=False)
        empty = total == 0.0
        inverse = w.select(empty, 0.0, w.isa.elementwise.divide(a=w.constant(F32, 1.0), b=total), F32)
        for first, power in zip(range(0, MOST_SHARES, lanes), powers, strict=True):
            place = self._weights + (index * MOST_SHARES + first) * 4 + self._lane * 4
            w.isa.memory.store_shared_f32(address=place, value=power * inverse)
        return w.select(empty, -inf, (most + w.isa.elementwise.log2(x=total)) * log(2.0), F32)

    def _across(self, w: Writer, value: Value, *, maximum: bool) -> Value:
        """The largest of a warp's values, or their sum."""
        for bit in range(w.target.lanes.bit_length() - 1):
            other = w.isa.warp.shuffle_xor_f32(value=value, mask=1 << bit)
            value = w.isa.elementwise.maximum(a=value, b=other) if maximum else value + other
        return value

    def _add_parts(
        self,
        w: Writer,
        slot: Value,
        shares: Value,
        first: Value,
        column: Value,
        rows: list[Value],
        values: list[list[Value]],
    ) -> None:
        """Add some shares' parts of some rows, each times its weight."""
        e = self._e
        loaded = []
        for index, row in enumerate(rows):
            for ahead in range(_AT_ONCE):
                # Behind the last share comes the first of these again, from L1, with weight 0.
                share = w.select(first + ahead < shares, first + ahead, first)
                place = ((slot + share) * WARPGROUP_ROWS + row) * e.columns + column
                address = (e.parts + w.widen_multiply(place, 4)).retyped(GMEM)
                loaded.append((index, ahead, w.isa.memory.load_global_f32x4(address=address)))
        for index, ahead, part in loaded:
            if ahead % _WEIGHTS == 0:
                address = self._weights + (index * MOST_SHARES + ahead) * 4 + first * 4
                weights = w.isa.memory.load_shared_b32x4(address=address)
            for value, element in zip(values[index], part, strict=True):
                weight = weights[ahead % _WEIGHTS].retyped(F32)
                value.assign(w.isa.elementwise.fma(a=weight, b=element, c=value))

    def _store_row(
        self, w: Writer, tile: HeadTile, column: Value, row: Value, there: Value, values: list[Value]
    ) -> None:
        """Round some columns of a row and store them."""
        e = self._e
        query, head = self._query(tile, row)
        start = e.out + w.widen_multiply(tile.batch, e.strides[0]) * e.dtype.bytes
        start = start + w.widen_multiply(tile.row + query, e.strides[1]) * e.dtype.bytes
        start = start + w.widen_multiply(head, e.strides[2]) * e.dtype.bytes
        pack = getattr(w.isa.convert, f"pack_{e.dtype.name}")
        words = [pack(low=values[index], high=values[index + 1]) for index in range(0, _WIDTH, 2)]
        w.isa.memory.store_global_b32x2(
            address=(start + w.widen_multiply(column, e.dtype.bytes)).retyped(GMEM),
            values=RegisterTile(words),
            valid=there & (column < e.elements),
        )


def _stride(axis: int, call: Call) -> int:
    assert isinstance(call, HeadCall)
    stride = call.heads["o"].strides[axis]
    return fits("out's stride", max(0, stride), 32, "TK-ATT-004")
