"""The same functions and sums where accumulators are in tensor memory and an epilogue role stores them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from composed import BF16, integers, padded, run

import tilekit.compose as tk


def gated(w: tk.Writer, x: tk.Value, gate: tk.Value) -> tk.Value:
    """Not zero where the product is."""
    return x + gate + 1.0


def matmul(*, group: int, asks: bool) -> tk.ComposedKernel:
    """D = A B^T + gate + 1 and the sums of its rows; a CTA pair where `group` is 2, tiles that are asked for."""
    plan = tk.WarpPlan.tensor_memory(tk.target("sm_100a"), scheduler=asks, epilogue_loads=True)

    @tk.kernel(
        tk.Input("a", tk.BF16, "mk"),
        tk.Input("b", tk.BF16, "nk"),
        tk.Input("gate", tk.BF16, "mn"),
        tk.Output("d", tk.BF16, "mn"),
        tk.Output("sums", tk.F32, "m"),
        target="sm_100a",
        threads=plan.threads,
        cluster=group,
    )
    def blackwell_matmul(w: tk.Writer) -> Any:
        cluster = tk.Cluster.read(w, group, 1, group=group)
        a, b = tk.OperandTile("a", tk.BF16, 128, "k"), tk.OperandTile("b", tk.BF16, 64 // group, "k")
        stage, op = tk.StandardPayload(a, b), tk.Tcgen05(a, b, group=group)
        tiles = stage.allocate(w.shared, "inputs", 3)
        loaders = [tk.TmaLoader(w, tile, paired=group > 1) for tile in (a, b)]
        sides = {"producers": (plan["load"],), "consumers": (plan["mma"],), "cluster": cluster}
        sync = tk.MbarrierSync(w, "inputs", stages=3, stage_bytes=stage.stage_bytes, released_by="commit", **sides)
        mma, epilogue = plan["mma"], plan["epilogue"]
        memory = tk.TensorMemory(w, capacity=512, allocates=mma, others=(epilogue,), cluster=cluster, barrier=2)
        accumulators = tk.TensorAccumulators(w, memory, op, stages=2, mma=mma, epilogue=epilogue)
        k = w.parameter("k", tk.registers.U32, lambda call: call.k)
        raster = tk.RasterOrder(w, tile_m=128, tile_n=64, cluster=cluster, k=k, k_block=stage.k)
        scheduler: Any = tk.StaticScheduler(raster)
        if asks:
            roles = {"scheduler": plan["scheduler"], "load": plan["load"], "readers": plan.roles}
            scheduler = tk.ClcScheduler(w, raster, cluster=cluster, stages=2, **roles)
        roles = {"loads": plan["epilogue_load"], "reads": plan["epilogue"]}
        gate = tk.SourceRing(w, op.layout, name="gate", matrix="gate", dtype=tk.BF16, stages=2, **roles)
        sums = tk.RowSums(w, "sums", layout=op.layout, raster=raster)
        fused = tk.Fused(gated, source=tk.BF16, row_sums=sums)
        tk.WarpSpecialized(
            warps=plan,
            cluster=cluster,
            inputs=tk.TilePipeline(stage, tiles, stages=3, sync=sync),
            loader=tk.StandardLoader(w, *loaders, tiles, cluster),
            op=op,
            accumulators=accumulators,
            scheduler=scheduler,
            epilogue=tk.StagedEpilogue(
                w, op.layout, fused, out=tk.BF16, role=plan["epilogue"], buffers=2, first_barrier=1, source=gate
            ),
            source=gate,
            k=k,
            in_flight=0,
        ).trace(w)
        return scheduler

    return blackwell_matmul


@pytest.mark.parametrize(("group", "asks"), [(1, False), (2, False), (1, True)])
def test_row_sums_from_tensor_memory(group: int, asks: bool) -> None:
    """One CTA, a pair, and tiles that clusters ask for: exact on ragged shapes, with nothing found."""
    kernel = matmul(group=group, asks=asks)
    for seed, (m, n, k) in enumerate([(200, 136, 72), (1, 8, 8), (300, 64, 0)]):
        rng = np.random.default_rng(seed)
        a, b, gate = integers(rng, 3, m, k), integers(rng, 3, n, k), integers(rng, 9, m, n)
        d, sums = np.zeros((m, n), BF16), np.zeros(m, np.float32)
        inputs = {"a": padded(a), "b": padded(b), "gate": padded(gate)}
        run(kernel, inputs, {"d": d, "sums": sums}, on="emulator", seed=seed)
        exact = a.astype(np.float32) @ b.astype(np.float32).T + gate.astype(np.float32) + 1
        np.testing.assert_array_equal(d, exact.astype(BF16))
        np.testing.assert_array_equal(sums, exact.sum(1))


def test_it_assembles() -> None:
    """ptxas takes it without a spill."""
    assert matmul(group=2, asks=True).resources.spill_store_bytes == 0
