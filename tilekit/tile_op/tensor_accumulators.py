"""Accumulators in tensor memory: a ring of stages between the mma role and the epilogue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import Count, require_symbol
from tilekit.assembly.shared import SharedDeclaration, mbarriers
from tilekit.assembly.types import DSMEM, F32, S32, TMEM
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_op.accumulator_fragments import FRAGMENT_ROWS
from tilekit.tile_op.accumulators import AccumulatorLayout, OfLayout, Warpgroup, require_columns
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tile_pipeline.mbarrier_sync import LEADER_MASK
from tilekit.tile_pipeline.position import RingPosition
from tilekit.tiles.stage import Promote
from tilekit.tiles.tile import Tile

LANE = 1 << 16
"""What one lane adds to an address in tensor memory."""


@component
class TensorAccumulators:
    """`stages` accumulators in a region of tensor memory.

    A stage is full when the matrix instructions issued into it are complete (a commit; with pairs the leader's, in both
    CTAs) and empty again when every warp of the epilogue (with pairs: of both CTAs) has read its last column, which is
    before the tile is stored.

    Parameters
    ----------
    w
        The writer; barriers are allocated in its shared memory.
    memory
        Where the region is claimed.
    op
        The instruction.
    stages
        Accumulators in flight.
    mma, epilogue
        The roles on either side.
    whole
        Whether sums of whole numbers are handed on as they are, their bits in place of an f32's; else they are rounded
        to f32.
    name
        Of the region and of the barriers: several in one tensor memory have different ones.
    """

    allocated = True

    def __init__(
        self,
        w: Writer,
        memory: TensorMemory,
        op: Tcgen05,
        *,
        stages: Count,
        mma: Role,
        epilogue: Role,
        whole: bool = False,
        name: str = "accumulators",
    ) -> None:
        require_symbol("TensorAccumulators", "name", name)
        self.rounds = getattr(op, "sums", F32) is S32 and not whole
        self.layout: AccumulatorLayout = op.layout
        self.stages = stages
        self.memory = memory
        columns = self.columns_declared(self.layout, stages)
        self.region = memory.claim(name, columns=columns, claimant=type(self).__name__)
        self._epilogue = epilogue
        full, empty = self.declared(stages, name)
        self._full = w.shared.place(full, arrive=(mma.name,), wait=(epilogue.name,), arrivals=1)
        read = epilogue.arrivals * memory.cluster.group
        self._empty = w.shared.place(empty, arrive=(epilogue.name,), wait=(mma.name,), arrivals=read)

    @staticmethod
    def declared(stages: int, name: str = "accumulators") -> tuple[SharedDeclaration, ...]:
        """Shared memory for so many stages: two mbarriers each."""
        return mbarriers(name, ("full", "empty"), stages)

    @staticmethod
    def columns_declared(layout: AccumulatorLayout, stages: int) -> int:
        """Columns of tensor memory for so many stages."""
        return stages * layout.columns

    def initialise(self, w: Writer) -> None:
        """Initialise the barriers; one thread of each CTA."""
        for array in (self._full, self._empty):
            for stage in range(self.stages):
                w.ptx.mbarrier.init(bar=w.shared_base + (array.offset + stage * array.stride), count=array.arrivals)

    @checked
    def producer(self, w: Writer, role: Role) -> TensorProducer:
        """Learn where the region is; by the mma role's whole warp (in both CTAs of a pair)."""
        return TensorProducer(w, self, self.region.at(self.memory.bind(w, role)))

    @checked
    def consumer(self, w: Writer, group: Warpgroup) -> TensorConsumer:
        """Learn where the region is; by all of the epilogue role's threads."""
        return TensorConsumer(w, self, self.region.at(self.memory.bind(w, self._epilogue)), group)

    def free(self, w: Writer, warp: Value) -> None:
        """Give tensor memory back; by every warp, after a barrier of the CTA, or of the cluster."""
        self.memory.free(w, warp)


class TensorProducer:
    """What the mma role may do with the accumulators: fill the next stage."""

    def __init__(self, w: Writer, accumulators: TensorAccumulators, address: Value) -> None:
        self._w = w
        self._accumulators = accumulators
        self._address = address
        self._position = RingPosition(w, accumulators.stages, fills=True)
        self._pair = accumulators.memory.cluster.pair_mask(w) if accumulators.memory.cluster.group > 1 else None

    @contextmanager
    def acquire(self, tile: Tile | None = None) -> Iterator[Any]:
        """Wait until the epilogue has read the next stage; enter with its address, and on exit commit to it."""
        w, accumulators, position = self._w, self._accumulators, self._position
        w.ptx.mbarrier.wait_parity(bar=accumulators._empty.at(w, position.stage), parity=position.phase)
        w.ptx.tcgen05.fence_after()
        yield self._address + position.stage * accumulators.layout.columns
        full = accumulators._full.at(w, position.stage)
        if self._pair is None:
            w.ptx.tcgen05.commit(bar=full, group=1)
        else:
            w.ptx.tcgen05.commit_multicast(bar=full, mask=self._pair, group=2)
        position.advance()

    @property
    def promote(self) -> Promote | None:
        """Nothing is left to do with a k-block: the instructions add to tensor memory."""
        return None

    def ways(self, w: Writer, tile: Tile) -> Iterator[Promote | None]:
        """One way for all tiles."""
        yield self.promote


class TensorConsumer:
    """What the epilogue role may do with the accumulators: read the next complete stage, and give it back."""

    def __init__(self, w: Writer, accumulators: TensorAccumulators, address: Value, group: Warpgroup) -> None:
        self._w = w
        self._accumulators = accumulators
        self.layout = accumulators.layout
        # Warp w of the epilogue may touch lanes 32 w to 32 w + 31 (PTX ISA, tcgen05.ld, access restrictions).
        self._lanes = address + (group.warp << 21)
        self._first_lane = w.lane() == 0
        self._leader = (w.shared_base & LEADER_MASK).retyped(DSMEM) if accumulators.memory.cluster.group > 1 else None
        self._position = RingPosition(w, accumulators.stages)
        self._columns = self._lanes

    @contextmanager
    def acquire(self, tile: Tile | None = None) -> Iterator[TensorConsumer]:
        """Wait until the next stage is complete."""
        w, position = self._w, self._position
        w.ptx.mbarrier.wait_parity(bar=self._accumulators._full.at(w, position.stage), parity=position.phase)
        w.ptx.tcgen05.fence_after()
        self._columns = self._lanes + position.stage * self.layout.columns
        yield self
        position.advance()

    def clear(self, w: Writer) -> None:
        """Zero the warp's lanes of the stage."""
        for left, width in powers(self.layout.columns, 32):
            zeros = RegisterTile([w.constant(F32, 0.0)] * width)
            w.ptx.tcgen05.store_32x32b(address=(self._columns + left).retyped(TMEM), values=zeros, x=width)
        w.ptx.tcgen05.wait_store()

    @checked
    def read(self, w: Writer, block: OfLayout, left: OfLayout, columns: OfLayout) -> list[RegisterTile]:
        """Load `columns` columns from `left` on, a fragment for each 16 lanes."""
        require_columns(f"{type(self).__name__}.read", self.layout, block, left, columns)
        fragments = []
        for part in range(self.layout.fragments):
            registers = w.tile(F32, columns // 2, "acc")
            for first, width in powers(columns // 8, 32):
                w.ptx.tcgen05.load_16x256b(
                    values=registers[4 * first : 4 * (first + width)],
                    address=(self._columns + (part * FRAGMENT_ROWS * LANE + left + 8 * first)).retyped(TMEM),
                    x=width,
                )
            fragments.append(registers)
        w.ptx.tcgen05.wait_load()
        if not self._accumulators.rounds:
            return fragments
        convert = w.isa.convert
        return [
            RegisterTile([convert.float_s32(whole=convert.bits_s32(bits=value)) for value in registers])
            for registers in fragments
        ]

    def row(self, w: Writer, left: int, columns: int) -> RegisterTile:
        """Load `columns` columns, a power of two, of the thread's row from `left` on."""
        registers = w.tile(F32, columns, "acc")
        w.ptx.tcgen05.load_32x32b(values=registers, address=(self._columns + left).retyped(TMEM), x=columns)
        w.ptx.tcgen05.wait_load()
        return registers

    def done(self, w: Writer) -> None:
        """Let the mma role overwrite the stage: one arrival a warp, with pairs on the leader's barrier."""
        w.ptx.tcgen05.fence_before()
        w.warp_sync()
        empty = self._accumulators._empty.at(w, self._position.stage, base=self._leader)
        if self._leader is None:
            w.ptx.mbarrier.arrive(bar=empty, active=self._first_lane)
        else:
            w.ptx.mbarrier.arrive_remote(bar=empty, active=self._first_lane)


def powers(count: int, largest: int) -> Iterator[tuple[int, int]]:
    """Split ``0 … count - 1`` into runs whose lengths are powers of two up to `largest`: (first, length)."""
    first = 0
    while first < count:
        width = min(largest, 1 << (count - first).bit_length() - 1)
        yield first, width
        first += width
