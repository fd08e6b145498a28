"""Matmuls for AMD chips whose waves all load and multiply: the ping-pong driver and the interleaved one."""

from __future__ import annotations

from typing import Any

import tilekit.compose as tk
from tests.compose.amd_matmul import Load


def matmul(
    target: str,
    driver: str = "ping_pong",
    *,
    load: Load = tk.BufferToLdsLoader,
    dtype: tk.DType = tk.BF16,
    out: tk.DType = tk.BF16,
    tile: tuple[int, int] = (256, 256),
    waves: tuple[int, int] | None = None,
    slices: int = 1,
    functions: tk.ElementwiseSpec | None = None,
    batched: bool = False,
    **options: Any,
) -> tk.ComposedKernel:
    """D = A B^T with `functions` applied, by a grid of `waves`: in two groups, or with everything interleaved."""
    chip = tk.chip(target)
    waves = waves or ((2, 4) if driver == "ping_pong" else (2, 2))
    plan = tk.WarpPlan.together(chip, waves=waves[0] * waves[1])
    chosen = functions or tk.ElementwiseSpec()
    shape = "b" if batched else ""
    operands = [tk.Input("a", dtype, f"{shape}mk"), tk.Input("b", dtype, f"{shape}nk")]
    if chosen.bias is not None:
        operands.append(tk.Input("bias", chosen.bias, "n"))
    operands.append(tk.Output("d", out, f"{shape}mn"))
    stages = 1 if load is tk.BufferLoader else 2
    if driver == "ping_pong":
        stages = options.setdefault("stages", stages)

    @tk.kernel(*operands, target=target, threads=plan.threads)
    def amd_matmul(w: tk.Writer) -> Any:
        cluster = tk.Cluster.read(w, 1, 1)
        a, b = (tk.OperandTile(name, dtype, rows, "k", slices) for name, rows in zip("ab", tile, strict=True))
        payload = tk.StandardPayload(a, b)
        op = tk.Mfma(a, b, waves=waves[0] * waves[1], columns=waves[1], pieces=2)
        tiles = payload.allocate(w.shared, "inputs", stages)
        k, m, n = (
            w.parameter(name, tk.registers.U32, value)
            for name, value in (("k", lambda call: call.k), ("m", lambda call: call.m), ("n", lambda call: call.n))
        )
        loads = (load(w, one, role=plan["mma"], batched=batched) for one in (a, b))
        raster = tk.RasterOrder(
            w, tile_m=tile[0], tile_n=tile[1], cluster=cluster, k=k, k_block=payload.k, batched=batched
        )
        scheduler = tk.StaticScheduler(raster)
        elementwise = tk.Elementwise(w, chosen, columns=n, precise=out is tk.F32)
        schedule = tk.PingPongWaves if driver == "ping_pong" else tk.Interleaved
        schedule(
            warps=plan,
            cluster=cluster,
            payload=payload,
            tiles=tiles,
            loader=tk.StandardLoader(w, *loads, tiles, cluster),
            op=op,
            accumulators=tk.RegisterAccumulators(op),
            scheduler=scheduler,
            epilogue=tk.DirectEpilogue(w, op.layout, elementwise, out=out, rows=m, columns=n, batched=batched),
            k=k,
            **options,
        ).trace(w)
        return scheduler

    return amd_matmul
