"""The deadlock table: who waits, for what, whose arrival is missing, and the likely mistake."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.emulator.core.checks.deadlock import Blocked, GroupWait, Meeting, PhaseWait, deadlock, waiting_table
from tilekit.emulator.core.errors import Actor, Deadlock
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.ptx.synchronisation.mbarrier import Mbarrier

NOTES = """
//@role load warps=0-0
//@role mma0 warps=4-7
//@role mma1 warps=8-11
//@shared inputs.full offset=0 size=24 stride=8 count=3 kind=mbarrier arrive=load wait=mma0,mma1
//@shared inputs.empty offset=24 size=24 stride=8 count=3 kind=mbarrier arrive=mma0,mma1 wait=load
"""
SYMBOLS = SymbolMap.parse(NOTES)


@dataclass(frozen=True)
class Line:
    line: int
    text: str
    provenance: str = ""


WAIT_EMPTY = Line(61, "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", "load Ring.acquire ring.py:61")
WAIT_FULL = Line(88, "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], %r5;", "mma0 Ring.wait ring.py:88")
EXPECT = Line(64, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 49152;", "load Ring.expect ring.py:64")
TMA = Line(66, "cp.async.bulk.tensor.2d [%r1], [%rd1, {%r5, %r6}], [%r2];", "load TmaLoader.load tma.py:88")
LOAD = Actor(0, 0, "load")


def mma(group: int, warp: int = 0, cta: int = 0) -> Actor:
    return Actor(cta, 4 + 4 * group + warp, f"mma{group}")


def full(stage: int = 0, count: int = 1) -> Mbarrier:
    return Mbarrier(1024 + 8 * stage, count, f"inputs.full[{stage}]")


def empty(stage: int = 0, count: int = 2) -> Mbarrier:
    return Mbarrier(1048 + 8 * stage, count, f"inputs.empty[{stage}]")


def waits(actor: Actor, barrier: Mbarrier, line: Line = WAIT_FULL, *, cta: int = 0) -> Blocked:
    return Blocked(actor, line, PhaseWait(barrier, barrier.parity, cta, key=actor))


def test_wrong_first_parity_is_a_cycle_at_phase_zero() -> None:
    """A producer that waits for parity 0 on a fresh ring: the cycle is shown and the usual mistake named."""
    f, e = full(), empty()
    blocked = [waits(LOAD, e, WAIT_EMPTY), *(waits(mma(g, w), f) for g in range(2) for w in range(4))]
    error = deadlock(blocked, symbols=SYMBOLS)
    text = str(error)
    assert isinstance(error, Deadlock)
    assert "deadlock: 9 warps in 1 CTA wait" in text
    assert "role load (warp 0) waits for inputs.empty[0] phase 0 (parity 0)" in text
    assert "role mma0 (warps 4-7) waits for inputs.full[0] phase 0" in text
    assert "role mma1 (warps 8-11)" in text
    assert "at line 61: mbarrier.try_wait" in text
    assert "[load Ring.acquire ring.py:61]" in text
    assert "declared to arrive: mma0, mma1" in text
    assert "no thread has ever arrived" in text
    assert "cycle: load -> inputs.empty[0] -> mma0 -> inputs.full[0] -> load" in text
    assert "on its first lap a producer waits for parity 1" in error.hint


def test_bytes_promised_and_not_brought() -> None:
    """expect_tx larger than the copies: the two numbers are named."""
    f = full()
    f.arrive(expect_tx=49152, by=LOAD, instruction=EXPECT)
    f.complete_tx(32768, by=LOAD, instruction=TMA)
    text = str(deadlock([waits(mma(0), f)], exited=[LOAD], symbols=SYMBOLS))
    assert "inputs.full[0]: expect_tx promised 49152 bytes but 32768 arrived, and no copy is in flight" in text
    assert "needs 16384 of 49152 bytes" in text
    assert "arrived in this phase: role load (warp 0) (expects 49152 B, brought 32768 B)" in text


def test_bytes_that_were_not_announced() -> None:
    """Copies without arrive.expect_tx leave the tx-count negative."""
    f = full()
    f.complete_tx(16384, by=LOAD, instruction=TMA)
    error = deadlock([waits(mma(0), f)], exited=[LOAD], symbols=SYMBOLS)
    assert "16384 bytes arrived but no thread executed arrive.expect_tx" in error.hint
    assert "an expect_tx for 16384 bytes that arrived unannounced" in str(error)


def test_count_higher_than_those_who_arrive() -> None:
    """All declared roles have arrived and the barrier wants more."""
    e = empty(count=8)
    e.arrive(by=mma(0), instruction=EXPECT)
    e.arrive(by=mma(1), instruction=EXPECT)
    error = deadlock([waits(LOAD, e, WAIT_EMPTY), waits(mma(0), full()), waits(mma(1), full())], symbols=SYMBOLS)
    assert (
        "inputs.empty[0] expects 8 arrivals a phase, but every thread that arrives on it has (mma0, mma1: 2): "
        "initialise it with 2, or let the other 6 arrive too" in error.hint
    )


def test_arriver_has_exited() -> None:
    """A role that ended can no longer arrive."""
    e = empty()
    e.arrive(by=mma(0), instruction=EXPECT)
    error = deadlock([waits(LOAD, e, WAIT_EMPTY)], exited=[mma(0), mma(1)], symbols=SYMBOLS)
    assert "mma1 exited and can no longer arrive on inputs.empty[0]" in error.hint


def test_missed_phase() -> None:
    """A waiter two phases behind is told which phase it missed."""
    f = full()
    f.arrive(by=LOAD)
    f.resume(mma(0))
    f.arrive(by=LOAD)
    f.arrive(by=LOAD)
    error = deadlock([waits(mma(0), f)], symbols=SYMBOLS)
    assert "role mma0 (warp 4) missed phase 1 of inputs.full[0]" in error.hint


def test_without_annotations_arrivers_come_from_history() -> None:
    """Plain compiler output: warps by number, and the cycle through those who arrived before."""
    e, f = Mbarrier(0x400, 1), Mbarrier(0x408, 1)
    producer, consumer = Actor(0, 0), Actor(0, 1)
    f.arrive(by=producer, instruction=EXPECT)
    e.arrive(by=consumer, instruction=EXPECT)
    error = deadlock([waits(producer, e, WAIT_EMPTY), waits(consumer, f)])
    text = str(error)
    assert "warp 0 waits for the mbarrier at 0x400 phase 1 (parity 1)" in text
    assert "arrived last (phase 0): warp 1" in text
    assert "cycle: warp 0 -> the mbarrier at 0x400 -> warp 1 -> the mbarrier at 0x408 -> warp 0" in text
    assert "each waits for the next" in error.hint


def test_named_barrier_with_an_exited_warp() -> None:
    """bar.sync for more threads than are left."""
    bar = Meeting("bar 1", (0, 1), expected=256, arrived=128, present=tuple(mma(0, w) for w in range(4)))
    blocked = [Blocked(mma(0, w), Line(150, "bar.sync 1, 256;"), bar) for w in range(4)]
    error = deadlock(blocked, exited=[mma(1, w) for w in range(4)])
    text = str(error)
    assert "role mma0 (warps 4-7) waits for bar 1: 128 of 256 threads arrived" in text
    assert "bar 1 expects 256 threads" in error.hint
    assert "role mma1 (warp 8)" in error.hint


def test_named_barrier_and_mbarrier_cycle() -> None:
    """One role at a named barrier, the other at an mbarrier that the first should arrive on."""
    bar = Meeting("bar 1", (0, 1), expected=256, arrived=128)
    f = full()
    symbols = SymbolMap.parse(
        "//@shared inputs.full offset=0 size=24 stride=8 count=3 kind=mbarrier arrive=mma1 wait=mma0"
    )
    error = deadlock([waits(mma(0), f), Blocked(mma(1), Line(9, "bar.sync 1, 256;"), bar)], symbols=symbols)
    assert error.details["cycle"] == ["mma0", "inputs.full[0]", "mma1", "bar 1", "mma0"]


def test_cluster_cycle_names_the_ctas() -> None:
    """Waits across CTAs of a cluster: the cycle says which CTA each role is in."""
    far = Actor(1, 0, "load")
    e0, e1 = Mbarrier(0x400, 1, "a"), Mbarrier(0x1000400, 1, "b")
    e0.arrive(by=far)
    e1.arrive(by=LOAD)
    error = deadlock([waits(LOAD, e0, cta=0), waits(far, e1, cta=1)])
    assert error.details["cycle"] == ["load of CTA 0", "a", "load of CTA 1", "b", "load of CTA 0"]
    assert "2 warps in 2 CTAs wait" in str(error)


def test_wait_on_a_barrier_of_another_cta_is_said() -> None:
    """The owner of a remote barrier is named."""
    text = waiting_table([waits(LOAD, empty(), WAIT_EMPTY, cta=1)])
    assert "inputs.empty[0] of CTA 1 phase 0" in text


def test_waiting_for_ones_own_arrival() -> None:
    """A role that is the only one to arrive and waits first."""
    f = full()
    f.arrive(by=LOAD)
    error = deadlock([waits(LOAD, f)], symbols=SYMBOLS)
    assert "role load (warp 0) waits on inputs.full[0] for its own arrival" in error.hint


def test_no_thread_arrives_at_all() -> None:
    """A barrier without history or declaration asks who should arrive."""
    error = deadlock([waits(LOAD, Mbarrier(0x400, 1, "lonely"))])
    assert "no thread has ever arrived on lonely" in error.hint


def test_named_barriers_that_wait_for_each_other() -> None:
    """Of two named barriers in a cycle the report says who came the last time, where, and does not now."""
    sync, arrive = Line(20, "bar.sync 1, 64;"), Line(30, "bar.arrive 1, 64;")
    one, other = Actor(0, 0), Actor(0, 1)
    first = Meeting("bar 1", 1, 64, 32, (one,), ((one, sync), (other, arrive)))
    second = Meeting("bar 2", 2, 64, 32, (other,))
    error = deadlock([Blocked(one, sync, first), Blocked(other, Line(40, "bar.sync 2, 64;"), second)])
    assert error.hint.startswith("bar 1 waits for 32 of its 64 threads; the last time these came, which wait elsewhere")
    assert "now: warp 1 in line 30. One of the two must arrive before it waits" in error.hint
    swapped = deadlock([Blocked(other, sync, second), Blocked(one, sync, Meeting("bar 1", 1, 64, 32, (one,)))])
    assert "no thread but those that wait at it has ever come" in swapped.hint


def test_barriers_without_an_arrival_are_one_hint() -> None:
    """Several silent barriers are named together, and where they were initialised."""
    init = Line(12, "mbarrier.init.shared::cta.b64 [%r1], 1;")
    barriers = [Mbarrier(0x400 + 8 * i, 1, instruction=init) for i in range(5)]
    error = deadlock([waits(Actor(0, i), barrier) for i, barrier in enumerate(barriers[:2])])
    assert error.hint.startswith(
        "no thread has ever arrived on the mbarrier at 0x400 (mbarrier.init in line 12), the mbarrier at 0x408"
    )
    many = deadlock([waits(Actor(0, i), barrier) for i, barrier in enumerate(barriers)])
    assert ", 3 more: the mbarrier.arrive, or the commit or copy that arrives, is missing" in many.hint


def test_other_waits_are_said_in_words() -> None:
    """Waits that are not barriers appear with their own text; warps that are not neighbours are listed."""
    blocked = [Blocked(Actor(0, w), Line(5, "setmaxnreg.inc;"), GroupWait("232 registers")) for w in (1, 3)]
    text = str(deadlock(blocked))
    assert "warps 1, 3 wait for 232 registers" in text
    named = [Blocked(Actor(0, w, "mma"), Line(5, "setmaxnreg.inc;"), GroupWait("232 registers")) for w in (1, 3)]
    assert "role mma (warps 1, 3) waits for 232 registers" in str(deadlock(named))
