"""A matmul whose epilogue multiplies by a second matrix, and writes the sums of the rows beside the result.

D = (A B^T) * G in bf16, and sums[i] = the sum of row i of D in f32. Tiles of G are loaded by TMA while the product is
still being computed; the sums are the same every time. docs/your-own-kernel.md walks through this file.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilekit.compose as tk

TILE, STAGES = 128, 4
PLAN = tk.WarpPlan.register_accumulators(tk.target("sm_90a"), consumers=2, accumulators=TILE // 2, epilogue_loads=True)
LOAD, MMA, LOAD_GATE = PLAN["load"], PLAN["mma"], PLAN["epilogue_load"]


def gated(w: tk.Writer, x: tk.Value, gate: tk.Value) -> tk.Value:
    """What becomes of an element of the product and the element of G in its place."""
    return x * gate


@tk.kernel(
    tk.Input("a", tk.BF16, "mk"),
    tk.Input("b", tk.BF16, "nk"),
    tk.Input("gate", tk.BF16, "mn"),
    tk.Output("d", tk.BF16, "mn"),
    tk.Output("sums", tk.F32, "m"),
    target="sm_90a",
    threads=PLAN.threads,
)
def gated_matmul(w: tk.Writer) -> tk.StaticScheduler:
    """D = (A B^T) * gate, and the sums of D's rows."""
    cluster = tk.Cluster.read(w, 1, 1)
    a, b = tk.OperandTile("a", tk.BF16, TILE, "k"), tk.OperandTile("b", tk.BF16, TILE, "k")
    stage, op = tk.StandardPayload(a, b), tk.Wgmma(a, b, warpgroups=2)
    tiles = stage.allocate(w.shared, "inputs", STAGES)
    sync = tk.MbarrierSync(
        w, "inputs", stages=STAGES, stage_bytes=stage.stage_bytes, producers=(LOAD,), consumers=(MMA,), cluster=cluster
    )
    k = w.parameter("k", tk.registers.U32, lambda call: call.k)
    raster = tk.RasterOrder(w, tile_m=TILE, tile_n=TILE, cluster=cluster, k=k, k_block=stage.k)
    scheduler = tk.StaticScheduler(raster)
    gate = tk.SourceRing(w, op.layout, name="gate", matrix="gate", dtype=tk.BF16, stages=2, loads=LOAD_GATE, reads=MMA)
    fused = tk.Fused(gated, source=tk.BF16, row_sums=tk.RowSums(w, "sums", layout=op.layout, raster=raster))
    epilogue = tk.StagedEpilogue(w, op.layout, fused, out=tk.BF16, role=MMA, buffers=2, first_barrier=1, source=gate)
    tk.WarpSpecialized(
        warps=PLAN,
        cluster=cluster,
        inputs=tk.TilePipeline(stage, tiles, stages=STAGES, sync=sync),
        loader=tk.StandardLoader(w, tk.TmaLoader(w, a), tk.TmaLoader(w, b), tiles, cluster),
        op=op,
        accumulators=tk.RegisterAccumulators(op),
        scheduler=scheduler,
        epilogue=epilogue,
        source=gate,
        k=k,
        in_flight=1,
    ).trace(w)
    return scheduler


def main() -> None:
    """Multiply small integers, which is exact, and compare."""
    random = np.random.default_rng(0)
    shapes = (200, 72), (264, 72), (200, 264)
    a, b, gate = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in shapes)
    d, sums = gated_matmul(a, b, gate)
    expected = (a.astype("f4") @ b.astype("f4").T) * gate.astype("f4")
    assert (d == expected.astype(ml_dtypes.bfloat16)).all()
    assert (sums == expected.sum(1)).all()
    print(f"{gated_matmul.name}: {d.size} elements and {sums.size} row sums, all exact")


if __name__ == "__main__":
    main()
