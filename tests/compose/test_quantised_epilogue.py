"""`QuantisedEpilogue` in a composed kernel: a bf16 product whose result is in a block-scaled format."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from composed import BF16, integers, padded

import tilekit
import tilekit.compose as tk
from tilekit.assembly.errors import TraceError
from tilekit.errors import ArgumentError


def matmul(to: str, tile_n: int, layout: str, *, staged: bool = True) -> tk.ComposedKernel:
    """D, out_scales = quantised relu(A B^T), with a scale of the whole of 1."""
    plan = tk.WarpPlan.tensor_memory(tk.target("sm_100a"), scheduler=False)
    narrow = to != "mxfp8"
    scales = "ms" if layout == "rows" else "s"

    @tk.kernel(
        tk.Input("a", tk.BF16, "mk"),
        tk.Input("b", tk.BF16, "nk"),
        tk.Output("d", tk.E2M1X2 if narrow else tk.E4M3, "mh" if narrow else "mn", own="h" if narrow else ""),
        tk.Output("out_scales", tk.E4M3 if to == "nvfp4" else tk.UE8M0, scales, own="s"),
        target="sm_100a",
        threads=plan.threads,
    )
    def quantising_matmul(w: tk.Writer) -> Any:
        cluster = tk.Cluster.read(w, 1, 1)
        a, b = tk.OperandTile("a", tk.BF16, 128, "k"), tk.OperandTile("b", tk.BF16, tile_n, "k")
        stage, op = tk.StandardPayload(a, b), tk.Tcgen05(a, b, group=1)
        tiles = stage.allocate(w.shared, "inputs", 2)
        loaders = [tk.TmaLoader(w, tile) for tile in (a, b)]
        sides = {"producers": (plan["load"],), "consumers": (plan["mma"],), "cluster": cluster}
        sync = tk.MbarrierSync(w, "inputs", stages=2, stage_bytes=stage.stage_bytes, released_by="commit", **sides)
        mma, epilogue = plan["mma"], plan["epilogue"]
        memory = tk.TensorMemory(w, capacity=512, allocates=mma, others=(epilogue,), cluster=cluster, barrier=2)
        accumulators = tk.TensorAccumulators(w, memory, op, stages=2, mma=mma, epilogue=epilogue)
        k = w.parameter("k", tk.registers.U32, lambda call: call.k)
        rows = w.parameter("rows", tk.registers.U32, lambda call: call.m)
        columns = w.parameter("columns", tk.registers.U32, lambda call: call.n)
        raster = tk.RasterOrder(w, tile_m=128, tile_n=tile_n, cluster=cluster, k=k, k_block=stage.k)
        scheduler = tk.StaticScheduler(raster)
        functions = tk.Elementwise(w, tk.ElementwiseSpec(activation="relu"), columns=columns, precise=True)
        more: dict[str, Any] = {"role": epilogue} if staged else {}
        if to == "nvfp4":
            more["whole"] = w.constant(tk.registers.F32, 1.0)
        tk.WarpSpecialized(
            warps=plan,
            cluster=cluster,
            inputs=tk.TilePipeline(stage, tiles, stages=2, sync=sync),
            loader=tk.StandardLoader(w, *loaders, tiles, cluster),
            op=op,
            accumulators=accumulators,
            scheduler=scheduler,
            epilogue=tk.QuantisedEpilogue(
                w, op.layout, functions, scaled=to, rows=rows, columns=columns, scale_layout=layout, **more
            ),
            k=k,
            in_flight=0,
        ).trace(w)
        return scheduler

    return quantising_matmul


CASES = [
    ("mxfp8", 32, "rows", True),  # rows of 32 bytes
    ("mxfp8", 64, "rows", True),  # of 64
    ("mxfp8", 256, "128x4", True),  # two images a tile
    ("mxfp4", 128, "128x4", False),
    ("nvfp4", 64, "128x4", True),  # an atom's columns, 32 bytes
]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("to", "tile_n", "layout", "staged"), CASES)
def test_results(to: str, tile_n: int, layout: str, staged: bool) -> None:
    """Values and scales are those of `tilekit.quantise`, of several tiles a CTA, and nothing beside them is written."""
    m, n, k = 200, 288, 72
    rng = np.random.default_rng(tile_n)
    a, b = integers(rng, 3, m, k), integers(rng, 3, n, k)
    exact = np.maximum(a.astype(np.float32) @ b.astype(np.float32).T, 0)
    expected = tilekit.quantise(exact, to, scale=1.0 if to == "nvfp4" else None)
    kernel = matmul(to, tile_n, layout, staged=staged)
    size, count = expected.values.shape[1], expected.scales.shape[1]
    values = np.full((m, size + 16), 0xAA, np.uint8)
    want = expected.scales if layout == "rows" else tilekit.lay_out_scales(expected.scales).ravel()
    scales = np.full(want.shape, 0xAA, np.uint8)
    kernel(padded(a), padded(b), d=values[:, :size].view(expected.values.dtype), out_scales=scales.view(want.dtype))
    np.testing.assert_array_equal(scales, want.view(np.uint8))
    np.testing.assert_array_equal(values[:, :size], expected.values.view(np.uint8))
    assert (values[:, size:] == 0xAA).all()
    assert count == -(-n // (16 if to == "nvfp4" else 32))
    assert ("cp.async.bulk.tensor.2d.global" in kernel.assembly) is staged


def test_it_assembles() -> None:
    """ptxas takes it without a spill."""
    assert matmul("mxfp8", 128, "128x4").resources.spill_store_bytes == 0


def test_an_output_of_its_own_extents_is_given() -> None:
    """Scales have an extent that no input has, so they are not made."""
    a = np.ones((8, 64), BF16)
    with pytest.raises(ArgumentError, match=r"out_scales is not given.*out_scales= an array of shape \(m, s\)"):
        matmul("mxfp8", 32, "rows")(a, a, d=np.zeros((8, 8), ml_dtypes.float8_e4m3fn))


@pytest.mark.parametrize(
    ("rows", "columns", "keywords", "message"),
    [
        (64, 128, {}, r"layout=.*legal: 128 rows"),
        (128, 48, {}, r"48 columns.*columns in steps of 32"),
        (128, 96, {"scale_layout": "128x4"}, r"96 columns.*columns in steps of 128"),
        (128, 64, {"scaled": "mxfp8", "whole": 1}, "whole.*None"),
        (128, 64, {"scaled": "nvfp4"}, "whole.*f32 value"),
        (128, 64, {"scale_layout": "128by4"}, "scale_layout.*nearest: '128x4'"),
    ],
)
def test_refused(rows: int, columns: int, keywords: dict[str, Any], message: str) -> None:
    """What has no whole rows or whole atoms, and a scale of the whole where there is none."""
    w = tk.Writer("odd", target="sm_100a", threads=192)
    a, b = tk.OperandTile("a", tk.BF16, rows, "k"), tk.OperandTile("b", tk.BF16, columns, "k")
    k = w.constant(tk.registers.U32, 64)
    functions = tk.Elementwise(w, tk.ElementwiseSpec(), columns=k, precise=True)
    if keywords.get("whole") is not None:
        keywords = {**keywords, "whole": w.constant(tk.registers.F32, 1.0)}
    given = {"scaled": "mxfp8", "rows": k, "columns": k, **keywords}
    with pytest.raises(TraceError, match=f"(?s){message}"):
        tk.QuantisedEpilogue(w, tk.Tcgen05(a, b, group=1).layout, functions, **given)
