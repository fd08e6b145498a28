"""Accumulators that begin anew with each k-block, whose sums are scaled and added to others in f32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tilekit.assembly.fit import checked, require_call
from tilekit.assembly.legal import illegal
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_op.accumulators import OfLayout, Warpgroup, require_columns
from tilekit.tile_op.register_accumulators import PromotedAccumulators, RegisterAccumulators, RegisterOp
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_accumulators import TensorAccumulators, TensorConsumer, TensorProducer
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tiles.stage import AsyncReader, HeldStage, Promote, Stage
from tilekit.tiles.tile import Tile

COLUMNS_AT_ONCE = 32
"""Columns of tensor memory that are read at once."""


Four = tuple[Value, Value, Value, Value]
"""Factors of four accumulators: two columns of the upper row, then of the lower."""


class Factors(Protocol):
    """What the sums of k-blocks are multiplied by."""

    @property
    def k_block(self) -> int:
        """Elements of K in a stage, whose sums are multiplied together."""

    @property
    def registers(self) -> int:
        """Of a thread, for what sums are multiplied by, where that is more than a few."""

    def bind(self, w: Writer, group: Warpgroup) -> None:
        """Find this thread's rows and columns; once a role."""

    def turn(self, w: Writer, tile: Tile) -> None:
        """Turn to an output tile."""

    def take(self, w: Writer, stage: Stage) -> None:
        """Read the factors that the `stage` of the next k-block holds."""

    def advance(self, w: Writer) -> None:
        """Turn to the next k-block's factors that were read ahead."""

    def factors(self, w: Writer, block: int) -> Callable[[int, int], Four]:
        """The factors of four accumulators of a block: by their fragment and, in eights, their columns."""


OVERLAPPED_REGISTERS = 192
"""What sums and those of two blocks may take together, for instructions to run while their warpgroup adds."""


def partial_tiles(sums: int, block: int, others: int = 0) -> int:
    """Tiles of registers for the sums of k-blocks, where `block` hold those of 64 rows: two, or one for all."""
    return 2 if sums > block and sums + 2 * block + others <= OVERLAPPED_REGISTERS else 1


class ScaledAccumulators(PromotedAccumulators):
    """Sums in registers of their own; the blocks of 64 rows take turns with one or two more tiles of registers.

    While one warpgroup adds, the tensor core has the other's instructions, and with two tiles its own next block's.
    Blocks below the last row of a tile's group are not multiplied: there is a loop for each number of blocks, since
    branches within one keep ptxas from reading factors ahead, which cost 6 % (H200). Where the kernel computes the
    transpose of its output (`turned`), groups end between columns, and every block has rows.
    """

    def __init__(self, scales: Factors, op: RegisterOp, *, turned: bool = False) -> None:
        super().__init__(op)
        self._turned = turned
        self._scales, block = scales, op.layout.columns // 2
        self._partials = partial_tiles(op.layout.blocks * block, block, scales.registers)

    def producer(self, w: Writer, role: Role) -> ScaledAccumulators:
        """Declare the registers; once a role."""
        RegisterAccumulators.producer(self, w, role)
        self._w, self._sums = w, self._tiles
        self._tiles = [w.tile(F32, len(self._sums[0]), "partial") for _ in range(self._partials)]
        group = Warpgroup.of(w, w.warp(), role)
        self._first, _ = self.layout.place(group.part)
        self._blocks = self.layout.blocks
        self._scales.bind(w, group)
        return self

    @contextmanager
    def acquire(self, tile: Tile | None = None) -> Iterator[ScaledAccumulators]:
        """Enter with the registers, the sums being zero."""
        assert tile is not None, "scales are a tile's"
        self._scales.turn(self._w, tile)
        with super().acquire(tile):
            yield self

    def ways(self, w: Writer, tile: Tile) -> Iterator[Promote]:
        """A branch for each number of blocks, from the first on, that have rows of the tile's group."""
        layout = self.layout
        if tile.row_end is None or self._turned or layout.blocks == 1:
            yield self.promote
            return
        first = tile.row + self._first
        rows = w.select(tile.row_end > first, tile.row_end - first, 0)
        filled = w.minimum((rows + (layout.rows - 1)) // layout.rows, layout.blocks)
        for blocks in range(layout.blocks, -1, -1):
            with w.when(filled == blocks):
                self._blocks = blocks
                yield self.promote

    def carried(self, w: Writer, stage: Stage, accumulate: Value | bool) -> bool:
        """Never; the k-block's scales are read before its instructions are issued."""
        if self._blocks:
            self._scales.take(w, stage)
        return False

    def turns(self, w: Writer, reader: AsyncReader) -> Iterator[Sequence[tuple[int, RegisterTile]]]:
        """One block after the other, each when the sums that its registers held have been added."""
        behind = self._partials - 1
        for block in range(self._blocks):
            yield ((block, self._tiles[block % self._partials]),)
            if block == 0:
                self._scales.advance(w)
            done = block - behind
            if done < self._blocks - 1:  # the last is what the stage waits for
                reader.commit(w)
                if done >= 0:
                    reader.wait(w, behind)
                    self._scale(w, done)

    def _add(self, w: Writer, stage: HeldStage) -> None:
        stage.release()
        if self._blocks:
            self._scale(w, self._blocks - 1)

    def _scale(self, w: Writer, block: int) -> None:
        add_scaled(w, self._sums[block], self._tiles[block % self._partials], self._scales, block)


def add_scaled(
    w: Writer, sums: RegisterTile, partial: RegisterTile, scales: Factors, block: int, fragment: int = 0, left: int = 0
) -> None:
    """Add sums of a k-block, times their factors, to those of a fragment's columns from `left` on."""
    four, kind = scales.factors(w, block), type(scales).__name__
    if not callable(four):
        raise illegal(kind, "factors", four, "a function of a fragment and an eight of its columns")
    require_call(kind, "factors", four, "fragment", "eight")
    for at in range(0, len(partial), 4):
        factors = four(fragment, left // 8 + at // 4)
        if not isinstance(factors, Sequence) or len(factors) != 4:
            raise illegal(kind, "factors", factors, "four values: two columns of a row, then of the row below")
        for total, value, factor in zip(sums[at : at + 4], partial[at : at + 4], factors, strict=True):
            total.assign(w.isa.elementwise.fma(a=value, b=factor, c=total))


class ScaledTensorAccumulators(TensorAccumulators):
    """A ring in tensor memory of the sums of k-blocks, which the epilogue role adds in registers.

    Parameters
    ----------
    scales, w, memory, op, how
        What sums are multiplied by, and as of `TensorAccumulators`.
    inputs
        The ring of what is multiplied, where factors come into its stages.
    """

    def __init__(
        self, scales: Factors, w: Writer, memory: Any, op: Tcgen05, *, inputs: TilePipeline | None = None, **how: Any
    ) -> None:
        super().__init__(w, memory, op, **how)
        self.scales = scales
        self.inputs = inputs

    def producer(self, w: Writer, role: Role) -> BlockProducer:
        """Learn where the region is."""
        return BlockProducer(w, self, self.region.at(self.memory.bind(w, role)))

    def consumer(self, w: Writer, group: Warpgroup) -> BlockConsumer:
        """Learn where the region is, and which scales are this thread's."""
        self.scales.bind(w, group)
        return BlockConsumer(w, self, self.region.at(self.memory.bind(w, self._epilogue)), group)


class BlockProducer(TensorProducer):
    """Fills a stage with each k-block."""

    @contextmanager
    def acquire(self, tile: Tile | None = None) -> Iterator[BlockProducer]:
        """Enter with the ring."""
        yield self

    def k_block(self) -> Any:
        """Wait until the next stage is free; enter with its address, and on exit commit to it."""
        return super().acquire()


class BlockConsumer(TensorConsumer):
    """Adds the k-blocks of a tile, and hands the sums to the epilogue."""

    _accumulators: ScaledTensorAccumulators

    def __init__(self, w: Writer, accumulators: ScaledTensorAccumulators, address: Value, group: Warpgroup) -> None:
        super().__init__(w, accumulators, address, group)
        self._stages = None if accumulators.inputs is None else accumulators.inputs.reader(w)

    @contextmanager
    def acquire(self, tile: Tile | None = None) -> Iterator[BlockConsumer]:
        """Add k-block after k-block; enter when the sums are complete."""
        assert tile is not None, "scales are a tile's"
        w, layout, scales = self._w, self.layout, self._accumulators.scales
        self._sums = [w.tile(F32, layout.columns // 2, "sum") for _ in range(layout.fragments)]
        self.clear(w)
        scales.turn(w, tile)
        for _ in w.range(tile.k_end, start=tile.k_first, step=scales.k_block, name="k"):
            if self._stages is not None:
                with self._stages.acquire() as stage:
                    scales.take(w, stage)
            scales.advance(w)
            with super().acquire(tile):
                for left in range(0, layout.columns, COLUMNS_AT_ONCE):
                    columns = min(COLUMNS_AT_ONCE, layout.columns - left)
                    partial = super().read(w, 0, left, columns)
                    if left + columns == layout.columns:
                        super().done(w)
                    for fragment, (sums, tiles) in enumerate(zip(self.read(w, 0, left, columns), partial, strict=True)):
                        add_scaled(w, sums, tiles, scales, 0, fragment, left)
        yield self

    def clear(self, w: Writer) -> None:
        """Zero the sums."""
        for register in (register for sums in self._sums for register in sums):
            register.assign(0.0)

    @checked
    def read(self, w: Writer, block: OfLayout, left: OfLayout, columns: OfLayout) -> list[RegisterTile]:
        """Return the registers of `columns` columns."""
        require_columns(f"{type(self).__name__}.read", self.layout, block, left, columns)
        return [sums[left // 2 : (left + columns) // 2] for sums in self._sums]

    def done(self, w: Writer) -> None:
        """Nothing to hand back."""


@dataclass(frozen=True)
class BlockTcgen05:
    """The instruction, into another stage of the accumulators with each k-block."""

    op: Tcgen05

    def bind(self, w: Writer, tiles: dict[str, SharedArray], group: Any = None) -> BoundBlockTcgen05:
        """Prepare the descriptors; once a role."""
        return BoundBlockTcgen05(self.op.bind(w, tiles, group))


@dataclass(frozen=True)
class BoundBlockTcgen05:
    """A `BlockTcgen05` in the thread that issues."""

    bound: Any
    committed: ClassVar[bool] = True

    def multiply(self, w: Writer, accumulators: BlockProducer, stage: Stage, *, accumulate: Value) -> None:
        """Issue a stage's instructions into the next stage of the accumulators."""
        with accumulators.k_block() as address:
            self.bound.multiply(w, address, stage, accumulate=False)

    def commit(self, w: Writer) -> None:
        """Nothing: giving a stage back is a commit."""

    def wait(self, w: Writer, pending: int) -> None:
        """Nothing: the commit waits."""
