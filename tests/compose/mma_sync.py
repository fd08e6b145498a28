"""The warp-specialised matmul of `MmaSync`: warps that copy by ``cp.async`` beside warps that multiply."""

from __future__ import annotations

from typing import Any

import tilekit.compose as tk


def matmul(
    target: str = "sm_80",
    *,
    dtype: tk.DType = tk.BF16,
    b_dtype: tk.DType | None = None,
    out: tk.DType = tk.F32,
    tile: tuple[int, int] = (64, 64),
    majors: tuple[str, str] = ("k", "k"),
    swizzle: int = 128,
    stages: int = 3,
    warps: int = 4,
    columns: int = 2,
    width: int = 16,
    load_warps: int = 4,
) -> tk.ComposedKernel:
    """D = A B by `warps` that multiply in a grid of so many `columns`."""
    plan = tk.WarpPlan.waves(tk.chip(target), load=load_warps, mma=warps)
    types = dtype, b_dtype or dtype
    shapes = "mk" if majors[0] == "k" else "km", "nk" if majors[1] == "k" else "kn"
    operands = [tk.Input(name, one, shape) for name, one, shape in zip("ab", types, shapes, strict=True)]

    @tk.kernel(*operands, tk.Output("d", out, "mn"), target=target, threads=plan.threads)
    def mma_sync_matmul(w: tk.Writer) -> Any:
        cluster = tk.Cluster.read(w, 1, 1)
        slices = 128 // swizzle
        a, b = (
            tk.OperandTile(name, one, rows, major, slices if major == "k" else 1, swizzle)  # type: ignore[arg-type]
            for name, one, rows, major in zip("ab", types, tile, majors, strict=True)
        )
        payload, op = tk.StandardPayload(a, b), tk.MmaSync(a, b, warps=warps, columns=columns)
        tiles = payload.allocate(w.shared, "inputs", stages)
        ring = tk.NamedBarrierSync(
            w, stages=stages, producers=(plan["load"],), consumers=(plan["mma"],), first_barrier=1
        )
        k, m, n = (
            w.parameter(name, tk.registers.U32, value)
            for name, value in (("k", lambda call: call.k), ("m", lambda call: call.m), ("n", lambda call: call.n))
        )
        loads = (tk.CpAsyncLoader(w, tk.CopyPlan(one, width, load_warps), stages=stages) for one in (a, b))
        raster = tk.RasterOrder(w, tile_m=tile[0], tile_n=tile[1], cluster=cluster, k=k, k_block=payload.k)
        scheduler = tk.StaticScheduler(raster)
        functions = tk.Elementwise(w, tk.ElementwiseSpec(), columns=n, precise=True)
        tk.WarpSpecialized(
            warps=plan,
            cluster=cluster,
            inputs=tk.TilePipeline(payload, tiles, stages=stages, sync=ring),
            loader=tk.StandardLoader(w, *loads, tiles, cluster),
            op=op,
            accumulators=tk.RegisterAccumulators(op),
            scheduler=scheduler,
            epilogue=tk.DirectEpilogue(w, op.layout, functions, out=out, rows=m, columns=n),
            k=k,
            in_flight=0,
        ).trace(w)
        return scheduler

    return mma_sync_matmul
