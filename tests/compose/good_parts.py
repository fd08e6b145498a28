"""One good instance of every public component, by name: what it is made of, and on which chip."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tilekit
import tilekit.compose as tk
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.tile_op.score_layout import QUADS

LOAD = tk.Role("load", range(4), frozenset({"load", "sync", "wait", "memory"}))
ONE = tk.Role("one", range(4, 5), frozenset({"load", "sync", "wait"}), one_thread=True)
MMA = tk.Role("mma", range(8, 12), frozenset({"mma", "sync", "wait", "store", "memory"}))
REST = tk.Role("rest", range(4, 10), frozenset({"mma", "sync", "wait"}))
TURNS = tk.Role("turns", range(12, 20), frozenset({"mma", "sync", "wait"}), turns=2)


def tile(name: str = "a", dtype: tk.DType = tk.BF16, rows: int = 128, **more: Any) -> tk.OperandTile:
    """A tile along K."""
    return tk.OperandTile(name, dtype, rows, more.pop("major", "k"), **more)


class Bench:
    """A writer and one good instance of everything, made afresh for each attempt."""

    def __init__(self, target: str = "sm_90a") -> None:
        self.w = w = tk.Writer("odd", target=target, threads=640)
        self.cluster = tk.Cluster.read(w, 1, 1)
        self.a = tk.OperandTile("a", tk.BF16, 128, "k")
        self.b = tk.OperandTile("b", tk.BF16, 64, "k")
        self.payload = tk.StandardPayload(self.a, self.b)
        self.k = w.constant(tk.registers.U32, 64)

    def narrow(self, name: str) -> tk.OperandTile:
        return tk.OperandTile(name, tk.E4M3, 128, "k")

    def tiles(self) -> Any:
        return self.payload.allocate(self.w.shared, "inputs", 2)

    def sync(self) -> tk.MbarrierSync:
        return tk.MbarrierSync(self.w, "ring", **self.ring)

    @property
    def ring(self) -> dict[str, Any]:
        return {"stages": 2, "stage_bytes": 64, "producers": (ONE,), "consumers": (MMA,), "cluster": self.cluster}

    @property
    def raster(self) -> tk.RasterOrder:
        return tk.RasterOrder(self.w, tile_m=128, tile_n=64, cluster=self.cluster, k=self.k, k_block=64)

    @property
    def layout(self) -> tk.AccumulatorLayout:
        return tk.Wgmma(self.a, self.b, warpgroups=1).layout

    @property
    def plain(self) -> tk.Elementwise:
        return tk.Elementwise(self.w, tk.ElementwiseSpec(), columns=self.k, precise=False)


def ring(m: Bench) -> dict[str, Any]:
    return {"payload": m.payload, "tiles": m.tiles(), "stages": 2, "sync": m.sync()}


def _sides(m: Bench) -> dict[str, Any]:
    return {"producers": (LOAD,), "consumers": (MMA,), "stages": 2}


def store(m: Bench) -> dict[str, Any]:
    given = {"layout": m.layout, "functions": m.plain, "out": tk.BF16, "role": MMA, "buffers": 2, "first_barrier": 1}
    return {**given, "batched": False, "source": None, "rows": None, "transposed": False, "columns_at_once": None}


def _source(m: Bench) -> dict[str, Any]:
    roles = {"loads": ONE, "reads": MMA}
    return {
        "layout": m.layout,
        "name": "g",
        "matrix": "gate",
        "dtype": tk.BF16,
        "stages": 2,
        **roles,
        "batched": False,
        "transposed": False,
        "in_place": False,
    }


def _direct(m: Bench) -> dict[str, Any]:
    given = {"layout": m.layout, "functions": m.plain, "out": tk.BF16, "rows": m.k, "columns": m.k}
    return {**given, "batched": False, "source": "c", "transposed": False, "wide": False}


def _quantised(m: Bench) -> dict[str, Any]:
    layout = tk.Tcgen05(m.a, tk.OperandTile("b", tk.BF16, 128, "k"), group=1).layout
    whole = m.w.constant(tk.registers.F32, 1.0)
    given = {"layout": layout, "functions": m.plain, "scaled": "nvfp4", "rows": m.k, "columns": m.k, "whole": whole}
    return {**given, "role": MMA, "buffers": 2, "scale_layout": "128x4"}


def _memory(m: Bench) -> dict[str, Any]:
    return {"capacity": 512, "allocates": ONE, "others": (MMA,), "cluster": m.cluster, "barrier": 5}


def _tensor(m: Bench) -> dict[str, Any]:
    op = tk.Tcgen05(m.a, m.b, group=1)
    return {
        "memory": tk.TensorMemory(m.w, **_memory(m)),
        "op": op,
        "stages": 2,
        "mma": ONE,
        "epilogue": MMA,
        "whole": False,
        "name": "accumulators",
    }


def _attention(m: Bench) -> dict[str, Any]:
    memory = tk.TensorMemory(m.w, **_memory(m))
    roles = {"mma": ONE, "softmax": TURNS, "correction": LOAD}
    return {"memory": memory, "tiles": len(TURNS.warps) // 4, "keys": 64, "columns": 128, **roles}


def _range(m: Bench) -> dict[str, Any]:
    given = {"queries": 64, "keys": 64, "left": False, "right": True}
    return {**given, "group": 1, "shares": m.w.constant(tk.registers.U32, 1), "lengths": None}


def _heads(m: Bench) -> dict[str, Any]:
    return {"queries": 64, "uneven": False, "group": 1, "shares": False, "keys": 64, "claims": None}


def _stored(m: Bench) -> dict[str, Any]:
    return {"queries": m.k, "factor": m.w.constant(tk.registers.F32, 1.0), "log_sums": None}


def _head_store(m: Bench) -> dict[str, Any]:
    place = m.w.shared.allocate("output", size=m.a.bytes, alignment=m.a.alignment, kind="tile")
    given = {"tile": m.a, "place": place, "storer": tk.HeadStorer(m.w, m.a, rows=64), **_stored(m)}
    return {**given, "heads": m.k}


def _share_store(m: Bench) -> dict[str, Any]:
    scheduler = tk.HeadScheduler(m.w, **{**_heads(m), "group": 2, "shares": True})
    given = {"dtype": tk.BF16, "columns": 64, "scheduler": scheduler, "group": 2, "positions": 32}
    return {**given, **_stored(m), "barrier": 1}


def _claimed(m: Bench) -> dict[str, Any]:
    roles = {"scheduler": ONE, "load": LOAD, "readers": (ONE, LOAD, MMA)}
    return {"order": m.raster, "cluster": m.cluster, "stages": 2, **roles}


def _transform(m: Bench) -> dict[str, Any]:
    return {"tile": m.b, "source": tk.S8, "transform": lambda w, words: words, "stages": 2, "role": LOAD}


def _order() -> dict[str, Any]:
    return {"shares": 1, "order": "m", "batched": False, "group": 8, "dies": None}


def _raster(m: Bench) -> dict[str, Any]:
    return {"tile_m": 128, "tile_n": 64, "cluster": m.cluster, "k": m.k, "k_block": 64, **_order()}


def _standard(m: Bench) -> dict[str, Any]:
    a, b = tk.TmaLoader(m.w, m.a), tk.TmaLoader(m.w, m.b)
    return {"a": a, "b": b, "tiles": m.tiles(), "cluster": m.cluster, "further": ()}


def _registers() -> dict[str, Any]:
    return {"registers": 40, "raised": False, "one_thread": False, "leaders_only": False, "matrix_waves": 1}


def _grid(waves: int) -> dict[str, Any]:
    return {"waves": waves, "columns": 1}


def _waves(m: Bench) -> dict[str, Any]:
    w, plan = m.w, tk.WarpPlan.together(m.w.target, waves=8)
    a, b = (tk.OperandTile(side, tk.BF16, 256, "k") for side in "ab")
    payload, op = tk.StandardPayload(a, b), tk.Mfma(a, b, waves=8, columns=4, pieces=2)
    tiles = payload.allocate(w.shared, "inputs", 2)
    loads = (tk.BufferToLdsLoader(w, one, role=plan["mma"]) for one in (a, b))
    direct = {**_direct(m), "layout": op.layout}
    raster = tk.RasterOrder(w, **{**_raster(m), "tile_m": 256, "tile_n": 256})
    return {
        "warps": plan,
        "cluster": m.cluster,
        "payload": payload,
        "tiles": tiles,
        "stages": 2,
        "loader": tk.StandardLoader(w, *loads, tiles, m.cluster),
        "op": op,
        "accumulators": tk.RegisterAccumulators(op),
        "scheduler": tk.StaticScheduler(raster),
        "epilogue": tk.DirectEpilogue(w, **direct),
        "k": m.k,
        "reduction": None,
        "profiler": None,
        "favoured": "products",
    }


@tilekit.epilogue
def biased(x: Any, bias: Any) -> Any:
    """An operand of columns, and a total of rows."""
    return x + bias, tilekit.epilogue.row_sum(x)


def _functions() -> dict[str, Any]:
    return {"scale": None, "residual": tk.BF16, "scale_a": False, "scale_b": False, "biases": False}


def written(m: Bench) -> dict[str, Any]:
    spec = WrittenSpec(biased.graph({}), (tk.Place("column", tk.F32),))
    shape = {"columns": m.k, "precise": False, "rows": m.k, "batched": False, "layout": m.layout, "tiles": m.raster}
    return {"spec": spec, **shape, "groups": None, "names": ("bias",)}


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "OperandTile": lambda m: {
        "name": "a",
        "dtype": tk.BF16,
        "rows": 64,
        "major": "k",
        "slices": 1,
        "swizzle_bytes": 128,
        "trimmed": False,
    },
    "StandardPayload": lambda m: {"a": m.a, "b": m.b, "adjacent": False, "further": ()},
    "Payload": lambda m: {"tiles": (m.a, m.b), "k": 64},
    "Wgmma": lambda m: {"a": m.a, "b": m.b, "warpgroups": 2},
    "TmaLoader": lambda m: {
        "tile": m.a,
        "batched": False,
        "participants": 1,
        "paired": False,
        "policy": None,
        "l2_promotion": "128B",
    },
    "CopyPlan": lambda m: {"tile": m.a, "width": 8, "warps": 4, "interleaved": False},
    "CpAsyncLoader": lambda m: {"plan": tk.CopyPlan(m.a, 8), "stages": 2, "batched": False},
    "TransformLoader": _transform,
    "StandardLoader": _standard,
    "PayloadLoader": lambda m: {"loaders": (tk.AlongRows(tk.TmaLoader(m.w, m.a)),), "tiles": m.tiles()},
    "AlongRows": lambda m: {"loader": tk.TmaLoader(m.w, m.a), "multicast": None, "batch_step": None},
    "AlongColumns": lambda m: {"loader": tk.TmaLoader(m.w, m.a), "multicast": None, "batch_step": m.k, "half": None},
    "MbarrierSync": lambda m: {
        "name": "ring",
        **m.ring,
        "filled_by": "engine",
        "released_by": "threads",
        "readers": (),
    },
    "NamedBarrierSync": lambda m: {**_sides(m), "first_barrier": 1},
    "SplitCounterSync": lambda m: {"name": "ring", **_sides(m)},
    "TilePipeline": ring,
    "RasterOrder": _raster,
    "StaticScheduler": lambda m: {"order": m.raster, "starts": None},
    "StreamKScheduler": lambda m: {"order": m.raster, "most": 4},
    "StartOrder": lambda m: {"cluster": m.cluster},
    "Elementwise": lambda m: {
        "spec": tk.ElementwiseSpec(),
        "columns": m.k,
        "precise": False,
        "batched": False,
        "rows": m.k,
    },
    "ElementwiseSpec": lambda m: {**_functions(), "bias": tk.BF16, "activation": "relu"},
    "Fused": lambda m: {"function": lambda w, x: x, "source": None, "row_sums": None},
    "RowSums": lambda m: {"name": "sums", "layout": m.layout, "raster": m.raster, "combine": "max", "grouped": False},
    "StagedEpilogue": store,
    "QuantisedEpilogue": _quantised,
    "SourceRing": _source,
    "SplitKReduction": lambda m: {"layout": m.layout, "warpgroups": 1, "first_barrier": 1, "shares": "f32"},
    "Fixup": lambda m: {"layout": m.layout, "warpgroups": 1, "first_barrier": 1},
    "PingPong": lambda m: {"role": TURNS, "first_barrier": 3},
    "WarpPlan": lambda m: {"target": m.w.target, "roles": (LOAD, MMA)},
    "RoleEntry": lambda m: {"name": "audit", "warps": 1, "may": frozenset({"load"}), "turns": 1, **_registers()},
    "Role": lambda m: {"name": "load", "warps": range(4), "may": frozenset({"load"}), "turns": 1, **_registers()},
    "Writer": lambda m: {
        "name": "k",
        "target": "sm_90a",
        "threads": 128,
        "cluster": 1,
        "resident": 1,
        "profile_tiles": 0,
        "uses": None,
    },
    "TileProfiler": lambda m: {"tiles": 16, "activities": {"load": 1, "mma": 2}},
    "TogetherSync": lambda m: {"stages": 2},
    "SingleCounterSync": lambda m: {"name": "ring", **_sides(m)},
    "RegisterAccumulators": lambda m: {"op": tk.Wgmma(m.a, m.b, warpgroups=1), "whole": False},
    "PromotedAccumulators": lambda m: {"op": tk.Wgmma(m.a, m.b, warpgroups=1), "whole": False},
    "DirectEpilogue": _direct,
    "DsmemReduction": lambda m: {"layout": m.layout, "role": MMA, "cluster": m.cluster, "shares": "f32"},
    "Tcgen05": lambda m: {"a": m.a, "b": m.b, "group": 1},
    "TensorMemory": _memory,
    "TensorAccumulators": _tensor,
    "TensorScores": lambda m: {"queries": tile("q"), "keys": tile("k", rows=64)},
    "TensorWeighted": lambda m: {"values": tile("v", rows=64)},
    "AttentionTensors": _attention,
    "Scores": lambda m: {"queries": tile("q"), "keys": tile("k", rows=64)},
    "Weighted": lambda m: {"values": tile("v", rows=64)},
    "HeadLoader": lambda m: {"tile": m.a, "array": "k", "one_batch": True, "one_head": True},
    "KeyLoader": lambda m: {"tile": m.a, "array": "v", "one_batch": False, "one_head": True},
    "GroupLoader": lambda m: {"tile": m.a, "group": 2, "positions": 64, "one_batch": True},
    "HeadStorer": lambda m: {"tile": m.a, "rows": 64},
    "HeadScheduler": _heads,
    "PackedHeadStorer": lambda m: {"tile": m.a, "rows": 64},
    "PackedHeadScheduler": lambda m: {
        "queries": 64,
        "all_queries": m.k,
        "all_keys": m.k,
        "uneven": True,
        "claims": None,
    },
    "KeyRange": _range,
    "ChangedScores": lambda m: {"within": tk.KeyRange(m.w, **_range(m)), "change": lambda w, score, *place: score},
    "Softcap": lambda m: {"factor": m.w.constant(tk.registers.F32, 1.0)},
    "OnlineSoftmax": lambda m: {
        "factor": m.w.constant(tk.registers.F32, 1.0),
        "slack": 8,
        "layout": QUADS,
        "polynomial": 8,
        "early": 16,
    },
    "Turns": lambda m: {"warpgroups": 2, "first_barrier": 1},
    "HeadEpilogue": lambda m: {**_head_store(m), "first_barrier": 1},
    "TensorHeadEpilogue": lambda m: {**_head_store(m), "barrier": 1},
    "SharedHeadEpilogue": _share_store,
    "TensorSharedHeadEpilogue": _share_store,
    "RowExchange": lambda m: {"tiles": len(TURNS.warps) // 4, "gives": TURNS, "takes": LOAD},
    "ClcScheduler": _claimed,
    "Mfma": lambda m: {"a": m.a, "b": m.b, **_grid(4), "pieces": 1},
    "MmaSync": lambda m: {"a": m.a, "b": m.b, "warps": 4, "columns": 2, "interleaved": False},
    "BufferLoader": lambda m: {"tile": m.a, "role": LOAD, "batched": False},
    "BufferToLdsLoader": lambda m: {"tile": m.a, "role": LOAD, "batched": False},
    "BarrierSync": lambda m: {"name": "ring", "stages": 2, "producers": (LOAD,), "consumers": (REST,)},
    "ScaleTile": lambda m: {"name": "a_scale", "of": m.narrow("a")},
    "BufferScaleLoader": lambda m: {"tile": tk.ScaleTile("a_scale", m.narrow("a")), "role": LOAD},
    "ScaledMfma": lambda m: {
        **{side: tk.ScaleTile(f"{side}_scale", m.narrow(side)) for side in "ab"},
        **_grid(4),
        "pieces": 1,
    },
    "PingPongWaves": _waves,
    "Interleaved": lambda m: {name: part for name, part in _waves(m).items() if name != "favoured"},
    "ColumnTotals": lambda m: {"name": "totals", "layout": m.layout, "raster": m.raster, "combine": "sum"},
    "Place": lambda m: {"where": "row", "dtype": tk.BF16, "batched": False},
    "Written": written,
    "RegisterLoader": lambda m: {"tile": m.a, "role": LOAD, "batched": False},
    "Ahead": lambda m: {"name": "factor", "block": 64, "grouped": False},
    "ValueTile": lambda m: {"name": "factor", "values": 128, "along_k": False},
    "ValueLoader": lambda m: {
        "tile": tk.ValueTile("factor", 128, along_k=False),
        "block": 64,
        "first": lambda tile: tile.row,
        "batched": False,
    },
    "StagedValues": lambda m: {"place": m.tiles()["a"], "block": 0, "even": True},
    "Input": lambda m: {"name": "x", "dtype": tk.BF16, "shape": "mk"},
    "Output": lambda m: {"name": "x", "dtype": tk.BF16, "shape": "mn", "own": ""},
}
TARGETS = {
    **dict.fromkeys(("Tcgen05", "TensorMemory", "TensorAccumulators", "ClcScheduler"), "sm_100a"),
    "QuantisedEpilogue": "sm_100a",
    **dict.fromkeys(("TensorScores", "TensorWeighted", "AttentionTensors", "RowExchange"), "sm_100a"),
    **dict.fromkeys(("TensorHeadEpilogue", "TensorSharedHeadEpilogue"), "sm_100a"),
    **dict.fromkeys(("Mfma", "BufferLoader", "BufferToLdsLoader", "SingleCounterSync"), "gfx950"),
    **dict.fromkeys(("BarrierSync", "BufferScaleLoader", "ScaledMfma", "PingPongWaves", "Interleaved"), "gfx950"),
}
"""Chips of the components that are not for sm_90a."""


def bench_of(name: str) -> Bench:
    """A bench on a chip that has the component."""
    return Bench(TARGETS.get(name, "sm_90a"))


def make(name: str, bench: Bench, given: dict[str, Any]) -> Any:
    """One component, with the bench's writer where it takes one."""
    kind = getattr(tk, name)
    first = next(iter(inspect.signature(kind).parameters))
    return kind(bench.w, **given) if first == "w" else kind(**given)
