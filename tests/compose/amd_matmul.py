"""The warp-specialised matmul for AMD chips, of the components that NVIDIA's kernels have, and a few others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilekit.compose as tk

Sync = Callable[..., tk.SyncStrategy]
Load = Callable[..., tk.OperandLoader]


def matmul(
    target: str,
    *,
    sync: Sync = tk.SplitCounterSync,
    load: Load = tk.BufferLoader,
    dtype: tk.DType = tk.BF16,
    out: tk.DType = tk.BF16,
    tile: tuple[int, int] = (128, 128),
    slices: int = 1,
    stages: int = 2,
    waves: tuple[int, int] = (4, 4),
    in_flight: int = 0,
    functions: tk.ElementwiseSpec | None = None,
    batched: bool = False,
    fusion: Callable[..., tk.Fusion] | None = None,
    inputs: tuple[tk.Input, ...] = (),
) -> tk.ComposedKernel:
    """D = A B^T with `functions` applied, by `waves` that load and that multiply; `sync` and `load` swap components."""
    plan = tk.WarpPlan.waves(tk.chip(target), load=waves[0], mma=waves[1])
    chosen = functions or tk.ElementwiseSpec()
    shape = "b" if batched else ""
    operands = [tk.Input("a", dtype, f"{shape}mk"), tk.Input("b", dtype, f"{shape}nk")]
    if chosen.bias is not None:
        operands.append(tk.Input("bias", chosen.bias, "n"))
    operands += inputs
    operands.append(tk.Output("d", out, f"{shape}mn"))

    @tk.kernel(*operands, target=target, threads=plan.threads)
    def amd_matmul(w: tk.Writer) -> Any:
        cluster = tk.Cluster.read(w, 1, 1)
        a, b = (tk.OperandTile(name, dtype, rows, "k", slices) for name, rows in zip("ab", tile, strict=True))
        payload, op = tk.StandardPayload(a, b), tk.Mfma(a, b, waves=waves[1])
        tiles = payload.allocate(w.shared, "inputs", stages)
        ring = sync(w, "inputs", stages=stages, producers=(plan["load"],), consumers=(plan["mma"],))
        k, m, n = (
            w.parameter(name, tk.registers.U32, value)
            for name, value in (("k", lambda call: call.k), ("m", lambda call: call.m), ("n", lambda call: call.n))
        )
        loads = (load(w, one, role=plan["load"], batched=batched) for one in (a, b))
        raster = tk.RasterOrder(
            w, tile_m=tile[0], tile_n=tile[1], cluster=cluster, k=k, k_block=payload.k, batched=batched
        )
        scheduler = tk.StaticScheduler(raster)
        elementwise: tk.Fusion = (
            tk.Elementwise(w, chosen, columns=n, precise=out is tk.F32)
            if fusion is None
            else fusion(w, columns=n, rows=m, precise=out is tk.F32)
        )
        tk.WarpSpecialized(
            warps=plan,
            cluster=cluster,
            inputs=tk.TilePipeline(payload, tiles, stages=stages, sync=ring),
            loader=tk.StandardLoader(w, *loads, tiles, cluster),
            op=op,
            accumulators=tk.RegisterAccumulators(op),
            scheduler=scheduler,
            epilogue=tk.DirectEpilogue(w, op.layout, elementwise, out=out, rows=m, columns=n, batched=batched),
            k=k,
            in_flight=in_flight,
        ).trace(w)
        return scheduler

    return amd_matmul
