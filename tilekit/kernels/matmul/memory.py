"""The shared memory of a kernel before it is traced: what its components declare, in the order in which they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilekit.assembly.shared import SharedDeclaration, size_of
from tilekit.drivers.load_order import LoadOrder
from tilekit.tile_schedule.clc import ClcScheduler
from tilekit.tile_schedule.start_order import StartOrder

if TYPE_CHECKING:
    from tilekit.kernels.matmul.config import KernelConfig
    from tilekit.kernels.matmul.spec import MatmulSpec

RING = "inputs"
"""Name of the ring of operands in maps and reports."""


class KernelMemory(NamedTuple):
    """What the components of a kernel declare.

    Attributes
    ----------
    stage, barriers
        Of one stage of the ring of operands: its tiles, with what their copies take beside, and how its roles meet.
    loaders, output
        Of what loads, whatever the stages, and of what takes tiles out; they are declared between the two.
    rest
        Of everything behind.
    """

    stage: tuple[SharedDeclaration, ...]
    loaders: tuple[SharedDeclaration, ...]
    output: tuple[SharedDeclaration, ...]
    barriers: tuple[SharedDeclaration, ...]
    rest: tuple[SharedDeclaration, ...]

    @classmethod
    def of(cls, config: KernelConfig, spec: MatmulSpec) -> KernelMemory:
        """Collect it. `compose` makes the components in this order, and `SharedMemory.check` compares."""
        stage = config.payload(spec).declared(RING, 1)
        plans = [copies for copies in config.copy_plans(spec) if copies is not None]
        for copies in plans:
            stage += copies.declared(RING, 1)
        return cls(
            stage=stage,
            loaders=tuple(kept for copies in plans for kept in copies.kept(RING)),
            output=config.output(spec).declared(),
            barriers=config.ring_barriers(RING),
            rest=(
                *config.accumulator_memory(),
                *(LoadOrder.declared() if config.orders_loads(spec) else ()),
                *(StartOrder.declared() if config.numbers_starts else ()),
                *(ClcScheduler.declared(config.clc_stages) if config.claims_tiles else ()),
            ),
        )

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage, without its barriers."""
        return sum(declared.size for declared in self.stage)

    @property
    def output_bytes(self) -> int:
        """Bytes of what takes tiles out."""
        return size_of(self.output)

    def declared(self, stages: int) -> tuple[SharedDeclaration, ...]:
        """All of it, in order, with so many stages."""
        ring, barriers = (tuple(d.times(stages) for d in which) for which in (self.stage, self.barriers))
        return (*ring, *self.loaders, *self.output, *barriers, *self.rest)

    def size(self, stages: int) -> int:
        """Bytes of a kernel with so many stages."""
        taken = size_of((*self.loaders, *self.output), size_of(self.stage, times=stages))
        return size_of(self.rest, size_of(self.barriers, taken, times=stages))

    def stages_within(self, limit: int) -> int:
        """Stages that fit into so many bytes."""
        fixed = size_of((*self.loaders, *self.output)) + size_of(self.rest)
        of_stage = size_of(self.stage) + size_of(self.barriers)
        stages = max(0, limit - fixed) // of_stage + 1  # or fewer: what aligns one object behind another is not in it
        while stages and self.size(stages) > limit:
            stages -= 1
        return stages
