"""An arrival of a whole warp on an mbarrier that waits for fewer: some lanes come too late for the phase."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, LaunchReport, RaceError
from tilekit.emulator.core.schedules import Policy

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry swap(.param .u64 out_param) .maxntid 96 {
    .reg .b64 out;
    .reg .b32 s, bar, t, lane, mine, other, x;
    .reg .pred p, low, done;
    ld.param.u64 out, [out_param];
    mov.u32 s, smem;
    add.u32 bar, s, 512;
    mov.u32 t, %%tid.x;
    mov.u32 lane, %%laneid;
    mad.lo.u32 mine, lane, 4, s;
    xor.b32 other, lane, 31;
    mad.lo.u32 other, other, 4, s;
    mad.wide.u32 out, lane, 4, out;
    setp.lt.u32 low, lane, 16;
    setp.eq.u32 p, t, 0;
    @p mbarrier.init.shared::cta.b64 [bar], %(count)d;
    bar.sync 0;
    setp.ge.u32 p, t, 32;
    @p bra others;
    st.shared.u32 [mine], lane;
    %(arrive)s
    ret;
others:
    mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0;
    @!done bra others;
    %(then)s
    ld.shared.u32 x, [other];
    st.global.u32 [out], x;
    ret;
}
"""
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [bar];"
MEET = "bar.warp.sync 0xffffffff;"
MEET_IN_HALVES = "@!low bra high; bar.warp.sync 0x0000ffff; bra on; high: bar.warp.sync 0xffff0000; on:"
FILL = """
    barrier.sync 1, 64;
    setp.ge.u32 p, t, 64;
    @p bra later;
    @low mbarrier.arrive.shared::cta.b64 _, [bar];
    ret;
later:
    mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 1;
    @!done bra later;
"""
"""Of those that waited for phase 0 one warp brings what phase 1 lacks, and another waits for it."""


def launch(
    count: int, arrive: str = ARRIVE, then: str = "", threads: int = 64, schedule: Policy = "adversarial"
) -> LaunchReport:
    """One warp writes a word a lane and arrives; who waits reads the words from behind."""
    device = Device("sm_90a", schedule=schedule)
    out = device.buffer(np.zeros(32, np.uint32))
    text = TEXT % {"count": count, "arrive": arrive, "then": then}
    report = device.load(text)["swap"].launch(1, threads, [out], shared_bytes=1024)
    assert np.array_equal(out.read(), np.arange(32)[::-1])
    return report


@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
@pytest.mark.parametrize("count", [17, 20, 31])
def test_lanes_that_come_too_late(count: int, schedule: Policy) -> None:
    """Any lane may be one that the phase did not wait for, so its word races; and the barrier is left part-way."""
    with pytest.raises(RaceError) as caught:
        launch(count, schedule=schedule)
    said = str(caught.value)
    assert "more lanes of warp 0 arrived on the mbarrier at 0x600 phase 0 at once than that phase waits for" in said
    assert "hint: give mbarrier.init the number of arrivals that come in a phase" in said
    assert f"is left in the middle of phase 1: {32 - count} of {count} arrivals have come" in said


def test_as_many_lanes_as_the_phase_waits_for() -> None:
    """Where the phase waits for all lanes, it tells of all."""
    assert launch(32).clean


def test_lanes_that_met_before() -> None:
    """Behind a meeting each lane speaks for all, whoever is late; that the count is wrong is found at the end."""
    report = launch(31, f"{MEET} {ARRIVE}")
    (finding,) = report.findings
    assert finding.kind == "barrier"
    assert finding.message == ("the mbarrier at 0x600 is left in the middle of phase 1: 1 of 31 arrivals have come")
    assert finding.lines[0].startswith("initialised by warp 0 at line 21: @p mbarrier.init")
    assert finding.where.kernel == "swap"


def test_lanes_that_met_in_parts() -> None:
    """One lane of each half is in time: no race is said to be there."""
    assert [finding.kind for finding in launch(31, f"{MEET_IN_HALVES} {ARRIVE}").findings] == ["barrier"]


def test_the_phase_after_waits_for_the_late_ones() -> None:
    """The phase in which the last lane counts tells of all of them."""
    assert launch(24, then=FILL, threads=96).clean


def test_lanes_that_leave() -> None:
    """A phase that threads have left (arrive_drop), and in which nobody has arrived, is not in the middle."""
    drop = "@low mbarrier.arrive_drop.shared::cta.b64 _, [bar];"
    assert launch(48, f"{MEET} {ARRIVE} {drop} {drop}").clean
