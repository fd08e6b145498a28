"""The one composition of the matmul: which components a spec and a config select, on every chip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.drivers.consumer_schedule import Cooperative, PingPong
from tilekit.drivers.interleaved import Interleaved
from tilekit.drivers.load_order import LoadOrder
from tilekit.drivers.multistage import Multistage
from tilekit.drivers.ping_pong import PingPongWaves
from tilekit.drivers.profiler import TileProfiler
from tilekit.drivers.together import Together
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.drivers.warp_specialized import TileScheduler, WarpSpecialized
from tilekit.epilogue.fixup import Fixup
from tilekit.epilogue.split_k_reduction import SplitKReduction
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.memory import RING
from tilekit.kernels.matmul.output import FIRST_NAMED_BARRIER, declare_columns, declare_k, declare_rows
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.payload_loader import StandardLoader
from tilekit.tile_io.prefetch import L2Prefetch
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_schedule.clc import ClcScheduler
from tilekit.tile_schedule.dies import DieOrder
from tilekit.tile_schedule.grouped import GroupedScheduler
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.start_order import StartOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tile_schedule.stream_k import StreamKScheduler
from tilekit.tiles.cluster import Cluster

TOGETHER: dict[str, Callable[..., Together]] = {"ping_pong": PingPongWaves, "interleaved": Interleaved}
"""The drivers without a ring that a config may name."""

RINGS: dict[str, type[WarpSpecialized]] = {"multistage": Multistage, "warp_specialized": WarpSpecialized}
"""Those with one."""


def compose(w: Writer, spec: MatmulSpec, config: KernelConfig, target: Target) -> WarpSpecialized | Together:
    """Declare the kernel's parameters and shared memory, and return its components.

    The order of declarations is that of the parameters and of the memory map; `KernelMemory.of` says the latter before.
    """
    chip = platform(target).components
    plan = config.warps(target, spec)
    stages = config.resolved_stages(target, spec)
    cluster = Cluster.read(w, *config.cluster, group=config.cta_group, k=config.cluster_k)

    payload = config.payload(spec)
    op = config.instruction(spec)
    tiles = payload.allocate(w.shared, RING, stages)
    load_a, load_b = chip.loaders(w, spec, config, plan, cluster, stages)
    k = declare_k(w)
    scheduler = rows = None
    if chip.SCHEDULES_FIRST:
        rows = declare_rows(w) if spec.groups is not None else None
        scheduler = _scheduler(w, spec, config, plan, cluster=cluster, k=k, rows=rows, starts=None)
    further = spec.further_loaders(w, op, payload, swapped=config.swap_ab, role=plan.get("load") or plan["mma"])
    loader = StandardLoader(w, load_a, load_b, tiles, cluster, further)
    output = config.output(spec).build(
        w,
        columns=declare_columns(w),
        rows=rows,
        stores=plan.get("epilogue") or plan["mma"],
        loads=plan.get("epilogue_load"),
        shares=Fixup if config.stream_k else SplitKReduction if config.split_k > 1 else None,
        cluster=cluster,
    )
    sync = None if config.driver in TOGETHER else chip.sync(w, spec, config, plan, cluster, stages)
    inputs = None if sync is None else TilePipeline(payload, tiles, stages=stages, sync=sync)
    accumulators = chip.accumulators(w, op, spec, config, plan, cluster, tiles, inputs)
    order = None
    if config.orders_loads(spec):
        order = LoadOrder(w, stages=stages, k_block=payload.k, loads=plan["load"], waits=plan["epilogue_load"])
    starts = StartOrder(w, cluster) if config.numbers_starts else None
    if scheduler is None:
        scheduler = _scheduler(w, spec, config, plan, cluster=cluster, k=k, rows=output.rows, starts=starts)
    profiler = None
    if config.profile_tiles:
        profiler = TileProfiler(w, tiles=config.profile_tiles, activities=plan.activities)
    prefetch = None
    if config.prefetch and isinstance(scheduler, StaticScheduler):
        prefetch = L2Prefetch(scheduler, loader, "a" if config.swap_ab else "b", config.prefetch, payload.k)
    turns = PingPong(plan["mma"], first_barrier=FIRST_NAMED_BARRIER + config.consumers) if config.pingpong else None
    parts: dict[str, Any] = {
        "warps": plan,
        "cluster": cluster,
        "loader": loader,
        "op": spec.operation(op),
        "accumulators": accumulators,
        "scheduler": scheduler,
        "epilogue": output.epilogue,
        "k": k,
        "reduction": output.reduction,
        "profiler": profiler,
    }
    if inputs is None:
        return TOGETHER[config.driver](payload=payload, tiles=tiles, stages=stages, **parts)
    kernel = RINGS[config.driver](
        inputs=inputs,
        in_flight=config.in_flight,
        source=output.residual,
        order=order,
        starts=starts,
        prefetch=prefetch,
        consumers=spec.components.turns(w) or turns or Cooperative(),
        **parts,
    )
    return spec.components.with_role(w, kernel)


def _scheduler(
    w: Writer,
    spec: MatmulSpec,
    config: KernelConfig,
    plan: WarpPlan,
    *,
    cluster: Cluster,
    k: Value,
    rows: Value | None,
    starts: StartOrder | None,
) -> TileScheduler:
    """Declare the schedule: groups of rows, or a raster: its tiles are claimed, streamed, or given from the start.

    `rows` is M where it is declared, and `starts` may number the clusters of the last.
    """
    tile_m, tile_n = config.tile
    if spec.groups is not None:
        return GroupedScheduler(
            w,
            tile_m=tile_m,
            tile_n=tile_n,
            cluster=cluster,
            k=k,
            rows=declare_rows(w) if rows is None else rows,
            counted=spec.groups == "counts",
            every_group=isinstance(spec.functions, WrittenSpec) and spec.functions.reduces_columns,
            band=config.raster_group,
            turned=config.swap_ab,
        )
    raster = RasterOrder(
        w,
        tile_m=tile_m,
        tile_n=tile_n,
        cluster=cluster,
        k=k,
        k_block=config.k_block(spec.a_dtype, spec.block_bytes),
        batched=spec.batched,
        shares=config.split_k,
        order=config.raster_order,
        group=config.raster_group,
        dies=DieOrder(w.target.dies) if config.xcds and w.target.dies > 1 else None,
    )
    if plan.get("scheduler") is not None:
        return ClcScheduler(
            w,
            raster,
            cluster=cluster,
            stages=config.clc_stages,
            scheduler=plan["scheduler"],
            load=plan["load"],
            readers=plan.roles,
        )
    if config.stream_k:
        return StreamKScheduler(w, raster, most=config.stream_k)
    return spec.components.schedule(w, raster) or StaticScheduler(raster, starts)
