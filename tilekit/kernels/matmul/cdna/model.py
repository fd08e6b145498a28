"""The model of a CDNA chip: which tiles are tried, and what limits each.

Clocks of a compute unit's matrix cores, LDS and vector L1 are those of `tilekit.cycles`; what the chip's L2 and memory
feed is published for the whole chip. No kernel has been timed on one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil
from typing import Any, ClassVar

import numpy as np

from tilekit.cycles.machine import PEAK, Machine
from tilekit.heuristics.picker import Array, Estimates
from tilekit.kernels.matmul.cdna.components import past_registers
from tilekit.kernels.matmul.cdna.config import CdnaConfig
from tilekit.kernels.matmul.cdna.loops import SCHEDULES, loop_clocks, multiplied
from tilekit.kernels.matmul.estimates import Configs, Estimate, Grid, Grids
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.targets import target as target_named
from tilekit.tile_io.buffer import WORD
from tilekit.tile_io.buffer_across import ELEMENTS_AT_ONCE
from tilekit.tile_io.pieces import PIECE
from tilekit.tile_op.mfma import LANES
from tilekit.tiles.operand import SWIZZLE_BYTES

LAUNCH_CLOCKS = 12_000
"""From launch to launch in a stream, without any k-block: assumed, 5 to 6 us."""

STORE_BYTES_PER_CLOCK = 32
"""How fast a compute unit's accumulators leave: assumed."""

STAGE_CLOCKS = 530
"""Beside a stage's products, of waves that multiply what others load: the counters, and reads that no product hides.

So the cycle model has it, of loops whose stages are full (`notes.replayed`)."""

ELEMENT_CLOCKS = 2900
"""Of 16 bytes that a lane loads element by element, by the cycle model."""

SIMDS = 4

ROWS = (256, 128, 64, 32)
COLUMNS = (256, 192, 128, 96, 64, 32, 16)
WAVES = ((4, 4), (4, 8), (2, 4), (2, 2), (1, 1))
"""Waves that load, and that multiply."""

L1_BYTES_PER_CLOCK = 64
"""What a compute unit's vector L1 brings: 64 lanes of 16 bytes in 16 clocks."""


@dataclass(frozen=True)
class BlockClocks:
    """Clocks of one k-block of a workgroup, by what limits it.

    Attributes
    ----------
    matrix, lds, l1
        Matrix cores; reads and writes of LDS; the vector L1's loads.
    latency
        What is left of a load's way from memory where too few stages are on theirs; and loads of single elements.
    loop
        A turn of the waves that multiply, with what the cycle model finds beside the matrix cores' clocks.
    alone
        Whether loads and products take turns: of a ring of one stage, and, in drivers without roles, where elements are
        loaded one by one.
    """

    matrix: float
    lds: float
    l1: float
    latency: float
    loop: float
    alone: bool

    @classmethod
    def of(cls, config: CdnaConfig, spec: MatmulSpec, target: Target) -> BlockClocks:
        """Work them out."""
        m = _machine(target.name)
        (rows, columns), line = config.tile, SWIZZLE_BYTES * config.k_group
        read = (config.grid[1] * rows + config.grid[0] * columns) * line
        written = (rows + columns) * line
        names = "ba" if config.swap_ab else "ab"
        majors = {"a": spec.a_major, "b": spec.b_major}
        l1, pieces, turned = 0.0, 0.0, 0
        for name, lines in zip(names, config.tile, strict=True):
            # Across K, 64 lanes bring an element each.
            wide = lines * line / L1_BYTES_PER_CLOCK
            l1 += wide if majors[name] == "k" else lines * line / spec.a_dtype.bytes / LANES * m.load_dword
            load = spec.a_load if name == "a" else spec.b_load
            of_lane = lines * line / (PIECE * LANES * config.loading)
            if majors[name] == "k" and load != "tma" and load < WORD:
                pieces += of_lane
            if majors[name] != "k":
                turned += ceil(of_lane * PIECE / spec.a_dtype.bytes / ELEMENTS_AT_ONCE)
        stages = config.resolved_stages(target, spec)
        past = all(past_registers(spec, config, name, target) for name in names)
        matrix = 2 * rows * columns * config.k_block(spec.a_dtype) / PEAK[target.name][spec.a_dtype.bits]
        lds = read / m.lds_bytes + written / m.lds_write_bytes
        if config.together:
            loop = loop_clocks(config, multiplied(spec), stages, matrix)
            waited = ELEMENT_CLOCKS * pieces + m.load_latency * turned
            return cls(matrix, lds, l1, waited, loop, alone=pieces + turned > 0)
        ahead = max(1, stages // 2) if past else 1
        idle = SIMDS / min(SIMDS, config.multiplying)
        return cls(
            matrix=matrix,
            lds=lds,
            l1=l1,
            latency=m.load_latency / ahead + ELEMENT_CLOCKS * pieces,
            loop=max(matrix * idle, lds) + STAGE_CLOCKS,
            alone=stages == 1,
        )

    @property
    def taken(self) -> float:
        """What the k-block takes: the slowest of them; with one stage, what fills it and what multiplies it."""
        loads = max(self.l1, self.latency)
        return loads + self.loop if self.alone else max(loads, self.loop)


@lru_cache(maxsize=8)
def _machine(chip: str) -> Machine:
    return Machine.of(chip)


@dataclass(frozen=True)
class CdnaModel:
    """The model of one chip.

    Attributes
    ----------
    kind
        Its kind of config.
    memory_tbps
        What its memory delivers, TB/s.
    """

    kind: type[CdnaConfig]
    memory_tbps: float

    DECISIVE: ClassVar[tuple[str, ...]] = ("tile", "driver", "load_waves", "mma_waves")
    TUNED: ClassVar[frozenset[str]] = frozenset({"k_group", "in_flight", "counters"})
    FOR_GROUPS: ClassVar[CdnaConfig | None] = None

    @property
    def target(self) -> Target:
        """The chip."""
        return target_named(self.kind.TARGET)

    def default(self, spec: MatmulSpec) -> CdnaConfig:
        """What suits large outputs."""
        return self.kind()

    def plain(self, spec: MatmulSpec, overrides: Mapping[str, Any]) -> CdnaConfig:
        """The chip's default."""
        return self.kind()

    def candidates(self, spec: MatmulSpec, target: Target) -> Iterator[CdnaConfig]:
        """Every legal candidate for `spec` on `target`."""
        yield from _legal(self.kind, spec, target)

    def tuning_candidates(self, spec: MatmulSpec, target: Target) -> Iterator[CdnaConfig]:
        """The same with deeper stages, a stage held, or two counters: no GPU has said which is best."""
        for config in _legal(self.kind, spec, target):
            for changes in ({"k_group": 2}, {"in_flight": 1}, {"counters": 2}):
                changed = config.changed(**changes)
                if changed.legal(target, spec):
                    yield changed

    def variants(self, config: CdnaConfig, spec: MatmulSpec, target: Target) -> tuple[CdnaConfig, ...]:
        """Legal variants in what the model knows nothing of: the raster."""
        changes: tuple[dict[str, Any], ...] = ({"raster_order": "n"}, {"xcds": not config.xcds})
        return tuple(one for one in (config.changed(**change) for change in changes) if one != config)

    def collect(self, configs: Sequence[CdnaConfig], spec: MatmulSpec) -> Configs:
        """What the estimates of these configs depend on."""
        return Configs.of(configs, spec)

    def resident(self, configs: Configs, sms: int) -> Array:
        """One workgroup a compute unit."""
        return np.full(len(configs.each), sms)

    def estimates(self, configs: Configs, spec: MatmulSpec, grids: Grids) -> Estimates:
        """Model the time of one launch of each."""
        chip = self.target
        memory = self.memory_tbps * 1e6 / chip.boost_mhz
        found = []
        for config, grid, fetched in zip(configs.each, grids.each, grids.bytes.tolist(), strict=True):
            assert isinstance(config, CdnaConfig)
            found.append(_estimate(config, spec, chip, grid, fetched / memory))
        return Estimates(np.array([e.total for e in found]), found.__getitem__)


def _estimate(config: CdnaConfig, spec: MatmulSpec, chip: Target, grid: Grid, dram: float) -> Estimate:
    block = BlockClocks.of(config, spec, chip)
    rows, columns = config.tile
    store = rows * columns * spec.out_dtype.bytes / STORE_BYTES_PER_CLOCK
    machine = _machine(chip.name)
    tile = machine.load_latency + grid.k_blocks * block.taken + store
    total = LAUNCH_CLOCKS + max(grid.waves * tile, dram)
    return Estimate(
        config,
        grid.waves,
        grid.tiles,
        block.matrix,
        block.lds,
        max(block.l1, block.latency),
        dram / max(grid.waves, 1),
        1.0,
        total,
    )


@lru_cache(maxsize=256)
def _legal(kind: type[CdnaConfig], spec: MatmulSpec, target: Target) -> tuple[CdnaConfig, ...]:
    found = []
    for driver, tile, across in SCHEDULES:
        config = kind(tile=tile, driver=driver, mma_columns=across)
        if config.legal(target, spec):
            found.append(config)
    for rows, columns, (load, mma), swapped in product(ROWS, COLUMNS, WAVES, (False, True)):
        config = kind(tile=(rows, columns), load_waves=load, mma_waves=mma, swap_ab=swapped)
        if config.legal(target, spec):
            found.append(config)
    return tuple(found)
