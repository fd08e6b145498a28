"""An attention kernel of sm_100a: the components that a spec and a config select, traced by the driver."""

from __future__ import annotations

from typing import Any

from tilekit.assembly.types import F32
from tilekit.assembly.writer import Writer
from tilekit.drivers.head_loads import Loaders
from tilekit.drivers.profiler import TileProfiler
from tilekit.drivers.tensor_attention import TensorAttention
from tilekit.drivers.warp_plan import RoleEntry, WarpPlan
from tilekit.epilogue.tensor_heads import TensorHeadEpilogue, TensorSharedHeadEpilogue
from tilekit.kernels.attention.kernel import (
    AttentionText,
    OwnAttention,
    head_logarithms,
    head_order,
    head_ring,
    head_storer,
    head_sync,
    head_tile,
    key_loaders,
    query_loader,
)
from tilekit.kernels.attention.sm_100a.config import ROWS, BlackwellAttentionConfig
from tilekit.kernels.attention.spec import AttentionSpec
from tilekit.targets import Target
from tilekit.tile_io.heads import GroupLoader, HeadLoader
from tilekit.tile_io.key_cache import CacheLoader
from tilekit.tile_op.attention_tcgen05 import TensorScores, TensorWeighted
from tilekit.tile_op.attention_tensors import AttentionTensors
from tilekit.tile_op.online_softmax import OnlineSoftmax, Softcap
from tilekit.tile_op.row_exchange import RowExchange
from tilekit.tile_op.score_layout import LANES
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tile_schedule.heads import HeadScheduler
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import ATOM_ROWS

_MEMORY_BARRIER, _EPILOGUE_BARRIER = 1, 2

_REGISTERS = {1: (192, 96, 96), 2: (184, 80, 64)}
"""Of a thread that weighs, corrects, and of the others, by tiles: those of a launch are 168 and 128."""

_REGISTERS_OF_DEEP_TILES = 176, 80, 80
"""Of two tiles of queries of more than 128 elements, and more than values have: the thread that multiplies has up to
16 steps' descriptors of both, of which ptxas spills with 64 registers; and weighing takes fewer of at most 96 keys."""

_REGISTERS_OF_WIDE_VALUES = 168, 96, 80
"""Of two tiles with more than 128 elements of values: ptxas 13.5 spills one register of what corrects them with 80, and
weighing takes fewer of at most 48 keys."""

_REGISTERS_OF_PACKED = 192, 120, 120
"""Of one tile of packed sequences, where every role counts tiles as it goes: ptxas spills one register of heads of 256
elements with 96."""

_DEEP = 128


def trace(
    spec: AttentionSpec, config: BlackwellAttentionConfig, target: Target, own: OwnAttention | None = None
) -> AttentionText:
    """Trace the kernel that `spec` and `config` describe, with the caller's own components where they are given.

    Raises
    ------
    ConfigError
        Listing every rule the config violates.
    """
    config.check(spec, target)
    plan = role_plan(target, config.tiles, spec)
    w = Writer(
        spec.name if own is None else own.name, target=target, threads=plan.threads, profile_tiles=config.profile_tiles
    )
    kernel = compose(w, spec, config, plan)
    if own is not None:
        kernel = own.change(w, kernel)
    kernel.trace(w)
    return AttentionText(
        name=w.name,
        assembly=w.text(),
        parameters=tuple(w.parameters),
        schedule=kernel.scheduler.schedule,
        threads=plan.threads,
        shared_bytes=w.shared.size,
        roles=tuple(w.roles),
        shared=tuple(w.shared.arrays),
        profile=kernel.profiler,
        tensor=tuple(kernel.tensors.memory.regions),
    )


def role_plan(target: Target, tiles: int, spec: AttentionSpec) -> WarpPlan:
    """A warpgroup for each tile's softmax and one for the correction, and warps that load and multiply.

    Those of the softmax come first: a warp reads the quarter of the lanes that its index modulo 4 names.
    """
    deep = tiles > 1 and spec.head_dim > max(_DEEP, spec.value_dim)
    weighs, corrects, others = _REGISTERS_OF_DEEP_TILES if deep else _REGISTERS[tiles]
    if spec.value_dim > _DEEP and tiles > 1:
        weighs, corrects, others = _REGISTERS_OF_WIDE_VALUES
    if spec.packed and tiles == 1:
        weighs, corrects, others = _REGISTERS_OF_PACKED
    waves = target.matrix_waves
    softmax = RoleEntry(
        "softmax", waves * tiles, frozenset({"tmem", "sync", "wait", "memory", "store"}), weighs, raised=True
    )
    correction = RoleEntry("correction", waves, frozenset({"tmem", "sync", "wait", "memory", "store"}), corrects)
    load = RoleEntry("load", waves, frozenset({"load", "sync", "wait", "memory"}), others, one_thread=True)
    mma = RoleEntry("mma", 1, frozenset({"mma", "tmem", "sync", "wait", "memory"}), one_thread=True)
    return WarpPlan.of(target, (load, softmax, correction), first=("softmax", "correction")).with_role(
        mma, beside="load"
    )


def compose(w: Writer, spec: AttentionSpec, config: BlackwellAttentionConfig, plan: WarpPlan) -> TensorAttention:
    """Select the components."""
    cluster = Cluster.read(w, 1, 1)
    group = max(1, spec.group)
    # Of heads in one tile, rows beyond the last whole query are loaded, since the instruction reads them.
    loaded = -(-ROWS // group)
    rows = -(-loaded * group // ATOM_ROWS) * ATOM_ROWS
    queries = head_tile("q", spec, rows, spec.head_dim)
    keys = head_tile("k", spec, config.keys, spec.head_dim)
    values = head_tile("v", spec, config.keys, spec.value_dim)
    first = query_loader(w, spec, queries, positions=loaded)
    loaders: Loaders = first, *key_loaders(w, spec, keys, values)
    named: list[tuple[str, HeadLoader | GroupLoader | CacheLoader, int]] = [
        (f"q{part}", first, 1) for part in range(config.tiles)
    ]
    named += [("k", loaders[1], config.stages), ("v", loaders[2], config.stages)]
    # Barriers and pairs come first, and tiles, which are aligned to 1024 bytes, behind all of them.
    syncs = [
        head_sync(w, plan, cluster, loader, stages, name=name, released_by="commit") for name, loader, stages in named
    ]
    mma, softmax, correction = plan["mma"], plan["softmax"], plan["correction"]
    memory = TensorMemory(
        w,
        capacity=w.target.tensor_columns,
        allocates=mma,
        others=(softmax, correction),
        cluster=cluster,
        barrier=_MEMORY_BARRIER,
    )
    tensors = AttentionTensors(
        w,
        memory,
        tiles=config.tiles,
        keys=config.keys,
        columns=spec.value_dim,
        mma=mma,
        softmax=softmax,
        correction=correction,
    )
    exchange = RowExchange(w, tiles=config.tiles, gives=softmax, takes=correction)
    *query_rings, key_ring, value_ring = (
        head_ring(w, name, loader.tile, sync) for (name, loader, _), sync in zip(named, syncs, strict=True)
    )
    factor = w.parameter("factor", F32, lambda call: call.number("factor"))
    softcap = Softcap(w.parameter("squeeze", F32, lambda call: call.number("squeeze"))) if spec.softcap else None
    positions = config.queries // group
    scheduler, key_range = head_order(w, spec, queries=positions, keys=config.keys)
    common: dict[str, Any] = {
        "queries": key_range.query_count,
        "factor": factor,
        "log_sums": head_logarithms(w, spec),
        "barrier": _EPILOGUE_BARRIER,
    }
    epilogue: TensorHeadEpilogue | TensorSharedHeadEpilogue
    if isinstance(scheduler, HeadScheduler) and spec.group:
        epilogue = TensorSharedHeadEpilogue(
            w,
            dtype=spec.dtype,
            columns=spec.value_dim,
            scheduler=scheduler,
            group=group,
            positions=positions,
            **common,
        )
    else:
        output = head_tile("o", spec, ROWS, spec.value_dim)
        place = w.shared.allocate("output", size=output.bytes, alignment=output.alignment, kind="tile")
        epilogue = TensorHeadEpilogue(
            output, place, head_storer(w, spec, output, rows=ROWS), heads=scheduler.heads, **common
        )
    return TensorAttention(
        warps=plan,
        cluster=cluster,
        queries=tuple(query_rings),
        keys=key_ring,
        values=value_ring,
        loaders=loaders,
        scores=TensorScores(queries, keys),
        weighted=TensorWeighted(values),
        tensors=tensors,
        rows=exchange,
        softmax=OnlineSoftmax(w, factor, slack=config.slack, layout=LANES, polynomial=config.polynomial),
        range=key_range,
        scheduler=scheduler,
        epilogue=epilogue,
        softcap=softcap,
        profiler=TileProfiler.of(w, {"load": 1, "mma": 1, "softmax": config.tiles, "correction": 1}),
    )
