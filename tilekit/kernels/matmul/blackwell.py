"""The components of a Blackwell matmul: tcgen05 into tensor memory, tiles claimed by free clusters."""

from __future__ import annotations

from tilekit.assembly.writer import Writer
from tilekit.drivers.load_order import LoadOrder
from tilekit.drivers.profiler import TileProfiler
from tilekit.drivers.warp_specialized import TileScheduler, WarpSpecialized
from tilekit.epilogue.gathered import Gathered
from tilekit.kernels.matmul.blackwell_config import BlackwellConfig
from tilekit.kernels.matmul.parts import (
    FIRST_NAMED_BARRIER,
    Output,
    declare_columns,
    declare_depth,
    raster_order,
    static_schedule,
)
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_io.payload_loader import StandardLoader
from tilekit.tile_io.tma import TmaLoader
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_pipeline.sync import CommitSync
from tilekit.tile_schedule.clc import ClcScheduler
from tilekit.tile_schedule.start_order import StartOrder


def compose(w: Writer, spec: MatmulSpec, config: BlackwellConfig, target: Target) -> WarpSpecialized:
    """Declare the kernel's parameters and shared memory, and return its components."""
    plan = config.warps(target, spec)
    assert plan.epilogue is not None
    stages = config.resolved_stages(target, spec)
    cluster = ClusterPosition.read(w, *config.cluster, group=config.cta_group)

    a, b = config.operands(spec)
    payload = StandardPayload(a, b)
    op = config.instruction(spec)
    paired = config.cta_group > 1
    load_a, load_b = (
        TmaLoader(w, tile, batched=spec.indexed, sharers=count, paired=paired, l2_promotion=config.l2_promotion)
        for tile, count in ((a, cluster.share_a_count), (b, cluster.share_b_count))
    )
    tiles = payload.allocate(w.shared, "inputs", stages)
    depth = declare_depth(w)
    loader = StandardLoader(w, load_a, load_b, tiles, cluster)
    columns = declare_columns(w)
    output = Output.of(
        w,
        spec,
        op.layout,
        columns=columns,
        stores=plan.epilogue,
        loads=plan.epilogue_load,
        buffers=config.output_buffers,
        shares=Gathered if config.split_k > 1 else None,
        transposed=config.swap_ab,
    )
    sync = CommitSync(
        w,
        "inputs",
        stages=stages,
        stage_bytes=payload.stage_bytes,
        producers=(plan.load,),
        consumers=(plan.mma,),
        cluster=cluster,
    )
    accumulators = TensorMemory(
        w,
        op,
        stages=config.accumulator_stages,
        mma=plan.mma,
        epilogue=plan.epilogue,
        cluster=cluster,
        barrier=FIRST_NAMED_BARRIER + 1,
    )
    order = None
    if config.load_order:
        assert plan.epilogue_load is not None
        order = LoadOrder(w, stages=stages, k_block=payload.k, loads=plan.load, waits=plan.epilogue_load)
    scheduler: TileScheduler
    # Who waits for its turn waits for shares that have started, in whatever order clusters do.
    starts = StartOrder(w, cluster) if config.split_k > 1 else None
    if plan.scheduler is None:
        scheduler = static_schedule(w, spec, cluster=cluster, depth=depth, config=config, starts=starts)
    else:
        scheduler = ClcScheduler(
            w,
            raster_order(w, spec, cluster=cluster, depth=depth, config=config),
            cluster=cluster,
            stages=config.clc_stages,
            scheduler=plan.scheduler,
            load=plan.load,
            readers=plan.roles,
        )
    return WarpSpecialized(
        warps=plan,
        cluster=cluster,
        inputs=TilePipeline(payload, tiles, stages=stages, sync=sync),
        loader=loader,
        op=op,
        accumulators=accumulators,
        scheduler=scheduler,
        epilogue=output.epilogue,
        depth=depth,
        in_flight=0,
        reduction=output.reduction,
        source=output.residual,
        order=order,
        starts=starts,
        profiler=TileProfiler(w, tiles=config.profile_tiles, activities=plan.activities)
        if config.profile_tiles
        else None,
    )
