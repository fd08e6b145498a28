"""One matmul for every chip: the warp-specialised driver, and of each kind of component one that the chip has.

Which there are follows from the chip's capabilities and its instruction set; how each is made stands here once, as an
entry of a table. Another chip is no line of this file, and another component one entry.
"""

from __future__ import annotations

from typing import Annotated

from tilekit.assembly.fit import checked
from tilekit.assembly.legal import OWN_RULE, Count, illegal
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.compose.kernel import ComposedKernel, kernel
from tilekit.compose.portable_choices import Parts, chosen
from tilekit.drivers.warp_specialized import WarpSpecialized
from tilekit.dtypes import BF16, F32, DType
from tilekit.epilogue.direct import DirectEpilogue
from tilekit.epilogue.functions import Elementwise, ElementwiseSpec
from tilekit.kernels.operands import Input, Operand, Output
from tilekit.targets import chip
from tilekit.tile_io.copy_plan import PIECE, WIDTHS
from tilekit.tile_io.payload_loader import StandardLoader
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import OperandTile

STAGES = 4
"""Stages of the ring, where shared memory has room for so many."""

RESERVED_BYTES = 1024
"""Shared memory that is left for barriers, counters and alignment."""


@checked
def portable_matmul(
    target: Annotated[str, OWN_RULE],
    *,
    load: Annotated[type | None, OWN_RULE] = None,
    sync: Annotated[type | None, OWN_RULE] = None,
    op: Annotated[type | None, OWN_RULE] = None,
    dtype: DType = BF16,
    out: DType = BF16,
    tile: tuple[Count, Count] = (128, 64),
    stages: Count | None = None,
    width: int | None = None,
    functions: ElementwiseSpec | None = None,
    batched: bool = False,
) -> ComposedKernel:
    """Compose D = A B^T, with `functions` applied, for any chip from what it has.

    Parameters
    ----------
    target
        The chip's name.
    load, sync, op
        A loader, a sync strategy and an instruction, by their classes; by default the first that the chip has and that
        fit each other. `portable_choices` lists what there is.
    dtype, out
        Of the operands and of the output.
    tile
        Rows and columns of a CTA's tile.
    stages
        Of the ring; by default as many as shared memory has room for, at most four.
    width
        For a loader that copies by `cp.async`: bytes that the operands' rows begin at multiples of, by default 8; with
        16 their length is one, too.
    functions
        What becomes of each element.
    batched
        Whether operands have a batch dimension.

    Returns
    -------
    ComposedKernel
        Called with ``a`` (M, K), ``b`` (N, K), and a bias where `functions` has one.

    Raises
    ------
    ArgumentError
        ``TK-COMP-008`` for components that the chip lacks or that do not fit each other.

    Examples
    --------
    >>> import tilekit.compose as tk
    >>> tk.portable_matmul("gfx942", sync=tk.SingleCounterSync)
    <portable_matmul(a, b, d) for gfx942>
    """
    chosen_target = chip(target)
    chosen_op, chosen_load, chosen_sync = chosen(chosen_target, load, sync, op)
    widths = [width for width in (PIECE, *WIDTHS) if 8 * width >= dtype.bits]
    if width is not None and width not in widths:
        raise illegal("portable_matmul", "width", width, f"one of {', '.join(map(str, widths))} bytes", PIECE)
    plan = chosen_op.plan(chosen_target, tile, chosen_load.copies)
    applied = functions or ElementwiseSpec()
    batch = "b" if batched else ""
    operands: list[Operand] = [Input("a", dtype, f"{batch}mk"), Input("b", dtype, f"{batch}nk")]
    if applied.bias is not None:
        operands.append(Input("bias", applied.bias, "n"))
    operands.append(Output("d", out, f"{batch}mn"))

    @kernel(*operands, target=target, threads=plan.threads)
    def portable_matmul(w: Writer) -> StaticScheduler:
        cluster = Cluster.read(w, 1, 1)
        a, b = (OperandTile(name, dtype, rows, "k") for name, rows in zip("ab", tile, strict=True))
        payload = StandardPayload(a, b)
        room = (w.target.shared_bytes - RESERVED_BYTES) // payload.stage_bytes
        depth = max(1, min(STAGES, room)) if stages is None else stages
        tiles = payload.allocate(w.shared, "inputs", depth)
        parts = Parts(w, plan, cluster, a, b, payload, depth, out)
        instruction, accumulators = chosen_op.make(parts)
        load_a, load_b = (chosen_load.make(parts, one, batched, width or WIDTHS[0]) for one in (a, b))
        ring = chosen_sync.make(parts, chosen_load, chosen_op)
        k, rows, columns = (_extent(w, name) for name in "kmn")
        raster = RasterOrder(
            w, tile_m=tile[0], tile_n=tile[1], cluster=cluster, k=k, k_block=payload.k, batched=batched
        )
        scheduler = StaticScheduler(raster)
        fusion = Elementwise(w, applied, columns=columns, precise=out is F32)
        WarpSpecialized(
            warps=plan,
            cluster=cluster,
            inputs=TilePipeline(payload, tiles, stages=depth, sync=ring),
            loader=StandardLoader(w, load_a, load_b, tiles, cluster),
            op=instruction,
            accumulators=accumulators,
            scheduler=scheduler,
            epilogue=DirectEpilogue(
                w, instruction.layout, fusion, out=out, rows=rows, columns=columns, batched=batched
            ),
            k=k,
            in_flight=min(chosen_op.in_flight, chosen_sync.in_flight, depth - 1),
        ).trace(w)
        return scheduler

    return portable_matmul


def _extent(w: Writer, name: str) -> Value:
    """An extent of the product as a kernel parameter."""
    return w.parameter(name, U32, lambda call: getattr(call, name))
