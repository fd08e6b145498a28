"""The rules of `WarpMatrixConfig`: what warps copy and multiply in whole, registers, shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilekit.heuristics.rules import Choice, RuleBook, Violation
from tilekit.kernels.matmul.rules import (
    RASTER_ORDER,
    SPLIT_K,
    common_values,
    grouped_rule,
    own_rule,
    profile_rule,
    raster_rule,
    shared_memory_rule,
    whole_rule,
    written_rule,
)
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.mma_sync import FOUR, ROWS, SLOTS

if TYPE_CHECKING:
    from tilekit.kernels.matmul.warp_matrix.config import WarpMatrixConfig

MAX_TILE = 256
"""Rows and columns of a tile at most."""

OTHER_REGISTERS = 48
"""Registers of a thread beside sums and fragments: addresses of copies and reads, positions, the epilogue's."""

SHARE_REGISTERS = 12
"""Those more where a sum is shared."""

NARROW_REGISTERS = 92
"""Those more where an operand is copied in pieces of less than 16 bytes: two ways, and lines to shift."""

FURTHER_REGISTERS = 8
"""Those more in a batch, and those where a matrix is added, beside such copies: addresses, of 64 bits each."""

DRIVER = Choice("driver", ("multistage",), "'multistage'")
GRIDS = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2), (1, 8), (8, 1))
GRID = Choice("grid", GRIDS, "1, 2, 4 or 8 warps in rows and columns")
RESIDENT = Choice("resident", (1, 2, 3, 4), "1 to 4 CTAs")


def _tile(config: WarpMatrixConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    for side, extent, warps, name in zip("MN", config.tile, config.grid, ("rows", "columns"), strict=True):
        own = ROWS * warps
        if not 0 < extent <= MAX_TILE or extent % own:
            text = f"tile {side}={extent}: a multiple of {own} up to {MAX_TILE} ({warps} warps have {ROWS} {name} each)"
            yield Violation(f"tile {side}", "tile", text)


def _shares(config: WarpMatrixConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Warps have whole chunks of an M- or N-major operand, or parts that divide one; copies are whole turns."""
    for tile, warps in zip(config.operands(spec), config.grid, strict=True):
        own = tile.rows // warps
        if tile.major == "mn" and own % tile.chunk and tile.chunk % own:
            rows, columns = config.tile
            yield Violation(
                f"chunks of {tile.name.upper()}",
                "tile",
                f"tile {rows}x{columns}: {own} of {tile.name.upper()}'s {tile.rows} rows a warp neither divide nor "
                f"fill the {tile.chunk} of a chunk",
            )
    for copies in config.plans(spec):
        if copies.block_lines % copies.unit or not copies.classes:
            rows, columns = config.tile
            yield Violation(
                f"copies of {copies.tile.name.upper()}",
                "tile",
                f"tile {rows}x{columns}: {copies.tile.name.upper()} is copied in {copies.unit} rows at once",
            )


def _registers(config: WarpMatrixConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    granted = min(chip.thread_registers, chip.registers // (config.resident * config.count * chip.lanes) // 8 * 8)
    sums = config.accumulators
    fragments = (
        SLOTS * FOUR * sum(extent // (ROWS * warps) for extent, warps in zip(config.tile, config.grid, strict=True))
    )
    others = OTHER_REGISTERS + (SHARE_REGISTERS if config.split_k > 1 else 0)
    if spec.copies:
        others += NARROW_REGISTERS + FURTHER_REGISTERS * (spec.batched + (spec.functions.residual is not None))
    over = sums + fragments + others - granted
    if over > 0:
        yield Violation(
            "registers",
            "tile",
            f"registers: {sums} accumulators of a thread, {fragments} of operands and {others} others are "
            f"{over} over the {granted} that a thread has; the accumulators are the largest object",
        )


def _values(field: str, config: WarpMatrixConfig, chip: Target, spec: MatmulSpec) -> Sequence[Any]:
    if field == "tile":
        steps = range(ROWS, MAX_TILE + 1, ROWS)
        return [(m, n) for m in steps for n in steps]
    return common_values(field, config, chip, spec)


def _least(config: WarpMatrixConfig) -> str:
    return "tile=(64, 64), grid=(2, 2), resident=1"


RULES = RuleBook(
    phases=(
        (
            *(DRIVER, GRID, RESIDENT, SPLIT_K, RASTER_ORDER),
            *(raster_rule, profile_rule, grouped_rule, own_rule, whole_rule),
        ),
        (_tile,),
        (written_rule, _shares, _registers),
        (shared_memory_rule,),
    ),
    values=_values,
    fallbacks=("tile", "grid", "resident"),
    least=_least,
)
"""Fields by themselves; the tile and who shares it; registers; shared memory."""
