"""What the matmuls of all chips are composed of alike: the schedule, and the way of the accumulators out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.dtypes import F32
from tilekit.epilogue.cluster_sum import ClusterSum
from tilekit.epilogue.direct import DirectEpilogue
from tilekit.epilogue.fixup import Fixup
from tilekit.epilogue.functions import Elementwise
from tilekit.epilogue.gathered import Gathered
from tilekit.epilogue.residual import ResidualRing
from tilekit.epilogue.rows import RowStores
from tilekit.epilogue.slabs import SlabPlan
from tilekit.epilogue.staged import StagedEpilogue
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tile_io.cluster import ClusterPosition
from tilekit.tile_op.accumulators import WARPS_PER_GROUP, AccumulatorLayout
from tilekit.tile_schedule.grouped import GroupedScheduler
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.start_order import StartOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tile_schedule.stream_k import StreamKScheduler
from tilekit.tiles.call import fits

if TYPE_CHECKING:
    from tilekit.kernels.matmul.config import KernelConfig

FIRST_NAMED_BARRIER = 1
"""Barrier 0 belongs to the whole CTA; from this one on, each warpgroup of the epilogue has its own."""


@dataclass(frozen=True)
class Output:
    """The components that take a tile out.

    Attributes
    ----------
    epilogue, residual, reduction
        The components; None where the spec or the config asks for none.
    """

    epilogue: StagedEpilogue | DirectEpilogue
    residual: ResidualRing | None
    reduction: Gathered | Fixup | ClusterSum | None

    @staticmethod
    def shared_bytes(
        spec: MatmulSpec,
        layout: AccumulatorLayout,
        *,
        warpgroups: int,
        buffers: int,
        transposed: bool,
        layers: int = 1,
    ) -> int:
        """Shared memory of the components; `layers` CTAs of a cluster share a tile's sum."""
        size = 0
        if layers > 1:
            size += ClusterSum.shared_bytes(layout, ctas=layers, warpgroups=warpgroups)
            layout = ClusterSum.part_of(layout, layers)
        if spec.store == "direct":
            return size
        plan = SlabPlan(layout, spec.out_dtype, transposed)
        size += StagedEpilogue.shared_bytes(plan, warpgroups=warpgroups, buffers=buffers)
        if spec.loads_residual:
            size += ResidualRing.shared_bytes(plan, warpgroups=warpgroups, stages=buffers)
        return size

    @classmethod
    def of(
        cls,
        w: Writer,
        spec: MatmulSpec,
        layout: AccumulatorLayout,
        *,
        columns: Value,
        stores: Role,
        loads: Role | None,
        buffers: int,
        shares: type[Gathered | Fixup] | None,
        transposed: bool,
        cluster: ClusterPosition | None = None,
    ) -> Output:
        """Declare parameters and shared memory.

        Parameters
        ----------
        w, spec, layout
            The writer, what is computed, and how a warpgroup holds it.
        columns
            N.
        stores, loads
            The role that runs the epilogue, and the one that loads what it reads.
        buffers
            Slabs in flight, a warpgroup.
        shares
            What adds the shares of a tile's sum in a workspace, where several CTAs have them.
        transposed
            Whether the accumulators hold the transpose of the output.
        cluster
            The place of this CTA in its cluster, where its CTAs may share a sum.
        """
        accumulators = layout
        layered = cluster if cluster is not None and cluster.k > 1 else None
        if layered is not None:
            layout = ClusterSum.part_of(layout, layered.k)
        # M is known to whoever needs it; groups of rows have declared it for their schedule.
        direct = spec.store == "direct"
        rows = declare_rows(w) if direct or spec.functions.scale_a else None
        functions = Elementwise(
            w, spec.functions, columns=columns, precise=spec.out_dtype == F32, rows=rows, batched=spec.batched
        )
        epilogue: StagedEpilogue | DirectEpilogue
        residual = None
        if rows is not None and direct:
            epilogue = DirectEpilogue(
                w,
                layout,
                functions,
                out=spec.out_dtype,
                rows=rows,
                columns=columns,
                batched=spec.batched,
                transposed=transposed,
            )
        else:
            if spec.functions.residual is not None and loads is not None:
                residual = ResidualRing(
                    w,
                    layout,
                    dtype=spec.functions.residual,
                    stages=buffers,
                    loads=loads,
                    reads=stores,
                    batched=spec.batched,
                    transposed=transposed,
                )
            epilogue = StagedEpilogue(
                w,
                layout,
                functions,
                out=spec.out_dtype,
                role=stores,
                batched=spec.batched,
                buffers=buffers,
                first_barrier=FIRST_NAMED_BARRIER,
                residual=residual,
                rows=RowStores(w, out=spec.out_dtype, columns=columns) if spec.groups is not None else None,
                transposed=transposed,
            )
        reduction: Gathered | Fixup | ClusterSum | None = None
        if shares is not None:
            groups = stores.warps_at_once // WARPS_PER_GROUP
            reduction = shares(w, layout, warpgroups=groups, first_barrier=FIRST_NAMED_BARRIER)
        elif layered is not None:
            reduction = ClusterSum(w, accumulators, role=stores, cluster=layered)
        return cls(epilogue, residual, reduction)


def static_schedule(
    w: Writer,
    spec: MatmulSpec,
    *,
    cluster: ClusterPosition,
    depth: Value,
    config: KernelConfig,
    starts: StartOrder | None = None,
) -> StaticScheduler | GroupedScheduler:
    """Declare the schedule of a kernel in which no role asks for tiles: a raster, or groups of rows.

    Of a raster, `starts` may number the clusters.
    """
    if spec.groups is not None:
        rows = declare_rows(w)
        return GroupedScheduler(
            w,
            tile_m=config.tile[0],
            tile_n=config.tile[1],
            cluster=cluster,
            depth=depth,
            rows=rows,
            counted=spec.groups == "counts",
        )
    raster = raster_order(w, spec, cluster=cluster, depth=depth, config=config)
    return StreamKScheduler(w, raster, most=config.streamed) if config.streamed else StaticScheduler(raster, starts)


def raster_order(
    w: Writer, spec: MatmulSpec, *, cluster: ClusterPosition, depth: Value, config: KernelConfig
) -> RasterOrder:
    """Declare the raster."""
    tile_m, tile_n = config.tile
    return RasterOrder(
        w,
        tile_m=tile_m,
        tile_n=tile_n,
        cluster=cluster,
        depth=depth,
        k_block=config.k_block(spec.a_dtype),
        batched=spec.batched,
        shares=config.split_k,
        order=config.raster_order,
        group=config.raster_group,
    )


def declare_depth(w: Writer) -> Value:
    """Declare K."""
    return w.parameter("depth", U32, lambda call: fits("K", call.k))


def declare_columns(w: Writer) -> Value:
    """Declare the columns of the output."""
    return w.parameter("columns", U32, lambda call: fits("N", call.matrix("d").extents[0]))


def declare_rows(w: Writer) -> Value:
    """Declare the rows of the output."""
    return w.parameter("rows", U32, lambda call: fits("M", call.matrix("d").extents[1]))
