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

FURTHER_REGISTERS = 8
"""Those more in a batch, and those where a matrix is added, beside such copies: addresses, of 64 bits each."""

DRIVER = Choice("driver", ("multistage", "warp_specialized"), "'multistage' or 'warp_specialized'")
GRIDS = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2), (1, 8), (8, 1))
GRID = Choice("grid", GRIDS, "1, 2, 4 or 8 warps in rows and columns")
RESIDENT = Choice("resident", (1, 2, 3, 4), "1 to 4 CTAs")


def _roles(config: WarpMatrixConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Roles are for the copy engine, and what is the caller's beside roles is for those."""
    if not config.together and not chip.has("copy_engine"):
        text = f"driver={config.driver!r}: its load role starts copies of a copy engine, which {chip.name} lacks"
        yield Violation("a copy engine", "driver", text)
    elif not config.together and spec.copies:
        loads = ", ".join(f"{name}'s of {load}" for name, load in zip("ab", spec.loads, strict=True) if load != "tma")
        text = f"driver={config.driver!r}: the copy engine loads rows of whole 16 bytes, and there are {loads}"
        yield Violation("rows of the copy engine", "driver", text)
    elif not config.together and spec.own_loaders:
        text = f"driver={config.driver!r}: the copy engine of {chip.name} loads matrices, and threads load images"
        yield Violation("images by threads", "driver", text)
    roles = {"loader_a": "loads", "loader_b": "loads", "consumers": "divides tiles", "role": "works beside others"}
    for name in spec.components.names:
        if config.together and name in roles:
            text = f"driver={config.driver!r}: {name} of the caller's {roles[name]}, and all of its warps are one role"
            yield Violation(f"{name} of roles", "driver", text)


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
    for copies in config.copy_plans(spec):
        if copies is None:
            continue
        if copies.block_lines % copies.unit or not copies.classes:
            rows, columns = config.tile
            yield Violation(
                f"copies of {copies.tile.name.upper()}",
                "tile",
                f"tile {rows}x{columns}: {copies.tile.name.upper()} is copied in {copies.unit} rows at once",
            )


def _registers(config: WarpMatrixConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    granted = min(
        chip.thread_registers, chip.registers // (config.resident * config.warps_in_all * chip.lanes) // 8 * 8
    )
    sums = config.accumulators
    fragments = (
        SLOTS * FOUR * sum(extent // (ROWS * warps) for extent, warps in zip(config.tile, config.grid, strict=True))
    )
    others = OTHER_REGISTERS + (SHARE_REGISTERS if config.split_k > 1 else 0)
    if copying := spec.copying_registers:
        others += copying + FURTHER_REGISTERS * (spec.batched + (spec.functions.residual is not None))
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
        (_roles,),
        (_tile,),
        (written_rule, _shares, _registers),
        (shared_memory_rule,),
    ),
    values=_values,
    fallbacks=("tile", "grid", "resident", "driver"),
    least=_least,
)
"""Fields by themselves; who loads; the tile and who shares it; registers; shared memory."""
