"""An attention kernel: the components that a spec and a config select, traced by the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import F32
from tilekit.assembly.writer import Parameter, Role, Writer
from tilekit.drivers.attention import Attention
from tilekit.drivers.profiler import TileProfiler
from tilekit.drivers.turns import NoTurns, Turns
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.epilogue.heads import HeadEpilogue, LogSums
from tilekit.kernels.attention.config import ROWS, AttentionConfig
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target
from tilekit.tile_io.heads import HeadLoader, HeadStorer
from tilekit.tile_op.attention_wgmma import Scores, Weighted
from tilekit.tile_op.key_range import KeyRange
from tilekit.tile_op.online_softmax import OnlineSoftmax, Softcap
from tilekit.tile_pipeline.mbarrier_sync import MbarrierSync
from tilekit.tile_pipeline.payload import Payload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_schedule.heads import HeadScheduler
from tilekit.tiles.call import Call, Schedule
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import OperandTile

FIRST_TURN = 1
"""Named barriers of turns; those of the epilogue come behind."""

MOST_ACCUMULATORS = 208
"""What the plan is asked for: the load role gives up all but 24 registers."""


@dataclass(frozen=True)
class AttentionText:
    """A traced kernel: its text, and what a launch must know about it.

    Attributes
    ----------
    name, assembly, parameters, schedule, threads, cluster, shared_bytes, roles, shared, profile
        As of a matmul's.
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


def trace(spec: AttentionSpec, config: AttentionConfig, target: Target) -> AttentionText:
    """Trace the kernel that `spec` and `config` describe.

    Raises
    ------
    ConfigError
        Listing every rule the config violates.
    """
    config.check(spec, target)
    plan = WarpPlan.register_accumulators(target, consumers=config.warpgroups, accumulators=MOST_ACCUMULATORS)
    w = Writer(spec.name, target=target, threads=plan.threads)
    kernel = compose(w, spec, config, plan)
    kernel.trace(w)
    return AttentionText(
        name=spec.name,
        assembly=w.text(),
        parameters=tuple(w.parameters),
        schedule=kernel.scheduler.schedule,
        threads=plan.threads,
        shared_bytes=w.shared.size,
        roles=tuple(w.roles),
        shared=tuple(w.shared.arrays),
    )


def compose(w: Writer, spec: AttentionSpec, config: AttentionConfig, plan: WarpPlan) -> Attention:
    """Select the components."""
    cluster = Cluster.read(w, 1, 1)
    queries = _tile("q", spec, config.queries, spec.head_dim)
    keys = _tile("k", spec, config.keys, spec.head_dim)
    values = _tile("v", spec, config.keys, spec.value_dim)
    output = _tile("o", spec, config.queries, spec.value_dim)
    rings = [
        _ring(w, plan, cluster, tile, stages)
        for tile, stages in ((queries, 1), (keys, config.stages), (values, config.stages))
    ]
    place = rings[0].tiles["q"]
    if config.own_output:
        place = w.shared.allocate("output", size=output.bytes, alignment=output.alignment, kind="tile")
    loaders = HeadLoader(w, queries, "q"), HeadLoader(w, keys, "k"), HeadLoader(w, values, "v")
    storer = HeadStorer(w, output, rows=ROWS)
    factor = w.parameter("factor", F32, lambda call: call.number("factor"))
    softcap = Softcap(w.parameter("squeeze", F32, lambda call: call.number("squeeze"))) if spec.softcap else None
    key_range = KeyRange(w, queries=config.queries, keys=config.keys, left=spec.left, right=spec.right)
    scheduler = HeadScheduler(w, queries=config.queries, uneven=spec.right)
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
        softmax=OnlineSoftmax(w, factor),
        range=key_range,
        scheduler=scheduler,
        epilogue=HeadEpilogue(
            output,
            place,
            storer,
            queries=key_range.query_count,
            heads=scheduler.heads,
            factor=factor,
            log_sums=LogSums(w) if spec.lse else None,
            first_barrier=FIRST_TURN + config.warpgroups,
        ),
        turns=Turns(warpgroups=config.warpgroups, first_barrier=FIRST_TURN) if takes_turns else NoTurns(),
        softcap=softcap,
        output_in_queries=not config.own_output,
    )


def _tile(name: str, spec: AttentionSpec, rows: int, elements: int) -> OperandTile:
    """The image of positions by elements of a head: in slices of 128 bytes, or of 64 where those do not divide it."""
    row = 128 if elements * spec.dtype.bytes % 128 == 0 else 64
    slices = elements * spec.dtype.bytes // row
    return OperandTile(name, spec.dtype, rows, "k", slices=slices, swizzle_bytes=row)  # type: ignore[arg-type]


def _ring(w: Writer, plan: WarpPlan, cluster: Cluster, tile: OperandTile, stages: int) -> TilePipeline:
    payload = Payload([tile], k=tile.k)
    sync = MbarrierSync(
        w,
        tile.name,
        stages=stages,
        stage_bytes=tile.transfer_bytes,
        producers=(plan["load"],),
        consumers=(plan["mma"],),
        cluster=cluster,
    )
    return TilePipeline(payload, payload.allocate(w.shared, tile.name, stages), stages=stages, sync=sync)
