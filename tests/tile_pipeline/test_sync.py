"""One ring, one kernel, five ways to synchronise: by mbarriers, barriers, one counter in shared memory or two."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.roles import one_thread
from tilekit.emulator import Device, EmulatorError
from tilekit.targets import CHIPS
from tilekit.tile_pipeline import barrier_sync, named_barrier_sync, single_counter_sync, split_counter_sync
from tilekit.tile_pipeline.barrier_sync import BarrierSync
from tilekit.tile_pipeline.mbarrier_sync import MbarrierSync
from tilekit.tile_pipeline.named_barrier_sync import NamedBarrierSync
from tilekit.tile_pipeline.payload import Payload
from tilekit.tile_pipeline.ring import TilePipeline
from tilekit.tile_pipeline.single_counter_sync import SingleCounterSync
from tilekit.tile_pipeline.split_counter_sync import SplitCounterSync
from tilekit.tile_pipeline.sync import SyncStrategy
from tilekit.tiles.cluster import Cluster

STAGES, BLOCKS = 3, 11
WRITE = Role("write", warps=range(2), may=frozenset({"load", "memory", "store", "sync", "wait"}))
READ = Role("read", warps=range(2, 5), may=frozenset({"memory", "store", "sync", "wait"}))
ALONE = Role("alone", warps=range(1), may=frozenset({"load", "sync", "wait"}), one_thread=True)
Make = Callable[[Writer, int], SyncStrategy]


def mbarriers(w: Writer, stages: int) -> SyncStrategy:
    """What Hopper's kernels use."""
    cluster = Cluster.read(w, 1, 1)
    return MbarrierSync(
        w,
        "ring",
        stages=stages,
        stage_bytes=0,
        producers=(WRITE,),
        consumers=(READ,),
        cluster=cluster,
        filled_by="threads",
    )


def writer() -> Writer:
    """A kernel with five warps."""
    return Writer("k", target="sm_90a", threads=32 * 5)


def named_barriers(w: Writer, stages: int) -> SyncStrategy:
    """No memory at all."""
    return NamedBarrierSync(w, stages=stages, producers=(WRITE,), consumers=(READ,), first_barrier=1)


def counters(w: Writer, stages: int) -> SyncStrategy:
    """No barriers at all."""
    return SplitCounterSync(w, "ring", stages=stages, producers=(WRITE,), consumers=(READ,))


def single_counters(w: Writer, stages: int) -> SyncStrategy:
    """Half as many."""
    return SingleCounterSync(w, "ring", stages=stages, producers=(WRITE,), consumers=(READ,))


def barriers(w: Writer, stages: int) -> SyncStrategy:
    """The barrier of the CTA, where all of its warps come to every stage."""
    return BarrierSync(w, "ring", stages=stages, producers=(WRITE,), consumers=(READ,))


STRATEGIES: dict[Make, tuple[str, ...]] = {
    mbarriers: ("sm_80", "sm_90a"),
    barriers: ("sm_80", "sm_90a", "gfx942", "gfx950"),
    named_barriers: ("sm_80", "sm_90a"),
    counters: ("sm_80", "sm_90a", "gfx942", "gfx950"),
    single_counters: ("sm_80", "sm_90a", "gfx942", "gfx950"),
}
"""Each with the targets that it is run on."""

CASES = [pytest.param(make, target, id=f"{make.__name__}-{target}") for make, on in STRATEGIES.items() for target in on]


LEAST = {barriers: 2}
"""Stages that a strategy takes at least, where one is not enough."""

COPYING = [case for case in CASES if case.values[1].startswith("sm_")]
"""Those on chips with `cp.async`."""


class Words:
    """A tile of a word for each thread that writes."""

    name, alignment = "words", 16

    def __init__(self, lanes: int) -> None:
        self.bytes = 4 * lanes * len(WRITE.warps)


class Reads:
    """Ordinary loads: each lane's are complete, and the warp's when its lanes have met."""

    synchronous = True

    def commit(self, w: Writer) -> None:
        """Nothing is in flight."""

    def wait(self, w: Writer, pending: int) -> None:
        """Meet the other lanes."""
        w.warp_sync()


class Copies:
    """`cp.async` of a role's threads, which land some stages later."""

    def joined(self, other: Any) -> Copies:
        """A thread has one group open."""
        return self

    def commit(self, w: Writer) -> None:
        """Close the group."""
        w.ptx.cp_async.commit()

    def wait(self, w: Writer, pending: int) -> None:
        """Wait for all but the youngest groups."""
        w.ptx.cp_async.wait(pending=pending)

    def complete(self, w: Writer, stage: Value) -> None:
        """Nothing is left to do."""


def kernel(
    make: Make,
    target: str,
    *,
    stages: int = STAGES,
    in_flight: int = 0,
    copies: Copies | None = None,
    asks_ahead: bool = False,
) -> Writer:
    """Each block of words goes through a stage; every reading warp adds it up, each word by another lane's."""
    chip = CHIPS[target]
    w = Writer("words", target=chip, threads=chip.lanes * 5)
    source, sums = w.parameter("source", GMEM), w.parameter("sums", GMEM)
    blocks = w.parameter("blocks", U32)
    words = Words(w.lanes)
    payload = Payload([words], k=1)
    tiles = payload.allocate(w.shared, "ring", stages)
    ring = TilePipeline(payload, tiles, stages=stages, sync=make(w, stages))
    warp, thread, lane = w.warp(), w.thread(), w.lane()
    with one_thread(w, warp, WRITE):
        ring.initialise(w)
    w.barrier(id=0, threads=w.threads)
    with w.role(WRITE, warp):
        producer = ring.producer(w, copies)
        for block in w.range(blocks, name="block"):
            with producer.acquire() as stage:
                word = element(w, source, block * (words.bytes // 4) + thread)
                address = tiles["words"].at(w, stage.index) + thread * 4
                if copies is None:
                    value = w.isa.memory.load_global_scalar(address=word)
                    w.isa.memory.store_shared_f32(address=address, value=value)
                else:
                    w.ptx.cp_async.copy_4(dst=address, src=word, bytes=4)
        producer.flush()
        producer.finish()
    with w.role(READ, warp):
        consumer = ring.consumer(w, Reads(), in_flight=in_flight, asks_ahead=asks_ahead)
        total = w.variable(F32, 0.0, "total")
        for _ in w.range(blocks, name="block"):
            with consumer.acquire() as stage:
                for part in range(len(WRITE.warps)):
                    address = tiles["words"].at(w, stage.index) + ((w.lanes - 1 - lane) * 4 + 4 * w.lanes * part)
                    total.assign(total + w.isa.memory.load_shared_f32(address=address))
        consumer.finish()
        index = thread - w.lanes * READ.warps.start
        w.isa.memory.store_global_f32(address=element(w, sums, index), value=total, valid=lane >= 0)
    return w


def element(w: Writer, array: Value, index: Value) -> Value:
    """Address of a word."""
    return (array + w.widen_multiply(index, 4)).retyped(GMEM)


def launch(w: Writer, seed: int, blocks: int = BLOCKS) -> Any:
    """Run, check the sums, and return the report."""
    source = np.random.default_rng(seed).integers(-9, 10, (blocks, len(WRITE.warps), w.lanes)).astype(np.float32)
    sums = np.full((len(READ.warps), w.lanes), np.nan, np.float32)
    device = Device(w.target.name, seed=seed)
    report = device.load(w.text())["words"].launch(
        grid=1,
        block=w.threads,
        shared_bytes=w.shared.size if w.dialect.shared_at_launch else 0,
        args=[source, sums, np.uint32(blocks)],
    )
    assert (sums == source.sum(axis=(0, 1))[::-1]).all()
    return report


def clean(w: Writer, seed: int) -> bool:
    """Whether the sums are right and nothing is found."""
    try:
        return bool(launch(w, seed).clean)
    except (EmulatorError, AssertionError):
        return False


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("in_flight", [0, 1])
@pytest.mark.parametrize(("make", "target"), CASES)
def test_one_kernel_over_every_strategy(make: Make, target: str, in_flight: int) -> None:
    """By one argument; the sums are exact and nothing is found under twenty seeds, in laps that are not whole."""
    w = kernel(make, target, in_flight=in_flight)
    for seed in range(20):
        assert launch(w, seed, blocks=seed % (3 * STAGES)).clean


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("in_flight", [0, 1])
@pytest.mark.parametrize(("make", "target"), CASES)
def test_the_next_stage_is_asked_for_early(make: Make, target: str, in_flight: int) -> None:
    """Where a strategy can tell without waiting, it is asked before a stage is needed; the others are waited for."""
    w = kernel(make, target, in_flight=in_flight, asks_ahead=True)
    assert ("next_is_there" in w.text() or "test_wait" in w.text()) == (make is mbarriers)
    for seed in range(10):
        assert launch(w, seed, blocks=seed % (3 * STAGES)).clean


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("stages", [1, 3, 6])
@pytest.mark.parametrize(("make", "target"), COPYING)
def test_copies_that_land_later(make: Make, target: str, stages: int) -> None:
    """Stages that a role's threads copy asynchronously are handed over in their order, by every strategy."""
    w = kernel(make, target, stages=max(stages, LEAST.get(make, 1)), copies=Copies())
    for seed in range(5):
        assert launch(w, seed, blocks=4 + 3 * seed).clean


MODULES = {
    named_barriers: named_barrier_sync,
    counters: split_counter_sync,
    single_counters: single_counter_sync,
    barriers: barrier_sync,
}


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(
    ("make", "target"),
    [
        (named_barriers, "sm_80"),
        (counters, "sm_80"),
        (counters, "gfx950"),
        (single_counters, "sm_80"),
        (single_counters, "gfx950"),
    ],
)
@pytest.mark.parametrize("verb", ["producer_acquire", "producer_commit", "consumer_wait", "consumer_release"])
def test_each_verb_is_needed(make: Make, target: str, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of the four does nothing, the emulator ends with an error or the sums are wrong."""
    if make is barriers and verb in ("producer_acquire", "consumer_release"):
        pytest.skip("the barrier of a stage is all of it: these two do nothing")
    sides = [value for name, value in vars(MODULES[make]).items() if name.endswith(verb.split("_")[0].capitalize())]
    assert len(sides) == 1
    monkeypatch.setattr(sides[0], verb, lambda *args: None)
    w = kernel(make, target)
    assert not all(clean(w, seed) for seed in range(5))


RELEASE, ACQUIRE, LANES = "red.release.cta", "ld.acquire.cta", "bar.warp.sync"
WEAKER = [
    *((make, "sm_80", RELEASE, "red.relaxed.cta") for make in (counters, single_counters)),
    *((make, "sm_80", ACQUIRE, "ld.relaxed.cta") for make in (counters, single_counters)),
    *((make, "sm_80", LANES, "//") for make in (mbarriers, counters, single_counters)),
    (mbarriers, "sm_80", "mbarrier.arrive.shared.b64", "mbarrier.arrive.relaxed.cta.shared::cta.b64"),
    (mbarriers, "sm_90a", "mbarrier.arrive.shared::cta.b64", "mbarrier.arrive.relaxed.cta.shared::cta.b64"),
    (mbarriers, "sm_90a", "mbarrier.try_wait.parity.shared", "mbarrier.try_wait.parity.relaxed.cta.shared"),
]
"""Orders of the memory model that a strategy states, and the same instruction without."""


@pytest.mark.parametrize(("make", "target", "strong", "weak"), WEAKER)
def test_each_order_is_needed(make: Make, target: str, strong: str, weak: str) -> None:
    """Without the release, without the acquire, or with lanes that have not met, the emulator finds a race."""
    w = kernel(make, target)
    text = w.text()
    assert strong in text
    weakened = text.replace(strong, weak)
    if target == "sm_80" and "relaxed.cta.shared::cta" in weak:  # what says so came with sm_90
        weakened = weakened.replace("sm_80", "sm_90").replace(".version 7", ".version 8")
    w.text = lambda: weakened  # type: ignore[method-assign]
    assert not all(clean(w, seed) for seed in range(5))


@pytest.mark.parametrize("stages", [1, 2, 7])
@pytest.mark.parametrize("make", STRATEGIES)
def test_any_number_of_stages(make: Make, stages: int) -> None:
    """One stage, two, and as many as there are named barriers for."""
    stages = max(stages, LEAST.get(make, 1))
    assert launch(kernel(make, "sm_90a", stages=stages), seed=stages).clean


def test_counts_follow_from_the_roles() -> None:
    """An mbarrier's, a named barrier's and a counter's arrivals are those of the declared roles."""
    w = Writer("counts", target="sm_90a", threads=32 * 5)
    sync = mbarriers(w, 2)
    assert isinstance(sync, MbarrierSync)
    assert (sync.full.arrivals, sync.empty.arrivals) == (2, 3)
    counted = SplitCounterSync(w, "counted", stages=2, producers=(ALONE,), consumers=(WRITE, READ))
    assert (counted.full.arrivals, counted.empty.arrivals) == (1, 5)
    single = SingleCounterSync(w, "single", stages=2, producers=(ALONE,), consumers=(WRITE, READ))
    assert (single.filling, single.reading, single.lap) == (1, 5, 6)
    assert NamedBarrierSync(w, stages=2, producers=(WRITE,), consumers=(READ,), first_barrier=3).threads == 32 * 5


def test_a_role_of_one_thread_has_no_named_barriers() -> None:
    """A named barrier counts whole warps: the role and the strategy are named, and what takes it."""
    with pytest.raises(TraceError, match=r"role 'alone'.*NamedBarrierSync.*or SplitCounterSync.*TK-TRACE-013"):
        NamedBarrierSync(writer(), stages=2, producers=(ALONE,), consumers=(READ,), first_barrier=1)


def test_turns_skip_stages_that_a_named_barrier_counts() -> None:
    """Warps that take turns do not come to every stage: the role and the strategy are named."""
    with pytest.raises(TraceError, match=r"role 'read' take 3 turns.*NamedBarrierSync.*SplitCounterSync.*TK-TRACE-013"):
        NamedBarrierSync(writer(), stages=2, producers=(WRITE,), consumers=(replace(READ, turns=3),), first_barrier=1)


def test_one_side_arrives_in_one_way() -> None:
    """A counter's phase counts threads that work alone or warps, not both."""
    w = Writer("mixed", target="sm_80", threads=32 * 5)
    with pytest.raises(TraceError, match=r"alone works with one thread and read with whole warps.*TK-TRACE-013"):
        SplitCounterSync(w, "mixed", stages=2, producers=(ALONE, READ), consumers=(WRITE,))
    with pytest.raises(TraceError, match=r"one side of a SingleCounterSync.*TK-TRACE-013"):
        SingleCounterSync(w, "single", stages=2, producers=(ALONE, READ), consumers=(WRITE,))


@pytest.mark.parametrize(("stages", "first", "nearest"), [(8, 1, "stages=7"), (2, 13, "stages=1"), (1, 0, "stages=7")])
def test_named_barriers_run_out(stages: int, first: int, nearest: str) -> None:
    """What does not fit is refused with the nearest that does."""
    with pytest.raises(TraceError, match="TK-TRACE-015") as caught:
        NamedBarrierSync(writer(), stages=stages, producers=(WRITE,), consumers=(READ,), first_barrier=first)
    assert nearest in str(caught.value)


def test_bytes_need_a_barrier_that_counts_them() -> None:
    """A copy of the copy engine in a ring of named barriers: both are named when the kernel is traced."""
    w = Writer("bytes", target="sm_90a", threads=32 * 5)
    payload = Payload([Words(32)], k=1)
    ring = TilePipeline(payload, payload.allocate(w.shared, "ring", 2), stages=2, sync=named_barriers(w, 2))
    with w.role(WRITE, w.warp()):
        producer = ring.producer(w)
        with producer.acquire() as stage:
            with pytest.raises(TraceError, match=r"the TmaLoader of 'a'.*NamedBarrierSync.*TK-TRACE-014"):
                stage.counting("the TmaLoader of 'a'")
            with pytest.raises(TraceError, match="TK-TRACE-014"):
                _ = stage.full


def test_what_threads_write_they_hand_over() -> None:
    """A ring that counts only the copy engine's bytes refuses copies of threads, and names both."""
    w = Writer("threads", target="sm_90a", threads=32 * 5)
    payload = Payload([Words(32)], k=1)
    cluster = Cluster.read(w, 1, 1)
    sync = MbarrierSync(w, "r", stages=2, stage_bytes=4, producers=(WRITE,), consumers=(READ,), cluster=cluster)
    ring = TilePipeline(payload, payload.allocate(w.shared, "ring", 2), stages=2, sync=sync)
    with pytest.raises(TraceError, match=r"Copies.*MbarrierSync.*filled_by='threads'.*TK-TRACE-013"):
        ring.producer(w, Copies())


def test_threads_do_not_fill_the_stages_of_pairs() -> None:
    """Whose bytes count on another CTA's barrier: refused when the ring is declared."""
    w = Writer("pairs", target="sm_100a", threads=32 * 5, cluster=2)
    cluster = Cluster.read(w, 2, 1, group=2)
    with pytest.raises(TraceError, match=r"threads of write.*CTA pair.*TK-TRACE-013"):
        MbarrierSync(
            w,
            "pairs",
            stages=2,
            stage_bytes=4,
            producers=(WRITE,),
            consumers=(READ,),
            cluster=cluster,
            filled_by="threads",
        )


class Asynchronous(Reads):
    """Reads of a matrix unit that run on."""

    synchronous = False


class Committed(Reads):
    """Reads of a tensor core, whose commit says when they are done."""

    committed = True


def test_reads_that_run_on_need_another_stage() -> None:
    """At a barrier the stage before is still read: of three stages the producer would write that one."""
    roles = {"producers": (WRITE,), "consumers": (READ,)}
    for stages, most in ((2, 0), (3, 0), (4, 1)):
        w = writer()
        payload = Payload([Words(32)], k=1)
        sync = BarrierSync(w, "ring", stages=stages, **roles)
        ring = TilePipeline(payload, payload.allocate(w.shared, "ring", stages), stages=stages, sync=sync)
        assert sync.most_in_flight(Reads()) == 1
        if most:
            ring.consumer(w, Asynchronous(), in_flight=1)
        else:
            with pytest.raises(TraceError, match=r"in_flight=1.*BarrierSync gives.*nearest: 0.*TK-TRACE-019"):
                ring.consumer(w, Asynchronous(), in_flight=1)


@pytest.mark.parametrize("make", [named_barriers, counters, single_counters, mbarriers, barriers])
def test_reads_that_only_a_commit_knows_of(make: Make) -> None:
    """Threads cannot give back what tcgen05 reads, nor a commit what threads read: op and strategy are named."""
    w = writer()
    payload = Payload([Words(32)], k=1)
    ring = TilePipeline(payload, payload.allocate(w.shared, "ring", 2), stages=2, sync=make(w, 2))
    with pytest.raises(TraceError, match=r"Committed reads stages that a commit gives back.*Sync.*TK-TRACE-013"):
        ring.consumer(w, Committed(), in_flight=0)


def test_a_commit_gives_back_no_reads_of_threads() -> None:
    """The other way round."""
    w = Writer("k", target="sm_100a", threads=32 * 5)
    payload = Payload([Words(32)], k=1)
    sides = {"producers": (ALONE,), "consumers": (READ,), "cluster": Cluster.read(w, 1, 1)}
    sync = MbarrierSync(w, "r", stages=2, stage_bytes=4, released_by="commit", **sides)
    ring = TilePipeline(payload, payload.allocate(w.shared, "ring", 2), stages=2, sync=sync)
    with pytest.raises(TraceError, match=r"Reads reads stages that threads give back.*a commit do so.*TK-TRACE-013"):
        ring.consumer(w, Reads(), in_flight=0)


def test_no_bytes_without_a_copy_engine() -> None:
    """On a chip without TMA an mbarrier counts threads: both arguments that ask for more are named."""
    for given, what in (({"filled_by": "engine", "stage_bytes": 0}, "filled_by='engine'"),
                        ({"filled_by": "threads", "stage_bytes": 64}, "stage_bytes=64")):  # fmt: skip
        w = Writer("k", target="sm_80", threads=32 * 5)
        sides = {"producers": (WRITE,), "consumers": (READ,), "cluster": Cluster.read(w, 1, 1)}
        with pytest.raises(TraceError, match=rf"MbarrierSync.*{what}.*sm_80.*TK-PART-001"):
            MbarrierSync(w, "r", stages=2, **given, **sides)


@pytest.mark.parametrize(("stages", "in_flight", "nearest"), [(1, 1, 0), (4, 2, 1), (2, -1, 0)])
def test_a_reader_does_not_wait_for_what_it_keeps(stages: int, in_flight: int, nearest: int) -> None:
    """A ring of one stage whose reader keeps one would hang: refused by name, with the nearest that goes on."""
    with pytest.raises(
        TraceError, match=rf"in_flight={in_flight}.*{stages} stages.*Reads.*nearest: {nearest}.*TK-TRACE-019"
    ):
        kernel(counters, "sm_80", stages=stages, in_flight=in_flight)


def test_a_ring_knows_no_barrier() -> None:
    """The ring and the protocol name no implementation and ask no handle for its class."""
    folder = Path(named_barrier_sync.__file__).parent
    for name in ("ring.py", "sync.py", "position.py"):
        text = (folder / name).read_text("utf-8")
        assert not re.search(r"isinstance|w\.ptx|w\.isa|import \w*(Mbarrier|NamedBarrier|Counter)", text), name


ISSUE = Role("issue", range(1, 2), frozenset({"sync", "wait", "mma"}), one_thread=True)


def read_beside(w: Writer, cluster: Cluster, **how: Any) -> MbarrierSync:
    """A ring that a commit gives back, with warps that read it, too."""
    sides = {"producers": (ALONE,), "consumers": (ISSUE,), "readers": (READ,), "released_by": "commit"}
    return MbarrierSync(w, "r", stages=2, stage_bytes=4, cluster=cluster, **(sides | how))


def test_readers_count_beside_commits() -> None:
    """A commit, and an arrival a warp that reads; each side has its own handle, and no other role's."""
    w = Writer("k", target="sm_100a", threads=32 * 5)
    sync = read_beside(w, Cluster.read(w, 1, 1))
    assert sync.empty.arrivals == 1 + READ.arrivals
    payload = Payload([Words(32)], k=1)
    ring = TilePipeline(payload, payload.allocate(w.shared, "ring", 2), stages=2, sync=sync)
    with w.role(READ, w.warp()):
        ring.reader(w)
        with pytest.raises(TraceError, match=r"the consumers' side.*TK-ROLE-004"):
            ring.consumer(w, Committed(), in_flight=0)
    with w.role(ISSUE, w.warp()), pytest.raises(TraceError, match=r"the readers' side.*TK-ROLE-004"):
        ring.reader(w)


def test_readers_of_pairs_and_beside_threads() -> None:
    """Of a pair's bytes only the leader's threads know; where threads give stages back, all that read are consumers."""
    w = Writer("k", target="sm_100a", threads=32 * 5, cluster=2)
    with pytest.raises(TraceError, match=r"threads of read.*leader's barrier.*group=1.*TK-TRACE-013"):
        read_beside(w, Cluster.read(w, 2, 1, group=2))
    w = Writer("k", target="sm_100a", threads=32 * 5)
    with pytest.raises(TraceError, match=r"readers=.*then they are consumers.*TK-PART-001"):
        read_beside(w, Cluster.read(w, 1, 1), released_by="threads")


@pytest.mark.parametrize("make", [named_barriers, counters, single_counters, barriers])
def test_a_ring_without_readers(make: Make) -> None:
    """Strategies that know no such role are named."""
    w = writer()
    payload = Payload([Words(32)], k=1)
    ring = TilePipeline(payload, payload.allocate(w.shared, "ring", 2), stages=2, sync=make(w, 2))
    with pytest.raises(TraceError, match=r"reader.*TK-FIT-001"):
        ring.reader(w)
