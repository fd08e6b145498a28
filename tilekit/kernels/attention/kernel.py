"""An attention kernel: the components that a spec and a config select, traced by the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32
from tilekit.assembly.writer import Parameter, Role, Writer
from tilekit.drivers.attention import Attention
from tilekit.drivers.head_loads import Loaders
from tilekit.drivers.profiler import TileProfiler
from tilekit.drivers.turns import NoTurns, Turns
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.epilogue.heads import HeadEpilogue, LogSums, PackedLogSums
from tilekit.epilogue.shared_heads import SharedHeadEpilogue
from tilekit.kernels.attention.config import ROWS, AttentionConfig
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target
from tilekit.tile_io.heads import GroupLoader, HeadLoader, HeadStorer, KeyLoader
from tilekit.tile_io.key_cache import BlockTable, CacheLoader
from tilekit.tile_io.packed_heads import PackedHeadStorer
from tilekit.tile_op.attention_wgmma import Scores, Weighted
from tilekit.tile_op.key_lengths import KeyLengths, PackedLengths
from tilekit.tile_op.key_range import KeyRange
from tilekit.tile_op.online_softmax import OnlineSoftmax, Softcap
from tilekit.tile_op.tensor_memory import TensorRegion
from tilekit.tile_pipeline.mbarrier_sync import MbarrierSync, ReleasedBy
from tilekit.tile_pipeline.payload import Payload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_schedule.heads import HeadScheduler
from tilekit.tile_schedule.packed_heads import PackedHeadScheduler
from tilekit.tiles.call import Call, Schedule
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import ATOM_ROWS, OperandTile

FIRST_TURN = 1
"""Named barriers of turns; those of the epilogue come behind."""

CACHE_REGISTERS = 56
"""Of the load role where each batch entry has its own keys, and tables say where: of 24 it spills."""

COPIES_AHEAD = 8
"""Of a stage that is loaded by a table: more, and the load role spills; where heads share a tile, it has registers."""

MOST_ACCUMULATORS = 208
"""What the plan is asked for: the load role gives up all but 24 registers."""


@dataclass(frozen=True)
class AttentionText:
    """A traced kernel: its text, and what a launch must know about it.

    Attributes
    ----------
    name, assembly, parameters, schedule, threads, cluster, shared_bytes, roles, shared, profile
        As of a matmul's.
    tensor
        Regions of tensor memory.
    """

    name: str
    assembly: str
    parameters: tuple[Parameter, ...]
    schedule: Callable[[Call], Schedule]
    threads: int
    shared_bytes: int
    roles: tuple[Role, ...]
    shared: tuple[SharedArray, ...]
    cluster: int = 1
    profile: TileProfiler | None = None
    tensor: tuple[TensorRegion, ...] = ()


@dataclass(frozen=True)
class OwnAttention:
    """What of a kernel of attention is the caller's own.

    Attributes
    ----------
    name
        The entry's symbol.
    change
        Returns the driver to trace, of the writer and the driver with all its components: another component in the
        place of one, or another driver.
    """

    name: str
    change: Callable[[Writer, Any], Any]


def trace(
    spec: AttentionSpec, config: AttentionConfig, target: Target, own: OwnAttention | None = None
) -> AttentionText:
    """Trace the kernel that `spec` and `config` describe, with the caller's own components where they are given.

    Raises
    ------
    ConfigError
        Listing every rule the config violates.
    """
    config.check(spec, target)
    plan = WarpPlan.register_accumulators(
        target,
        consumers=config.warpgroups,
        accumulators=MOST_ACCUMULATORS,
        counts=spec.own_keys,
        copying=CACHE_REGISTERS,
    )
    # The thread that loads also claims tiles, and says which.
    may = {role.name: role.may | ({"memory", "store"} if role.name == "load" else set()) for role in plan.roles}
    plan = replace(plan, roles=tuple(replace(role, may=frozenset(may[role.name])) for role in plan.roles))
    w = Writer(
        spec.name if own is None else own.name, target=target, threads=plan.threads, profile_tiles=config.profile_tiles
    )
    kernel = compose(w, spec, config, plan)
    if own is not None:
        kernel = own.change(w, kernel)
    kernel.trace(w)
    return AttentionText(
        name=w.name,
        assembly=w.text(),
        parameters=tuple(w.parameters),
        schedule=kernel.scheduler.schedule,
        threads=plan.threads,
        shared_bytes=w.shared.size,
        roles=tuple(w.roles),
        shared=tuple(w.shared.arrays),
        profile=kernel.profiler,
    )


def compose(w: Writer, spec: AttentionSpec, config: AttentionConfig, plan: WarpPlan) -> Attention:
    """Select the components."""
    cluster = Cluster.read(w, 1, 1)
    # Of heads in one tile, rows beyond the last whole query are loaded, since the instruction reads them.
    loaded = -(-config.queries // max(1, spec.group))
    rows = -(-loaded * max(1, spec.group) // ATOM_ROWS) * ATOM_ROWS
    queries = head_tile("q", spec, rows, spec.head_dim)
    keys = head_tile("k", spec, config.keys, spec.head_dim)
    values = head_tile("v", spec, config.keys, spec.value_dim)
    output = head_tile("o", spec, config.queries, spec.value_dim)
    first = query_loader(w, spec, queries, positions=loaded)
    loaders: Loaders = first, *key_loaders(w, spec, keys, values)
    syncs = [
        head_sync(w, plan, cluster, loader, stages, name=loader.tile.name)
        for loader, stages in zip(loaders, (config.query_stages, config.stages, config.stages), strict=True)
    ]
    factor = w.parameter("factor", F32, lambda call: call.number("factor"))
    softcap = Softcap(w.parameter("squeeze", F32, lambda call: call.number("squeeze"))) if spec.softcap else None
    group = max(1, spec.group)
    positions = config.queries // group
    claims = (plan["load"], plan["mma"]) if config.claims else None
    scheduler, key_range = head_order(w, spec, queries=positions, keys=config.keys, claims=claims)
    # Behind all barriers, since tiles begin at multiples of 1024 bytes.
    rings = [head_ring(w, loader.tile.name, loader.tile, sync) for loader, sync in zip(loaders, syncs, strict=True)]
    common: dict[str, Any] = {
        "queries": key_range.query_count,
        "factor": factor,
        "log_sums": head_logarithms(w, spec),
    }
    epilogue: HeadEpilogue | SharedHeadEpilogue
    if isinstance(scheduler, HeadScheduler) and spec.group:
        epilogue = SharedHeadEpilogue(
            w,
            dtype=spec.dtype,
            columns=spec.value_dim,
            scheduler=scheduler,
            group=group,
            positions=positions,
            barrier=FIRST_TURN + config.warpgroups,
            **common,
        )
    else:
        place = rings[0].tiles["q"]
        if config.own_output:
            place = w.shared.allocate("output", size=output.bytes, alignment=output.alignment, kind="tile")
        epilogue = HeadEpilogue(
            output,
            place,
            head_storer(w, spec, output, rows=ROWS),
            heads=scheduler.heads,
            first_barrier=FIRST_TURN + config.warpgroups,
            **common,
        )
    takes_turns = config.turns and config.warpgroups > 1
    return Attention(
        warps=plan,
        cluster=cluster,
        queries=rings[0],
        keys=rings[1],
        values=rings[2],
        loaders=loaders,
        scores=Scores(queries, keys),
        weighted=Weighted(values),
        softmax=OnlineSoftmax(w, factor, slack=config.slack, early=config.early_weights(spec)),
        range=key_range,
        scheduler=scheduler,
        epilogue=epilogue,
        turns=Turns(warpgroups=config.warpgroups, first_barrier=FIRST_TURN) if takes_turns else NoTurns(),
        softcap=softcap,
        output_in_queries=not config.own_output and not spec.group,
        looks_ahead=config.ahead,
        profiler=TileProfiler.of(w, {"load": 1, "mma": config.warpgroups, "epilogue": config.warpgroups}),
    )


def head_order(
    w: Writer, spec: AttentionSpec, *, queries: int, keys: int, claims: tuple[Role, Role] | None = None
) -> tuple[HeadScheduler | PackedHeadScheduler, KeyRange]:
    """Which queries a CTA has next, `queries` of them in a tile, and which `keys` of a block these attend to."""
    group = max(1, spec.group)
    sized: dict[str, Any] = {"queries": queries, "keys": keys, "group": group}
    sides: dict[str, Any] = {"left": spec.left, "right": spec.right}
    if spec.packed:
        key_range = KeyRange(w, **sized, **sides, lengths=PackedLengths())
        counts = {"all_queries": key_range.query_count, "all_keys": key_range.key_count}
        return PackedHeadScheduler(w, queries=queries, uneven=spec.right, claims=claims, **counts), key_range
    uneven = spec.right and not spec.group
    scheduler = HeadScheduler(w, **sized, uneven=uneven, shares=spec.group > 0, claims=claims if uneven else None)
    lengths = KeyLengths(w) if spec.lengths else None
    return scheduler, KeyRange(w, **sized, **sides, shares=scheduler.shares, lengths=lengths)


def head_storer(w: Writer, spec: AttentionSpec, tile: OperandTile, *, rows: int) -> HeadStorer:
    """What stores so many rows of the output at a time."""
    return (PackedHeadStorer if spec.packed else HeadStorer)(w, tile, rows=rows)


def head_logarithms(w: Writer, spec: AttentionSpec) -> LogSums | None:
    """What stores the logarithms of the rows' sums, where they are asked for."""
    return (PackedLogSums if spec.packed else LogSums)(w) if spec.lse else None


def query_loader(w: Writer, spec: AttentionSpec, tile: OperandTile, *, positions: int) -> HeadLoader | GroupLoader:
    """What loads queries: of one head, or so many `positions` of heads that share keys."""
    repeated = spec.repeated_in("q")
    if spec.group:
        return GroupLoader(w, tile, group=spec.group, positions=positions, **repeated)
    return HeadLoader(w, tile, "q", **repeated)


def key_loaders(
    w: Writer, spec: AttentionSpec, keys: OperandTile, values: OperandTile
) -> tuple[KeyLoader, KeyLoader] | tuple[CacheLoader, CacheLoader]:
    """What loads keys and values: of whole arrays, or of caches and packed sequences, which end anywhere."""
    by_keys, by_values = spec.repeated_in("k"), spec.repeated_in("v")
    if not spec.own_keys:
        return KeyLoader(w, keys, "k", **by_keys), KeyLoader(w, values, "v", **by_values)
    table = BlockTable(w, spec.page) if spec.page else None
    copies = keys.rows if spec.group else COPIES_AHEAD
    return (
        CacheLoader(w, keys, "k", table, zeros=False, ahead=max(1, copies // keys.slices), **by_keys),
        CacheLoader(w, values, "v", table, zeros=True, ahead=max(1, copies // values.slices), **by_values),
    )


def head_tile(name: str, spec: AttentionSpec, rows: int, elements: int) -> OperandTile:
    """The image of positions by elements of a head: in slices of 128 bytes, or of 64 where those do not divide it."""
    row = 128 if elements * spec.dtype.bytes % 128 == 0 else 64
    slices = elements * spec.dtype.bytes // row
    return OperandTile(name, spec.dtype, rows, "k", slices=slices, swizzle_bytes=row)  # type: ignore[arg-type]


def head_sync(
    w: Writer,
    plan: WarpPlan,
    cluster: Cluster,
    loader: HeadLoader | GroupLoader | CacheLoader,
    stages: int,
    *,
    name: str,
    released_by: ReleasedBy = "threads",
) -> MbarrierSync:
    """The barriers of a ring of what `loader` brings."""
    return MbarrierSync(
        w,
        name,
        stages=stages,
        stage_bytes=loader.bytes,
        producers=(plan["load"],),
        consumers=(plan["mma"],),
        cluster=cluster,
        released_by=released_by,
    )


def head_ring(w: Writer, name: str, tile: OperandTile, sync: MbarrierSync) -> TilePipeline:
    """A ring with one tile a stage."""
    payload = Payload([tile], k=tile.k)
    return TilePipeline(payload, payload.allocate(w.shared, name, sync.stages), stages=sync.stages, sync=sync)
