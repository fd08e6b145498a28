"""The rules of `BlackwellConfig`: tcgen05's shapes, CTA pairs, tensor memory, and shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.heuristics.rules import Choice, RuleBook, Violation
from tilekit.kernels.matmul.rules import (
    K_GROUP,
    L2_PROMOTION,
    OUTPUT_BUFFERS,
    RASTER_ORDER,
    SPLIT_K,
    SWAP_AB,
    cluster_rule,
    common_values,
    copies_rule,
    found_rule,
    grouped_rule,
    own_rule,
    profile_rule,
    raster_rule,
    shared_memory_rule,
    slice_rule,
    stored_columns,
    whole_rule,
    written_rule,
)
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.tcgen05 import LANES
from tilekit.tile_op.tensor_accumulators import TensorAccumulators

if TYPE_CHECKING:
    from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

ROWS = (64, 128)
"""Rows of a CTA in one instruction."""

MAX_N = 256
"""Columns of one instruction."""

SUMS = 128
"""Sums of k-blocks that a thread of the epilogue holds at most."""

SUMS_WITH_LOADS = 96
"""The same beside a bias, direct stores, or groups of rows: 128 of those spill 16 bytes."""

MATRIX_COLUMNS = 160
"""Columns of a tile whose Python epilogue reaches a matrix, and has totals or places of rows.

ptxas hoists the loads of a whole row of the tile: eight of 40 pairs of epilogues and types spilled 4 to 40 bytes at 192
columns and more. At 160 they have up to 246 registers.
"""

TOTALS_COLUMNS = 224
"""The same of one with totals of rows, whose matrix the copy engine brings: one spilled 16 bytes at 256."""

CTA_GROUP = Choice("cta_group", (1, 2), "a matrix instruction spans 1 CTA or a pair of 2")
ACCUMULATOR_STAGES = Choice("accumulator_stages", (1, 2, 3, 4), "1 to 4 accumulators in tensor memory")
CLC_STAGES = Choice("clc_stages", (0, 2, 3, 4), "2 to 4 claims in flight, or 0 for a static schedule")
LOAD_ORDER = Choice("load_order", (False, True), "True or False")


def column_steps(config: BlackwellConfig, spec: MatmulSpec) -> list[tuple[int, str]]:
    """What the columns of a tile must be multiples of, and why (PTX ISA, tcgen05.mma, Shape and Data-type tables)."""
    rows, paired = config.tile[0], config.cta_group == 2
    steps = [(16 if paired or rows == 128 else 8, "one tcgen05.mma")]
    _, (b_dtype, b_major) = spec.operands(swapped=config.swap_ab)
    if spec.whole:
        steps.append((32 if paired else 16, "one tcgen05.mma of s8"))
    if b_dtype.bits == 8 and b_major == "mn":
        steps.append((32 if paired else 16, "8-bit B with N contiguous"))
    stored = stored_columns(config, spec)
    if paired and rows == 64:
        steps.append((2 * stored, f"the epilogue stores {stored} columns of either half at once"))
    else:
        steps.append((stored, f"the epilogue stores {stored} columns at once"))
    if spec.tile_step > 1:
        steps.append((spec.tile_step, f"scales of {spec.tile_step} columns lie together"))
    return steps


def _tile(config: BlackwellConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    rows, columns = config.tile
    legal = [count for count in ROWS if count % spec.tile_step == 0]
    if rows not in legal:
        several = " or ".join(map(str, legal))
        yield Violation("tile M", "tile", f"tile M={rows}: a CTA has {several} rows of a matrix instruction")
        return
    step, reason = max(column_steps(config, spec), key=lambda s: s[0])
    if not 0 < columns <= MAX_N or columns % step:
        yield Violation("tile N", "tile", f"tile N={columns}: a multiple of {step} up to {MAX_N} ({reason})")


def _pairs(config: BlackwellConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    if config.cluster[0] % config.cta_group:
        yield Violation(
            "pairs",
            "cluster",
            f"cluster={config.cluster}: with cta_group={config.cta_group} its CTAs along M come in pairs",
        )


def _staged_factors(config: BlackwellConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Threads wait for the stages that they read tiles of, and only a pair's leader can."""
    if spec.staged_factors and config.cta_group > 1:
        text = f"cta_group={config.cta_group}: threads read a payload's tiles, and cannot wait for those of a pair"
        yield Violation("tiles of a payload", "cta_group", text)


def _load_order(config: BlackwellConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    if config.load_order is True and not spec.loads_residual:
        yield Violation("load order", "load_order", "load_order=True: no warp loads a residual that could wait")


def _tensor_memory(config: BlackwellConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    op, stages = config.instruction(spec), config.accumulator_stages
    layout = op.layout
    columns = TensorAccumulators.columns_declared(layout, stages) + op.scale_columns
    if columns > chip.tensor_columns:
        scales = f", and {op.scale_columns} columns of scales" if op.scale_columns else ""
        yield Violation(
            "tensor memory",
            "accumulator_stages",
            f"accumulator_stages={stages}: {stages} accumulators of {layout.columns} columns{scales} are "
            f"{columns - chip.tensor_columns} over the {chip.tensor_columns} columns of tensor memory",
        )


def _promotion(config: BlackwellConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Sums of k-blocks that threads add are in the epilogue's registers."""
    if not spec.promoted:
        return
    if config.k_group > 1:
        text = f"k_group={config.k_group}: sums are promoted every 128 products, a slice of K"
        yield Violation("promoted slices", "k_group", text)
    rows, columns = config.tile
    held = spec.sum_registers(rows * columns // LANES, 0, swapped=config.swap_ab)
    limit = SUMS if spec.store == "tma" and not (spec.functions.loads or spec.groups) else SUMS_WITH_LOADS
    if held > limit:
        text = f"tile {rows}x{columns}: {held} sums a thread of the epilogue are {held - limit} more than fit"
        yield Violation("sums", "tile", text)


def _written(config: BlackwellConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """What a Python epilogue has of a row lies in registers beside its loads."""
    functions, columns = spec.functions, config.tile[1]
    if not isinstance(functions, WrittenSpec) or spec.stores_rows:
        return
    rows = any(total.along == "row" for total in functions.graph.totals)
    most = TOTALS_COLUMNS if rows and functions.residual is not None else MAX_N
    if functions.loads_matrices and (rows or functions.graph.uses("row")):
        most = MATRIX_COLUMNS
    if columns > most:
        text = f"tile N={columns}: {functions.graph.name} has more of a row than fits registers beyond {most} columns"
        yield Violation("written columns", "tile", text)


def _rows(config: BlackwellConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Threads that store whole rows read them from tensor memory, where all of a sum is, upright."""
    if not spec.stores_rows:
        return
    if config.swap_ab:
        yield Violation(
            "rows of the transpose", "swap_ab", "swap_ab=True: a thread quantises blocks of a row, and has it"
        )
    if config.split_k > 1:
        text = f"split_k={config.split_k}: a thread quantises whole sums from tensor memory"
        yield Violation("rows of shares", "split_k", text)


def _values(field: str, config: BlackwellConfig, chip: Target, spec: MatmulSpec) -> Sequence[Any]:
    if field == "tile":
        return [(m, n) for m in ROWS for n in range(8, MAX_N + 1, 8)]
    return common_values(field, config, chip, spec)


def _least(config: BlackwellConfig) -> str:
    return "tile=(128, 64), cta_group=1, cluster=(1, 1), k_group=1, output_buffers=1"


RULES = RuleBook(
    phases=(
        (
            *(CTA_GROUP, cluster_rule, SWAP_AB, K_GROUP, ACCUMULATOR_STAGES, CLC_STAGES),
            *(OUTPUT_BUFFERS, SPLIT_K, RASTER_ORDER, raster_rule, L2_PROMOTION, profile_rule, grouped_rule),
            *(LOAD_ORDER, _load_order),
        ),
        (_tile, _pairs, _staged_factors),
        (
            slice_rule,
            found_rule,
            copies_rule,
            _tensor_memory,
            _promotion,
            written_rule,
            _written,
            own_rule,
            whole_rule,
            _rows,
        ),
        (shared_memory_rule,),
    ),
    values=_values,
    fallbacks=("tile", "cta_group", "cluster", "k_group", "output_buffers"),
    least=_least,
)
"""Fields by themselves; the tile and the pairs; the tile in its cluster and in tensor memory; shared memory."""
