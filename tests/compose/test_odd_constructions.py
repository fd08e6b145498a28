"""Every public component refuses what it cannot take when it is made: code, argument, what was given, the nearest."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest
from good_parts import LOAD, MMA, ONE, PARTS, Bench, bench_of, make, ring, store, tile, written

import tilekit.compose as tk
from tilekit.errors import TilekitError
from tilekit.tiles.cluster import Multicast

UNTYPED = ("w",)
ODD = [object(), "q", "two words", -1, 0, 3.5, float("nan"), 1 << 70, True, None, (), [], {}, 100, b"k", print]


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


def named(m: Bench, barrier: int) -> tk.NamedBarrierSync:
    """A ring of two stages at four barriers."""
    return tk.NamedBarrierSync(m.w, producers=(LOAD,), consumers=(MMA,), stages=2, first_barrier=barrier)


def _shared_by_two(m: Bench) -> None:
    loader = tk.CpAsyncLoader(m.w, tk.CopyPlan(m.a, 8), stages=2)
    loader.bind(m.w, m.tiles()["a"], Multicast(2, m.k, m.k))


def _consumer(m: Bench, in_flight: int) -> None:
    given = ring(m)
    op = tk.Wgmma(m.a, m.b, warpgroups=1).bind(m.w, given["tiles"], tk.Warpgroup.of(m.w, m.w.warp(), MMA))
    tk.TilePipeline(**given).consumer(m.w, op, in_flight=in_flight)


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
        (lambda m: tk.StagedEpilogue(m.w, **{**store(m), "first_barrier": 0}), "TK-BARRIER-001", ("the whole CTA",)),
        (lambda m: tk.Place("number", tk.F32), "TK-PART-001", ("Place(dtype=", "None")),
        (lambda m: tk.Place("row"), "TK-PART-001", ("Place(dtype=None)", "nearest: 'f32'")),
        (lambda m: tk.Place("rows", tk.F32), "TK-PART-001", ("Place(where='rows')", "nearest: 'row'")),
        (lambda m: tk.Written(m.w, **{**written(m), "rows": None}), "TK-EPI-001", ("rows=None", "biased")),
        (lambda m: tk.Written(m.w, **{**written(m), "layout": None}), "TK-EPI-001", ("layout=None", "totals")),
        (lambda m: tk.Written(m.w, **{**written(m), "names": ("x", "y")}), "TK-PART-001", ("names=", "1 operands")),
        (lambda m: tk.Role("load", range(4), frozenset(), registers=0), "TK-PART-001", ("registers=0", "nearest: 1")),
        (lambda m: tk.ScaleTile("s", tile(dtype=tk.E4M3, swizzle_bytes=64)), "TK-TRACE-017", ("nearest: slices=2",)),
        (lambda m: tile(swizzle_bytes=100), "TK-TRACE-017", ("swizzle_bytes=100", "nearest: 128")),
        (_shared_by_two, "TK-TRACE-013", ("CpAsyncLoader", "2 CTAs", "nearest")),
        (lambda m: tk.TilePipeline(**{**ring(m), "stages": 3}), "TK-PART-001", ("stages=3", "nearest: 2")),
        (lambda m: tk.TilePipeline(**{**ring(m), "tiles": {}}), "TK-PART-001", ("tiles=", "'a' has none")),
        (lambda m: tk.Payload((m.a, m.b), k=32), "TK-PART-001", ("k=32", "64 in 'a'", "nearest: 64")),
        (
            lambda m: tk.StagedEpilogue(m.w, **{**store(m), "columns_at_once": 24}),
            "TK-PART-001",
            ("=24", "steps of 16"),
        ),
        (lambda m: tk.StagedEpilogue(m.w, **{**store(m), "columns_at_once": 7}), "TK-PART-001", ("=7", "nearest: 16")),
        (
            lambda m: tk.StagedEpilogue(m.w, **{**store(m), "columns_at_once": 12, "out": tk.F32}),
            "TK-PART-001",
            ("=12", "steps of 8"),
        ),
        (lambda m: tk.StandardPayload(tile(slices=2), m.b), "TK-PART-001", ("128 elements", "slices=2")),
        (lambda m: tk.MbarrierSync(m.w, "r", **{**m.ring, "producers": ()}), "TK-PART-001", ("producers=()",)),
        (lambda m: tk.Cluster.read(m.w, 2, 1), "TK-PART-001", ("m=2", "clusters of 1 CTAs", "nearest: 1")),
        (lambda m: tk.PingPong(MMA, first_barrier=3), "TK-PART-001", ("turns=1", "Cooperative")),
        (lambda m: m.payload.allocate(m.w.shared, "in puts", 2), "TK-SHARED-001", ("nearest: 'in_puts.a'",)),
        (lambda m: list(m.w.range(3, name="my i")), "TK-PART-001", ("w.range(name='my i')", "nearest: 'my_i'")),
        (lambda m: m.w.variable(tk.registers.U32, 0, "a.b"), "TK-PART-001", ("name='a.b'", "nearest: 'a_b'")),
        (lambda m: m.w.new(tk.registers.U32, "", uniform=True), "TK-PART-001", ("hint=''",)),
        (lambda m: m.w.barrier(id=99, threads=64), "TK-PART-001", ("id=99", "0 to 15", "nearest: 15")),
        (
            lambda m: m.w.barrier(id=1, threads=1024),
            "TK-PART-001",
            ("w.barrier(threads=1024)", "the threads of the kernel; or kernel(threads=1024)", "nearest: 640"),
        ),
        (
            lambda m: m.payload.allocate(m.w.shared, "inputs", 0),
            "TK-PART-001",
            ("StandardPayload.allocate(stages=0)", "nearest: 1"),
        ),
        (
            lambda m: tk.Payload((m.a, m.b), k=64).allocate(m.w.shared, "inputs", 1.5),  # type: ignore[arg-type]
            "TK-PART-001",
            ("Payload.allocate(stages=1.5)", "nearest: 1"),
        ),
        (
            lambda m: _consumer(m, -1),
            "TK-TRACE-019",
            ("in_flight=-1", "keeps running are 0 or more; legal: 0 to 1; nearest: 0"),
        ),
        (lambda m: _consumer(m, 2), "TK-TRACE-019", ("would wait for one more than MbarrierSync gives", "nearest: 1")),
        (lambda m: m.w.barrier_arrive(id=1, threads=40), "TK-PART-001", ("threads=40", "nearest: 32")),
        (
            lambda m: tk.Warpgroup.of(m.w, m.w.warp(), tk.Role("late", range(2, 6), frozenset())),
            "TK-PART-001",
            ("warps=range(2, 6)", "a multiple of 4", "nearest: range(4, 8)"),
        ),
        (lambda m: tk.StagedEpilogue(m.w, **{**store(m), "out": tk.S8}), "TK-PART-001", ("out=", "s8")),
        (lambda m: tk.StagedEpilogue(m.w, **{**store(m), "role": ONE}), "TK-PART-001", ("'one'", "whole warpgroups")),
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

    largest = r"inputs.a, 12 x 16384 bytes, declared by .*\. "
    with pytest.raises(
        TilekitError, match=largest + "Nearest: stages=7 in place of 12, for inputs.a, inputs.b"
    ) as caught:
        text(12)
    assert caught.value.code == "TK-COMP-005"
    text(7)
    with pytest.raises(TilekitError, match="TK-COMP-005"):
        text(8)
    m = Bench()
    m.w.shared.allocate("two", size=120_000, count=2)
    with pytest.raises(TilekitError, match=r"two, 2 x 120000 bytes.*Nearest: 1 of it; or 2 of up to 116224 bytes"):
        m.w.text()
    m = Bench()
    for name in ("one", "two"):
        m.w.shared.allocate(name, size=30_000, count=5)
    with pytest.raises(TilekitError, match="Nearest: 3 each of one, two; or"):
        m.w.text()
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
