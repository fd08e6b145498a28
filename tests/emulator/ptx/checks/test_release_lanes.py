"""A release of one lane publishes what that lane did, and what its warp's lanes did before they last met."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, LaunchReport, RaceError

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry pass(.param .u64 data_param, .param .u64 flag_param, .param .u64 out_param) .maxntid 64 {
    .reg .b64 data, flag, out, mine;
    .reg .b32 t, lane, x, seen;
    .reg .pred first, writer, again;
    mov.u32 t, %%tid.x;
    mov.u32 lane, %%laneid;
    ld.param.u64 data, [data_param];
    ld.param.u64 flag, [flag_param];
    ld.param.u64 out, [out_param];
    mad.wide.u32 mine, lane, 4, data;
    setp.eq.u32 first, lane, 0;
    setp.lt.u32 writer, t, 32;
    @!writer bra reads;
    %(before)s
    %(publish)s
    ret;
reads:
    @!first bra meets;
wait:
    ld.acquire.gpu.global.u32 seen, [flag];
    setp.lt.u32 again, seen, %(wanted)d;
    @again bra wait;
meets:
    bar.warp.sync 0xffffffff;
    ld.global.u32 x, [mine];
    mad.wide.u32 mine, lane, 4, out;
    st.global.u32 [mine], x;
    ret;
}
"""
WRITE = "st.global.u32 [mine], t;"
MEET = "bar.warp.sync 0xffffffff;"
STORE, REDUCE = "@first st.release.gpu.global.u32 [flag], 1;", "@first red.release.gpu.global.add.u32 [flag], 1;"
ATOM = "@first atom.acq_rel.gpu.global.exch.b32 seen, [flag], 1;"
FENCED = "@first fence.acq_rel.gpu; @first st.relaxed.gpu.global.u32 [flag], 1;"
BRANCH = "@!first bra skip; st.release.gpu.global.u32 [flag], 1; skip:"
BRANCH_FENCED = "@!first bra skip; fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [flag], 1; skip:"
PUBLISH = {
    "st.release": STORE,
    "red.release": REDUCE,
    "atom.acq_rel": ATOM,
    "in a branch": BRANCH,
    "fence in a branch": BRANCH_FENCED,
}


def launch(before: str, publish: str, seed: int = 0, wanted: int = 1, written: int = 32) -> LaunchReport:
    """One warp writes a word a lane and says so by a flag; another waits for the flag and reads the words."""
    device = Device("sm_90a", seed=seed)
    data, flag, out = (device.buffer(np.zeros(size, np.uint32)) for size in (32, 1, 32))
    report = device.load(TEXT % {"before": before, "publish": publish, "wanted": wanted})["pass"].launch(
        1, 64, [data, flag, out]
    )
    assert np.array_equal(out.read(), np.where(np.arange(32) < written, np.arange(32), 0))
    return report


@pytest.mark.parametrize("publish", PUBLISH.values(), ids=PUBLISH)
def test_one_lane_speaks_for_itself_alone(publish: str) -> None:
    """Without a meeting before it the other lanes' words race with who reads them behind the flag."""
    with pytest.raises(RaceError, match=r"race: "):
        launch(WRITE, publish)


@pytest.mark.parametrize("publish", PUBLISH.values(), ids=PUBLISH)
@pytest.mark.parametrize("seed", range(3))
def test_lanes_that_met_before(publish: str, seed: int) -> None:
    """Behind `bar.warp.sync`, one lane's release is cumulative: it publishes what all did before."""
    assert launch(f"{WRITE} {MEET}", publish, seed).clean


@pytest.mark.parametrize("publish", ["@first st.global.u32 [mine], t; " + STORE, STORE], ids=["its own", "nothing"])
def test_what_a_lane_did_itself(publish: str) -> None:
    """A lane's own words, written since the lanes met, are published by its release; so are all before the meeting."""
    assert launch(f"{WRITE} {MEET}", publish).clean


def test_every_lane_releases() -> None:
    """Where all lanes execute the release, each speaks for itself, and who has seen all of them knows of all."""
    assert launch(WRITE, "red.release.gpu.global.add.u32 [flag], 1;", wanted=32).clean
    assert launch(f"{WRITE} fence.acq_rel.gpu;", "red.relaxed.gpu.global.add.u32 [flag], 1;", wanted=32).clean


def test_half_a_warp_speaks_for_half() -> None:
    """Lanes that met with the one that releases are published; the others are not."""
    low = "setp.lt.u32 again, lane, 16; @!again bra over; %s bar.warp.sync 0xffff; over:"
    with pytest.raises(RaceError, match=r"race: "):
        launch(f"{WRITE} {low % ''}", STORE)
    assert launch(low % WRITE, STORE, written=16).clean


LOCK = """
    mov.u32 x, 0;
round:
    setp.ne.u32 again, lane, x;
    @again bra next;
    ld.acquire.gpu.global.u32 seen, [flag];
    ld.global.u32 t, [data];
    add.u32 t, t, 1;
    st.global.u32 [data], t;
    st.release.gpu.global.u32 [flag], t;
next:
    add.u32 x, x, 1;
    setp.lt.u32 again, x, 32;
    @again bra round;
"""


def test_lanes_that_hand_a_word_on() -> None:
    """A lane that acquires what another lane of its warp released comes after it, without a meeting."""
    device = Device("sm_90a")
    data, flag, out = (device.buffer(np.zeros(size, np.uint32)) for size in (32, 1, 32))
    text = TEXT % {"before": LOCK, "publish": "", "wanted": 0}
    report = device.load(text)["pass"].launch(1, 32, [data, flag, out])
    assert report.clean, str(report)
    assert data.read()[0] == 32
