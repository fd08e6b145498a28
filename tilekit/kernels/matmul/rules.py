"""The rules that the configs of every chip have; a chip's own stand in its folder, with the table of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilekit.assembly.writer import MAX_PROFILE
from tilekit.heuristics.rules import Choice, Violation
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.tma import SHARED_ALIGNMENT

if TYPE_CHECKING:
    from tilekit.kernels.matmul.config import KernelConfig

FRAGMENT_COLUMNS = 8
"""Columns of an accumulator fragment: what the steps of a matrix instruction's n are."""

BOX_BYTES = 16
"""Bytes of which a row of a copied box is a multiple (cuTensorMapEncodeTiled)."""

MAX_SPLIT = 64
"""Shares of a sum beyond which their adding costs more than their computing."""

OUTPUT_BUFFERS = Choice("output_buffers", tuple(range(1, 9)), "1 to 8")
L2_PROMOTION = Choice("l2_promotion", (None, "256B", "128B", "64B"), "None, '64B', '128B' or '256B'")
K_GROUP = Choice("k_group", (1, 2, 4), "1, 2 or 4 slices of 128 bytes in a stage")
SWAP_AB = Choice("swap_ab", (False, True), "True or False")
RASTER_ORDER = Choice("raster_order", ("m", "n"), "'m' to walk tiles down M first, 'n' along N")
SPLIT_K = Choice("split_k", tuple(range(1, MAX_SPLIT + 1)), f"1 to {MAX_SPLIT}")


def cluster_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """A cluster has as many CTAs as the chip takes."""
    if min(config.cluster) < 1 or config.cluster_size > chip.max_cluster:
        yield Violation("cluster", "cluster", f"cluster={config.cluster}: 1 to {chip.max_cluster} CTAs in all")


def profile_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Times are noted of some tiles, or of none."""
    if not 0 <= config.profile_tiles <= MAX_PROFILE:
        text = f"profile_tiles={config.profile_tiles}: 0 to {MAX_PROFILE}"
        yield Violation("profile_tiles", "profile_tiles", text)


def grouped_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Groups of rows have a schedule of their own, made from their bounds, which shares no sums and claims nothing."""
    if spec.groups is not None and config.split_k in SPLIT_K.values[1:]:
        text = f"split_k={config.split_k}: of groups of rows, each sum has one CTA"
        yield Violation("grouped sums", "split_k", text)
    if spec.groups is not None and config.raster_order == "n":
        yield Violation("grouped order", "raster_order", "raster_order='n': groups of rows are walked down M")
    if spec.groups is not None and config.claims_tiles:
        yield Violation("grouped claims", "clc_stages", "claims of tiles: groups of rows have a static schedule")


def written_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Threads that reach rows by themselves have tiles that end where the next begin; totals have whole rows."""
    functions = spec.functions
    if functions.reduces and config.swap_ab:
        yield Violation("totals of the transpose", "swap_ab", "swap_ab=True: totals are of rows that a warp has whole")
    if functions.reduces and len(config.output(spec).layout.parts) > 1:
        rows, columns = config.tile
        text = f"tile {rows}x{columns}: totals are of rows that a warp has whole, and these lie in two parts"
        yield Violation("totals in parts", "tile", text)
    if functions.visits_rows and config.cluster_k > 1:
        text = f"cluster_k={config.cluster_k}: CTAs that share a sum store parts of rows, which threads do not reach"
        yield Violation("rows in parts", "cluster_k", text)
    if functions.visits_rows and config.m_below_atom:
        text = f"tile M={config.tile[0]}: threads that store for themselves have whole instructions' rows"
        yield Violation("short rows of threads", "tile", text)


def whole_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Sums of whole numbers are handed on as their bits, and streamed shares are added to f32 in place."""
    if spec.whole and config.stream_k:
        text = (
            f"stream_k={config.stream_k} with operands of s8: shares of streamed tiles are added in f32, which rounds"
        )
        yield Violation("whole shares", "stream_k", text)


def own_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Components of the caller's stand where the family's would."""
    own = spec.components
    if spec.own_ranges and config.split_k > 1:
        text = f"split_k={config.split_k}: sums of tiles are of different lengths, and each has one CTA"
        yield Violation("shares of ranges", "split_k", text)
    if not own:
        return
    if own.scheduler is not None and config.claims_tiles:
        text = f"clc_stages={config.clc_stages}: tiles are the caller's scheduler's, and none are claimed"
        yield Violation("claims of another's tiles", "clc_stages", text)
    if own.scheduler is not None and config.stream_k:
        text = f"stream_k={config.stream_k}: tiles are the caller's scheduler's, and none are streamed"
        yield Violation("streams of another's tiles", "stream_k", text)
    if own.scheduler is not None and config.numbers_starts:
        text = f"split_k={config.split_k}: shares wait for clusters that are numbered, which is the family's schedule"
        yield Violation("shares of another's tiles", "split_k", text)
    if own.epilogue is not None and config.swap_ab:
        yield Violation("an epilogue of the transpose", "swap_ab", "swap_ab=True: the caller's epilogue is upright")
    if own.epilogue is not None and config.cluster_k > 1:
        text = f"cluster_k={config.cluster_k}: the caller's epilogue stores whole tiles, and each CTA has a part"
        yield Violation("an epilogue of parts", "cluster_k", text)
    if own.epilogue is not None and config.m_below_atom:
        text = f"tile M={config.tile[0]}: the caller's epilogue stores whole instructions' rows"
        yield Violation("short rows of an epilogue", "tile", text)
    if own.functions is not None and config.swap_ab:
        yield Violation("functions of the transpose", "swap_ab", "swap_ab=True: the caller's functions are upright")
    if own.functions is not None and config.cluster_k > 1:
        text = f"cluster_k={config.cluster_k}: the caller's functions may have rows, of which each CTA stores a part"
        yield Violation("functions of parts", "cluster_k", text)
    if own.functions is not None and config.m_below_atom:
        text = f"tile M={config.tile[0]}: the caller's functions may have rows, and so whole instructions"
        yield Violation("short rows of functions", "tile", text)
    if own.payload is not None and config.swap_ab:
        yield Violation("a payload of the transpose", "swap_ab", "swap_ab=True: the caller's payload is upright")
    if own.payload is not None and config.m_below_atom:
        text = f"tile M={config.tile[0]}: the caller's payload has factors of whole instructions' rows"
        yield Violation("short rows of a payload", "tile", text)
    if own.consumers is not None and config.pingpong:
        text = "schedule='pingpong': the caller's consumers divide tiles, of which the plan has one at a time"
        yield Violation("turns of another's", "schedule", text)


def raster_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """At least one cluster row is walked at a time."""
    if config.raster_group is not None and config.raster_group < 1:
        yield Violation("raster_group", "raster_group", f"raster_group={config.raster_group}: at least 1, or None")


def copies_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """What threads copy, they copy for their own CTA, one slice of K a stage, in whole turns."""
    if spec.copies and config.cluster[0] * config.cluster[1] > 1:
        yield Violation(
            "copies in a cluster",
            "cluster",
            f"cluster={config.cluster}: operands that threads copy are shared with no other CTA",
        )
    if spec.copies and config.k_group > 1:
        yield Violation("copies of slices", "k_group", f"k_group={config.k_group}: threads copy one slice of K a stage")
    for copies in config.copy_plans(spec):
        if copies is not None and copies.block_lines % copies.unit:
            rows, columns = config.tile
            yield Violation(
                f"copies of {copies.tile.name.upper()}",
                "tile",
                f"tile {rows}x{columns}: {copies.tile.name.upper()}, with addresses in multiples of {copies.width} "
                f"bytes, is copied in {copies.unit} rows at once",
            )


def slice_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """CTAs that share an operand fetch equal slices of it: of its rows, or MN-major of its chunks or of their rows."""
    (rows, columns), (cluster_m, cluster_n) = config.tile, config.cluster
    for tile, participants in zip(config.operands(spec), config.multicast, strict=True):
        chunks = tile.image_rows // tile.chunk
        lines = tile.image_rows * tile.row_bytes // SHARED_ALIGNMENT
        parts = (lines,) if tile.major == "k" else (tile.slice_k,) if tile.rest else (chunks, tile.slice_k)
        if all(count % participants for count in parts):
            yield Violation(
                f"slices of {tile.name.upper()}",
                "tile",
                f"tile {rows}x{columns} in a {cluster_m}x{cluster_n} cluster: {tile.name.upper()}'s "
                f"{tile.image_rows} rows are fetched in {participants} equal slices",
            )


def found_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """Tiles of what the copy engine looks for along K begin at copies: a copy has channels of one place."""
    finds = spec.finds[:: -1 if config.swap_ab else 1]
    for tile, found in zip(config.operands(spec), finds, strict=True):
        if found and tile.major == "mn" and (tile.rows % tile.chunk or spec.place_channels % tile.chunk):
            rows, columns = config.tile
            text = f"tile {rows}x{columns}: {tile.name.upper()} is copied in whole {tile.chunk} channels of a place"
            yield Violation(f"copies of places of {tile.name.upper()}", "tile", text)


def shared_memory_rule(config: KernelConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    """The stages fit beside everything else in shared memory."""
    budget, least = config.stage_budget(chip, spec), config.least_stages
    if budget < least:
        memory = config.memory(spec)
        inputs, output = least * memory.stage_bytes, memory.output_bytes
        yield Violation(
            "shared memory",
            "tile",
            f"shared memory: {least} stage{'s' if least > 1 else ''} of {memory.stage_bytes} B and {output} B of "
            f"output subtiles are {memory.size(least) - chip.shared_bytes} B over the {chip.shared_bytes} B "
            f"of a CTA; the {'input stages' if inputs > output else 'output subtiles'} are the largest object",
        )
    elif config.stages is not None and not least <= config.stages <= budget:
        over = config.memory(spec).size(config.stages) - chip.shared_bytes
        why = (
            config.least_stages_reason
            if config.stages < least
            else f"{over} B over the {chip.shared_bytes} B of a CTA"
            if over > 0
            else "more hide no more latency"
        )
        yield Violation("stages", "stages", f"stages={config.stages}: {least} to {budget} fit ({why})")


def common_values(field: str, config: KernelConfig, chip: Target, spec: MatmulSpec) -> Sequence[Any]:
    """Values to suggest of the fields that these rules are about."""
    if field == "cluster":
        return [(m, n) for m in range(1, chip.max_cluster + 1) for n in range(1, chip.max_cluster // m + 1)]
    if field == "stages":
        return range(1, config.stage_budget(chip, spec) + 1)
    return {"raster_group": [1], "profile_tiles": [0, MAX_PROFILE]}[field]


def stored_columns(config: KernelConfig, spec: MatmulSpec) -> int:
    """Columns that the epilogue stores at once: 8 of a fragment, but a row of a box has at least 16 bytes.

    Transposed, the columns are the box's rows.
    """
    boxed = spec.store == "tma" and not config.swap_ab
    return max(FRAGMENT_COLUMNS, BOX_BYTES // spec.out_dtype.bytes if boxed else 0)
