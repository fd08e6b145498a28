"""Every public component refuses what it cannot take when it is made: code, argument, what was given, the nearest."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest

import tilekit
import tilekit.compose as tk
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.errors import TilekitError
from tilekit.tile_op.score_layout import QUADS
from tilekit.tiles.cluster import Multicast

LOAD = tk.Role("load", range(4), frozenset({"load", "sync", "wait", "memory"}))
ONE = tk.Role("one", range(4, 5), frozenset({"load", "sync", "wait"}), one_thread=True)
MMA = tk.Role("mma", range(8, 12), frozenset({"mma", "sync", "wait", "store", "memory"}))
REST = tk.Role("rest", range(4, 10), frozenset({"mma", "sync", "wait"}))
TURNS = tk.Role("turns", range(12, 20), frozenset({"mma", "sync", "wait"}), turns=2)


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


def _ring(m: Bench) -> dict[str, Any]:
    return {"payload": m.payload, "tiles": m.tiles(), "stages": 2, "sync": m.sync()}


def _sides(m: Bench) -> dict[str, Any]:
    return {"producers": (LOAD,), "consumers": (MMA,), "stages": 2}


def _store(m: Bench) -> dict[str, Any]:
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
    return {
        "warps": plan,
        "cluster": m.cluster,
        "payload": payload,
        "tiles": tiles,
        "stages": 2,
        "loader": tk.StandardLoader(w, *loads, tiles, m.cluster),
        "op": op,
        "accumulators": tk.RegisterAccumulators(op),
        "scheduler": tk.StaticScheduler(m.raster),
        "epilogue": tk.DirectEpilogue(w, **direct),
        "k": m.k,
        "reduction": None,
        "profiler": None,
        "favoured": "products",
    }


@tilekit.epilogue
def _biased(x: Any, bias: Any) -> Any:
    """An operand of columns, and a total of rows."""
    return x + bias, tilekit.epilogue.row_sum(x)


def _functions() -> dict[str, Any]:
    return {"scale": None, "residual": tk.BF16, "scale_a": False, "scale_b": False, "biases": False}


def _written(m: Bench) -> dict[str, Any]:
    spec = WrittenSpec(_biased.graph({}), (tk.Place("column", tk.F32),))
    shape = {"columns": m.k, "precise": False, "rows": m.k, "batched": False, "layout": m.layout, "tiles": m.raster}
    return {"spec": spec, **shape, "names": ("bias",)}


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "OperandTile": lambda m: {
        "name": "a",
        "dtype": tk.BF16,
        "rows": 64,
        "major": "k",
        "slices": 1,
        "swizzle_bytes": 128,
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
    "MbarrierSync": lambda m: {"name": "ring", **m.ring, "filled_by": "engine", "released_by": "threads"},
    "NamedBarrierSync": lambda m: {**_sides(m), "first_barrier": 1},
    "SplitCounterSync": lambda m: {"name": "ring", **_sides(m)},
    "TilePipeline": _ring,
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
    "RowSums": lambda m: {"name": "sums", "layout": m.layout, "raster": m.raster, "combine": "max"},
    "StagedEpilogue": _store,
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
    "Written": _written,
    "RegisterLoader": lambda m: {"tile": m.a, "role": LOAD, "batched": False},
    "Ahead": lambda m: {"name": "factor", "block": 64, "grouped": False},
    "ValueTile": lambda m: {"name": "factor", "values": 128, "along_k": False},
    "ValueLoader": lambda m: {
        "tile": tk.ValueTile("factor", 128, along_k=False),
        "block": 64,
        "first": lambda tile: tile.row,
        "batched": False,
    },
    "StagedValues": lambda m: {"place": m.tiles()["a"], "block": 0},
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
UNTYPED = ("w",)
ODD = [object(), "q", "two words", -1, 0, 3.5, float("nan"), 1 << 70, True, None, (), [], {}, 100, b"k", print]


def bench_of(name: str) -> Bench:
    """A bench on a chip that has the component."""
    return Bench(TARGETS.get(name, "sm_90a"))


def make(name: str, bench: Bench, given: dict[str, Any]) -> Any:
    """One component, with the bench's writer where it takes one."""
    kind = getattr(tk, name)
    first = next(iter(inspect.signature(kind).parameters))
    return kind(bench.w, **given) if first == "w" else kind(**given)


@pytest.mark.parametrize("name", PARTS)
def test_what_is_right_is_made(name: str) -> None:
    """The constructions that the odd ones are made of are legal."""
    bench = bench_of(name)
    make(name, bench, PARTS[name](bench))


@pytest.mark.parametrize("name", PARTS)
def test_what_is_of_no_legal_type_is_refused(name: str) -> None:
    """An object, bytes or a wrong word in the place of any argument is an error with a code that names the argument."""
    for argument in PARTS[name](bench_of(name)):
        for value in (object(), b"k", 3.5, "two words"):
            bench = bench_of(name)
            given = PARTS[name](bench)
            if isinstance(given[argument], str) and value == "two words" and (name, argument) in LABELS:
                continue
            if value == 3.5 and (name, argument) in NUMBERS:
                continue
            with pytest.raises(TilekitError) as caught:
                make(name, bench, {**given, argument: value})
            assert caught.value.code.startswith("TK-"), (name, argument, value)
            assert caught.value.code != "TK-GEN-001"
            assert argument in str(caught.value), (name, argument, value)


NUMBERS = {("OnlineSoftmax", "slack")}
"""Numbers that need not be whole."""

LABELS = {
    ("BarrierSync", "name"),
    ("SplitCounterSync", "name"),
    ("SingleCounterSync", "name"),
    ("DirectEpilogue", "source"),
    ("MbarrierSync", "name"),
    ("SourceRing", "matrix"),
}
"""Texts that stand in maps and in names of a call's arrays: any is legal."""


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("name", PARTS)
def test_sixty_odd_constructions(name: str) -> None:
    """Of any mixture of good and odd arguments, a component is made or refused with a code: nothing else escapes."""
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    for _ in range(60):
        bench = bench_of(name)
        given = PARTS[name](bench)
        for argument in draw.sample(list(given), draw.randint(1, min(2, len(given)))):
            given[argument] = draw.choice(ODD)
        found: Exception | None = None
        try:
            make(name, bench, given)
        except Exception as error:
            found = error
        assert found is None or isinstance(found, TilekitError), f"{name}({given}), seed {seed}: {found!r}"
        assert found is None or found.code != "TK-GEN-001", (seed, given)


def refusal(make: Callable[[Bench], Any]) -> tuple[str, str]:
    """Code and text of what a construction raises."""
    with pytest.raises(TilekitError) as caught:
        make(Bench())
    return caught.value.code, caught.value.message


def tile(name: str = "a", dtype: tk.DType = tk.BF16, rows: int = 128, **more: Any) -> tk.OperandTile:
    """A tile along K."""
    return tk.OperandTile(name, dtype, rows, more.pop("major", "k"), **more)


def named(m: Bench, barrier: int) -> tk.NamedBarrierSync:
    """A ring of two stages at four barriers."""
    return tk.NamedBarrierSync(m.w, producers=(LOAD,), consumers=(MMA,), stages=2, first_barrier=barrier)


def _shared_by_two(m: Bench) -> None:
    loader = tk.CpAsyncLoader(m.w, tk.CopyPlan(m.a, 8), stages=2)
    loader.bind(m.w, m.tiles()["a"], Multicast(2, m.k, m.k))


def _scales_shared(m: Bench) -> None:
    m = Bench("gfx950")
    scales = tk.ScaleTile("a_scale", m.narrow("a"))
    tiles = tk.Payload((scales.of, scales), k=scales.of.k).allocate(m.w.shared, "inputs", 2)
    tk.BufferScaleLoader(m.w, scales, role=LOAD).bind(m.w, tiles["a_scale"], Multicast(2, m.k, m.k))


def _scales_bound_alone(m: Bench) -> None:
    m = Bench("gfx950")
    a, b = (tk.ScaleTile(f"{side}_scale", m.narrow(side)) for side in "ab")
    tk.ScaledMfma(a, b, waves=4).bind(m.w, {}, None)


def _amd_shared(kind: Any) -> Callable[[Bench], Any]:
    """A loader of AMD chips for a tile that two workgroups are to share."""

    def bind(m: Bench) -> Any:
        m = Bench("gfx950")
        return kind(m.w, m.a, role=LOAD).bind(m.w, m.tiles()["a"], Multicast(2, m.k, m.k))

    return bind


@pytest.mark.parametrize(
    ("make", "code", "parts"),
    [
        (lambda m: tk.Wgmma(tile(), tile("b", tk.F16), warpgroups=2), "TK-TRACE-017", ("bf16", "f16", "'a'", "'b'")),
        (lambda m: tile(rows=100), "TK-PART-001", ("OperandTile(rows=100)", "steps of 8", "nearest: 104")),
        (lambda m: tk.TensorScores(tile(), tile("b", tk.F16)), "TK-TRACE-017", ("'b'", "nearest: bf16")),
        (lambda m: tk.TensorWeighted(tile(major="mn")), "TK-TRACE-017", ("'a'", "mn-major")),
        (lambda m: tk.TensorScores(tile(rows=64), tile("b")), "TK-PART-001", ("queries.rows=64", "nearest: 128")),
        (lambda m: tk.RowExchange(m.w, tiles=1, gives=ONE, takes=LOAD), "TK-PART-001", ("gives=", "4 warps")),
        (lambda m: tk.Wgmma(tile(rows=96), m.b, warpgroups=1), "TK-PART-001", ("a.rows=96", "nearest: ")),
        (lambda m: tk.Wgmma(tile(rows=128), m.b, warpgroups=3), "TK-PART-001", ("a.rows=128", "nearest: 192")),
        (lambda m: tk.Wgmma(m.a, tile("b", rows=264), warpgroups=1), "TK-PART-001", ("b.rows=264", "nearest: 256")),
        (lambda m: tile(major="q"), "TK-PART-001", ("major='q'", "'k' or 'mn'")),
        (lambda m: tk.Role("load", range(1), frozenset({"laod"})), "TK-PART-001", ("may='laod'", "nearest: 'load'")),
        (lambda m: tk.Role("load it", range(1), frozenset()), "TK-PART-001", ("nearest: 'load_it'",)),
        (lambda m: tk.Role("load", range(0), frozenset()), "TK-PART-001", ("warps=range(0, 0)",)),
        (lambda m: tk.Role("mma", range(4), frozenset(), turns=3), "TK-PART-001", ("turns=3", "nearest: 2")),
        (lambda m: tk.Writer("größe", target="sm_90a", threads=32), "TK-PART-001", ("'größe'", "nearest: 'gr_e'")),
        (lambda m: tk.Writer("2nd", target="sm_90a", threads=32), "TK-PART-001", ("nearest: '_2nd'",)),
        (lambda m: tk.Writer("k", target="sm_90a", threads=2048), "TK-PART-001", ("threads=2048", "nearest: 1024")),
        (lambda m: m.w.parameter("a b", tk.registers.U32), "TK-PART-001", ("'a b'", "nearest: 'a_b'")),
        (lambda m: (named(m, 1), named(m, 1)), "TK-BARRIER-001", ("named barrier 1", "nearest free: 5")),
        (lambda m: named(m, 0), "TK-TRACE-015", ("first_barrier=0", "nearest")),
        (lambda m: tk.StagedEpilogue(m.w, **{**_store(m), "first_barrier": 0}), "TK-BARRIER-001", ("the whole CTA",)),
        (lambda m: tk.Place("number", tk.F32), "TK-PART-001", ("Place(dtype=", "None")),
        (lambda m: tk.Place("row"), "TK-PART-001", ("Place(dtype=None)", "nearest: 'f32'")),
        (lambda m: tk.Place("rows", tk.F32), "TK-PART-001", ("Place(where='rows')", "nearest: 'row'")),
        (lambda m: tk.Written(m.w, **{**_written(m), "rows": None}), "TK-EPI-001", ("rows=None", "_biased")),
        (lambda m: tk.Written(m.w, **{**_written(m), "layout": None}), "TK-EPI-001", ("layout=None", "totals")),
        (lambda m: tk.Written(m.w, **{**_written(m), "names": ("x", "y")}), "TK-PART-001", ("names=", "1 operands")),
        (lambda m: tk.Role("load", range(4), frozenset(), registers=0), "TK-PART-001", ("registers=0", "nearest: 1")),
        (lambda m: tk.ScaleTile("s", tile(dtype=tk.E4M3, swizzle_bytes=64)), "TK-TRACE-017", ("nearest: slices=2",)),
        (lambda m: tile(swizzle_bytes=100), "TK-TRACE-017", ("swizzle_bytes=100", "nearest: 128")),
        (_shared_by_two, "TK-TRACE-013", ("CpAsyncLoader", "2 CTAs", "nearest")),
        (lambda m: tk.TilePipeline(**{**_ring(m), "stages": 3}), "TK-PART-001", ("stages=3", "nearest: 2")),
        (lambda m: tk.TilePipeline(**{**_ring(m), "tiles": {}}), "TK-PART-001", ("tiles=", "'a' has none")),
        (lambda m: tk.StandardPayload(tile(slices=2), m.b), "TK-PART-001", ("128 elements", "slices=2")),
        (lambda m: tk.MbarrierSync(m.w, "r", **{**m.ring, "producers": ()}), "TK-PART-001", ("producers=()",)),
        (lambda m: tk.Cluster.read(m.w, 2, 1), "TK-PART-001", ("m=2", "clusters of 1 CTAs", "nearest: 1")),
        (lambda m: tk.PingPong(MMA, first_barrier=3), "TK-PART-001", ("turns=1", "Cooperative")),
        (lambda m: tk.StagedEpilogue(m.w, **{**_store(m), "out": tk.S8}), "TK-PART-001", ("out=", "s8")),
        (lambda m: tk.StagedEpilogue(m.w, **{**_store(m), "role": ONE}), "TK-PART-001", ("'one'", "whole warpgroups")),
        (lambda m: tk.TmaLoader(m.w, tile(rows=48), participants=5), "TK-PART-001", ("participants=5", "nearest: 4")),
        (lambda m: tk.Tcgen05(tile(rows=96), m.b, group=1), "TK-PART-001", ("a.rows=96", "nearest: ")),
        (lambda m: tk.Tcgen05(m.a, tile("b", rows=264), group=1), "TK-PART-001", ("b.rows=264", "nearest: 256")),
        (lambda m: tk.Tcgen05(m.a, tile("b", rows=40), group=1), "TK-PART-001", ("b.rows=40", "steps of 16")),
        (lambda m: tk.Tcgen05(m.a, m.b, group=3), "TK-PART-001", ("group=3", "nearest: 2")),
        (
            lambda m: tk.MbarrierSync(m.w, "r", **m.ring, released_by="commit"),
            "TK-PART-001",
            ("released_by='commit'", "sm_90a", "nearest: 'threads'"),
        ),
        (lambda m: tk.Wgmma(m.a, m.b, warpgroups=1).bind(m.w, m.tiles(), None), "TK-TRACE-013", ("Warpgroup",)),
        (_amd_shared(tk.BufferLoader), "TK-TRACE-013", ("BufferLoader", "2 CTAs", "nearest")),
        (_amd_shared(tk.BufferToLdsLoader), "TK-TRACE-013", ("BufferToLdsLoader", "2 CTAs", "nearest")),
        (_scales_shared, "TK-TRACE-013", ("BufferScaleLoader", "2 CTAs", "nearest")),
        (_scales_bound_alone, "TK-TRACE-013", ("ScaledMfma", "Warpgroup")),
    ],
)
def test_known_mistakes(make: Callable[[Bench], Any], code: str, parts: tuple[str, ...]) -> None:
    """What once passed in silence, or with a bare exception, or at the launch alone."""
    found, message = refusal(make)
    assert found == code, message
    assert all(part in message for part in parts), message


def test_a_kernel_name_that_is_no_identifier() -> None:
    """A function whose name assembly text cannot have is refused when the kernel is made."""
    with pytest.raises(TilekitError, match=r"function's name='größe'.*nearest: 'gr_e'.*TK-PART-001"):

        @tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=64)
        def größe(w: tk.Writer) -> Any: ...


def test_more_stages_than_fit_are_named_with_how_many_do() -> None:
    """The ring's largest object, where it was declared, and the most stages: that many fit, and one more does not."""

    def text(stages: int) -> str:
        m = Bench()
        m.payload.allocate(m.w.shared, "inputs", stages)
        tk.MbarrierSync(m.w, "inputs", **{**m.ring, "stages": stages})
        m.w.shared.allocate("other", size=40_000)
        return m.w.text()

    with pytest.raises(TilekitError, match=r"inputs.a, 12 x 16384 bytes, declared by .*\. Nearest: 7 of it") as caught:
        text(12)
    assert caught.value.code == "TK-COMP-005"
    text(7)
    with pytest.raises(TilekitError, match="TK-COMP-005"):
        text(8)
    m = Bench()
    m.w.shared.allocate("one", size=300_000)
    with pytest.raises(TilekitError, match=r"one, 1 x 300000 bytes.*Nearest: 232448 bytes each"):
        m.w.text()


@pytest.mark.parametrize("name", sorted({*tk.__all__} - PARTS.keys()))
def test_every_component_is_tried(name: str) -> None:
    """What is left out here is a protocol, a type, a function, made by components, or no component.

    What says how a matmul's components are made is tried by
    test_own_components.py and test_own_payload.py of tests/matmul.
    """
    value = getattr(tk, name)
    made = {"Call", "ComposedKernel", "HeldStage", "Matrix", "RegisterTile", "Schedule", "Stage", "Tile", "Value"}
    made |= {
        "AccumulatorLayout",
        "Cluster",
        "Cooperative",
        "DType",
        "Multistage",
        "Target",
        "WarpSpecialized",
        "Warpgroup",
    }
    made |= {"PortableChoice", "Attention", "TensorAttention", "ComposedAttention", "HeadTile", "LogSums"}
    made |= {"PackedLogSums", "NoTurns"}
    made |= {"Blocks", "OwnComponents", "OwnPayload", "OwnRole"}
    protocol = getattr(value, "_is_protocol", False)
    assert name in made or protocol or not inspect.isclass(value)


LOADERS: dict[str, Callable[[Bench, tk.Role], Any]] = {
    "TMA": lambda m, load: tk.TmaLoader(m.w, m.b),
    "cp.async": lambda m, load: tk.CpAsyncLoader(m.w, tk.CopyPlan(m.b, 8), stages=2),
    "transform": lambda m, load: tk.TransformLoader(
        m.w, m.b, source=tk.S8, transform=lambda w, words: [word for word in words for _ in "ab"], stages=2, role=load
    ),
}
SYNCS: dict[str, Callable[[Bench, dict[str, Any]], Any]] = {
    "bytes": lambda m, sides: tk.MbarrierSync(m.w, "r", stage_bytes=0, cluster=m.cluster, **sides),
    "arrivals": lambda m, sides: tk.MbarrierSync(
        m.w, "r", stage_bytes=m.a.bytes, cluster=m.cluster, filled_by="threads", **sides
    ),
    "named": lambda m, sides: tk.NamedBarrierSync(m.w, first_barrier=1, **sides),
    "counter": lambda m, sides: tk.SplitCounterSync(m.w, "r", **sides),
    "single": lambda m, sides: tk.SingleCounterSync(m.w, "r", **sides),
}


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("loading", LOADERS)
def test_a_sync_that_the_loader_cannot_use(loading: str, sync: str) -> None:
    """A ring takes the loaders that it can count; every other pair is refused by name, with what would do."""
    m = Bench()
    load = ONE if loading == "TMA" else tk.Role("load", range(4), LOAD.may | {"store"})
    sides = {"stages": 2, "producers": (load,), "consumers": (MMA,)}
    tiles = m.tiles()
    fits = (loading, sync) in {
        ("TMA", "bytes"),
        ("TMA", "arrivals"),
        ("cp.async", "arrivals"),
        ("transform", "arrivals"),
    }

    def trace() -> None:
        loader = tk.StandardLoader(m.w, tk.TmaLoader(m.w, m.a), LOADERS[loading](m, load), tiles, m.cluster)
        ring = tk.TilePipeline(m.payload, tiles, stages=2, sync=SYNCS[sync](m, sides))
        order = m.raster
        with m.w.role(load, m.w.warp()), tk.working_threads(m.w, m.w.warp(), load, m.cluster):
            bound = loader.bind(m.w)
            producer = ring.producer(m.w, bound.writer)
            for tile in tk.StaticScheduler(order).tiles(m.w, load):
                copies = bound.at(m.w, tile)
                with producer.acquire() as stage:
                    copies.load(m.w, stage, m.k)

    if fits:
        trace()
        return
    with pytest.raises(TilekitError) as caught:
        trace()
    assert caught.value.code in ("TK-TRACE-013", "TK-TRACE-014"), caught.value.message
    assert "take " in caught.value.message or "make it with" in caught.value.message


@pytest.mark.parametrize("name", PARTS)
def test_every_argument_is_tried(name: str) -> None:
    """No argument of a component is left out of the odd constructions."""
    bench = bench_of(name)
    known = {*PARTS[name](bench), "w", "self"}
    parameters = inspect.signature(getattr(tk, name)).parameters
    assert not {*parameters} - known
