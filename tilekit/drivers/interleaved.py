"""The interleaved driver: a wave a SIMD, and reads and loads woven between its products, one behind every few.

A wave has the whole register file of its SIMD, sums in accumulator registers, and multiplies without a pause. A k-tile
is four regions, one for each quadrant of its sums. In each a wave reads the half of rows or columns that the next
region multiplies, and starts the loads of a half that no wave reads any more; a barrier begins it. Two k-tiles a turn,
since the registers of the first and the second half of the columns change places from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.half_loads import HalfLoads, Images, Loads, Place
from tilekit.drivers.together import Together, refuse_beside
from tilekit.drivers.warp_specialized import BoundLoader
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.mfma import BoundMfma
from tilekit.tile_op.quadrants import HALVES, Half, products
from tilekit.tiles.stage import AsyncWriter, Step
from tilekit.tiles.tile import Tile

STAGES = 2

_IN_FLIGHT = 6
"""Groups of loads, half a tile each, that are younger when a region begins than what it reads."""


Steps = Callable[[], list[Step]]


@call_checked
@dataclass(frozen=True, kw_only=True)
class Interleaved(Together):
    """A kernel's components, ready to trace. Loads pass no registers, and the op has its waves' tiles in two pieces.

    Attributes
    ----------
    stages
        How many stages there are: two.

    Raises
    ------
    TraceError
        ``TK-FIT-001`` for a component that does not offer what its protocol asks for, ``TK-TRACE-017`` for an op, a
        loader or a number of stages that the schedule has no use for.
    """

    stages: int = STAGES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.op.pieces != HALVES or self.stages != STAGES:
            raise TraceError(
                f"{type(self).__name__} multiplies quadrants of {STAGES} stages; given Mfma(pieces={self.op.pieces}) "
                f"and stages={self.stages}; nearest: pieces=2, stages={STAGES}",
                code="TK-TRACE-017",
            )

    def k_tiles(self, w: Writer, warp: Value, role: Role, group: Warpgroup, loader: BoundLoader) -> _Regions:
        """The regions."""
        if loader.writer is None:
            raise TraceError(
                "Interleaved has its loads pass no registers; nearest: BufferToLdsLoader", code="TK-TRACE-017"
            )
        return _Regions(w, self, self.op.bind(w, self.tiles, group), loader.writer, role)


class _Regions:
    """The regions of a k-tile, in the registers of the role."""

    def __init__(self, w: Writer, driver: Interleaved, op: BoundMfma, writer: AsyncWriter, role: Role) -> None:
        self.w, self.op, self.writer, self.depth = w, op, writer, driver.payload.k
        self.accumulators = driver.accumulators.producer(w, role)
        self.rows = tuple(Half.of_rows(w, op, f"a{half}_") for half in range(HALVES))
        self.columns = tuple(Half.of_columns(w, op, f"b{half}_") for half in range(HALVES))
        stages = [w.constant(U32, stage) for stage in range(STAGES)]
        self.row_places = [op.row_places(w, stage) for stage in stages]
        self.column_places = [op.column_places(w, stage) for stage in stages]

    def multiply(self, tile: Tile, a: Loads, b: Loads, *beside: Any) -> None:
        """The whole sum of a tile."""
        refuse_beside("Interleaved", beside, "PingPongWaves")
        w, depth = self.w, self.depth
        loads = HalfLoads(w, self.writer, a, b)
        images = [loads.images(w.constant(U32, stage)) for stage in range(STAGES)]
        for stage in range(STAGES):
            along = loads.along(w.constant(U32, tile.k_first + stage * depth))
            for which in ("a0", "b0", "b1", "a1"):
                loads.start(which, images[stage], along)
        self.accumulators.clear(w)
        self.writer.wait(w, _IN_FLIGHT)
        w.gcn.barrier.sync_cta_shared()
        for read in (
            *self.rows[0].steps(w, self.row_places[0], 0),
            *self.columns[0].steps(w, self.column_places[0], 0),
        ):
            read()
        w.gcn.barrier.sync_cta_shared()
        ahead = loads.along(w.constant(U32, tile.k_first + STAGES * depth))
        held = loads.held(ahead)
        loads.start("a0", images[0], held)
        k = w.variable(U32, tile.k_first, "k")
        pairs = (tile.k_end - k + (depth - 1)) // (STAGES * depth)
        for _ in w.range(pairs, name="pair"):
            for stage in range(STAGES):
                self._k_tile(loads, images, held, k, stage)
        with w.when(k < tile.k_end):
            self._last_k_tile()
        # What was loaded beyond the last k-tile is of no use, but its places are the next tile's.
        self.writer.wait(w, 0)
        w.gcn.barrier.sync_cta_shared()

    def _k_tile(self, loads: HalfLoads, images: list[Images], held: Place, k: Value, stage: int) -> None:
        """Four regions; the columns' halves are in the other registers in every second k-tile."""
        w, other = self.w, stage ^ 1
        multiplied, read = self._regions(stage)
        loaded = (("b0", stage), ("b1", stage), ("a1", stage), ("a0", other))
        following: list[Value] = []

        def advance() -> None:
            k.assign(k + self.depth)
            following.append(k + STAGES * self.depth)

        for region in range(len(loaded)):
            half, target = loaded[region]
            self.writer.wait(w, _IN_FLIGHT)
            w.gcn.barrier.sync_cta_shared()
            ahead: list[Step] = [advance] if region == 2 else []
            if region == 3:
                ahead = loads.turn(held, following[0])
            weave(multiplied[region](), [*read[region](), *ahead], loads.steps(half, images[target], held))
            self.writer.commit(w)

    def _last_k_tile(self) -> None:
        """One that no pair has: nothing is loaded any more, and only its own halves are read."""
        multiplied, read = self._regions(0)
        for region in range(2):
            self.writer.wait(self.w, _IN_FLIGHT - region)
            self.w.gcn.barrier.sync_cta_shared()
            weave(multiplied[region](), read[region](), ())
        for region in (2, 3):
            weave(multiplied[region](), (), ())

    def _regions(self, stage: int) -> tuple[list[Steps], list[Steps]]:
        """What each region of a k-tile multiplies, and what it reads for the next one."""
        w, other = self.w, stage ^ 1
        first, second = self.columns[stage], self.columns[other]
        upper, lower = self.rows
        across, down = self.column_places, self.row_places
        quadrants = (
            ((0, upper), (0, first)),
            ((0, upper), (1, second)),
            ((1, lower), (1, second)),
            ((1, lower), (0, first)),
        )
        read = (
            (second, across[stage], 1),
            (lower, down[stage], 1),
            (upper, down[other], 0),
            (second, across[other], 0),
        )
        return (
            [partial(products, w, self.op, self.accumulators, *quadrant) for quadrant in quadrants],
            [partial(half.steps, w, places, which) for half, places, which in read],
        )


def weave(multiply: Sequence[Step], reads: Sequence[Step], loads: Sequence[Step]) -> None:
    """Emit reads between the first half of the products, and loads between the others, evenly.

    What was read is there when the region ends, because nothing is read in its second half; nor does a load stand
    between its last product and the barrier behind it, where a wave has enough to issue.
    """
    half = len(multiply) // 2
    for steps, others, early in ((multiply[:half], reads, 0), (multiply[half:], loads, 1)):
        done = 0
        for place, step in enumerate(steps, 1):
            step()
            due = (2 * len(others) * place + early * len(steps)) // (2 * len(steps))
            for other in others[done:due]:
                other()
            done = due
