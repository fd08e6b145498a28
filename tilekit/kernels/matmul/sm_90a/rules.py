"""The rules of `MatmulConfig`: wgmma's shapes, registers, and shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilekit.epilogue.dsmem_reduction import DsmemReduction
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.heuristics.rules import Choice, RuleBook, Violation
from tilekit.kernels.matmul.rules import (
    K_GROUP,
    L2_PROMOTION,
    MAX_SPLIT,
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
from tilekit.tile_op.wgmma import ATOM_ROWS, MAX_N, WHOLE_COLUMNS, WORDS_OF_WHOLE, atom_layout

if TYPE_CHECKING:
    from tilekit.kernels.matmul.sm_90a.config import MatmulConfig

GROUP_ROWS = 8
"""Rows of a group, as the swizzle has them: what fewer rows than an instruction's are a multiple of."""

STAGED_HEADROOM = 32
"""Registers a consumer thread needs beside its accumulators for the staged epilogue, scale and activation included.

128 of 160, 192 of 232 and 208 of 240 assemble without a spill for every output type; 144 of 160 and 216 of 240 do not
(ptxas 13.5.37; so for the next two).
"""

DIRECT_HEADROOM = 64
"""The same for direct stores, each with an address and a predicate: 168 of 232 fits; 192 of 255, 128 of 160 spill."""

BIAS_HEADROOM = 96
"""The same with a bias, whose loads ptxas moves up: 136 of 232 fits; 160 of 255, 144 of 232 and 96 of 160 may spill.

Scales of rows or of columns are loaded like it.
"""

SCALED_BIAS_HEADROOM = 128
"""The same where columns have both a scale and a bias: 112 of 232 may spill."""

SPREAD_HEADROOM, SPREAD_TURN_HEADROOM, NARROW_SPREAD_HEADROOM = 56, 48, 64
"""The same with staged stores, where the lanes of a warp hold them for each other: with all of them, an activation and
a residual 176 of 232 fit, in turn too (`TURN_HEADROOM` comes on top), and 184 may spill; 96 of 160, and 100 may spill.

ptxas 13.0.88 and 13.5.37.
"""

SPREAD_TOTALS_HEADROOM, ROW_TOTALS_HEADROOM = 80, 8
"""The same of a Python epilogue with totals of columns: 152 of 232 and 80 of 160 fit, 160 in turn may spill. And
registers more with totals of rows: 168 of 232 fit, in turn too, and 176 with all of the above spill (13.0.88).
"""

WIDE_SHARE = 232
"""Registers of a thread of two consumers."""

TRANSPOSED_HEADROOM = 96
"""The same with direct stores of a transpose: 136 of 232 fits, 144 spill."""

TRANSPOSED_RESIDUAL_HEADROOM = 128
"""The same with a residual beside: 104 of 232 fits, 112 spill."""

TRANSPOSED_TURN_HEADROOM = 128
"""The same with scales of rows, where consumers take turns: 96 of 232 fits; 104 with gelu, and 112, spill."""

LONG_HEADROOM, LONG_SHARE_HEADROOM = 64, 128
"""The same of a Python epilogue of many steps, or of erf: 192 of 232 and of 255 spill; and where shares of a sum are
added: 128 of 232 spill."""

MATRIX_HEADROOM, MATRIX_TOTALS_HEADROOM = 128, 160
"""The same of a Python epilogue whose threads load matrices, and of one that makes totals too: 128 of 232 and 96 of 232
spill. One that loads less needs what a bias needs, and one that loads nothing no more than an activation."""

SEVERAL_TOTALS_HEADROOM, TOTALS_SHARE_HEADROOM, SEVERAL_TOTALS_SHARE_HEADROOM = 136, 144, 168
"""The same of totals of rows and columns: of several, of one where shares of a sum are added, of both. 96 of 232 fit
and 100 spill; 104 of 255 fit and 112 spill; 64 of 232 fit, and 80 of 255 spill (`LONE_HEADROOM`)."""

GROUPED_TOTALS_HEADROOM = 168
"""The same of a Python epilogue of many steps with totals of the columns of groups.

68 of 232 and 76 of 255 spill, 60 and 68 fit.
"""

LONE_HEADROOM = 16
"""Registers more of both where one consumer has 255."""

SHARE_HEADROOM = 16
"""Registers more where shares of a sum are added: 160 of 232 with direct stores spill, and 128 with a bias.

In turn, 128 with a bias spill with staged stores too, and 184 of streamed tiles with a residual. Twice as many where
streamed tiles are transposed by direct stores: 112 of 232 spill with a bias.
"""

GROUPED_ACCUMULATORS = {160: 88}, 128
"""What a thread may hold where subtiles may also be stored row by row: 92 of 160 (in clusters) and 136 of 232 spill."""

GROUPED_F32_ACCUMULATORS = {160: 64}, 96
"""The same of f32 subtiles, by a thread's registers: 72 of 160, 112 of 232 and 128 of 255 spill."""

TURN_HEADROOM = 8
"""Registers more where consumers take turns: beside 200 of 232, 128 of 160, and an instruction's 104 of 128."""

OWN_SUMS_HEADROOM = 8
"""Registers more of a Python epilogue where sums of k-blocks are scaled, although those of a k-block are free by then.

Of 500 drawn kernels with f32 scales three spilled 4 to 22 bytes: with 104 where 104 fit else, and of one consumer,
which takes twice as many, with 104 where 111 do.
"""

COPIED_ROWS = 192
"""Rows of A beyond which threads that copy them beside a B that they shift leave the consumers fewer registers."""

COPIED_ROWS_HEADROOM = 128
"""The same then: 128 and 160 of 224 spill with ptxas 13.0.88, though not with 13.5.37."""

INSTRUCTION_HEADROOM = 28
"""Registers left at launch beside one instruction's accumulators: with 128 at launch ptxas refuses n = 256 (C7602).

ptxas 13.0.88 refuses n = 208 too, and takes 200.
"""

CONSUMERS = Choice("consumers", (1, 2, 3), "a CTA has 1, 2 or 3 consumer warpgroups")
IN_FLIGHT = Choice("in_flight", (0, 1), "0 or 1")
L2_STREAM = Choice("l2_stream", (None, "a", "b"), "None, 'a' or 'b'")
PREFETCH = Choice("prefetch", tuple(range(13)), "0 to 12 k-blocks, as many as a ring may hold")
STREAM_K = Choice("stream_k", tuple(range(MAX_SPLIT + 1)), f"0 to {MAX_SPLIT} ranges of a tile")
CLUSTER_K = Choice("cluster_k", (1, 2, 4, 8), "1, 2, 4 or 8 CTAs that share a tile's sum")
SCHEDULE = Choice("schedule", ("cooperative", "pingpong"), "'cooperative' or 'pingpong'")


def _tile(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    rows, columns = config.tile
    if config.m_below_atom:
        yield from _m_below_atom(config, spec)
    elif config.consumers in CONSUMERS.values and rows % (ATOM_ROWS * config.consumers_per_tile):
        of = _takers(config)
        yield Violation("tile M", "tile", f"tile M={rows}: {of} takes a multiple of {ATOM_ROWS} rows")
    stored = stored_columns(config, spec)
    if not 0 < columns <= MAX_N or columns % stored:
        reason = f", and a row of a stored box has {stored} columns of {spec.out_dtype}" if stored > 8 else ""
        yield Violation("tile N", "tile", f"tile N={columns}: a multiple of {stored} up to {MAX_N} (one wgmma{reason})")
    elif config.cluster_k in CLUSTER_K.values and not config.m_below_atom:
        yield from _parts(config, spec, stored)


def _whole(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Instructions of whole numbers have fewer widths."""
    columns = config.tile[1]
    if spec.whole and columns not in WHOLE_COLUMNS:
        yield Violation("whole columns", "tile", f"tile N={columns} with operands of s8: {WORDS_OF_WHOLE}")


def _takers(config: MatmulConfig) -> str:
    return (
        f"each of {config.consumers} consumer warpgroups" if config.consumers_per_tile > 1 else "a consumer warpgroup"
    )


def _parts(config: MatmulConfig, spec: MatmulSpec, stored: int) -> Iterator[Violation]:
    """CTAs that share a sum each store equal parts of whole boxes, unless there are more CTAs than parts."""
    columns = config.tile[1]
    layout = atom_layout(ATOM_ROWS, columns)
    adders, part = (
        DsmemReduction.adders_of(layout, config.cluster_k),
        DsmemReduction.part_of(layout, config.cluster_k).columns,
    )
    if part % stored:
        text = f"tile N={columns}: {adders} CTAs of {config.cluster_k} store {part} columns each, in boxes of {stored}"
        yield Violation("parts", "tile", text)
    if adders < config.cluster_k and spec.functions.residual is not None:
        text = (
            f"tile N={config.tile[1]}: with a residual each of {config.cluster_k} CTAs stores a part of whole 8 columns"
        )
        yield Violation("parts of a residual", "tile", text)


def _m_below_atom(config: MatmulConfig, spec: MatmulSpec) -> Iterator[Violation]:
    """A tile of fewer rows than an instruction is one warpgroup's, and comes and goes by TMA."""
    rows = config.tile[0]
    if rows <= 0 or rows % GROUP_ROWS or config.consumers_per_tile > 1:
        of = _takers(config)
        less = f", or of {GROUP_ROWS} below that" if config.consumers_per_tile == 1 else ""
        yield Violation("tile M", "tile", f"tile M={rows}: {of} takes a multiple of {ATOM_ROWS} rows{less}")
        return
    short = f"tile M={rows}: fewer than {ATOM_ROWS} rows"
    if config.swap_ab:
        yield Violation("short and swapped", "swap_ab", f"swap_ab=True with {short}: those of a small M have no need")
    for field, none in (("split_k", 1), ("cluster_k", 1), ("stream_k", 0)):
        if getattr(config, field) != none:
            yield Violation("short shares", field, f"{field}={getattr(config, field)} with {short}: one CTA sums them")
    if spec.store != "tma" or spec.copies or spec.groups is not None or spec.functions.residual is not None:
        yield Violation("short stores", "tile", f"{short} come and go by TMA, without groups or a residual")


def _rows_behind_a(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """An instruction that reads beyond A's rows reads rows of B, which follow in a stage."""
    if not config.m_below_atom:
        return
    rows = config.tile[0]
    short = f"tile M={rows}: fewer than {ATOM_ROWS} rows"
    a, b = config.operands(spec)
    if a.major == "mn":
        yield Violation("short rows", "tile", f"{short} are loaded where K is A's contiguous dimension")
    elif b.slices * b.image_rows < ATOM_ROWS - rows:
        text = (
            f"{short} are multiplied with the {b.slices * b.image_rows} of B behind them; {ATOM_ROWS - rows} are read"
        )
        yield Violation("rows behind A", "tile", text)


def _cluster_k(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    if config.cluster_k == 1 or config.cluster_k not in CLUSTER_K.values:
        return
    shared = f"cluster_k={config.cluster_k}: CTAs that share a sum"
    if config.cluster != (1, 1):
        yield Violation("cluster_k", "cluster", f"cluster={config.cluster} with {shared} share no operands")
    if config.split_k in SPLIT_K.values[1:]:
        yield Violation("shared cluster_k", "split_k", f"split_k={config.split_k} with {shared} in one way only")
    if config.pingpong:
        yield Violation(
            "cluster_k and pingpong", "schedule", f"schedule='pingpong' with {shared} all have the same tile"
        )
    if spec.groups is not None:
        yield Violation("grouped cluster_k", "cluster_k", f"{shared}: of groups of rows, each sum has one CTA")


def _stream_k(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    if config.stream_k not in STREAM_K.values[1:]:
        return
    ranges = f"stream_k={config.stream_k}: ranges of k-blocks"
    if config.split_k in SPLIT_K.values[1:]:
        yield Violation("streamed shares", "split_k", f"split_k={config.split_k} with {ranges} divide sums twice")
    if config.cluster_k in CLUSTER_K.values[1:]:
        yield Violation(
            "streamed cluster_k", "cluster_k", f"cluster_k={config.cluster_k} with {ranges} divide sums twice"
        )
    if spec.groups is not None:
        yield Violation("streamed groups", "stream_k", f"{ranges} are cut when tiles are counted, before groups are")


def _pingpong(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    if config.pingpong and config.consumers == 1:
        yield Violation("turns", "consumers", "consumers=1 with schedule='pingpong': at least 2 take turns")


def _loads_headroom(config: MatmulConfig, spec: MatmulSpec, share: int) -> int:
    """Registers of a thread that loads what rows and columns need, of its `share`."""
    functions, narrow = spec.functions, share < WIDE_SHARE
    lone = LONE_HEADROOM if isinstance(functions, WrittenSpec) and config.consumers == 1 else 0
    shares = config.split_k > 1 or config.stream_k > 0
    if spec.store != "tma" or (config.swap_ab and functions.scale_a):
        return SCALED_BIAS_HEADROOM if functions.scale_b and functions.bias is not None else BIAS_HEADROOM + lone
    if isinstance(functions, WrittenSpec) and (functions.outputs or (narrow and shares)):
        return BIAS_HEADROOM + lone
    if isinstance(functions, WrittenSpec) and functions.reduces_columns:
        return SPREAD_TOTALS_HEADROOM + lone
    wide = SPREAD_TURN_HEADROOM if config.pingpong else SPREAD_HEADROOM
    rows = ROW_TOTALS_HEADROOM if functions.reduces else 0
    return (NARROW_SPREAD_HEADROOM if narrow else wide) + rows + lone


def _headroom(config: MatmulConfig, spec: MatmulSpec, share: int) -> int:
    """Registers that a thread's epilogue takes of its `share`."""
    needs = [STAGED_HEADROOM]
    functions = spec.functions
    if spec.components.functions is not None:
        needs.append(MATRIX_HEADROOM)
    if isinstance(functions, WrittenSpec) and functions.long:
        needs.append(LONG_SHARE_HEADROOM if config.split_k > 1 or config.stream_k else LONG_HEADROOM)
    if isinstance(functions, WrittenSpec) and functions.loads_matrices:
        needs.append(MATRIX_TOTALS_HEADROOM if functions.reduces else MATRIX_HEADROOM)
    if isinstance(functions, WrittenSpec) and functions.reduces:
        several, shares = len(functions.graph.totals) > 1, config.split_k > 1 or config.stream_k > 0
        if several:
            lone = LONE_HEADROOM if config.consumers == 1 else 0
            needs.append(SEVERAL_TOTALS_SHARE_HEADROOM + lone if shares else SEVERAL_TOTALS_HEADROOM)
        elif shares:
            needs.append(TOTALS_SHARE_HEADROOM)
        if spec.groups is not None and functions.reduces_columns and functions.long:
            needs.append(GROUPED_TOTALS_HEADROOM + (LONE_HEADROOM if config.consumers == 1 else 0))
    if functions.loads:
        needs.append(_loads_headroom(config, spec, share))
    if spec.store == "direct":
        needs.append(TRANSPOSED_HEADROOM if config.swap_ab else DIRECT_HEADROOM)
        if config.swap_ab and functions.residual is not None:
            needs.append(TRANSPOSED_RESIDUAL_HEADROOM)
        if config.swap_ab and config.pingpong and functions.scale_a:
            needs.append(TRANSPOSED_TURN_HEADROOM)
    a, b = config.copy_plans(spec)
    if a is not None and b is not None and b.shifts and config.tile[0] > COPIED_ROWS:
        needs.append(COPIED_ROWS_HEADROOM)
    residual = config.stream_k and functions.residual is not None
    tight = spec.store == "direct" or (config.pingpong and (functions.loads or residual))
    ways = 2 if config.stream_k and config.swap_ab and spec.store == "direct" else 1
    return max(needs) + (ways * SHARE_HEADROOM if (config.split_k > 1 or config.stream_k) and tight else 0)


def _registers(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    rows, columns = config.tile
    plan = config.warps(chip, spec)
    launch = plan.launch_registers
    share = plan["mma"].registers or launch
    turns = TURN_HEADROOM if config.pingpong else 0
    limit = share - _headroom(config, spec, share) - turns
    if spec.groups is not None:
        narrow, wide = GROUPED_F32_ACCUMULATORS if spec.out_dtype.bits == 32 else GROUPED_ACCUMULATORS
        limit = min(limit, narrow.get(share, wide))
    if columns // 2 > launch - INSTRUCTION_HEADROOM - turns:
        yield Violation(
            "launch registers",
            "tile",
            f"tile N={columns} with {config.consumers} consumers: one instruction's {columns // 2} accumulators do not "
            f"fit the {launch} registers a thread is launched with",
        )
    held = config.sum_registers(spec)
    loads = isinstance(spec.functions, WrittenSpec) and spec.functions.loads
    beside = OWN_SUMS_HEADROOM * (1 if config.consumers > 1 else 2) * loads
    if spec.own_sums and config.accumulators + beside <= limit:  # those of a k-block are free when the epilogue begins
        limit = share - STAGED_HEADROOM - turns
    if held > limit:
        promoted = ", with those of a k-block apart," if spec.promoted else ""
        yield Violation(
            "accumulators",
            "tile",
            f"tile {rows}x{columns} over {config.consumers_per_tile} consumers: {held} accumulators a thread{promoted} "
            f"are {held - limit} more than fit its {share} registers beside the epilogue",
        )


def _promotion(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    if spec.promoted and config.in_flight != 0:
        text = f"in_flight={config.in_flight}: sums that are promoted are waited for after every k-block"
        yield Violation("promotion", "in_flight", text)
    if spec.promoted and config.k_group > 1:
        text = f"k_group={config.k_group}: sums are promoted every 128 products, a slice of K"
        yield Violation("promoted slices", "k_group", text)


def _prefetch(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    if not config.prefetch:
        return
    if spec.groups is not None:
        yield Violation(
            "first tile", "prefetch", f"prefetch={config.prefetch}: which tile is a CTA's first is read from memory"
        )
    if spec.b_load != "tma":
        yield Violation(
            "prefetch by TMA", "prefetch", f"prefetch={config.prefetch}: b is copied in pieces of {spec.b_load} bytes"
        )


def _values(field: str, config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Sequence[Any]:
    if field == "tile":
        rows = (*range(GROUP_ROWS, ATOM_ROWS, GROUP_ROWS), *range(ATOM_ROWS, 769, ATOM_ROWS))
        return [(m, n) for m in rows for n in range(8, MAX_N + 1, 8)]
    return common_values(field, config, chip, spec)


def _least(config: MatmulConfig) -> str:
    return f"tile=({ATOM_ROWS * config.consumers_per_tile}, 64), cluster=(1, 1), k_group=1, output_buffers=1"


RULES = RuleBook(
    phases=(
        (
            *(CONSUMERS, SCHEDULE, _pingpong, CLUSTER_K, _cluster_k, STREAM_K, _stream_k, cluster_rule, SWAP_AB),
            *(
                K_GROUP,
                OUTPUT_BUFFERS,
                IN_FLIGHT,
                PREFETCH,
                SPLIT_K,
                RASTER_ORDER,
                raster_rule,
                L2_PROMOTION,
            ),
            *(L2_STREAM, profile_rule, grouped_rule, _promotion, _tile, _whole, whole_rule),
        ),
        (slice_rule, found_rule, copies_rule, _prefetch, _rows_behind_a, written_rule, own_rule),
        (_registers, shared_memory_rule),
    ),
    values=_values,
    fallbacks=("tile", "cluster", "k_group", "output_buffers"),
    least=_least,
)
"""Fields and the tile by themselves; the tile in its cluster; registers and shared memory."""
