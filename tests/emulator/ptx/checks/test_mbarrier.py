"""Every rule of the mbarrier object."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekit.emulator.core.errors import Actor, BarrierFault
from tilekit.emulator.ptx.synchronisation.mbarrier import (
    MAXIMUM_COUNT,
    MAXIMUM_TX,
    BarrierState,
    Mbarrier,
    decode,
    encode,
)
from tilekit.emulator.ptx.synchronisation.mbarrier_table import MbarrierTable


@dataclass(frozen=True)
class Line:
    line: int
    text: str
    provenance: str = ""


LOAD = Actor(0, 0, "load")
MMA = Actor(0, 4, "mma")
ARRIVE = Line(12, "mbarrier.arrive.shared.b64 _, [%r1];", "mma Ring.release tile_pipeline/ring.py:40")


def barrier(count: int = 1, name: str = "inputs.full[1]") -> Mbarrier:
    return Mbarrier(0x1000, count, name)


def test_fresh_barrier_passes_a_wait_on_parity_one_only() -> None:
    """The phase before the first counts as complete, so a producer's first wait on parity 1 passes."""
    b = barrier()
    assert b.test(1)
    assert not b.test(0)


def test_phase_completes_when_all_arrived() -> None:
    """The last expected arrival flips the parity and makes the expected count pending again."""
    b = barrier(3)
    for left in (2, 1):
        b.arrive()
        assert (b.pending, b.phase) == (left, 0)
    b.arrive()
    assert (b.pending, b.phase, b.parity) == (3, 1, 1)
    assert b.test(0)
    assert not b.test(1)


def test_arrive_takes_a_count() -> None:
    """One arrive may count for several."""
    b = barrier(4)
    b.arrive(3)
    assert b.phase == 0
    b.arrive(1)
    assert b.phase == 1


def test_phase_waits_for_bytes_after_all_arrived() -> None:
    """With nothing pending the phase stays open until the tx-count is zero."""
    b = barrier(1)
    b.arrive(expect_tx=49152)
    assert (b.pending, b.tx, b.phase) == (0, 49152, 0)
    b.complete_tx(32768)
    assert not b.test(0)
    b.complete_tx(16384)
    assert b.test(0)


def test_phase_waits_for_arrivals_after_all_bytes() -> None:
    """Bytes that arrive before the last arrival do not complete the phase."""
    b = barrier(2)
    b.arrive(expect_tx=128)
    b.complete_tx(128)
    assert b.phase == 0
    b.arrive()
    assert b.phase == 1


def test_bytes_may_arrive_before_they_are_expected() -> None:
    """The tx-count may be negative while an arrival is pending."""
    b = barrier(1)
    b.complete_tx(256)
    assert (b.tx, b.phase) == (-256, 0)
    b.arrive(expect_tx=256)
    assert (b.tx, b.phase) == (0, 1)


def test_expect_tx_alone_is_no_arrival() -> None:
    """expect_tx raises the tx-count and leaves the pending count."""
    b = barrier(1)
    b.expect_tx(64)
    assert (b.pending, b.tx) == (1, 64)
    b.complete_tx(64)
    assert b.phase == 0
    b.arrive()
    assert b.phase == 1


def test_tx_starts_at_zero_in_each_phase() -> None:
    """Byte counts of one phase do not leak into the next."""
    b = barrier(1)
    for _ in range(5):
        b.arrive(expect_tx=100)
        b.complete_tx(100)
    assert (b.phase, b.tx, b.bytes_expected, b.bytes_arrived) == (5, 0, 0, 0)


def test_too_few_bytes_expected_is_a_fault() -> None:
    """All arrivals in and more bytes landed than announced: the message says how many are missing."""
    b = barrier(1)
    b.complete_tx(49152)
    with pytest.raises(BarrierFault, match="49152 bytes arrived and only 49136 were expected") as caught:
        b.arrive(expect_tx=49136)
    assert "16 bytes short" in caught.value.hint


def test_arrival_beyond_the_pending_count_is_a_fault() -> None:
    """An arrival while the phase only waits for bytes underflows the count."""
    b = barrier(1)
    b.arrive(expect_tx=16, by=LOAD, instruction=ARRIVE)
    with pytest.raises(BarrierFault, match="an arrival too many: all 1 of phase 0 are in") as caught:
        b.arrive(by=MMA, instruction=ARRIVE)
    text = str(caught.value)
    assert "role mma (warp 4)" in text
    assert "line 12" in text
    assert "tile_pipeline/ring.py:40" in text
    assert "role load (warp 0), 1 arrival and expects 16 bytes" in text


def test_arrive_count_larger_than_pending_is_a_fault() -> None:
    """A count that passes zero is refused, not wrapped into the next phase."""
    b = barrier(2)
    with pytest.raises(BarrierFault, match="3 arrivals at once, where phase 0 needs 2 more of"):
        b.arrive(3)


@pytest.mark.parametrize("count", [0, -1, MAXIMUM_COUNT + 1])
def test_counts_out_of_range_are_faults(count: int) -> None:
    """Init and arrive take 1 to 2^20 - 1 and say the nearest legal value."""
    with pytest.raises(BarrierFault, match="legal: 1 to 1048575"):
        Mbarrier(0x1000, count, "b")
    with pytest.raises(BarrierFault, match="legal: 1 to 1048575"):
        barrier().arrive(count)


def test_misaligned_address_is_a_fault() -> None:
    """An mbarrier lies on a multiple of 8 bytes."""
    with pytest.raises(BarrierFault, match="not a multiple of 8") as caught:
        Mbarrier(0x1004, 1)
    assert "0x1000" in caught.value.hint


def test_tx_count_limits() -> None:
    """The tx-count stays within 2^20 - 1 on both sides."""
    b = barrier(2)
    b.expect_tx(MAXIMUM_TX)
    with pytest.raises(BarrierFault, match="passes its limit of 1048575"):
        b.expect_tx(1)
    b = barrier(2)
    b.complete_tx(MAXIMUM_TX)
    with pytest.raises(BarrierFault, match="leave its range"):
        b.complete_tx(1)
    with pytest.raises(BarrierFault, match="legal: 0 to 1048575"):
        barrier().expect_tx(MAXIMUM_TX + 1)


def test_arrive_drop_lowers_later_phases() -> None:
    """The phase in which a participant leaves still counts it; later ones do not."""
    b = barrier(3)
    b.arrive_drop()
    assert (b.expected, b.pending) == (2, 2)
    b.arrive(2)
    assert (b.phase, b.pending) == (1, 2)
    b.arrive(2)
    assert b.phase == 2


def test_arrive_drop_of_more_than_expected_is_a_fault() -> None:
    """A thread that was never expected cannot leave."""
    with pytest.raises(BarrierFault, match="expects only 1 arrivals"):
        barrier(1).arrive_drop(2)


def test_no_complete_must_not_complete() -> None:
    """A noComplete arrive may not be the last of its phase."""
    b = barrier(2)
    b.arrive(no_complete=True)
    with pytest.raises(BarrierFault, match="noComplete"):
        b.arrive(no_complete=True)


def test_token_waits_for_the_phase_of_its_arrive() -> None:
    """test_wait by state answers whether the phase in which the arrive happened is over."""
    b = barrier(2)
    token = b.arrive()
    assert not b.test_token(token)
    last = b.arrive()
    assert b.test_token(token)
    assert b.test_token(last)
    assert not b.test_token(b.image())


def test_token_holds_the_state_before_the_arrive() -> None:
    """mbarrier.pending_count of the token is the count before arriving."""
    b = barrier(5)
    b.arrive(2)
    assert decode(b.arrive()).pending == 3
    assert decode(b.image()).pending == 2


@given(
    st.integers(0, MAXIMUM_COUNT),
    st.integers(0, MAXIMUM_COUNT),
    st.integers(-MAXIMUM_TX, MAXIMUM_TX),
    st.integers(0, 1),
)
def test_image_round_trips(expected: int, pending: int, tx: int, parity: int) -> None:
    """Every legal state survives its 64-bit image."""
    state = BarrierState(expected, pending, tx, parity)
    image = encode(state)
    assert 0 <= image < 1 << 64
    assert decode(image) == state


def test_image_is_never_zero_for_a_live_barrier() -> None:
    """Cleared memory is not mistaken for a barrier: an expected count of at least one leaves bits set."""
    assert Mbarrier(0, 1).image() != 0


@given(st.integers(1, 6), st.integers(0, 4), st.integers(0, 2**32))
def test_any_order_of_a_phase_completes_it_exactly_once(count: int, copies: int, seed: int) -> None:
    """However arrivals, expectations and bytes of one phase interleave, it completes at the last of them."""
    b = Mbarrier(0, count)
    sizes = [16 * (i + 1) for i in range(copies)]
    # One participant expects all bytes and arrives; the bytes and the others come whenever they like.
    steps = ["expect", *["arrive"] * (count - 1), *sizes]
    random.Random(seed).shuffle(steps)
    for i, step in enumerate(steps):
        assert b.phase == 0, f"completed before step {i} of {steps}"
        if step == "expect":
            b.arrive(expect_tx=sum(sizes))
        elif step == "arrive":
            b.arrive()
        else:
            b.complete_tx(int(step))
    assert b.phase == 1


def test_missed_phase_is_a_fault() -> None:
    """A phase may not complete twice under a waiter: parity alone would let it hang."""
    b = barrier(1)
    b.suspend("mma", MMA, ARRIVE)
    b.arrive()
    with pytest.raises(BarrierFault, match=r"phase 1 completes while role mma \(warp 4\) still waits for phase 0"):
        b.arrive()


def test_resumed_waiter_is_no_longer_watched() -> None:
    """A waiter that saw its phase does not hold the next ones up."""
    b = barrier(1)
    b.suspend("mma", MMA, ARRIVE)
    b.arrive()
    b.resume("mma")
    b.arrive()
    assert b.phase == 2


def test_overrun_names_the_missed_phase() -> None:
    """A thread last seen at phase k while k + 2 has completed has missed k + 1."""
    b = barrier(1)
    b.arrive()
    b.resume("mma")
    assert b.overrun("mma") is None
    b.arrive()
    assert b.overrun("mma") is None
    b.arrive()
    assert b.overrun("mma") == 1
    assert b.overrun("none") is None


def test_history_keeps_this_and_the_last_phase() -> None:
    """Messages can say who arrived now and who arrived last."""
    b = barrier(1)
    b.arrive(by=LOAD, instruction=ARRIVE)
    b.arrive(by=MMA, instruction=ARRIVE, expect_tx=8)
    assert [a.actor for a in b.last_arrivals] == [LOAD]
    assert [a.actor for a in b.arrivals] == [MMA]
    assert "this phase (1): role mma (warp 4)" in b.history()
    assert "last phase (0): role load (warp 0)" in b.history()


def test_sync_objects_rotate_with_the_phase() -> None:
    """What is released to a phase is what waits for that phase acquire."""
    b = barrier(1)
    current = b.arriving
    b.arrive()
    assert b.completed is current
    assert b.arriving is not current
    assert b.completed.name == "inputs.full[1] phase 0"
    assert b.arriving.name == "inputs.full[1] phase 1"


class TestTable:
    def test_use_before_init_names_the_nearest_barrier(self) -> None:
        """An address without a barrier is a fault that says where one is."""
        table = MbarrierTable()
        table.initialise(0x1000, 1, "inputs.full[0]")
        with pytest.raises(BarrierFault, match="no mbarrier has been initialised at 0x1010") as caught:
            table.at(0x1010, by=MMA)
        assert "inputs.full[0] at 0x1000" in caught.value.hint
        assert caught.value.role == "mma"

    def test_use_in_another_cta_says_which_cta_has_barriers(self) -> None:
        """A remote address of a CTA that never initialised is told from an offset mistake."""
        table = MbarrierTable()
        table.initialise(0x1000, 1)
        with pytest.raises(BarrierFault) as caught:
            table.at(0x1001000)
        assert "only CTA 0" in caught.value.hint

    def test_use_before_any_init(self) -> None:
        """With no barrier at all the hint asks for the init."""
        with pytest.raises(BarrierFault) as caught:
            MbarrierTable().at(0x1000)
        assert "no mbarrier has been initialised yet" in caught.value.hint

    def test_second_init_is_a_fault(self) -> None:
        """Initialising a live barrier again is undefined on hardware; both inits are named."""
        table = MbarrierTable()
        table.initialise(0x1000, 1, "b", by=LOAD, instruction=ARRIVE)
        with pytest.raises(BarrierFault, match="initialised again while live") as caught:
            table.initialise(0x1000, 1, "b", by=MMA)
        assert "role load" in str(caught.value)

    def test_init_after_inval(self) -> None:
        """The bytes are free after inval."""
        table = MbarrierTable()
        table.initialise(0x1000, 1)
        table.invalidate(0x1000)
        assert table.get(0x1000) is None
        assert table.initialise(0x1000, 2).expected == 2

    def test_inval_under_a_waiter_or_with_bytes_outstanding(self) -> None:
        """A barrier that is still waited on cannot be invalidated."""
        table = MbarrierTable()
        table.initialise(0x1000, 1).suspend("w", MMA)
        with pytest.raises(BarrierFault, match="invalidated while role mma"):
            table.invalidate(0x1000)
        table.initialise(0x1008, 1).expect_tx(64)
        with pytest.raises(BarrierFault, match="64 bytes still to arrive"):
            table.invalidate(0x1008)

    def test_ordinary_writes_over_a_barrier(self) -> None:
        """A store that touches any of the eight bytes is a fault, one beside them is not."""
        table = MbarrierTable()
        table.initialise(0x1008, 1, "b")
        table.initialise(0x1020, 1, "c")
        table.check_store(0x1000, 0x1008)
        table.check_store(0x1010, 0x1020)
        for low, high in ((0x1000, 0x1009), (0x100C, 0x1010), (0x0, 0x2000)):
            with pytest.raises(BarrierFault, match="b: its bytes are overwritten"):
                table.check_store(low, high)

    def test_unfinished_barriers(self) -> None:
        """Barriers whose phase lacks arrivals, or was promised bytes that never came, are found when a kernel ends."""
        table = MbarrierTable()
        short = table.initialise(0x1000, 2)
        short.arrive()
        waiting = table.initialise(0x1001008, 1, "inputs.full[1]")
        waiting.arrive(expect_tx=48, by=LOAD, instruction=ARRIVE)
        waiting.complete_tx(16, by=LOAD, instruction=ARRIVE)
        early = table.initialise(0x1010, 1, "other")
        early.complete_tx(16)
        left, unused, again = (table.initialise(address, 2) for address in (0x1018, 0x1020, 0x1028))
        left.arrive_drop()
        again.arrive(2)
        assert table.unfinished() == [short, waiting, early]
        assert unused in list(table)
        assert len(table) == len(list(table)) == 6
        assert "this phase (0): role load (warp 0), 16 bytes arrived, at line 12" in waiting.history()
