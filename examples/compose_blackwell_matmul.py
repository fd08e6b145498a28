"""A matmul for Blackwell (sm_100a) from the driver that Hopper's has, with accumulators in tensor memory.

D = (A B^T) * G in bf16, and sums[i] = the sum of row i of D in f32. Against gated_row_sums.py three components differ:
one thread issues the instruction, and its sums lie in tensor memory, from where another role stores them (`Tcgen05`,
`TensorMemory`, `TensorAccumulators`); the tensor core's commit releases stages; and tiles are claimed from clusters
that have not started (`ClcScheduler`). The functions, the gate's ring and the row sums are the same.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilekit.compose as tk

TILE_M, TILE_N, STAGES = 128, 64, 4
PLAN = tk.WarpPlan.tensor_memory(tk.target("sm_100a"), scheduler=True, epilogue_loads=True)
LOAD, MMA, STORE, LOAD_GATE = PLAN["load"], PLAN["mma"], PLAN["epilogue"], PLAN["epilogue_load"]


def gated(w: tk.Writer, x: tk.Value, gate: tk.Value) -> tk.Value:
    """What becomes of an element of the product and the element of G in its place."""
    return x * gate


@tk.kernel(
    tk.Input("a", tk.BF16, "mk"),
    tk.Input("b", tk.BF16, "nk"),
    tk.Input("gate", tk.BF16, "mn"),
    tk.Output("d", tk.BF16, "mn"),
    tk.Output("sums", tk.F32, "m"),
    target="sm_100a",
    threads=PLAN.threads,
)
def blackwell_matmul(w: tk.Writer) -> tk.ClcScheduler:
    """D = (A B^T) * gate, and the sums of D's rows."""
    cluster = tk.Cluster.read(w, 1, 1)
    a, b = tk.OperandTile("a", tk.BF16, TILE_M, "k"), tk.OperandTile("b", tk.BF16, TILE_N, "k")
    stage, op = tk.StandardPayload(a, b), tk.Tcgen05(a, b, group=1)
    tiles = stage.allocate(w.shared, "inputs", STAGES)
    sides = {"producers": (LOAD,), "consumers": (MMA,), "cluster": cluster}
    sync = tk.MbarrierSync(w, "inputs", stages=STAGES, stage_bytes=stage.stage_bytes, released_by="commit", **sides)
    # The role that multiplies allocates tensor memory and tells the one that stores; two tiles' sums lie there at once.
    memory = tk.TensorMemory(w, capacity=512, allocates=MMA, others=(STORE,), cluster=cluster, barrier=2)
    accumulators = tk.TensorAccumulators(w, memory, op, stages=2, mma=MMA, epilogue=STORE)
    k = w.parameter("k", tk.registers.U32, lambda call: call.k)
    raster = tk.RasterOrder(w, tile_m=TILE_M, tile_n=TILE_N, cluster=cluster, k=k, k_block=stage.k)
    scheduler = tk.ClcScheduler(
        w, raster, cluster=cluster, stages=2, scheduler=PLAN["scheduler"], load=LOAD, readers=PLAN.roles
    )
    gate = tk.SourceRing(
        w, op.layout, name="gate", matrix="gate", dtype=tk.BF16, stages=2, loads=LOAD_GATE, reads=STORE
    )
    fused = tk.Fused(gated, source=tk.BF16, row_sums=tk.RowSums(w, "sums", layout=op.layout, raster=raster))
    epilogue = tk.StagedEpilogue(w, op.layout, fused, out=tk.BF16, role=STORE, buffers=2, first_barrier=1, source=gate)
    tk.WarpSpecialized(
        warps=PLAN,
        cluster=cluster,
        inputs=tk.TilePipeline(stage, tiles, stages=STAGES, sync=sync),
        loader=tk.StandardLoader(w, tk.TmaLoader(w, a), tk.TmaLoader(w, b), tiles, cluster),
        op=op,
        accumulators=accumulators,
        scheduler=scheduler,
        epilogue=epilogue,
        source=gate,
        k=k,
        in_flight=0,  # the commit releases a stage, not a wait of this thread
    ).trace(w)
    return scheduler


def main() -> None:
    """Multiply small integers, which is exact, and compare."""
    random = np.random.default_rng(0)
    shapes = (200, 72), (136, 72), (200, 136)
    a, b, gate = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in shapes)
    d, sums = blackwell_matmul(a, b, gate)
    expected = (a.astype("f4") @ b.astype("f4").T) * gate.astype("f4")
    assert (d == expected.astype(ml_dtypes.bfloat16)).all()
    assert (sums == expected.sum(1)).all()
    print(f"{blackwell_matmul.name}: {d.size} elements and {sums.size} row sums, all exact")


if __name__ == "__main__":
    main()
