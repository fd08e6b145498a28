"""A complete Hopper matmul, composed by hand: every component, both roles and both loops in view.

D = relu(A B^T) in bf16, in tiles of 128 x 128. Two CTAs of a cluster share each tile of B by multicast; one thread of
each CTA loads, two warpgroups multiply and store. Arrays in host memory are computed on the emulator; arrays in GPU
memory, or `composed_matmul.bind(a, b, device="cuda")()`, on an H100 or H200.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilekit.compose as tk

TILE, STAGES, CLUSTER = 128, 4, 2
LOAD = tk.Role("load", warps=range(4), may=frozenset({"load", "sync", "wait"}), one_thread=True)
MMA = tk.Role("mma", warps=range(4, 12), may=frozenset({"mma", "sync", "wait", "store"}))


@tk.kernel(
    tk.Input("a", tk.BF16, "mk"),
    tk.Input("b", tk.BF16, "nk"),
    tk.Output("d", tk.BF16, "mn"),
    target="sm_90a",
    threads=32 * 12,
    cluster=CLUSTER,
)
def composed_matmul(w: tk.Writer) -> tk.StaticScheduler:
    """Trace the kernel. Everything this function says happens in order, once; what it traces runs on the device."""
    cluster = tk.Cluster.read(w, CLUSTER, 1)

    # What a stage holds, and who moves it.
    a, b = tk.OperandTile("a", tk.BF16, TILE, "k"), tk.OperandTile("b", tk.BF16, TILE, "k")
    payload = tk.StandardPayload(a, b)
    tiles = payload.allocate(w.shared, "inputs", STAGES)
    load_a = tk.TmaLoader(w, a, participants=cluster.share_a_count)
    load_b = tk.TmaLoader(w, b, participants=cluster.share_b_count)
    loader = tk.StandardLoader(w, load_a, load_b, tiles, cluster)

    # When a stage may be filled and read: arrival counts follow from the roles.
    size = payload.stage_bytes
    sync = tk.MbarrierSync(
        w, "inputs", stages=STAGES, stage_bytes=size, producers=(LOAD,), consumers=(MMA,), cluster=cluster
    )
    inputs = tk.TilePipeline(payload, tiles, stages=STAGES, sync=sync)

    # What is computed, which tile is next, and where it goes.
    op = tk.Wgmma(a, b, warpgroups=2)
    k_end = w.parameter("k", tk.registers.U32, lambda call: call.k)  # where it is declared, it says what it will be
    columns = w.parameter("columns", tk.registers.U32, lambda call: call.n)
    raster = tk.RasterOrder(w, tile_m=TILE, tile_n=TILE, cluster=cluster, k=k_end, k_block=payload.k)
    scheduler = tk.StaticScheduler(raster)
    functions = tk.Elementwise(w, tk.ElementwiseSpec(activation="relu"), columns=columns, precise=False)
    epilogue = tk.StagedEpilogue(w, op.layout, functions, out=tk.BF16, role=MMA, buffers=2, first_barrier=1)

    warp = w.warp()
    with tk.one_thread(w, warp, LOAD):
        loader.prefetch(w)
        inputs.initialise(w)
    cluster.sync(w, w.threads)  # every barrier, here and in the peer, is initialised before a thread waits on one

    with w.role(LOAD, warp), tk.one_thread(w, warp, LOAD):
        producer, operands = inputs.producer(w), loader.bind(w)
        for tile in scheduler.tiles(w, LOAD):
            copies = operands.at(w, tile)
            for k in w.range(k_end, step=payload.k, name="k"):
                with producer.acquire() as stage:  # waits until it is free; what is loaded completes it
                    copies.load(w, stage, k)

    with w.role(MMA, warp):
        group = tk.Warpgroup.of(w, warp, MMA)
        multiplier = op.bind(w, tiles, group)
        consumer = inputs.consumer(w, multiplier, in_flight=1)
        storer = epilogue.bind(w, group)
        accumulators = tk.RegisterAccumulators(op).producer(w, MMA)
        for tile in scheduler.tiles(w, MMA):
            for k in w.range(k_end, step=payload.k, name="k"):
                with consumer.acquire() as stage:  # waits until it is full; released when its reads are done
                    multiplier.multiply(w, accumulators, stage, accumulate=k != 0)
            consumer.finish()
            storer.store(w, accumulators, tile)
        storer.finish(w)

    cluster.sync(w, w.threads)  # the peer still multicasts into this CTA's shared memory
    return scheduler


def main() -> None:
    """Compose, launch, check."""
    random = np.random.default_rng(0)
    # Small integers: every product and every sum is exact, so the result must match to the bit.
    a, b = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((500, 192), (200, 192)))
    d = composed_matmul(a, b)
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32).T, 0).astype(ml_dtypes.bfloat16)
    assert (d == expected).all()
    print(f"{composed_matmul.name}: {len(composed_matmul.ptx.splitlines())} lines of PTX, {d.size} elements, all exact")


if __name__ == "__main__":
    main()
