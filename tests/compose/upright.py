"""Matmuls of 64 x 64 tiles with any epilogue and any cluster, composed through the public surface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tilekit.compose as tk

PLAN = tk.WarpPlan.register_accumulators(tk.target("sm_90a"), consumers=1, accumulators=32, epilogue_loads=True)
PLAIN = tk.WarpPlan.register_accumulators(tk.target("sm_90a"), consumers=1, accumulators=32)
AB = (tk.Input("a", tk.BF16, "mk"), tk.Input("b", tk.BF16, "nk"))
D = tk.Output("d", tk.BF16, "mn")
SUMS = tk.Output("sums", tk.F32, "m")


@dataclass(frozen=True)
class Made:
    """What an epilogue is made of.

    Attributes
    ----------
    layout, raster
        How a warpgroup holds the accumulators, and the tiles.
    m, n
        The output's extents.
    """

    layout: Any
    raster: Any
    m: Any
    n: Any


def matmul(
    *others: Any,
    epilogue: Callable[[tk.Writer, Made], tuple[Any, Any]],
    cluster: tuple[int, int] = (1, 1),
    outputs: tuple[Any, ...] = (D,),
    tile: int = 64,
    loads: bool = True,
    inputs: tuple[tk.Input, tk.Input] = AB,
) -> tk.ComposedKernel:
    """A kernel whose epilogue, and what a role of its own `loads` for it if there are `others`, `epilogue` makes.

    It has a batch where an operand's shape has three letters; so has the epilogue, if it is told.
    """
    batched = any(len(operand.shape) == 3 for operand in inputs)
    plan = PLAN if others and loads else PLAIN
    ctas = cluster[0] * cluster[1]

    @tk.kernel(*inputs, *others, *outputs, target="sm_90a", threads=plan.threads, cluster=ctas)
    def upright(w: tk.Writer) -> Any:
        position = tk.Cluster.read(w, *cluster)
        a, b = tk.OperandTile("a", tk.BF16, 64, "k"), tk.OperandTile("b", tk.BF16, tile, "k")
        stage, op = tk.StandardPayload(a, b), tk.Wgmma(a, b, warpgroups=1)
        tiles = stage.allocate(w.shared, "inputs", 3)
        sides = {"producers": (plan["load"],), "consumers": (plan["mma"],), "cluster": position}
        sync = tk.MbarrierSync(w, "inputs", stages=3, stage_bytes=stage.stage_bytes, **sides)
        k, m, n = (
            w.parameter(name, tk.registers.U32, value)
            for name, value in (("k", lambda call: call.k), ("m", lambda call: call.m), ("n", lambda call: call.n))
        )
        raster = tk.RasterOrder(w, tile_m=64, tile_n=tile, cluster=position, k=k, k_block=stage.k, batched=batched)
        scheduler = tk.StaticScheduler(raster)
        loaders = (
            tk.TmaLoader(w, tile, participants=participants, batched=batched)
            for tile, participants in ((a, position.n), (b, position.m))
        )
        stores, source = epilogue(w, Made(op.layout, raster, m, n))
        tk.WarpSpecialized(
            warps=plan,
            cluster=position,
            inputs=tk.TilePipeline(stage, tiles, stages=3, sync=sync),
            loader=tk.StandardLoader(w, *loaders, tiles, position),
            op=op,
            accumulators=tk.RegisterAccumulators(op),
            scheduler=scheduler,
            epilogue=stores,
            source=source,
            k=k,
            in_flight=1,
        ).trace(w)
        return scheduler

    return upright


def staged(w: tk.Writer, made: Made, functions: Any, **options: Any) -> Any:
    """A staged epilogue of the plan's mma role."""
    return tk.StagedEpilogue(
        w, made.layout, functions, out=tk.BF16, role=PLAIN["mma"], buffers=2, first_barrier=1, **options
    )


def direct(w: tk.Writer, made: Made, functions: Any, **options: Any) -> Any:
    """A direct epilogue."""
    return tk.DirectEpilogue(w, made.layout, functions, out=tk.BF16, rows=made.m, columns=made.n, **options)
