"""A small matmul put together by hand, of whatever tiles, loaders and synchronisation a test is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilekit.arrays import view_of
from tilekit.arrays.staging import EmulatedStaging
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.roles import elected, one_thread
from tilekit.dtypes import BF16, F32, as_dtype
from tilekit.emulator import Device
from tilekit.epilogue.direct import DirectEpilogue
from tilekit.epilogue.functions import Elementwise, ElementwiseSpec
from tilekit.kernels.launch import bind_parameters
from tilekit.runtime.emulated import EmulatedModule
from tilekit.runtime.prepared import LaunchConfig
from tilekit.tile_io.payload_loader import PayloadLoader, StandardLoader
from tilekit.tile_io.tma import TmaLoader
from tilekit.tile_op.accumulators import Warpgroup
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_accumulators import TensorAccumulators
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tile_op.wgmma import Wgmma
from tilekit.tile_pipeline.mbarrier_sync import FilledBy, MbarrierSync
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_schedule.raster import RasterOrder
from tilekit.tile_schedule.static import StaticScheduler
from tilekit.tiles.call import Call, Matrix
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import OperandTile

Array = np.ndarray[Any, Any]
STAGES = 3
LOAD = Role("load", warps=range(4), may=frozenset({"load", "memory", "sync", "wait"}), one_thread=True)
COPY = Role("load", warps=range(4), may=frozenset({"load", "memory", "store", "sync", "wait"}))

Loading = Callable[[Writer, OperandTile, OperandTile, dict[str, SharedArray], Cluster], PayloadLoader]
"""Makes the loaders of both tiles."""


def by_tma(w: Writer, a: OperandTile, b: OperandTile, tiles: dict[str, SharedArray], cluster: Cluster) -> PayloadLoader:
    """Both operands as they lie in memory."""
    return StandardLoader(w, TmaLoader(w, a), TmaLoader(w, b), tiles, cluster)


class Launched:
    """A composed kernel: how it is run."""

    w: Writer
    scheduler: StaticScheduler

    def _load(self, w: Writer, loader: PayloadLoader, inputs: TilePipeline, role: Role, k_end: Any, step: int) -> None:
        bound = loader.bind(w)
        producer = inputs.producer(w, bound.writer)
        for tile in self.scheduler.tiles(w, role):
            copies = bound.at(w, tile)
            for k in w.range(k_end, step=step, name="k"):
                with producer.acquire() as stage:
                    copies.load(w, stage, k)
            producer.flush()
        producer.finish()

    def run(
        self, a: Array, b: Array, m: int, n: int, k: int, *, seed: int = 0, others: Mapping[str, Array] | None = None
    ) -> tuple[Array, Any]:
        """Launch with the arrays as they lie in memory (the contiguous dimension last); return D and the report."""
        device = Device(self.w.target.name, seed=seed)
        memory = EmulatedStaging(device)
        d = np.full((m, n), np.nan, np.float32)
        arrays = {"a": a, "b": b, "d": d, **(others or {})}
        matrices = {
            name: Matrix(name, as_dtype(array.dtype), (array.shape[1], array.shape[0]), array.strides[0])
            for name, array in arrays.items()
            if name in ("a", "b", "d")
        }
        addresses = {name: memory.upload(view_of(array)) for name, array in arrays.items()}
        call = Call(m=m, n=n, k=k, matrices=matrices, addresses=addresses, resident=2)
        launch = bind_parameters(self.w.parameters, self.scheduler.schedule, call)
        shape = LaunchConfig(
            grid=(launch.grid, 1, 1), block=(self.w.threads, 1, 1), cluster=(1, 1, 1), shared_bytes=self.w.shared.size
        )
        prepared = EmulatedModule(device, self.w.text()).kernel(self.w.name).prepare(shape, launch.parameters)
        prepared()
        memory.download(view_of(d))
        return d, prepared.report


class Composed(Launched):
    """D = A B^T in f32: one role loads, one to three warpgroups multiply and store.

    Parameters
    ----------
    a, b
        The tiles.
    warpgroups
        That share a tile.
    loading
        Makes the loaders.
    filled_by
        ``"threads"`` where the load role's threads write what is not the copy engine's.
    engine_bytes
        Bytes of a stage that the copy engine brings; None for all.
    """

    def __init__(
        self,
        a: OperandTile,
        b: OperandTile,
        *,
        warpgroups: int = 1,
        loading: Loading = by_tma,
        filled_by: FilledBy = "engine",
        engine_bytes: int | None = None,
    ) -> None:
        self.w = w = Writer("composed", target="sm_90a", threads=128 * (1 + warpgroups))
        mma = Role("mma", warps=range(4, 4 + 4 * warpgroups), may=frozenset({"mma", "sync", "wait", "store", "memory"}))
        load = LOAD if filled_by == "engine" else COPY
        cluster = Cluster.read(w, 1, 1)
        payload = StandardPayload(a, b)
        tiles = payload.allocate(w.shared, "inputs", STAGES)
        loader = loading(w, a, b, tiles, cluster)
        sync = MbarrierSync(
            w,
            "inputs",
            stages=STAGES,
            stage_bytes=payload.stage_bytes if engine_bytes is None else engine_bytes,
            producers=(load,),
            consumers=(mma,),
            cluster=cluster,
            filled_by=filled_by,
        )
        inputs = TilePipeline(payload, tiles, stages=STAGES, sync=sync)
        op = Wgmma(a, b, warpgroups=warpgroups)
        k_end = w.parameter("k", U32, lambda call: call.k)
        rows = w.parameter("rows", U32, lambda call: call.m)
        columns = w.parameter("columns", U32, lambda call: call.n)
        raster = RasterOrder(w, tile_m=a.rows, tile_n=b.rows, cluster=cluster, k=k_end, k_block=payload.k)
        self.scheduler = scheduler = StaticScheduler(raster)
        functions = Elementwise(w, ElementwiseSpec(), columns=columns, precise=True)
        epilogue = DirectEpilogue(w, op.layout, functions, out=F32, rows=rows, columns=columns, batched=False)
        warp = w.warp()
        with one_thread(w, warp, load):
            loader.prefetch(w)
            inputs.initialise(w)
        cluster.sync(w, w.threads)
        with w.role(load, warp):
            if load.one_thread:
                with one_thread(w, warp, load):
                    self._load(w, loader, inputs, load, k_end, payload.k)
            else:
                self._load(w, loader, inputs, load, k_end, payload.k)
        with w.role(mma, warp):
            group = Warpgroup.of(w, warp, mma)
            multiplier = op.bind(w, tiles, group)
            consumer = inputs.consumer(w, multiplier, in_flight=1)
            storer = epilogue.bind(w, group)
            accumulators = RegisterAccumulators(op).producer(w, mma)
            for tile in scheduler.tiles(w, mma):
                for k in w.range(k_end, step=payload.k, name="k"):
                    with consumer.acquire() as stage:
                        multiplier.multiply(w, accumulators, stage, accumulate=k != 0)
                consumer.finish()
                storer.store(w, accumulators, tile)
            storer.finish(w)


class ComposedBlackwell(Launched):
    """The same by tcgen05: a warp loads, one multiplies into a region of tensor memory, a warpgroup stores.

    Parameters
    ----------
    a, b
        The tiles.
    claims
        Columns of tensor memory that others claim before the accumulators.
    in_flight
        Stages given back a k-block later.
    """

    def __init__(self, a: OperandTile, b: OperandTile, *, claims: int = 0, in_flight: int = 0) -> None:
        self.w = w = Writer("composed", target="sm_100a", threads=32 * 6)
        store = Role("store", warps=range(4), may=frozenset({"tmem", "sync", "wait", "store", "memory"}))
        load = Role("load", warps=range(4, 5), may=frozenset({"load", "sync", "wait"}), one_thread=True)
        may = frozenset({"mma", "tmem", "sync", "wait", "memory"})
        mma = Role("mma", warps=range(5, 6), may=may, one_thread=True)
        cluster = Cluster.read(w, 1, 1)
        payload = StandardPayload(a, b)
        tiles = payload.allocate(w.shared, "inputs", STAGES)
        loader = by_tma(w, a, b, tiles, cluster)
        sync = MbarrierSync(
            w,
            "inputs",
            stages=STAGES,
            stage_bytes=payload.stage_bytes,
            producers=(load,),
            consumers=(mma,),
            cluster=cluster,
            released_by="commit",
        )
        inputs = TilePipeline(payload, tiles, stages=STAGES, sync=sync)
        op = Tcgen05(a, b, group=1)
        memory = TensorMemory(w, capacity=512, allocates=mma, others=(store,), cluster=cluster, barrier=1)
        if claims:
            memory.claim("others", columns=claims, claimant="test")
        accumulators = TensorAccumulators(w, memory, op, stages=2, mma=mma, epilogue=store)
        k_end = w.parameter("k", U32, lambda call: call.k)
        rows = w.parameter("rows", U32, lambda call: call.m)
        columns = w.parameter("columns", U32, lambda call: call.n)
        raster = RasterOrder(w, tile_m=a.rows, tile_n=b.rows, cluster=cluster, k=k_end, k_block=payload.k)
        self.scheduler = scheduler = StaticScheduler(raster)
        functions = Elementwise(w, ElementwiseSpec(), columns=columns, precise=True)
        epilogue = DirectEpilogue(w, op.layout, functions, out=F32, rows=rows, columns=columns, batched=False)
        warp = w.warp()
        with one_thread(w, warp, load):
            loader.prefetch(w)
            accumulators.initialise(w)
            inputs.initialise(w)
        cluster.sync(w, w.threads)
        with w.role(load, warp), elected(w):
            self._load(w, loader, inputs, load, k_end, payload.k)
        with w.role(mma, warp):
            producer = accumulators.producer(w, mma)
            with elected(w):
                multiplier = op.bind(w, tiles)
                consumer = inputs.consumer(w, multiplier, in_flight=in_flight)
                for _ in scheduler.tiles(w, mma):
                    with producer.acquire() as target:
                        for k in w.range(k_end, step=payload.k, name="k"):
                            with consumer.acquire() as stage:
                                multiplier.multiply(w, target, stage, accumulate=k != 0)
                        consumer.finish()
        with w.role(store, warp):
            group = Warpgroup.of(w, warp, store)
            finished = accumulators.consumer(w, group)
            storer = epilogue.bind(w, group)
            for tile in scheduler.tiles(w, store):
                with finished.acquire() as sums:
                    storer.store(w, sums, tile)
            storer.finish(w)
        cluster.sync(w, w.threads)
        accumulators.free(w, warp)


def integers(rows: int, columns: int, seed: int, dtype: np.dtype[Any] = BF16.numpy) -> Array:
    """Small integers, whose sums of products are exact in f32."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(np.float32).astype(dtype)
