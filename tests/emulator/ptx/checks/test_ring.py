"""A ring of stages between a TMA producer and wgmma consumers: correct it is clean, and every broken edge is named."""

from __future__ import annotations

import numpy as np
import pytest
from ring_kernel import (
    RELEASE,
    STAGES,
    TILE,
    WGMMA,
    WINDOW,
    Kernel,
    Line,
)

from tilekit.emulator.core.checks.agents import Agent, Sync
from tilekit.emulator.core.checks.shadow import Memory
from tilekit.emulator.core.errors import Actor, BarrierFault, RaceError
from tilekit.emulator.ptx.checks.proxies import ProxyOrder
from tilekit.emulator.ptx.synchronisation.mbarrier import Mbarrier


def test_correct_kernel_is_clean() -> None:
    """Nothing is found where every edge is present."""
    kernel = Kernel()
    assert kernel.run() == []
    kernel.findings.raise_races()


def test_entries_do_not_grow_with_requests() -> None:
    """A ring needs as many clock entries as it has requests in flight, however long it runs."""
    kernel = Kernel()
    for k in range(STAGES):
        kernel.fill(k)
    for k in range(200):
        kernel.multiply(k)
        kernel.fill(k + STAGES)
    assert len(kernel.load.clock) <= 1 + 4 * 2 + 2 * STAGES


MISSING = {
    "wait full": (
        "inputs.a[0] (shared memory of CTA 1",
        "missing edge: no wait for inputs.full[0] phase 0 by role mma (warp 4) before it issued the wgmma; the TMA "
        "load completes on it",
    ),
    "wait empty": (
        "inputs.a[0] (shared memory of CTA 1",
        "missing edge: no wait for inputs.empty[0] phase 0 by role load (warp 0), on which role mma (warp 4) arrived "
        "after its read",
    ),
    "wait wgmma": (
        "inputs.a[0]",
        "missing edge: the wgmma of role mma (warp 4) still reads these bytes: no wgmma.wait_group that covers it "
        "before role mma (warp 4) arrived on inputs.empty[0] phase 0",
    ),
    "release after wait": (
        "inputs.a[0]",
        "missing edge: the wgmma of role mma (warp 4) still reads these bytes: no wgmma.wait_group that covers it "
        "before role mma (warp 4) arrived on inputs.empty[0] phase 0",
    ),
    "fence": ("output (", "missing edge: no fence.proxy.async by role mma (warp 4) between its generic write"),
    "one fence": ("output+0x2000 (", "missing edge: no fence.proxy.async by role mma (warp 6)"),
    "wait read": ("output (", "missing edge: no cp.async.bulk.wait_group.read by role mma (warp 4)"),
    "bar.sync": ("output+0x", "nothing orders role mma (warp 4) after the write: role mma (warp 5) has arrived on no"),
}


@pytest.mark.parametrize("edge", MISSING)
def test_each_missing_edge_is_found_and_named(edge: str) -> None:
    """Leaving one edge out gives a race whose text names the memory and that edge."""
    # The full wait includes the reads; it must be absent for the read wait to matter.
    without = frozenset({edge, "wait written"}) if edge == "wait read" else frozenset({edge})
    memory, reason = MISSING[edge]
    texts = [str(f) for f in Kernel(without).run()]
    assert any(memory in text and reason in text for text in texts), "\n\n".join(texts) or "nothing found"


@pytest.mark.parametrize("edge", ["wait wgmma", "release after wait"])
def test_early_release_without_declarations(edge: str) -> None:
    """Which barrier a stage was released on too early follows from what was heard, not from the text's comments."""
    (race, *_) = Kernel(frozenset({edge}), "").run()
    assert "no wgmma.wait_group that covers it before" in str(race)
    assert "arrived on inputs.empty[0] phase 0" in str(race)
    assert "must execute wgmma.wait_group for the group of this wgmma before it arrives on" in race.hint


def test_named_barriers_have_no_parity() -> None:
    """Advice about parities is for mbarriers only."""
    texts = [str(f) for f in Kernel(frozenset({"bar.sync"})).run()]
    assert texts
    assert not any("parity" in text for text in texts)


def test_fence_after_the_barrier_is_too_late() -> None:
    """A writer's fence that follows its release is on no path to the store."""
    found = Kernel(frozenset({"fence", "late fence"})).run()
    assert found
    assert all("no fence.proxy.async" in str(f) for f in found)


def test_fence_of_the_reader_after_the_barrier_is_enough() -> None:
    """The warp that met the writers may fence for them, as compilers have it do: it is on every path to the store."""
    assert not Kernel(frozenset({"fence", "reader's fence"})).run()


def test_store_to_the_same_place_without_waiting_for_the_last() -> None:
    """Two TMA stores in flight to the same bytes of a buffer race, and the buffer is named."""
    found = Kernel(frozenset({"wait written"})).run()
    texts = [str(f) for f in found]
    assert len(texts) == 1
    assert texts[0].startswith("race: c+0x0..")
    assert (
        "no cp.async.bulk.wait_group by role mma (warp 4) between the TMA store and the access that follows it"
        in texts[0]
    )


def test_finding_names_both_sides() -> None:
    """A race says role, warp, CTA, line, text and provenance of both accesses."""
    text = str(Kernel(frozenset({"wait full"})).run()[0])
    assert (
        "write by TMA load issued by role load (warp 0) of CTA 1, cluster 0, at line 88: cp.async.bulk.tensor" in text
    )
    assert "[load TmaLoader.load x:8]" in text
    assert "read by wgmma issued by role mma (warp 4) of CTA 1, cluster 0, at line 120: wgmma.mma_async" in text
    assert "hint: wait on inputs.full[0] phase 0" in text


def test_races_are_reported_once_a_pair_of_instructions() -> None:
    """Nine k-blocks and four warps are two findings: the read too early, and the refill over a copy not known done."""
    read, refill = Kernel(frozenset({"wait full"})).run()
    assert "read by wgmma" in str(read)
    assert str(refill).count("write by TMA load") == 2


def test_raise_races_carries_everything() -> None:
    """The error has the place of the later access, the explanation, and all findings."""
    kernel = Kernel(frozenset({"fence", "wait full"}))
    kernel.run()
    with pytest.raises(RaceError, match=r"race: inputs.a\[0\]") as caught:
        kernel.findings.raise_races()
    error = caught.value
    assert (error.kernel, error.role, error.line) == ("matmul", "mma", 120)
    assert len(error.details["findings"]) == 3
    assert "no fence.proxy.async" in str(error)


def test_arrival_forgotten_by_a_consumer_blocks_the_producer() -> None:
    """Without the arrive on empty the producer's wait never passes; nothing races."""
    kernel = Kernel(frozenset({"arrive empty"}))
    for k in range(STAGES):
        kernel.fill(k)
        kernel.multiply(k)
    assert not kernel.empty[0].test(0)
    assert len(kernel.findings) == 0


def test_producer_a_lap_too_early_is_a_barrier_fault() -> None:
    """Filling a stage whose phase is still open arrives too often."""
    kernel = Kernel(frozenset({"wait empty"}))
    kernel.full[0].expect_tx(16)
    kernel.order.release(kernel.load, kernel.full[0].arriving)
    kernel.full[0].arrive(by=kernel.load.actor)
    with pytest.raises(BarrierFault, match="an arrival too many: all 1 of phase 0 are in"):
        kernel.fill(0)


def test_release_before_one_of_several_consumers_is_done() -> None:
    """A consumer that arrives for its peers hides that a peer still reads: the peer's read is named."""
    kernel = Kernel()
    for k in range(STAGES):
        kernel.fill(k)
    kernel.multiply(0, range(1))
    warp = kernel.mma[1]
    kernel.order.acquire(warp, kernel.full[0].completed)
    operation = kernel.wgmma[1].issue(WGMMA)
    kernel.shared.span(operation, kernel.tile(0), kernel.tile(0) + TILE, write=False)
    for _ in range(3):
        kernel.empty[0].arrive(by=kernel.mma[0].actor, instruction=RELEASE)
    kernel.fill(3)
    (found,) = kernel.findings
    assert "no wgmma.wait_group by role mma (warp 5) after the wgmma, whose group is not even committed" in str(found)


class TestSubtle:
    """Orders that are easily taken for granted."""

    def setup_method(self) -> None:
        self.races: list[object] = []
        self.order = ProxyOrder()
        self.memory = Memory("shared memory", WINDOW, 65536, self.races.append, cta=1)
        self.one, self.two, self.three = (self.order.warp(Actor(1, i)) for i in range(3))

    def write(self, warp: Agent, lo: int, hi: int) -> None:
        self.memory.span(warp, WINDOW + lo, WINDOW + hi, write=True, instruction=Line(0, "st", ""))

    def read(self, warp: Agent, lo: int, hi: int) -> None:
        self.memory.span(warp, WINDOW + lo, WINDOW + hi, write=False, instruction=Line(0, "ld", ""))

    def test_neighbouring_words_of_a_granule_do_not_race(self) -> None:
        """Two warps may write different words, and different bytes, of one 16-byte granule."""
        self.write(self.one, 0, 16)
        self.write(self.one, 16, 20)
        self.write(self.two, 20, 24)
        self.write(self.three, 25, 26)
        assert not self.races
        self.write(self.three, 23, 25)
        assert len(self.races) == 1

    def test_two_atomics_do_not_race_but_a_plain_read_races_with_both(self) -> None:
        """After two unordered atomics a reader must be ordered after each of them."""
        self.memory.span(self.one, WINDOW, WINDOW + 4, write=True, atomic=True)
        self.memory.span(self.two, WINDOW, WINDOW + 4, write=True, atomic=True)
        assert not self.races
        sync = Sync()
        self.order.release(self.two, sync)
        self.order.acquire(self.three, sync)
        self.read(self.three, 0, 4)
        assert len(self.races) == 1

    def test_release_sequence_through_an_atomic_counter(self) -> None:
        """The last of several warps to count up with acq_rel knows what the others wrote (split-K)."""
        for i, warp in enumerate((self.one, self.two, self.three)):
            self.write(warp, 64 * i, 64 * i + 64)
            self.order.atomic(warp, 0x5000, "acq_rel", reads=True, writes=True)
        self.read(self.three, 0, 192)
        assert not self.races
        self.read(self.two, 0, 64)
        assert not self.races
        self.read(self.two, 128, 192)
        assert len(self.races) == 1

    def test_fences_around_relaxed_accesses(self) -> None:
        """A fence, a relaxed store, a relaxed load and a fence order as release and acquire do; without one, not."""
        for leave_out in (None, "first", "second"):
            self.setup_method()
            self.write(self.one, 0, 16)
            if leave_out != "first":
                self.order.fence(self.one)
            self.order.atomic(self.one, 0x40, "relaxed", reads=False, writes=True)
            self.order.atomic(self.two, 0x40, "relaxed", reads=True, writes=False)
            if leave_out != "second":
                self.order.fence(self.two)
            self.read(self.two, 0, 16)
            assert len(self.races) == (leave_out is not None), leave_out

    def test_relaxed_arrive_publishes_only_initialisations(self) -> None:
        """fence.mbarrier_init and a relaxed arrive make barriers usable by peers, but no data visible."""
        stamp = self.order.initialise(self.one)
        self.write(self.one, 0, 16)
        assert not self.order.knows(self.two, stamp)
        self.order.fence_mbarrier_init(self.one)
        sync = Sync("the cluster barrier")
        self.order.release(self.one, sync, relaxed=True)
        self.order.acquire(self.two, sync)
        assert self.order.knows(self.two, stamp)
        self.read(self.two, 0, 16)
        assert len(self.races) == 1

    def test_relaxed_arrive_without_a_fence_publishes_nothing(self) -> None:
        """The initialisation stays unknown to the peer."""
        stamp = self.order.initialise(self.one)
        sync = Sync()
        self.order.release(self.one, sync, relaxed=True)
        self.order.acquire(self.two, sync)
        assert not self.order.knows(self.two, stamp)

    def test_cp_async_needs_its_wait_and_then_a_fence(self) -> None:
        """cp.async writes in the generic proxy: wgmma may read them after wait_group and fence.proxy.async."""
        for steps, races in (((), 1), (("wait",), 1), (("fence", "wait"), 1), (("wait", "fence"), 0)):
            self.setup_method()
            queue = self.order.groups(self.one, "cp.async", waits_with="cp.async.wait_group", asynchronous=False)
            self.memory.span(queue.issue(None), WINDOW, WINDOW + 512, write=True)
            queue.commit()
            for step in steps:
                if step == "wait":
                    queue.wait()
                else:
                    self.order.fence_proxy_async(self.one)
            tensor = self.order.groups(self.one, "wgmma", waits_with="wgmma.wait_group")
            self.memory.span(tensor.issue(None), WINDOW, WINDOW + 512, write=False)
            assert len(self.races) == races, steps

    def test_cp_async_groups_complete_in_order(self) -> None:
        """wait_group 1 covers all groups but the youngest."""
        queue = self.order.groups(self.one, "cp.async", waits_with="cp.async.wait_group", asynchronous=False)
        for i in range(3):
            self.memory.span(queue.issue(None), WINDOW + 64 * i, WINDOW + 64 * i + 64, write=True)
            queue.commit()
        assert queue.outstanding() == 3
        queue.wait(1)
        assert queue.outstanding() == 1
        self.read(self.one, 0, 128)
        assert not self.races
        self.read(self.one, 128, 192)
        assert len(self.races) == 1

    def test_cp_async_arrive_on_an_mbarrier(self) -> None:
        """A waiter on the mbarrier knows the copies issued before the arrive and not those after it."""
        queue = self.order.groups(self.one, "cp.async", waits_with="cp.async.wait_group", asynchronous=False)
        sync = Sync("full phase 0")
        self.memory.span(queue.issue(None), WINDOW, WINDOW + 64, write=True)
        queue.release(sync)
        self.memory.span(queue.issue(None), WINDOW + 64, WINDOW + 128, write=True)
        self.order.acquire(self.two, sync)
        self.read(self.two, 0, 64)
        assert not self.races
        self.read(self.two, 64, 128)
        assert len(self.races) == 1

    def test_cp_async_announced_by_an_mbarrier_is_fenced_by_its_reader(self) -> None:
        """The warp that learned of the copies on an mbarrier may execute the proxy fence; without it, a race."""
        for fenced in (True, False):
            self.setup_method()
            queue = self.order.groups(self.one, "cp.async", waits_with="cp.async.wait_group", asynchronous=False)
            sync = Sync("full phase 0")
            self.memory.span(queue.issue(None), WINDOW, WINDOW + 64, write=True)
            queue.release(sync)
            self.order.acquire(self.two, sync)
            if fenced:
                self.order.fence_proxy_async(self.two)
            tensor = self.order.groups(self.two, "wgmma", waits_with="wgmma.wait_group")
            self.memory.span(tensor.issue(None), WINDOW, WINDOW + 64, write=False)
            assert len(self.races) == (not fenced)

    def test_issuer_may_not_touch_what_its_copy_is_writing(self) -> None:
        """The warp that issued a TMA load is not ordered after it until it waits."""
        sync = Sync("full phase 0")
        operation = self.order.issue(self.one, "TMA load", None, sync)
        self.memory.span(operation, WINDOW, WINDOW + 1024, write=True)
        self.read(self.one, 0, 16)
        assert len(self.races) == 1

    def test_access_after_issue_and_before_landing(self) -> None:
        """A write between the issue of a store and the moment it reads its source is caught at the read."""
        queue = self.order.bulk_groups(self.one)
        reads, _ = queue.issue(None)
        queue.commit()
        self.write(self.one, 0, 16)
        self.order.fence_proxy_async(self.one)
        self.memory.span(reads, WINDOW, WINDOW + 1024, write=False)
        assert len(self.races) == 1

    def test_what_an_operation_knew_travels_with_its_completion(self) -> None:
        """Who waits for a refill is ordered after the reads that its issuer waited for."""
        self.read(self.one, 0, 1024)
        empty, full = Sync("empty phase 0"), Sync("full phase 0")
        self.order.release(self.one, empty)
        self.order.acquire(self.two, empty)
        operation = self.order.issue(self.two, "TMA load", None, full)
        self.memory.span(operation, WINDOW, WINDOW + 1024, write=True)
        self.order.release(operation, full)
        self.order.acquire(self.three, full)
        self.write(self.three, 0, 1024)
        assert not self.races

    def test_wait_on_the_previous_phase_learns_nothing_of_this_one(self) -> None:
        """Arrivals of the phase under way are not acquired by a wait that passes on the one before."""
        barrier = Mbarrier(0, 2, "b")
        for warp in (self.one, self.two):
            self.order.release(warp, barrier.arriving)
            barrier.arrive()
        self.write(self.one, 0, 16)
        self.order.release(self.one, barrier.arriving)
        barrier.arrive()
        self.order.acquire(self.three, barrier.completed)
        self.read(self.three, 0, 16)
        assert len(self.races) == 1

    def test_later_phase_includes_earlier_arrivals(self) -> None:
        """Waiting for phase 1 alone orders after what was released to phase 0."""
        barrier = Mbarrier(0, 1, "b")
        self.write(self.one, 0, 16)
        self.order.release(self.one, barrier.arriving)
        barrier.arrive()
        self.order.release(self.two, barrier.arriving)
        barrier.arrive()
        self.order.acquire(self.three, barrier.completed)
        self.read(self.three, 0, 16)
        assert not self.races

    def test_reads_before_the_first_write_are_remembered(self) -> None:
        """Memory that is only read so far costs a list, and a first write still sees all of it."""
        for warp in (self.one, self.two):
            self.read(warp, 0, 32768)
        sync = Sync()
        self.order.release(self.one, sync)
        self.order.acquire(self.three, sync)
        self.write(self.three, 20000, 20004)
        assert len(self.races) == 1

    def tensor_read(self, warp: Agent, lo: int, hi: int) -> None:
        """A read of the async proxy, issued by `warp`."""
        groups = self.order.groups(warp, "wgmma", waits_with="wgmma.wait_group")
        self.memory.span(groups.issue(Line(0, "wgmma", "")), WINDOW + lo, WINDOW + hi, write=False)

    def test_fence_covers_only_what_was_written_before_it(self) -> None:
        """A write after the fence needs another one, even with no release in between."""
        self.write(self.one, 0, 16)
        self.order.fence_proxy_async(self.one)
        self.write(self.one, 16, 32)
        self.tensor_read(self.one, 0, 16)
        assert not self.races
        self.tensor_read(self.one, 16, 32)
        assert len(self.races) == 1

    def test_fence_covers_only_what_the_warp_knew(self) -> None:
        """Another warp's write that was learnt of after the fence is not covered by it."""
        self.write(self.one, 16, 32)
        self.write(self.two, 0, 16)
        self.order.fence_proxy_async(self.two)
        sync = Sync()
        self.order.release(self.one, sync)
        self.order.acquire(self.two, sync)
        self.tensor_read(self.two, 0, 16)
        assert not self.races
        self.tensor_read(self.two, 16, 32)
        assert len(self.races) == 1

    def test_reads_of_different_bytes_at_different_times_are_all_remembered(self) -> None:
        """A later read elsewhere does not make an agent's earlier read forgotten; one of the same bytes replaces it."""
        self.write(self.one, 0, 64)
        early, late = Sync(), Sync()
        self.order.release(self.one, early)
        self.order.acquire(self.two, early)
        self.read(self.two, 0, 16)
        self.order.release(self.two, late)
        self.read(self.two, 16, 32)
        self.order.release(self.two, Sync())
        self.read(self.two, 32, 48)
        self.order.acquire(self.three, late)
        self.write(self.three, 0, 16)
        assert not self.races
        self.write(self.three, 16, 32)
        assert len(self.races) == 1
        self.write(self.three, 32, 48)
        assert len(self.races) == 2

    def test_relaxed_release_does_not_take_back_a_release(self) -> None:
        """A relaxed arrive after an old fence leaves what was released since."""
        self.order.fence(self.one)
        self.write(self.one, 0, 16)
        sync = Sync()
        self.order.release(self.one, sync)
        self.order.release(self.one, sync, relaxed=True)
        self.order.acquire(self.two, sync)
        self.read(self.two, 0, 16)
        assert not self.races

    def test_records_stay_few(self) -> None:
        """However often memory is written and read in order, the shadow holds only what can still race."""
        for i in range(100):
            for warp, after in ((self.one, self.two), (self.two, self.one)):
                self.write(warp, 0, 8192)
                self.write(warp, 64 * (i % 7), 64 * (i % 7) + 100)
                self.read(warp, 32 * (i % 5), 4000)
                self.read(warp, 0, 8192)
                sync = Sync()
                self.order.release(warp, sync)
                self.order.acquire(after, sync)
        assert not self.races
        (page,) = self.memory._pages.values()
        assert len(page.writes) <= 3
        assert sum(map(len, page.reads.values())) <= 2
        for _ in range(100):
            self.read(self.one, 0, 8192)
            self.order.release(self.one, Sync())
        assert sum(map(len, page.reads.values())) <= 2

    def test_scattered_spans_of_one_operation(self) -> None:
        """Spans in any order and in several pages, as an array or a list, are all seen."""
        spans = [(9000, 9100), (40, 48), (30000, 30016)]
        operation = self.order.issue(self.one, "TMA load", None)
        self.memory.extents(operation, np.array(spans) + WINDOW, write=True)
        for lo, hi in spans:
            races = len(self.races)
            self.read(self.two, lo - 8, lo)
            self.read(self.two, hi, hi + 8)
            assert len(self.races) == races
            self.read(self.two, lo, lo + 1)
            self.read(self.two, hi - 1, hi)
            assert len(self.races) == races + 2

    def test_race_range_is_what_both_touched(self) -> None:
        """The reported bytes are the first to the last in common."""
        self.write(self.one, 100, 300)
        self.read(self.two, 200, 400)
        (race,) = self.races
        assert (race.lo - WINDOW, race.hi - WINDOW) == (200, 300)  # type: ignore[attr-defined]
