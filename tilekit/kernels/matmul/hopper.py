"""The components of a Hopper matmul: wgmma into registers, stored by the warpgroups that multiply."""

from __future__ import annotations

from tilekit.assembly.writer import Writer
from tilekit.drivers.consumer_schedule import Cooperative, PingPong
from tilekit.drivers.profiler import TileProfiler
from tilekit.drivers.warp_specialized import WarpSpecialized
from tilekit.epilogue.fixup import Fixup
from tilekit.epilogue.gathered import Gathered
from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.parts import (
    FIRST_NAMED_BARRIER,
    Output,
    declare_columns,
    declare_depth,
    static_schedule,
)
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.ahead import FirstBlocks
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_io.cp_async import CpAsyncLoader
from tilekit.tile_io.payload_loader import StandardLoader
from tilekit.tile_io.tma import TmaLoader
from tilekit.tile_op.wgmma import PromotedAccumulators, RegisterAccumulators, Wgmma
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_pipeline.sync import CopySync, MbarrierSync
from tilekit.tile_schedule.static import StaticScheduler


def compose(w: Writer, spec: MatmulSpec, config: MatmulConfig, target: Target) -> WarpSpecialized:
    """Declare the kernel's parameters and shared memory, and return its components."""
    plan = config.warps(target, spec)
    stages = config.resolved_stages(target, spec)
    cluster = ClusterPosition.read(w, *config.cluster, k=config.cluster_k)

    a, b = config.operands(spec)
    payload = StandardPayload(a, b, adjacent=config.short)
    op = Wgmma(a, b, warpgroups=config.sharing)
    tiles = payload.allocate(w.shared, "inputs", stages)
    sharers = (cluster.share_a_count, cluster.share_b_count)
    load_a, load_b = (
        TmaLoader(w, tile, batched=spec.indexed, sharers=count, policy=policy, l2_promotion=config.l2_promotion)
        if copies is None
        else CpAsyncLoader(w, copies, stages=stages, batched=spec.indexed)
        for tile, copies, count, policy in zip(
            (a, b), config.copy_plans(spec), sharers, config.l2_policies, strict=True
        )
    )
    depth = declare_depth(w)
    scheduler = static_schedule(w, spec, cluster=cluster, depth=depth, config=config)
    loader = StandardLoader(w, load_a, load_b, tiles, cluster)
    columns = declare_columns(w)
    output = Output.of(
        w,
        spec,
        op.layout,
        columns=columns,
        stores=plan.mma,
        loads=plan.epilogue_load,
        buffers=config.output_buffers,
        shares=Fixup if config.stream_k else Gathered if config.split_k > 1 else None,
        transposed=config.swap_ab,
        cluster=cluster,
    )
    sync = (CopySync if spec.copies else MbarrierSync)(
        w,
        "inputs",
        stages=stages,
        stage_bytes=config.engine_bytes(spec),
        producers=(plan.load,),
        consumers=(plan.mma,),
        cluster=cluster,
    )
    return WarpSpecialized(
        warps=plan,
        cluster=cluster,
        inputs=TilePipeline(payload, tiles, stages=stages, sync=sync),
        loader=loader,
        op=op,
        accumulators=PromotedAccumulators(op) if spec.promoted else RegisterAccumulators(op),
        scheduler=scheduler,
        epilogue=output.epilogue,
        depth=depth,
        in_flight=config.in_flight,
        reduction=output.reduction,
        source=output.residual,
        profiler=TileProfiler(w, tiles=config.profile_tiles, activities=plan.activities)
        if config.profile_tiles
        else None,
        ahead=FirstBlocks(scheduler, loader, "a" if config.swap_ab else "b", config.prefetch, payload.k)
        if config.prefetch and isinstance(scheduler, StaticScheduler)
        else None,
        consumers=PingPong(plan.mma, first_barrier=FIRST_NAMED_BARRIER + config.consumers)
        if config.in_turn
        else Cooperative(),
    )
