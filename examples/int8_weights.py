"""A matmul whose B is int8 with a scale for each column, widened to bf16 on its way into shared memory.

D = (A B^T) * scale in bf16. The load role's threads copy int8, and widen what has landed; A comes by TMA into the same
stages. Every int8 is a bf16, so widening is exact; the scale, which is the same for all of K, is applied to the sum,
where it rounds once. docs/your-own-kernel.md walks through this file.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

import tilekit.compose as tk

TILE, STAGES = 128, 4
PLAN = tk.WarpPlan.register_accumulators(tk.target("sm_90a"), consumers=2, accumulators=TILE // 2, copies=True)
LOAD, MMA = PLAN["load"], PLAN["mma"]


def widened(w: tk.Writer, words: Sequence[tk.Value]) -> list[tk.Value]:
    """Eight int8, of two words, as eight bf16, of four."""
    numbers = [number for word in words for number in w.isa.convert.widen_s8x4(packed=word)]
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [w.isa.convert.pack_bf16(low=low, high=high) for low, high in pairs]


@tk.kernel(
    tk.Input("a", tk.BF16, "mk"),
    tk.Input("b", tk.S8, "nk"),
    tk.Input("scale_b", tk.F32, "n"),
    tk.Output("d", tk.BF16, "mn"),
    target="sm_90a",
    threads=PLAN.threads,
)
def int8_matmul(w: tk.Writer) -> tk.StaticScheduler:
    """D = (A B^T) * scale_b."""
    cluster = tk.Cluster.read(w, 1, 1)
    a, b = tk.OperandTile("a", tk.BF16, TILE, "k"), tk.OperandTile("b", tk.BF16, TILE, "k")
    stage, op = tk.StandardPayload(a, b), tk.Wgmma(a, b, warpgroups=2)
    tiles = stage.allocate(w.shared, "inputs", STAGES)
    load_b = tk.TransformLoader(w, b, source=tk.S8, transform=widened, stages=STAGES, role=LOAD)
    # The copy engine brings A alone; the load role's warps hand a stage over when they have written B.
    sides = {"producers": (LOAD,), "consumers": (MMA,), "cluster": cluster}
    sync = tk.MbarrierSync(w, "inputs", stages=STAGES, stage_bytes=a.bytes, filled_by="threads", **sides)
    k = w.parameter("k", tk.registers.U32, lambda call: call.k)
    n = w.parameter("n", tk.registers.U32, lambda call: call.n)
    raster = tk.RasterOrder(w, tile_m=TILE, tile_n=TILE, cluster=cluster, k=k, k_block=stage.k)
    scheduler = tk.StaticScheduler(raster)
    functions = tk.Elementwise(w, tk.ElementwiseSpec(scale_b=True), columns=n, precise=False)
    epilogue = tk.StagedEpilogue(w, op.layout, functions, out=tk.BF16, role=MMA, buffers=2, first_barrier=1)
    tk.WarpSpecialized(
        warps=PLAN,
        cluster=cluster,
        inputs=tk.TilePipeline(stage, tiles, stages=STAGES, sync=sync),
        loader=tk.StandardLoader(w, tk.TmaLoader(w, a), load_b, tiles, cluster),
        op=op,
        accumulators=tk.RegisterAccumulators(op),
        scheduler=scheduler,
        epilogue=epilogue,
        k=k,
        in_flight=1,
    ).trace(w)
    return scheduler


def main() -> None:
    """Multiply small integers by powers of two, which is exact, and compare."""
    random = np.random.default_rng(0)
    a, b = random.integers(-2, 3, (200, 72)).astype(ml_dtypes.bfloat16), random.integers(-3, 4, (264, 72), np.int8)
    scale = 2.0 ** random.integers(-2, 3, 264).astype(np.float32)
    d = int8_matmul(a, b, scale)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T) * scale
    assert (d == expected.astype(ml_dtypes.bfloat16)).all()
    print(f"{int8_matmul.name}: {d.size} elements, all exact")


if __name__ == "__main__":
    main()
