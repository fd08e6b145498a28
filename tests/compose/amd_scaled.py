"""A block-scaled matmul for gfx950 by the warp-specialised driver: the payload carries the scales."""

from __future__ import annotations

from typing import Any

import tilekit.compose as tk
from tests.compose.amd_matmul import Load, Sync


def matmul(
    *,
    dtype: tk.DType = tk.E4M3,
    b_dtype: tk.DType | None = None,
    out: tk.DType = tk.F32,
    sync: Sync = tk.SplitCounterSync,
    load: Load = tk.BufferToLdsLoader,
    tile: tuple[int, int] = (64, 64),
    columns: int = 1,
    stages: int = 2,
    target: str = "gfx950",
) -> tk.ComposedKernel:
    """D = A B^T of factors with a scale for each 32 elements along K."""
    plan = tk.WarpPlan.waves(tk.chip(target), load=4, mma=2 * columns)
    types = dtype, b_dtype or dtype
    operands = [tk.Input(name, one, shape) for name, one, shape in zip("ab", types, ("mk", "nk"), strict=True)]
    operands += [tk.Input("a_scale", tk.UE8M0, "ms"), tk.Input("b_scale", tk.UE8M0, "ns"), tk.Output("d", out, "mn")]

    @tk.kernel(*operands, target=target, threads=plan.threads)
    def amd_scaled(w: tk.Writer) -> Any:
        cluster = tk.Cluster.read(w, 1, 1)
        a, b = (tk.OperandTile(*each, "k") for each in zip("ab", types, tile, strict=True))
        scales = tk.ScaleTile("a_scale", a), tk.ScaleTile("b_scale", b)
        payload, op = tk.Payload((a, b, *scales), k=a.k), tk.ScaledMfma(*scales, waves=2 * columns, columns=columns)
        tiles = payload.allocate(w.shared, "inputs", stages)
        ring = sync(w, "inputs", stages=stages, producers=(plan["load"],), consumers=(plan["mma"],))
        k, m, n = (
            w.parameter(name, tk.registers.U32, value)
            for name, value in (("k", lambda call: call.k), ("m", lambda call: call.m), ("n", lambda call: call.n))
        )
        factors = [load(w, one, role=plan["load"]) for one in (a, b)]
        powers = [tk.BufferScaleLoader(w, one, role=plan["load"]) for one in scales]
        sides = (
            tk.AlongRows(factors[0]),
            tk.AlongColumns(factors[1]),
            tk.AlongRows(powers[0]),
            tk.AlongColumns(powers[1]),
        )
        raster = tk.RasterOrder(w, tile_m=tile[0], tile_n=tile[1], cluster=cluster, k=k, k_block=payload.k)
        scheduler = tk.StaticScheduler(raster)
        functions = tk.Elementwise(w, tk.ElementwiseSpec(), columns=n, precise=out is tk.F32)
        tk.WarpSpecialized(
            warps=plan,
            cluster=cluster,
            inputs=tk.TilePipeline(payload, tiles, stages=stages, sync=ring),
            loader=tk.PayloadLoader(sides, tiles),
            op=op,
            accumulators=tk.RegisterAccumulators(op),
            scheduler=scheduler,
            epilogue=tk.DirectEpilogue(w, op.layout, functions, out=out, rows=m, columns=n),
            k=k,
            in_flight=0,
        ).trace(w)
        return scheduler

    return amd_scaled
