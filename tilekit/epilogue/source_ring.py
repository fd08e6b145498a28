"""The second matrix of an epilogue: subtiles that a role of their own loads while the tile is still multiplied."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count, require_symbol, require_word
from tilekit.assembly.shared import SharedDeclaration, mbarriers
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer, require_warpgroups
from tilekit.dtypes import BF16, F16, F32, DType
from tilekit.epilogue.subtiles import SUBTILE_ALIGNMENT, SubtileAccess, SubtilePlan
from tilekit.tile_io.tma import TmaBoxLoader
from tilekit.tile_op.accumulators import AccumulatorLayout, Warpgroup
from tilekit.tile_pipeline.position import RingPosition
from tilekit.tiles.tile import Tile


@component
class SourceRing:
    """A ring of subtiles of a matrix for each warpgroup of the epilogue, in the order in which it stores them.

    Parameters
    ----------
    w
        The writer; the matrix's tensor map (and one of a narrower last subtile) become kernel parameters, subtiles and
        barriers shared memory.
    layout
        How a warpgroup holds the accumulators.
    name
        Of the ring, in maps and reports.
    matrix
        What the call names the matrix, which has the output's shape.
    dtype
        Its type.
    stages
        Pieces in flight, a warpgroup.
    loads, reads
        The role that fills the ring, and the one that runs the epilogue.
    batched
        Whether tiles have a batch index; ``<name>_batch_step`` (0 or 1) then becomes a parameter.
    transposed
        Whether the accumulators hold the transpose of the output.
    in_place
        Whether what becomes of a subtile is written over it and stored from there: the epilogue then has no buffers of
        its own, and gives a subtile back when its store has read it, which it asks a piece later where there are
        several stages.
    """

    def __init__(
        self,
        w: Writer,
        layout: AccumulatorLayout,
        *,
        name: str,
        matrix: str,
        dtype: DType,
        stages: Count,
        loads: Role,
        reads: Role,
        batched: bool = False,
        transposed: bool = False,
        in_place: bool = False,
    ) -> None:
        require_warpgroups("SourceRing", "reads", reads, layout.waves)
        require_symbol("SourceRing", "name", name)
        require_word("SourceRing", "dtype", dtype, (BF16, F16, F32))
        w.uses(self, "dtype", matrix, dtype=dtype, along="matrix")
        self.plan = plan = SubtilePlan(layout, dtype, transposed)
        self.stages = stages
        self.in_place = in_place
        self.warpgroups = len(reads.warps) // layout.waves
        self.turns = reads.turns
        self.batch_step = None
        if batched:
            self.batch_step = w.parameter(f"{name}_batch_step", U32, lambda call: call.matrix(matrix).batch_step)
        subtiles, full, empty = self.declared(plan, name=name, warpgroups=self.warpgroups, stages=stages)
        self.subtiles = w.shared.place(subtiles)
        self.full = w.shared.place(full, arrive=(loads.name,), wait=(reads.name,), arrivals=loads.arrivals)
        self.empty = w.shared.place(
            empty, arrive=(reads.name,), wait=(loads.name,), arrivals=1 if in_place else layout.waves
        )
        self.loaders: dict[int, TmaBoxLoader] = {}
        for width in plan.widths:
            columns, rows = plan.extents(width)
            own = matrix if width == plan.columns else f"{matrix}_tail"
            self.loaders[width] = TmaBoxLoader(w, matrix=matrix, name=own, columns=columns, rows=rows, batched=batched)

    @staticmethod
    def declared(plan: SubtilePlan, *, name: str, warpgroups: int, stages: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the subtiles and of the barriers."""
        count = warpgroups * stages
        subtiles = SharedDeclaration(f"{name}.subtile", plan.buffer_bytes, count, SUBTILE_ALIGNMENT, "tile")
        return subtiles, *mbarriers(name, ("full", "empty"), count)

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor maps close."""
        for loader in self.loaders.values():
            loader.prefetch(w)

    def initialise(self, w: Writer) -> None:
        """Initialise the barriers; one thread."""
        for array in (self.full, self.empty):
            for index in range(array.count):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + index * array.stride), count=array.arrivals)

    def producer(self, w: Writer) -> SourceProducer:
        """Handle for the role that loads."""
        return SourceProducer(w, self)

    def consumer(self, w: Writer, group: Warpgroup) -> SourceConsumer:
        """Handle for a warpgroup of the epilogue."""
        return SourceConsumer(w, self, group)


class SourceProducer:
    """What the loading role may do: fill the subtiles of a tile."""

    def __init__(self, w: Writer, ring: SourceRing) -> None:
        self._ring = ring
        # Warpgroups that share a tile are all at the same place of their rings, and those that take turns each at one
        # of its own: the first is that of whose turn it is.
        self._positions = [RingPosition(w, ring.stages, fills=True) for _ in range(ring.turns)]
        self._turn = w.variable(U32, 0, "turn") if ring.turns > 1 else None

    def load(self, w: Writer, tile: Tile) -> None:
        """Load the tile's subtiles; of a share, only where it is the one that stores."""
        if tile.share is None:
            self._load(w, tile)
        else:
            with w.when(tile.share.stores):
                self._load(w, tile)
        if self._turn is not None:
            self._turn.assign((self._turn + 1) % self._ring.turns)
            for here, there in pairwise(self._positions):
                here.exchange(there)

    def _load(self, w: Writer, tile: Tile) -> None:
        ring, plan, position = self._ring, self._ring.plan, self._positions[0]
        layout, boxes = plan.layout, list(plan.boxes)
        groups: Sequence[Value | int] = range(ring.warpgroups) if self._turn is None else (self._turn,)
        batch = tile.batch * ring.batch_step if isinstance(tile.batch, Value) and ring.batch_step is not None else 0
        for block in range(layout.blocks):
            for left, columns in plan.cuts:
                loader = ring.loaders[columns]
                for part, group in enumerate(groups):
                    place = position.stage + group * ring.stages
                    full, subtile = ring.full.at(w, place), ring.subtiles.at(w, place)
                    w.ptx.mbarrier.wait_parity(bar=ring.empty.at(w, place), parity=position.phase)
                    w.ptx.mbarrier.arrive_expect(bar=full, bytes=len(boxes) * loader.bytes(plan.dtype))
                    for box in boxes:
                        target = subtile + box.offset
                        at = plan.place(
                            column=tile.column + (left + box.column),
                            row=tile.row + (part * layout.tile_rows + block * layout.rows + box.row),
                        )
                        loader.load(w, target, full, batch=batch, **at)
                position.advance()


class SourceConsumer:
    """What a warpgroup of the epilogue may do: read the next subtile, and give it back."""

    def __init__(self, w: Writer, ring: SourceRing, group: Warpgroup) -> None:
        self._ring = ring
        self._first = group.index * ring.stages
        self._position = RingPosition(w, ring.stages)
        self._signals = w.lane() == 0
        self.first = w.shared_base + ring.subtiles.offset
        self.access: SubtileAccess = ring.plan.access(thread=group.thread, subtiles=self.first)
        self._lent = w.variable(U32, 0, "lent") if ring.in_place else None

    def acquire(self, w: Writer) -> Value:
        """Wait for the next subtile; return its offset from the first, in bytes."""
        place = self._first + self._position.stage
        w.ptx.mbarrier.wait_parity(bar=self._ring.full.at(w, place), parity=self._position.phase)
        return place * self._ring.plan.buffer_bytes

    def release(self, w: Writer) -> None:
        """Give the subtile back; one arrival a warp."""
        w.warp_sync()
        place = self._first + self._position.stage
        w.ptx.mbarrier.arrive(bar=self._ring.empty.at(w, place), active=self._signals)
        self._position.advance()

    def begin_tile(self, w: Writer) -> None:
        """Give the last subtile of the tile before back, if there was one; by the thread that stores, in place."""
        if self._lent is not None and self._ring.stages > 1:
            with w.when(self._lent == 1):
                w.ptx.tma.wait_stores_read(pending=0)
                self._give_back(w, self._position.before())

    def stored(self, w: Writer, index: int) -> None:
        """Give back what the store before this one has read by now, or will; by the thread that stores, in place.

        It is the tile's store `index`. Of a ring of one stage, wait for this store itself.
        """
        if self._ring.stages == 1:
            w.ptx.tma.wait_stores_read(pending=0)
            self._give_back(w, self._position.stage)
        elif index > 0:
            w.ptx.tma.wait_stores_read(pending=1)
            self._give_back(w, self._position.before())

    def advance(self) -> None:
        """Go on: this subtile is being stored; in place."""
        self._position.advance()
        if self._lent is not None:
            self._lent.assign(1)

    def _give_back(self, w: Writer, stage: Value) -> None:
        w.ptx.mbarrier.arrive(bar=self._ring.empty.at(w, self._first + stage), active=self._signals)
