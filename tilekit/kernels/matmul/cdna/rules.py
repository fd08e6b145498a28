"""The rules of `CdnaConfig`: what waves load and multiply in whole, registers, LDS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.heuristics.rules import Choice, RuleBook, Violation
from tilekit.kernels.matmul.cdna.components import past_registers
from tilekit.kernels.matmul.rules import (
    K_GROUP,
    RASTER_ORDER,
    SPLIT_K,
    SWAP_AB,
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
from tilekit.tile_io.buffer_to_lds import BufferToLdsLoader
from tilekit.tile_op.mfma import ATOM, MFMA_FRAGMENT
from tilekit.tiles.operand import SWIZZLE_BYTES
from tilekit.tiles.scale_tile import ScaleTile

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

BESIDE_HALVES, BESIDE_HALVES_ALONE = 32, 40
"""Those of a lane whose operands have registers of their own; of a wave that has its SIMD alone."""

BESIDE_ELEMENTS = 8
"""Beside elements that a wave loads one by one: where a group, or a share of a sum, ends."""

BESIDE_TURNED = 24
"""Beside elements that a wave turns round in registers, each of which arrives in one of its own."""

MOST_CODE = 512
"""Sums of a lane, with as many again for each total of rows or columns, whose code branches still reach across."""

SIMDS = 4
"""Of a compute unit, over which the waves of a workgroup are dealt."""

DRIVERS = ("ping_pong", "warp_specialized", "interleaved")
DRIVER = Choice("driver", DRIVERS, "'ping_pong', 'warp_specialized' or 'interleaved'")
LOAD_WAVES = Choice("load_waves", (None, 1, 2, 4, 8), "1, 2, 4 or 8 waves that load, or None")
MMA_WAVES = Choice("mma_waves", (None, 1, 2, 4, 8), "1, 2, 4 or 8 waves that multiply, or None")
MMA_COLUMNS = Choice("mma_columns", (None, 1, 2, 4, 8), "1, 2, 4 or 8 waves side by side, or None")
IN_FLIGHT = Choice("in_flight", (0, 1), "0 or 1 stages that a wave holds beside the one that it multiplies")
COUNTERS = Choice("counters", (None, 1, 2), "1 or 2 counters a stage, or None")
XCDS = Choice("xcds", (False, True), "True or False")


def _roles(config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Fields of a driver with roles are of no use without; waves are a grid."""
    if config.together:
        for field, given, none in (
            ("load_waves", config.load_waves, None),
            ("counters", config.counters, None),
            ("in_flight", config.in_flight, 0),
        ):
            if given != none:
                text = f"{field}={given!r} with driver={config.driver!r}: all of its waves load and multiply"
                yield Violation(f"{field} of roles", "driver", text)
        if spec.components.consumers is not None:
            text = f"driver={config.driver!r}: the caller's consumers divide the tiles of waves that multiply"
            yield Violation("consumers without roles", "driver", text)
        if spec.components.role is not None:
            text = f"driver={config.driver!r}: the caller's role stands beside others, and all of its waves are one"
            yield Violation("a role beside one", "driver", text)
    if config.mma_columns is not None and config.multiplying % config.mma_columns:
        text = f"mma_columns={config.mma_columns}: {config.multiplying} waves multiply, and are a grid"
        yield Violation("grid", "mma_columns", text)
    if config.driver == "ping_pong" and config.multiplying == 1:
        yield Violation("groups of waves", "mma_waves", "mma_waves=1: a ping-pong has two groups of waves")


def _loads(config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """What loads of drivers without roles take: past registers rows along K alone; what else they ask for says how."""
    if not config.together:
        return
    if spec.k_major:
        yield from _loads_of_scales(config, chip, spec)
        return
    for name, major in (("a", spec.a_major), ("b", spec.b_major)):
        if major != "k" and config.driver == "interleaved":
            along = "M" if name == "a" else "N"
            text = (
                f"driver={config.driver!r}: {name} is contiguous along {along}, and is turned round in registers, of "
                "which it has none left"
            )
            yield Violation(f"loads of {name} across K", "driver", text)
        elif config.driver == "interleaved" and not past_registers(spec, config, name, chip):
            lane = BufferToLdsLoader.lane_bytes_of(chip)
            load = spec.a_load if name == "a" else spec.b_load
            text = (
                f"driver='interleaved': {name}'s rows, at multiples of {load} bytes, go through registers, of which it "
                f"has none left; past them go rows of whole {lane} bytes, of 4 waves or more"
                if load != "tma"
                else f"driver='interleaved': {config.multiplying} waves load {name} past registers, "
                f"{lane} bytes a lane, and fill no whole swizzle"
            )
            yield Violation(f"loads of {name} through registers", "driver", text)


def _stages(config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """A ping-pong has no more stages than it uses; of a tile that is legal, since values to suggest are."""
    if config.driver != "ping_pong" or config.stages is None:
        return
    useful = config.useful_stages(chip, spec)
    if not 0 < config.stages <= useful:
        why = "loads through registers have one" if useful == 1 else "one is overwritten while the other is read"
        yield Violation("stages of halves", "stages", f"stages={config.stages}: 1 to {useful} of a ping-pong ({why})")


def _loads_of_scales(config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Scales of blocks go past registers beside operands that do: words of 64 rows to a wave, in a ping-pong."""
    if config.driver != "ping_pong":
        text = (
            f"driver={config.driver!r}: scales of blocks are read for half a stage at once, of which it reads quarters"
        )
        yield Violation("scales of quarters", "driver", text)
    elif config.useful_stages(chip, spec) == 1:
        text = f"driver={config.driver!r}: scales of blocks go past registers, and the operands beside them do not"
        yield Violation("scales past registers", "driver", text)
    elif config.stages == 1:
        yield Violation("stages of scales", "stages", "stages=1: scales of blocks are loaded a stage ahead; nearest: 2")
    else:
        for side, rows in zip("MN", config.tile, strict=True):
            if rows % chip.lanes:
                text = f"tile {side}={rows}: a wave loads the scales of {chip.lanes} rows, nearest a multiple of that"
                yield Violation(f"scales of {side}", "tile", text)


def _tile(config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Waves have whole instructions of the tile, or of each half of it; and there are whole rows for those that load.

    Halves of a tile that are loaded one by one are so, too.
    """
    down, across = config.grid
    lines = LINES_OF_A_WAVE * config.loading
    if config.together:
        lane = BufferToLdsLoader.lane_bytes_of(chip)
        halves = config.pieces * config.loading * chip.lanes * lane // SWIZZLE_BYTES
        lines = lines if config.stages == 1 or config.useful_stages(chip, spec) == 1 else halves
    each = " of each half" if config.together else ""
    loads = f"{config.loading} load {lines} at once{', in halves' if config.together else ''}"
    for side, extent, atom, waves in (
        ("M", config.tile[0], MFMA_FRAGMENT.rows, down),
        ("N", config.tile[1], ATOM, across),
    ):
        unit = max(atom * waves * config.pieces, lines)
        if not 0 < extent <= MAX_ROWS or extent % unit:
            share = f"{waves} waves multiply {atom} {'rows' if side == 'M' else 'columns'} each{each}"
            if side == "N" and unit == lines and not config.together:
                share = f"an instruction has {ATOM} columns"
            text = f"tile {side}={extent}: a multiple of {unit} up to {MAX_ROWS} ({share}, {loads})"
            yield Violation(f"tile {side}", "tile", text)


def _scales(config: CdnaConfig, spec: MatmulSpec) -> int:
    """Registers of a stage's scales: a word for each 128 elements along K of an instruction's rows and columns."""
    down, across = config.grid
    words = [tile.words for tile in spec.further_tiles(config) if isinstance(tile, ScaleTile)]
    return sum(words) // 2 * (config.tile[0] // down + config.tile[1] // across) // ATOM


def _registers(config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    sums, waves_a_simd = config.accumulators, -(-config.waves // SIMDS)
    alone = waves_a_simd == 1  # it has registers of both kinds
    if config.together:
        stages = config.resolved_stages(chip, spec)
        others = config.held_registers(stages) + (BESIDE_HALVES_ALONE if alone else BESIDE_HALVES)
        others += _scales(config, spec)
        if stages == 1 and (spec.groups is not None or config.split_k > 1):
            others += BESIDE_ELEMENTS
        if "mn" in (spec.a_major, spec.b_major):
            others += BESIDE_TURNED
        granted = chip.thread_registers // waves_a_simd
        over = max(sums, others) - MOST_ACCUMULATORS if alone else sums + others - granted
    else:
        others = OTHER_REGISTERS + _scales(config, spec)
        granted = min(chip.thread_registers // waves_a_simd, MOST_ACCUMULATORS + OTHER_REGISTERS)
        over = sums + others - granted
    if over > 0:
        largest = "accumulators" if sums >= others else "operands in registers"
        yield Violation(
            "registers",
            "tile",
            f"registers: {sums} accumulators of a lane and {others} others are {over} over the "
            f"{granted} that {config.waves} waves of a workgroup have; the {largest} are the largest object",
        )


def _code(config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """A branch reaches 128 KB, and a tile's elements are stored by code of their own."""
    totals = len(spec.functions.graph.totals) if isinstance(spec.functions, WrittenSpec) else 0
    code = config.accumulators * (1 + totals)
    most = MOST_CODE // (1 + totals)
    if totals and code > MOST_CODE:
        text = (
            f"tile {config.tile[0]}x{config.tile[1]}: {config.accumulators} sums of a lane that go into {totals} "
            f"totals of rows or columns are more code than branches reach across; at most {most} sums"
        )
        yield Violation("code of totals", "tile", text)


def _values(field: str, config: CdnaConfig, chip: Target, spec: MatmulSpec) -> Sequence[Any]:
    if field == "tile":
        steps = range(ATOM, MAX_ROWS + 1, ATOM)
        return [(m, n) for m in steps for n in steps]
    return common_values(field, config, chip, spec)


def _least(config: CdnaConfig) -> str:
    return "driver='warp_specialized', tile=(64, 32), load_waves=1, mma_waves=1, k_group=1, in_flight=0"


RULES = RuleBook(
    phases=(
        (
            *(DRIVER, LOAD_WAVES, MMA_WAVES, MMA_COLUMNS, K_GROUP, IN_FLIGHT, COUNTERS, SWAP_AB, SPLIT_K, RASTER_ORDER),
            *(XCDS, raster_rule, profile_rule, grouped_rule),
        ),
        (_roles,),
        (_loads,),
        (_tile,),
        (_stages, written_rule, own_rule, whole_rule),
        (_registers, _code),
        (shared_memory_rule,),
    ),
    values=_values,
    fallbacks=("tile", "mma_waves", "load_waves", "k_group", "in_flight", "driver"),
    least=_least,
)
"""Fields by themselves; who loads and multiplies; how; the tile; the epilogue; registers; LDS."""
