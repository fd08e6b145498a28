"""A matmul kernel: the components a spec and a config select, traced by the warp-specialised driver."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Parameter, Role, Writer
from tilekit.drivers.warp_specialized import WarpPlan, WarpSpecialized
from tilekit.dtypes import F32
from tilekit.epilogue.direct import DirectEpilogue
from tilekit.epilogue.functions import Elementwise
from tilekit.epilogue.staged import StagedEpilogue
from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_io.operand import OperandTile
from tilekit.tile_io.standard import StandardLoader
from tilekit.tile_io.tma import TmaLoader
from tilekit.tile_op.wgmma import Wgmma
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_pipeline.sync import MbarrierSync
from tilekit.tile_schedule.static import StaticScheduler

FIRST_NAMED_BARRIER = 1
"""Barrier 0 belongs to the whole CTA."""


@dataclass(frozen=True)
class KernelText:
    """A traced kernel: its text, and what a launch must know about it.

    Attributes
    ----------
    name, target, ptx
        Entry symbol, assembler target, module text.
    parameters
        In launch order.
    boxes
        Box extents of every tensor map parameter, contiguous dimension first.
    threads, cluster, shared_bytes
        Launch shape: threads of a CTA, CTAs of a cluster, dynamic shared memory.
    roles, shared
        For `explain`: the roles, and the shared-memory map.
    stages
        Input stages built.
    """

    name: str
    target: Target
    ptx: str
    parameters: tuple[Parameter, ...]
    boxes: dict[str, tuple[int, ...]]
    threads: int
    cluster: int
    shared_bytes: int
    roles: tuple[Role, ...]
    shared: tuple[SharedArray, ...]
    stages: int


def trace(spec: MatmulSpec, config: MatmulConfig, target: Target) -> KernelText:
    """Trace the kernel that `spec` and `config` describe.

    Raises
    ------
    ConfigError
        Listing every rule the config violates.
    """
    config.check(target, spec)
    tile_m, tile_n = config.tile
    plan: WarpPlan = config.warps(target)
    stages = config.resolved_stages(target, spec)
    w = Writer(spec.name, target=target.name, threads=plan.threads, cluster=config.cluster_size)
    cluster = ClusterPosition.read(w, *config.cluster)

    a = OperandTile("a", spec.a_dtype, tile_m, spec.a_major)
    b = OperandTile("b", spec.b_dtype, tile_n, spec.b_major)
    payload = StandardPayload(a, b)
    op = Wgmma(a, b, warpgroups=config.consumers)
    load_a = TmaLoader(w, a, batched=spec.batched, sharers=cluster.n)
    load_b = TmaLoader(w, b, batched=spec.batched, sharers=cluster.m)
    tiles = payload.allocate(w.shared, "inputs", stages)
    k_blocks = w.parameter("k_blocks", U32)
    scheduler = StaticScheduler(w, tile_m=tile_m, tile_n=tile_n, cluster=cluster, batched=spec.batched)
    loader = StandardLoader(w, load_a, load_b, tiles, cluster)
    columns = w.parameter("columns", U32)
    functions = Elementwise(w, spec.functions, columns=columns, precise=spec.out_dtype == F32)
    boxes = {"a_map": load_a.box, "b_map": load_b.box}
    epilogue: StagedEpilogue | DirectEpilogue
    if spec.store == "tma":
        epilogue = StagedEpilogue(
            w,
            op,
            functions,
            out=spec.out_dtype,
            role=plan.mma,
            batched=spec.batched,
            buffers=config.output_buffers,
            first_barrier=FIRST_NAMED_BARRIER,
        )
        boxes |= {storer.map_name: storer.box for storer in epilogue.storers.values()}
    else:
        epilogue = DirectEpilogue(w, op, functions, out=spec.out_dtype, columns=columns, batched=spec.batched)
    sync = MbarrierSync(
        w,
        "inputs",
        stages=stages,
        stage_bytes=payload.stage_bytes,
        producers=(plan.load,),
        consumers=(plan.mma,),
        cluster=cluster,
    )
    inputs = TilePipeline(payload, tiles, stages=stages, sync=sync)
    WarpSpecialized(
        warps=plan,
        cluster=cluster,
        inputs=inputs,
        loader=loader,
        op=op,
        scheduler=scheduler,
        epilogue=epilogue,
        k_blocks=k_blocks,
        in_flight=config.in_flight,
    ).trace(w)
    return KernelText(
        name=spec.name,
        target=target,
        ptx=w.text(),
        parameters=tuple(w.parameters),
        boxes=boxes,
        threads=plan.threads,
        cluster=config.cluster_size,
        shared_bytes=w.shared.size,
        roles=tuple(w.roles),
        shared=tuple(w.shared.arrays),
        stages=stages,
    )
