"""The rules of `CdnaConfig`: what waves load and multiply in whole, registers, LDS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilekit.heuristics.rules import Choice, RuleBook, Violation
from tilekit.kernels.matmul.rules import (
    K_GROUP,
    RASTER_ORDER,
    SPLIT_K,
    SWAP_AB,
    common_values,
    grouped_rule,
    profile_rule,
    raster_rule,
    shared_memory_rule,
)
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.mfma import ATOM, MFMA_FRAGMENT

if TYPE_CHECKING:
    from tilekit.kernels.matmul.cdna.config import CdnaConfig

MAX_ROWS = 256
"""Rows and columns of a tile at most."""

LINES_OF_A_WAVE = 8
"""Lines of 128 bytes that a wave loads at once, 16 bytes a lane."""

MOST_ACCUMULATORS = 256
"""Registers of either kind that instructions can name (CDNA3 ISA, VGPRs and AccVGPRs)."""

OTHER_REGISTERS = 96
"""Registers of a lane that multiplies, beside its sums: operands on their way, addresses, the epilogue's."""

DRIVER = Choice("driver", ("warp_specialized",), "'warp_specialized'")
LOAD_WAVES = Choice("load_waves", (1, 2, 4, 8), "1, 2, 4 or 8 waves that load")
MMA_WAVES = Choice("mma_waves", (1, 2, 4, 8), "1, 2, 4 or 8 waves that multiply")
IN_FLIGHT = Choice("in_flight", (0, 1), "0 or 1 stages that a wave holds beside the one that it multiplies")
COUNTERS = Choice("counters", (1, 2), "1 or 2 counters a stage")
XCDS = Choice("xcds", (False, True), "True or False")


def _tile(config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    rows, columns = config.tile
    lines = LINES_OF_A_WAVE * config.load_waves
    own = max(MFMA_FRAGMENT.rows * config.mma_waves, lines)
    if not 0 < rows <= MAX_ROWS or rows % own:
        yield Violation(
            "tile M",
            "tile",
            f"tile M={rows}: a multiple of {own} up to {MAX_ROWS} ({config.mma_waves} waves multiply "
            f"{MFMA_FRAGMENT.rows} rows each, {config.load_waves} load {lines} at once)",
        )
    step = max(ATOM, lines)
    if not 0 < columns <= MAX_ROWS or columns % step:
        yield Violation(
            "tile N",
            "tile",
            f"tile N={columns}: a multiple of {step} up to {MAX_ROWS} (an instruction has {ATOM} columns, "
            f"{config.load_waves} waves load {lines} at once)",
        )


def _registers(config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    granted = min(config.warps(chip, spec).launch_registers, MOST_ACCUMULATORS + OTHER_REGISTERS)
    over = config.accumulators + OTHER_REGISTERS - granted
    if over > 0:
        yield Violation(
            "registers",
            "tile",
            f"registers: {config.accumulators} accumulators of a lane and {OTHER_REGISTERS} others are {over} over the "
            f"{granted} that {config.waves} waves of a workgroup have; the accumulators are the largest object",
        )


def _values(field: str, config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Sequence[Any]:
    if field == "tile":
        steps = range(ATOM, MAX_ROWS + 1, ATOM)
        return [(m, n) for m in steps for n in steps]
    return common_values(field, config, chip, spec)


def _least(config: CdnaConfig) -> str:
    return "tile=(64, 32), load_waves=1, mma_waves=1, k_group=1, in_flight=0"


RULES = RuleBook(
    phases=(
        (
            *(DRIVER, LOAD_WAVES, MMA_WAVES, K_GROUP, IN_FLIGHT, COUNTERS, SWAP_AB, SPLIT_K, RASTER_ORDER),
            *(XCDS, raster_rule, profile_rule, grouped_rule),
        ),
        (_tile,),
        (_registers,),
        (shared_memory_rule,),
    ),
    values=_values,
    fallbacks=("tile", "mma_waves", "load_waves", "k_group", "in_flight"),
    least=_least,
)
"""Fields by themselves; the tile and who loads and multiplies it; registers; LDS."""
