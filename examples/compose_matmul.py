"""A complete Hopper matmul, composed by hand: every component, both roles and both loops in view.

D = relu(A B^T) in bf16, in tiles of 128 x 128. Two CTAs of a cluster share each tile of B by multicast; one thread of
each CTA loads, two warpgroups multiply and store. Runs on an H100 or H200 if there is one, else on the emulator, and
checks every element.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilekit.arrays import view_of
from tilekit.arrays.staging import CudaStaging, EmulatedStaging, Staging
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.roles import one_thread
from tilekit.dtypes import BF16
from tilekit.emulator import Device
from tilekit.epilogue.functions import Elementwise, ElementwiseSpec
from tilekit.epilogue.staged import StagedEpilogue
from tilekit.kernels.launch import bind_parameters
from tilekit.runtime import driver
from tilekit.runtime import parameters as runtime
from tilekit.runtime.emulated import EmulatedModule
from tilekit.runtime.launch import CudaModule
from tilekit.runtime.prepared import LaunchConfig
from tilekit.tile_io.payload_loader import StandardLoader
from tilekit.tile_io.tma import TmaLoader
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.wgmma import RegisterAccumulators, Wgmma
from tilekit.tile_pipeline.mbarrier_sync import MbarrierSync
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tiles.call import Call, Matrix
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import OperandTile

Array = np.ndarray[Any, Any]

TILE, STAGES, CLUSTER = 128, 4, 2
LOAD = Role("load", warps=range(4), may=frozenset({"load", "sync", "wait"}), one_thread=True)
MMA = Role("mma", warps=range(4, 12), may=frozenset({"mma", "sync", "wait", "store"}))


def compose() -> tuple[Writer, StaticScheduler]:
    """Trace the kernel. Everything this function says happens in order, once; what it traces runs on the device."""
    w = Writer("composed_matmul", target="sm_90a", threads=32 * 12, cluster=CLUSTER)
    cluster = Cluster.read(w, CLUSTER, 1)

    # What a stage holds, and who moves it.
    a, b = OperandTile("a", BF16, TILE, "k"), OperandTile("b", BF16, TILE, "k")
    payload = StandardPayload(a, b)
    tiles = payload.allocate(w.shared, "inputs", STAGES)
    load_a, load_b = TmaLoader(w, a, sharers=cluster.share_a_count), TmaLoader(w, b, sharers=cluster.share_b_count)
    loader = StandardLoader(w, load_a, load_b, tiles, cluster)

    # When a stage may be filled and read: arrival counts follow from the roles.
    sync = MbarrierSync(
        w,
        "inputs",
        stages=STAGES,
        stage_bytes=payload.stage_bytes,
        producers=(LOAD,),
        consumers=(MMA,),
        cluster=cluster,
    )
    inputs = TilePipeline(payload, tiles, stages=STAGES, sync=sync)

    # What is computed, which tile is next, and where it goes.
    op = Wgmma(a, b, warpgroups=2)
    k_end = w.parameter("k", U32, lambda call: call.k)  # where a parameter is declared, it says what it will be
    columns = w.parameter("columns", U32, lambda call: call.n)
    raster = RasterOrder(w, tile_m=TILE, tile_n=TILE, cluster=cluster, k=k_end, k_block=payload.k)
    scheduler = StaticScheduler(raster)
    functions = Elementwise(w, ElementwiseSpec(activation="relu"), columns=columns, precise=False)
    epilogue = StagedEpilogue(w, op.layout, functions, out=BF16, role=MMA, buffers=2, first_barrier=1)

    warp = w.warp()
    with one_thread(w, warp, LOAD):
        loader.prefetch(w)
        inputs.initialise(w)
    cluster.sync(w, w.threads)  # nobody waits on a barrier, here or in the peer, before it is initialised

    with w.role(LOAD, warp), one_thread(w, warp, LOAD):
        producer, operands = inputs.producer(w), loader.bind(w)
        for tile in scheduler.tiles(w, LOAD):
            copies = operands.at(w, tile)
            for k in w.range(k_end, step=payload.k, name="k"):
                with producer.acquire() as stage:  # waits until it is free; what is loaded completes it
                    copies.load(w, stage, k)

    with w.role(MMA, warp):
        group = Warpgroup.of(w, warp, MMA)
        multiplier = op.bind(w, tiles, group)
        consumer = inputs.consumer(w, multiplier, in_flight=1)
        storer = epilogue.bind(w, group)
        accumulators = RegisterAccumulators(op).producer(w, MMA)
        for tile in scheduler.tiles(w, MMA):
            for k in w.range(k_end, step=payload.k, name="k"):
                with consumer.acquire() as stage:  # waits until it is full; released when its reads are done
                    multiplier.multiply(w, accumulators, stage, accumulate=k != 0)
            consumer.finish()
            storer.store(w, accumulators, tile)
        storer.finish(w)

    cluster.sync(w, w.threads)  # the peer still multicasts into this CTA: nobody leaves before everybody is done
    return w, scheduler


def launch(w: Writer, scheduler: StaticScheduler, a: Array, b: Array, d: Array) -> str:
    """Launch on a GPU if there is one that can, else on the emulator; return where."""
    if driver.why_unavailable() is None and driver.devices()[0].compute_capability == (9, 0):
        kernel = CudaModule.from_ptx(w.text(), w.target.name, kernel_name=w.name).kernel(w.name)
        with CudaStaging() as memory:
            kernel.prepare(*arguments(w, scheduler, memory, a, b, d))()
            memory.download(view_of(d))
        return "GPU"
    device = Device("sm_90a", seed=1)
    emulated = EmulatedStaging(device)
    EmulatedModule(device, w.text()).kernel(w.name).prepare(*arguments(w, scheduler, emulated, a, b, d))()
    emulated.download(view_of(d))
    return "emulator"


def arguments(
    w: Writer, scheduler: StaticScheduler, memory: Staging, a: Array, b: Array, d: Array
) -> tuple[LaunchConfig, tuple[runtime.Parameter, ...]]:
    """Say what the call is; the launch's shape and its parameters follow from what the components declared."""
    arrays = {"a": a, "b": b, "d": d}
    call = Call(
        m=len(a),
        n=len(b),
        k=a.shape[1],
        matrices={name: Matrix(name, BF16, array.shape[::-1], array.strides[0]) for name, array in arrays.items()},
        addresses={name: memory.upload(view_of(array)) for name, array in arrays.items()},
        resident=132 // CLUSTER,
        cluster_size=CLUSTER,
    )
    launch = bind_parameters(w.parameters, scheduler.schedule, call)
    shape = LaunchConfig(
        grid=(launch.grid, 1, 1), block=(w.threads, 1, 1), cluster=(CLUSTER, 1, 1), shared_bytes=w.shared.size
    )
    return shape, launch.parameters


def main() -> None:
    """Compose, launch, check."""
    random = np.random.default_rng(0)
    # Small integers: every product and every sum is exact, so the result must match to the bit.
    a, b = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((500, 192), (200, 192)))
    d = np.full((500, 200), np.nan, ml_dtypes.bfloat16)
    w, scheduler = compose()
    where = launch(w, scheduler, a, b, d)
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32).T, 0).astype(ml_dtypes.bfloat16)
    assert (d == expected).all()
    print(f"{w.name}: {len(w.text().splitlines())} lines of PTX, {d.size} elements on the {where}, all exact")


if __name__ == "__main__":
    main()
