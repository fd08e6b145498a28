"""Epilogue through shared memory: swizzled subtiles, and TMA stores that run under the next tile's main loop."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import OWN_RULE, Barrier, Count, Whole, illegal, require_whole, require_word
from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Role, Writer, require_warpgroups
from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32, S32, DType
from tilekit.epilogue.fusion import Fusion, enter, reducing, require_element, require_fusion, spreading
from tilekit.epilogue.rows import RowStores
from tilekit.epilogue.source_ring import SourceRing
from tilekit.epilogue.spread import SpreadColumns
from tilekit.epilogue.subtiles import SUBTILE_ALIGNMENT, SubtilePlan, stores_since
from tilekit.tile_io.tma import TmaStorer
from tilekit.tile_op.accumulator_fragments import FRAGMENT_ROWS
from tilekit.tile_op.accumulators import (
    WARPGROUP_OF_EPILOGUE,
    AccumulatorLayout,
    AccumulatorTile,
    Warpgroup,
    require_layout,
    require_storing_role,
)
from tilekit.tiles.tile import Side, Tile


@component
class StagedEpilogue:
    """Each warpgroup stores what it has of a tile, a piece of the accumulators at a time, through `buffers` buffers.

    A buffer is written again once the store that used it has *read* it (``wait_group.read``), so stores of one tile
    overlap the main loop of the next; only the drain at the end waits for completion.

    Parameters
    ----------
    w
        The writer; the output's tensor map becomes a kernel parameter and the subtiles shared memory.
    layout
        How a warpgroup holds the accumulators.
    functions
        What is done with each element.
    out
        Output type.
    role
        The role that runs the epilogue (its warpgroups).
    buffers
        Pieces in flight per warpgroup; of a source that is in place, its stages.
    source
        Where the functions combine elements with those of a second matrix: the ring that brings it. Pieces are written
        over its subtiles, and leave from there, where it is in place.
    rows
        Where tiles may end above rows of another group: stores the subtiles that do.
    transposed
        Whether the accumulators hold the transpose of the output.
    columns_at_once
        Columns of a piece that are read from the accumulators together: fewer leave the functions more registers. A
        multiple of those that a thread stores together, 16 of elements of 16 bits and else 8. None: all.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` for functions that do not fit, ``TK-PART-001`` for columns that are not stored together.
    """

    side: ClassVar[Side] = "rows"
    """Along what of a tile the accumulators' rows go."""

    def __init__(
        self,
        w: Writer,
        layout: AccumulatorLayout,
        functions: Annotated[Fusion, OWN_RULE],
        *,
        out: DType,
        role: Role,
        batched: bool = False,
        buffers: Count,
        first_barrier: Barrier,
        source: SourceRing | None = None,
        rows: RowStores | None = None,
        transposed: bool = False,
        columns_at_once: int | None = None,
    ) -> None:
        readable = source.plan.dtype if source is not None else None
        require_fusion(functions, type(self).__name__, transposed=transposed, source=readable)
        require_warpgroups("StagedEpilogue", "role", role, layout.waves)
        require_word("StagedEpilogue", "out", out, (BF16, F16, F32, S32, E4M3, E5M2))
        w.uses(self, "out", "d", dtype=out)
        w.uses(self, "transposed", "d", along="nm" if transposed else "mn")
        self._plan = plan = SubtilePlan(layout, out, transposed)
        if columns_at_once is not None:
            require_whole(
                f"StagedEpilogue of {out}", "columns_at_once", columns_at_once, Whole(plan.unit, step=plan.unit)
            )
        self.source = source
        in_place = source is not None and source.in_place
        if source is not None and in_place and (source.plan != plan or source.stages != buffers or rows is not None):
            legal = f"subtiles of {out} in {buffers} stages, and no rows, where results are written over them"
            given = f"subtiles of {source.plan.dtype} in {source.stages} stages"
            raise illegal("StagedEpilogue", "source", given + (", and rows" if rows is not None else ""), legal)
        self._rows = rows
        self._role = role
        self._functions = functions
        self._buffers = buffers
        self._first_barrier = first_barrier
        self._columns_at_once = columns_at_once
        groups = len(role.warps) // layout.waves
        w.barriers.claim(first_barrier, groups, meeting=WARPGROUP_OF_EPILOGUE, threads=layout.threads)
        self._subtiles = None
        if not in_place:
            (subtiles,) = self.declared(plan, warpgroups=groups, buffers=buffers)
            self._subtiles = w.shared.place(subtiles)
        # A last piece that is narrower has a map of its own; in shared memory its rows stand a whole swizzle span apart
        # all the same.
        self.storers: dict[int, TmaStorer] = {}
        for width in plan.widths:
            columns, down = plan.extents(width)
            name = "d" if width == plan.columns else "d_tail"
            self.storers[width] = TmaStorer(w, matrix="d", name=name, columns=columns, rows=down, batched=batched)

    @staticmethod
    def declared(plan: SubtilePlan, *, warpgroups: int, buffers: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory the epilogue takes: the subtiles of each warpgroup."""
        size = buffers * plan.buffer_bytes
        return (SharedDeclaration("output.subtile", size, warpgroups, SUBTILE_ALIGNMENT, "tile"),)

    def prefetch(self, w: Writer) -> None:
        """Bring the output's tensor maps close."""
        for storer in self.storers.values():
            storer.prefetch(w)
        if self.source is not None:
            self.source.prefetch(w)

    def initialise(self, w: Writer) -> None:
        """Prepare barriers; one thread."""
        if self.source is not None:
            self.source.initialise(w)

    @checked
    def bind(self, w: Writer, group: Warpgroup) -> BoundStagedEpilogue:
        """Prepare a thread's addresses; once a role."""
        require_storing_role("StagedEpilogue", self._role, group)
        return BoundStagedEpilogue(w, self, group)


class BoundStagedEpilogue:
    """A `StagedEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: StagedEpilogue, group: Warpgroup) -> None:
        self._e = epilogue
        epilogue._functions.bind(w)
        thread, plan = group.thread, epilogue._plan
        layout = plan.layout
        self._corner: Value | int = 0
        self._part = group.part
        self._barrier = group.index + epilogue._first_barrier
        self._thread = thread
        self._stores = thread == 0
        own = epilogue._subtiles
        if own is not None:
            self._subtile = w.shared_base + group.index * own.stride + own.offset
        self._pieces_per_tile = layout.blocks * len(plan.cuts)
        uses_rows = epilogue._functions.uses_rows
        if plan.transposed or uses_rows:
            self._lane_row = layout.corner(w, thread)[0] + ((thread >> 2) & 7)
        if not plan.transposed or uses_rows:
            self._lane_column = (thread & 3) * 2
            if len(layout.parts) > 1:
                self._corner = layout.corner(w, thread)[1]
                self._lane_column = self._lane_column + self._corner
        self._storers = {columns: storer.bind(w) for columns, storer in epilogue.storers.items()}
        if own is not None:
            self._access = plan.access(thread=thread, subtiles=self._subtile)
        self._source = epilogue.source.consumer(w, group) if epilogue.source is not None else None
        self._in_place = self._source if own is None else None
        if self._in_place is not None:
            self._subtile, self._access = self._in_place.first, self._in_place.access

    @checked
    def store(self, w: Writer, accumulators: AccumulatorTile, tile: Tile) -> None:
        """Convert and store what this warpgroup has of `tile`."""
        e, plan = self._e, self._e._plan
        layout, totals, in_place = plan.layout, reducing(e._functions), self._in_place
        require_layout("StagedEpilogue", layout, accumulators)
        first_row = tile.row + self._part * layout.tile_rows
        index, first_pair = 0, None
        runs = self._runs(w, tile)
        enter(w, e._functions, tile)
        if totals is not None:
            totals.begin_tile(w)
        for block in range(layout.blocks):
            row = first_row + block * layout.rows
            pairs = self._pairs(w, row, tile.batch)
            first_pair = first_pair or pairs[0]
            for left, columns in plan.cuts:
                step = e._columns_at_once or columns
                fragments = accumulators.read(w, block, left, min(step, columns))
                if index == 0:
                    with w.when(self._stores):
                        self._claim(w, 0)
                start: Operand = index % e._buffers * plan.buffer_bytes
                last = index + 1 == self._pieces_per_tile
                if last and step >= columns:
                    accumulators.done(w)
                if in_place is None:  # else a subtile that is full was free before
                    w.barrier(id=self._barrier, threads=layout.threads)
                column = tile.column + left
                if runs is not None:
                    runs.enter(w, left, columns)
                old = self._source.acquire(w) if self._source is not None else None
                if in_place is not None and old is not None:
                    start = old
                piece = _Piece(block, row, column, left, columns, tile.batch, runs)
                self._convert(w, accumulators, fragments, piece, pairs, start, old, last=last)
                if self._source is not None and in_place is None:
                    self._source.release(w)
                self._leave(w, tile, piece, start, index)
                index += 1
            if not plan.transposed:
                for pair in pairs:
                    e._functions.finish_rows(w, pair, tile)
        if totals is not None:
            totals.finish_tile(w, first_pair, tile)

    def _convert(
        self,
        w: Writer,
        accumulators: AccumulatorTile,
        fragments: Sequence[RegisterTile],
        piece: _Piece,
        pairs: Sequence[Any],
        start: Operand,
        old: Value | None,
        *,
        last: bool,
    ) -> None:
        """Write a piece to the subtile at `start`, some columns at a time; `fragments` are the first of them.

        Its source lies at `old`, and accumulators are given back once the `last` piece has been read.
        """
        step = self._e._columns_at_once or piece.columns
        for first in range(0, piece.columns, step):
            if first > 0:
                fragments = accumulators.read(w, piece.block, piece.left + first, min(step, piece.columns - first))
                if last and first + step >= piece.columns:
                    accumulators.done(w)
            for fragment, (registers, pair) in enumerate(zip(fragments, pairs, strict=True)):
                within = fragment * self._access.fragment_bytes
                beside = old + within if old is not None else None
                self._write(w, registers, fragment, piece, first, pair, start + within, beside)

    def _leave(self, w: Writer, tile: Tile, piece: _Piece, start: Operand, index: int) -> None:
        """Store the subtile at `start`, which all threads have written: piece `index` of the tile."""
        plan, in_place = self._e._plan, self._in_place
        w.ptx.tma.fence_shared()
        w.barrier(id=self._barrier, threads=plan.layout.threads)
        whole = self._store_rows(w, tile, piece.row, piece.column, start, piece.columns)
        with w.when(self._stores):
            for box in plan.boxes:
                subtile = self._subtile + (start + box.offset)
                place = plan.place(column=piece.column + box.column, row=piece.row + box.row)
                with w.when(whole[box.offset]) if whole is not None else nullcontext():
                    self._storers[piece.columns].store(w, subtile, batch=tile.batch, **place)
            w.ptx.tma.commit_stores()
            if in_place is not None:
                in_place.stored(w, index)
            elif index + 1 < self._pieces_per_tile:
                self._claim(w, index + 1)
        if in_place is not None:
            in_place.advance()

    def _store_rows(
        self, w: Writer, tile: Tile, row: Value, column: Value, start: Operand, columns: int
    ) -> dict[int, Value] | None:
        """Store the parts of a subtile below which rows are not the tile's; say of each part whether all rows are."""
        e, plan = self._e, self._e._plan
        if e._rows is None or tile.row_end is None:
            return None
        whole = {}
        wide, rows = plan.extents(columns)
        for box in plan.boxes:
            place = plan.place(column=column + box.column, row=row + box.row)
            whole[box.offset] = place["row"] + rows <= tile.row_end
            with w.when(~whole[box.offset]):
                subtile = self._subtile + (start + box.offset)
                e._rows.store(
                    w,
                    subtile,
                    thread=self._thread,
                    threads=plan.layout.threads,
                    rows=rows,
                    end=tile.row_end,
                    columns=wide,
                    **place,
                )
        return whole

    def finish(self, w: Writer) -> None:
        """Wait until the stores have read the CTA's shared memory, which goes away; they land before the kernel ends.

        Waiting for that too takes as long (H200, 10 to 40 us a launch).
        """
        totals = reducing(self._e._functions)
        if totals is not None:
            totals.finish(w)
        with w.when(self._stores):
            w.ptx.tma.wait_stores_read(pending=0)
        w.warp_sync()

    def _claim(self, w: Writer, index: int) -> None:
        """Wait in the storing thread until the store that last used the buffer of piece `index` has read it."""
        if self._in_place is not None:
            self._in_place.begin_tile(w)
            return
        w.ptx.tma.wait_stores_read(pending=stores_since(index, self._pieces_per_tile, self._e._buffers))

    def _runs(self, w: Writer, tile: Tile) -> SpreadColumns | None:
        """The tile's columns, where the functions fetch them for a warp."""
        functions, plan = spreading(self._e._functions), self._e._plan
        if functions is None or plan.transposed:
            return None
        column = tile.column if isinstance(self._corner, int) else tile.column + self._corner
        return SpreadColumns(w, functions, column, tile.batch, plan.cuts * plan.layout.blocks)

    def _pairs(self, w: Writer, row: Value, batch: Operand) -> list[Any]:
        """What the accumulators' rows need, a pair for each fragment; their columns are asked for one by one."""
        plan, functions = self._e._plan, self._e._functions
        firsts = range(0, plan.layout.fragments * FRAGMENT_ROWS, FRAGMENT_ROWS)
        if plan.transposed:
            return [functions.columns(w, row + self._lane_row + first, apart=8, batch=batch) for first in firsts]
        if functions.uses_rows:
            return [functions.rows(w, row + self._lane_row + first, apart=8, batch=batch) for first in firsts]
        return [None for _ in firsts]

    def _write(
        self,
        w: Writer,
        registers: RegisterTile,
        fragment: int,
        piece: _Piece,
        left: int,
        pair: Any,
        offset: Operand,
        source: Value | None,
    ) -> None:
        """Apply the functions to a fragment and store it to the subtiles at `offset`; its source lies at `source`.

        `left` is the first column of the registers within the piece.
        """
        access = self._access
        count = access.columns // 2
        for unit, first in enumerate(range(left // 2, left // 2 + len(registers), count), left // access.columns):
            part = registers[first - left // 2 : first - left // 2 + count]
            values = []
            old = None
            if self._source is not None and source is not None:
                old = self._source.access.read(w, unit, fragment, source, len(part))
            for four in range(0, len(part), 4):
                more = old[four : four + 4] if old is not None else None
                at = 2 * (first + four)
                values += self._apply(w, part[four : four + 4], piece.column + at, piece, at, pair, more)
            access.write(w, unit, fragment, offset, values)

    def _apply(
        self,
        w: Writer,
        four: RegisterTile,
        column: Value,
        piece: _Piece,
        left: int,
        pair: Any,
        source: list[Value] | None,
    ) -> list[Value]:
        """Apply the functions to a thread's 2 x 2 block: two columns of the accumulators, rows r and r + 8.

        `column` is the block's, `left` that within the piece.
        """
        functions = self._e._functions
        if self._e._plan.transposed:
            rows, columns = None, pair
            if functions.uses_rows:
                rows = functions.rows(w, column + self._lane_column, apart=1, batch=piece.batch)
        elif piece.runs is not None:
            rows, columns = pair, piece.runs.pair(w, piece.left + left, column + self._lane_column)
        else:
            rows, columns = pair, functions.columns(w, column + self._lane_column, batch=piece.batch)
        values = []
        for index, value in enumerate(four):
            row, odd = divmod(index, 2)
            if self._e._plan.transposed:
                row, odd = odd, row
            made = functions.apply(w, value, columns, odd, rows, row, source[index] if source else None)
            require_element(f"{type(functions).__name__}.apply", made)
            values.append(made)
        return values


@dataclass(frozen=True)
class _Piece:
    """A piece of a tile.

    Attributes
    ----------
    block, row
        The block of the accumulators that it is of, and its first row in the output.
    column, left, columns
        Its first column, in the output and in the tile, and how many it has.
    batch
        The tile's.
    runs
        What fetches its columns, if anything does.
    """

    block: int
    row: Value
    column: Value
    left: int
    columns: int
    batch: Operand
    runs: SpreadColumns | None
