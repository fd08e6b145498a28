"""A matmul for AMD chips from the warp-specialised driver that NVIDIA's kernels have: other components, the same roles.

D = relu(A B^T + bias) in bf16, on MI355X (gfx950) and MI300X (gfx942). Four waves load, four multiply and store; they
meet at counters in LDS, since there is neither a copy engine nor a barrier that some of the waves could wait at. How
they meet and how tiles are loaded are one argument each. No AMD GPU is needed: arrays in host memory are computed on
the emulator, by the text that LLVM assembles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tilekit.compose as tk

TILE_M, TILE_N, STAGES = 128, 64, 2


def composed(target: str, sync: Callable[..., tk.SyncStrategy], load: Callable[..., tk.OperandLoader]) -> Any:
    """The kernel for a chip, with the ring's synchronisation and the operands' loader."""
    plan = tk.WarpPlan.waves(tk.chip(target), load=4, mma=4)

    @tk.kernel(
        tk.Input("a", tk.BF16, "mk"),
        tk.Input("b", tk.BF16, "nk"),
        tk.Input("bias", tk.F32, "n"),
        tk.Output("d", tk.BF16, "mn"),
        target=target,
        threads=plan.threads,
    )
    def amd_matmul(w: tk.Writer) -> tk.StaticScheduler:
        cluster = tk.Cluster.read(w, 1, 1)
        k, m, n = (
            w.parameter(name, tk.registers.U32, value)
            for name, value in (("k", lambda call: call.k), ("m", lambda call: call.m), ("n", lambda call: call.n))
        )
        a, b = tk.OperandTile("a", tk.BF16, TILE_M, "k"), tk.OperandTile("b", tk.BF16, TILE_N, "k")
        payload, op = tk.StandardPayload(a, b), tk.Mfma(a, b, waves=4)
        tiles = payload.allocate(w.shared, "inputs", STAGES)
        loaders = (load(w, tile, role=plan["load"]) for tile in (a, b))
        ring = sync(w, "inputs", stages=STAGES, producers=(plan["load"],), consumers=(plan["mma"],))
        raster = tk.RasterOrder(w, tile_m=TILE_M, tile_n=TILE_N, cluster=cluster, k=k, k_block=payload.k)
        scheduler = tk.StaticScheduler(raster)
        spec = tk.ElementwiseSpec(bias=tk.F32, activation="relu")
        functions = tk.Elementwise(w, spec, columns=n, precise=False)
        tk.WarpSpecialized(
            warps=plan,
            cluster=cluster,
            inputs=tk.TilePipeline(payload, tiles, stages=STAGES, sync=ring),
            loader=tk.StandardLoader(w, *loaders, tiles, cluster),
            op=op,
            accumulators=tk.RegisterAccumulators(op),
            scheduler=scheduler,
            epilogue=tk.DirectEpilogue(w, op.layout, functions, out=tk.BF16, rows=m, columns=n),
            k=k,
            in_flight=1,
        ).trace(w)
        return scheduler

    return amd_matmul


def main() -> None:
    """Compose for both chips with every choice, launch, check."""
    random = np.random.default_rng(0)
    # Small integers: every product and every sum is exact, so the result must match to the bit.
    a, b = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((200, 136), (100, 136)))
    bias = random.integers(-9, 10, 100).astype(np.float32)
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32).T + bias, 0).astype(ml_dtypes.bfloat16)
    for target in ("gfx942", "gfx950"):
        for sync in (tk.SplitCounterSync, tk.SingleCounterSync):
            for load in (tk.BufferLoader, tk.BufferToLdsLoader):
                kernel = composed(target, sync, load)
                assert (kernel(a, b, bias) == expected).all()
                used = kernel.resources
                choice = f"{target} {sync.__name__} {load.__name__}"
                print(f"{choice}: {used.vgprs} VGPRs, {used.static_shared_bytes} B of LDS")


if __name__ == "__main__":
    main()
