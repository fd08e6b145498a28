"""What takes a tile of a matmul out: epilogue, residual, and the sum of shares."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.warp_specialized import Epilogue
from tilekit.epilogue.dsmem_reduction import DsmemReduction
from tilekit.epilogue.fixup import Fixup
from tilekit.epilogue.functions import Elementwise
from tilekit.epilogue.fusion import Fusion
from tilekit.epilogue.rows import RowStores
from tilekit.epilogue.source_ring import SourceRing
from tilekit.epilogue.split_k_reduction import SplitKReduction
from tilekit.epilogue.staged import StagedEpilogue
from tilekit.epilogue.subtiles import STMATRIX_COLUMNS, SubtilePlan
from tilekit.epilogue.written import Written
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tile_schedule.raster import Raster
from tilekit.tiles.call import Call, fits
from tilekit.tiles.cluster import Cluster

FIRST_NAMED_BARRIER = 1
"""Barrier 0 belongs to the whole CTA; from this one on, each warpgroup of the epilogue has its own."""


@dataclass(frozen=True)
class OutputTiles:
    """The tiles of an output, as totals of its rows and columns ask for them.

    Attributes
    ----------
    tile
        Rows and columns of a CTA's tile.
    cluster
        CTAs of a cluster.
    batched
        Whether tiles have a batch index.
    """

    tile: tuple[int, int]
    cluster: Cluster
    batched: bool

    @property
    def tile_m(self) -> int:
        """Rows of a tile."""
        return self.tile[0]

    @property
    def tile_n(self) -> int:
        """Columns of it."""
        return self.tile[1]

    def plan(self, call: Call) -> Raster:
        """Cluster tiles of a call."""
        (tile_m, tile_n), cluster = self.tile, self.cluster
        return Raster(-(-call.m // (tile_m * cluster.m)), -(-call.n // (tile_n * cluster.n)), 1, call.batches)


@dataclass(frozen=True)
class OutputPlan:
    """What takes a tile out, before there is a writer: which components, and what they declare.

    Attributes
    ----------
    spec, layout
        What is computed, and how a warpgroup holds it.
    warpgroups, buffers
        Warpgroups of the epilogue, and subtiles in flight of each.
    transposed
        Whether the accumulators hold the transpose of the output.
    cluster_k
        CTAs of a cluster that share a tile's sum.
    tile
        Rows and columns of a CTA's tile.
    in_place
        Whether a residual comes into the buffers from which its sum leaves; else it has as many of its own.
    staged
        Whether tiles may leave through shared memory and the copy engine, where the spec's store is ``"tma"``.
    """

    spec: MatmulSpec
    layout: AccumulatorLayout
    warpgroups: int
    buffers: int
    transposed: bool
    cluster_k: int = 1
    tile: tuple[int, int] = (0, 0)
    in_place: bool = False
    staged: bool = True

    @property
    def direct(self) -> bool:
        """Whether threads store the output from registers."""
        own = self.spec.components.epilogue is not None
        return own or self.spec.stores_rows or not self.staged or self.spec.store == "direct"

    @property
    def stored(self) -> AccumulatorLayout:
        """How a warpgroup holds what its CTA stores."""
        return self.layout if self.cluster_k == 1 else DsmemReduction.part_of(self.layout, self.cluster_k)

    @property
    def columns_at_once(self) -> int | None:
        """Columns that are read from tensor memory together: few, where a Python epilogue wants the registers."""
        few = isinstance(self.spec.functions, WrittenSpec) and self.layout.fragments > 1
        return STMATRIX_COLUMNS if few else None

    @property
    def subtiles(self) -> SubtilePlan | None:
        """How that is cut into subtiles; None where threads store it from registers."""
        return None if self.direct else SubtilePlan(self.stored, self.spec.out_dtype, self.transposed)

    def declared(self) -> tuple[SharedDeclaration, ...]:
        """Shared memory of the components, in the order in which `build` makes them."""
        found: tuple[SharedDeclaration, ...] = ()
        subtiles = self.subtiles
        if subtiles is not None:
            if self.spec.loads_residual:
                stages = self.buffers
                found += SourceRing.declared(subtiles, name="residual", warpgroups=self.warpgroups, stages=stages)
            if not (self.in_place and self.spec.loads_residual):
                found += StagedEpilogue.declared(subtiles, warpgroups=self.warpgroups, buffers=self.buffers)
        found += self.spec.storing_memory(self.stored, warpgroups=self.warpgroups, buffers=self.buffers)
        if self.cluster_k > 1:
            found += DsmemReduction.declared(self.layout, ctas=self.cluster_k, warpgroups=self.warpgroups)
        return found

    def build(
        self,
        w: Writer,
        *,
        columns: Value,
        rows: Value | None,
        stores: Role,
        loads: Role | None,
        shares: type[SplitKReduction | Fixup] | None,
        cluster: Cluster,
    ) -> Output:
        """Make the components: parameters and shared memory.

        Parameters
        ----------
        w
            The writer.
        columns, rows
            N, and M where it is declared already.
        stores, loads
            The role that runs the epilogue, and the one that loads what it reads.
        shares
            What adds the shares of a tile's sum in a workspace, where several CTAs have them.
        cluster
            The place of this CTA in its cluster, whose CTAs may share a sum.
        """
        spec, layout = self.spec, self.stored
        # M is declared by the component that needs it; groups of rows have declared it for their schedule.
        own = spec.components.functions is not None
        if not (self.direct or own or spec.functions.scale_a):
            rows = None
        elif rows is None:
            rows = declare_rows(w)
        precise = spec.precise
        functions: Fusion
        made = None
        if rows is not None:
            made = spec.components.fusion(w, columns=columns, rows=rows, precise=precise, batched=spec.batched)
        if made is not None:
            functions = made
        elif isinstance(spec.functions, WrittenSpec):
            functions = Written(
                w,
                spec.functions,
                columns=columns,
                precise=precise,
                rows=rows,
                batched=spec.batched,
                layout=layout,
                tiles=OutputTiles(self.tile, cluster, spec.batched),
                groups=spec.groups,
            )
        else:
            functions = Elementwise(
                w, spec.functions, columns=columns, precise=precise, rows=rows, batched=spec.batched
            )
        epilogue: Epilogue
        residual = None
        if rows is not None and self.direct:
            epilogue = spec.storing(
                w,
                layout,
                functions,
                role=stores,
                buffers=self.buffers,
                out=spec.out_dtype,
                rows=rows,
                columns=columns,
                batched=spec.batched,
                transposed=self.transposed,
                wide=spec.store != "direct",
            )
        else:
            if spec.functions.residual is not None and loads is not None:
                residual = SourceRing(
                    w,
                    layout,
                    name="residual",
                    matrix="c",
                    dtype=spec.functions.residual,
                    stages=self.buffers,
                    loads=loads,
                    reads=stores,
                    batched=spec.batched,
                    transposed=self.transposed,
                    in_place=self.in_place,
                )
            epilogue = StagedEpilogue(
                w,
                layout,
                functions,
                out=spec.out_dtype,
                role=stores,
                batched=spec.batched,
                buffers=self.buffers,
                first_barrier=FIRST_NAMED_BARRIER,
                source=residual,
                rows=RowStores(w, out=spec.out_dtype, columns=columns) if spec.groups is not None else None,
                transposed=self.transposed,
                columns_at_once=self.columns_at_once,
            )
        reduction: SplitKReduction | Fixup | DsmemReduction | None = None
        groups = stores.warps_at_once // layout.waves
        if shares is SplitKReduction:
            reduction = SplitKReduction(
                w, layout, warpgroups=groups, first_barrier=FIRST_NAMED_BARRIER, shares=spec.shares
            )
        elif shares is not None:
            reduction = shares(w, layout, warpgroups=groups, first_barrier=FIRST_NAMED_BARRIER)
        elif self.cluster_k > 1:
            reduction = DsmemReduction(w, self.layout, role=stores, cluster=cluster, shares=spec.shares)
        return Output(epilogue, residual, reduction, rows)


@dataclass(frozen=True)
class Output:
    """The components that take a tile out.

    Attributes
    ----------
    epilogue, residual, reduction
        The components; None where the spec or the config asks for none.
    rows
        M, where it is declared.
    """

    epilogue: Epilogue
    residual: SourceRing | None
    reduction: SplitKReduction | Fixup | DsmemReduction | None
    rows: Value | None


def declare_k(w: Writer) -> Value:
    """Declare K."""
    return w.parameter("k", U32, lambda call: fits("K", call.k))


def declare_columns(w: Writer) -> Value:
    """Declare the columns of the output."""

    def count(call: Call) -> int:
        out = call.matrix("d")
        return fits("N", out.extents[0] * out.dtype.packed)

    return w.parameter("columns", U32, count)


def declare_rows(w: Writer) -> Value:
    """Declare the rows of the output."""
    return w.parameter("rows", U32, lambda call: fits("M", call.matrix("d").extents[1]))
