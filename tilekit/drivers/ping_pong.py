"""The ping-pong driver: eight waves in two groups that are one barrier apart, so that one loads while one multiplies.

All waves load and multiply. A k-tile is four phases, one for each quadrant of a wave's sums: a memory half, which reads
a half of the rows or columns ahead and starts the loads of a half of a later stage, and a compute half. A barrier ends
each, and two waves share a SIMD: while those of one group are in a memory half, those of the other have the matrix
core. The second group meets once more before a tile's first phase, the first group once more behind its last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import Whole, require_whole, require_word
from tilekit.assembly.types import SMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.half_loads import HalfLoads, Loads
from tilekit.drivers.together import Together, refuse_beside
from tilekit.drivers.warp_specialized import BoundLoader
from tilekit.tile_io.payload_loader import TileCopies
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.mfma import BoundMfma, StagePlaces
from tilekit.tile_op.quadrants import HALVES, Half, products
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tiles.stage import AsyncWriter, Stage
from tilekit.tiles.tile import Tile

Favoured = Literal["products", "memory"]
"""The half of a phase in which a wave has the higher priority."""

_LOADED = ("b0", "a0", "b1", "a1")
"""The half that each phase loads: what was read in the phase before it."""

_IN_FLIGHT = 6
"""Groups of loads, half a tile each, that are younger at a phase's end than what the next phase reads."""

_BESIDE_PHASE = 1
"""The phase that loads what a stage holds beside A and B: when phase 0 ends, all of it has been read."""


class Copies(Protocol):
    """A tile's loads through registers."""

    def registers(self, w: Writer) -> RegisterTile:
        """Registers for a stage."""

    def fetch(self, w: Writer, k: Value, into: RegisterTile) -> None:
        """Start the loads of a stage."""

    def put(self, w: Writer, stage: Value, pieces: RegisterTile) -> None:
        """Write what has been loaded to a stage."""


@call_checked
@dataclass(frozen=True, kw_only=True)
class PingPongWaves(Together):
    """A kernel's components, ready to trace.

    Loads that pass no registers fill two stages, half a tile a phase; loads through registers fill a single stage,
    written in the one phase in which no wave reads.

    Attributes
    ----------
    stages
        How many stages there are.
    favoured
        Which half of a phase a wave's priority is raised in (``s_setprio``); None for neither.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` for a component that does not offer what its protocol asks for, ``TK-TRACE-017`` for an op or a
        number of waves or stages that the schedule has no use for.
    """

    stages: int
    favoured: Favoured | None = "products"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(type(self).__name__, "stages", self.stages, Whole(1, 2))
        if self.favoured is not None:
            require_word(type(self).__name__, "favoured", self.favoured, ("products", "memory"))
        waves = len(self.warps["mma"].warps)
        if waves % 2 or self.op.pieces != HALVES:
            raise TraceError(
                f"{type(self).__name__} has two groups of waves and multiplies quadrants; given {waves} waves and "
                f"Mfma(pieces={self.op.pieces}); nearest: {waves + waves % 2} waves, pieces=2",
                code="TK-TRACE-017",
            )

    def k_tiles(self, w: Writer, warp: Value, role: Role, group: Warpgroup, loader: BoundLoader) -> _Phases:
        """The phases."""
        op = self.op.bind(w, self.tiles, group)
        return _Phases(w, self, op, self.accumulators.producer(w, role), warp, loader.writer)


class _Phases:
    """The phases of a k-tile, in the registers of the role."""

    def __init__(
        self,
        w: Writer,
        driver: PingPongWaves,
        op: BoundMfma,
        accumulators: RegisterAccumulators,
        warp: Value,
        writer: AsyncWriter | None,
    ) -> None:
        self.w, self.driver, self.op, self.accumulators, self.warp = w, driver, op, accumulators, warp
        self.writer = writer
        wanted = 1 if writer is None else 2
        if driver.stages != wanted:
            raise TraceError(
                f"PingPongWaves with loads {'through' if writer is None else 'past'} registers has {wanted} "
                f"stage{'s' * (wanted > 1)}, given {driver.stages}; nearest: {wanted}",
                code="TK-TRACE-017",
            )
        self.rows = Half.of_rows(w, op, "a")
        self.columns = tuple(Half.of_columns(w, op, f"b{half}_") for half in range(HALVES))
        op.hold(w)
        self.stage = w.variable(U32, 0, "stage")

    def multiply(self, tile: Tile, a: Any, b: Any, *beside: Any) -> None:
        """The whole sum of a tile."""
        if self.writer is not None:
            self._past_registers(tile, self.writer, a, b, beside)
            return
        refuse_beside("PingPongWaves with loads through registers", beside, "loads past registers")
        self._through_registers(tile, a, b)

    # -- loads that pass no registers: two stages ---------------------------------------------------------------------

    def _past_registers(
        self, tile: Tile, writer: AsyncWriter, a: Loads, b: Loads, beside: Sequence[TileCopies]
    ) -> None:
        """A phase starts loads, two stages ahead, of what no wave reads any more when it begins."""
        w, depth = self.w, self.driver.payload.k
        loads = HalfLoads(w, writer, a, b)

        def start_beside(phase: int, stage: Value, k: Value) -> None:
            if phase == _BESIDE_PHASE:
                for copies in beside:
                    copies.load(w, Stage(stage, None, "PingPongWaves"), k)

        for number in range(2):
            stage, k_first = w.constant(U32, number), w.constant(U32, tile.k_first + number * depth)
            place = loads.along(k_first)
            for phase, half in enumerate(_LOADED):
                start_beside(phase, stage, k_first)
                loads.start(half, loads.images(stage), place)
        self.accumulators.clear(w)
        writer.wait(w, _IN_FLIGHT)
        w.gcn.barrier.sync_cta_shared()
        self.stage.assign(0)
        self._read(3, self.op.column_places(w, self.stage))
        self._read_beside(3, self.stage)
        w.gcn.barrier.sync_cta_shared()
        held = loads.held(loads.along(w.constant(U32, tile.k_first + 2 * depth)))
        images = {side: w.variable(SMEM, image, "image") for side, image in loads.images(self.stage).items()}
        with self._a_phase_late():
            for k in w.range(tile.k_end, start=tile.k_first, step=depth, name="k"):
                following = self.stage ^ 1
                for phase in range(4):
                    with self._memory():
                        if phase == 0:
                            rows = self.op.row_places(w, self.stage)
                        if phase in (1, 3):
                            columns = self.op.column_places(w, self.stage if phase == 1 else following)
                        self._read(phase, rows if phase in (0, 2) else columns)
                        self._read_beside(phase, following if phase == 3 else self.stage)
                        start_beside(phase, self.stage, k + 2 * depth)
                        loads.start(_LOADED[phase], images, held)
                        if phase == 3:
                            for turn in loads.turn(held, k + 3 * depth):
                                turn()
                            for side, image in loads.images(following).items():
                                images[side].assign(image)
                        writer.wait(w, _IN_FLIGHT - (1 if beside and phase == 2 else 0))
                        w.gcn.barrier.sync_cta_shared()
                    self._multiply(phase)
                self.stage.assign(following)
        # What was loaded beyond the last k-tile is of no use, but its places are the next tile's.
        writer.wait(w, 0)

    # -- loads through registers: one stage ---------------------------------------------------------------------------

    def _through_registers(self, tile: Tile, a: Copies, b: Copies) -> None:
        """The next stage waits in registers until no wave reads the last one."""
        w, depth = self.w, self.driver.payload.k
        held = [(copies, copies.registers(w)) for copies in (a, b)]
        for copies, registers in held:
            copies.fetch(w, w.constant(U32, tile.k_first), registers)
        self.accumulators.clear(w)
        for copies, registers in held:
            copies.put(w, self.stage, registers)
        w.gcn.barrier.sync_cta_shared()
        with self._a_phase_late():
            for k in w.range(tile.k_end, start=tile.k_first, step=depth, name="k"):
                following = k + depth
                for phase in range(4):
                    with self._memory():
                        if phase == 0:
                            rows, columns = self.op.row_places(w, self.stage), self.op.column_places(w, self.stage)
                            self._read(3, columns)
                        if phase < 3:
                            self._read(phase, columns if phase == 1 else rows)
                        if phase < 2:
                            copies, registers = held[phase]
                            with w.when(following < tile.k_end):
                                copies.fetch(w, following, registers)
                        if phase == 3:
                            for copies, registers in held:
                                copies.put(w, self.stage, registers)
                        w.gcn.barrier.sync_cta_shared()
                    self._multiply(phase)

    # -- what both have -----------------------------------------------------------------------------------------------

    def _read(self, phase: int, places: StagePlaces) -> None:
        """What a phase reads: a half of the rows, or of the columns."""
        half, which = ((self.rows, 0), (self.columns[1], 1), (self.rows, 1), (self.columns[0], 0))[phase]
        for read in half.steps(self.w, places, which):
            read()

    def _read_beside(self, phase: int, stage: Value) -> None:
        """What products take beside rows and columns: a half when both quadrants that take it are done."""
        if phase in (0, 3):
            for read in self.op.beside(self.w, stage, 0 if phase == 3 else 1):
                read()

    def _multiply(self, phase: int) -> None:
        """The compute half of a phase: a quadrant, and the barrier behind it."""
        w = self.w
        down, across = divmod(phase, HALVES)
        with self._priority("products"):
            for product in products(w, self.op, self.accumulators, (down, self.rows), (across, self.columns[across])):
                product()
        w.gcn.barrier.meet()

    @contextmanager
    def _memory(self) -> Iterator[None]:
        """The memory half of a phase."""
        with self._priority("memory"):
            yield

    @contextmanager
    def _priority(self, half: Favoured) -> Iterator[None]:
        raised = self.driver.favoured == half
        if raised:
            self.w.gcn.schedule.priority(level=1)
        yield
        if raised:
            self.w.gcn.schedule.priority(level=0)

    @contextmanager
    def _a_phase_late(self) -> Iterator[None]:
        """Have the second group enter a barrier later than the first, and the first leave with it."""
        w, waves = self.w, self.driver.warps["mma"].warps
        second = waves.start + len(waves) // 2
        with w.when(self.warp >= second):
            w.gcn.barrier.meet()
        yield
        with w.when(self.warp < second):
            w.gcn.barrier.meet()
