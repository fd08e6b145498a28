"""``st.async`` is a store for each lane: with the schedule `random` some land without the others."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, RaceError

SEEDS = range(32)
TEXT = """
.version 8.1
.target sm_90a
.address_size 64
//@shared data offset=0 size=128
//@shared full offset=128 size=8 kind=mbarrier
.extern .shared .align 128 .b8 smem[];
.visible .entry send(.param .u64 out_param) .reqnctapercluster 2 .maxntid 32 {
    .reg .b64 out, at;
    .reg .b32 s, t, r, mine, far, bar, v, last;
    .reg .pred first, sends, done;
    mov.u32 s, smem;
    mov.u32 t, %tid.x;
    mov.u32 r, %cluster_ctarank;
    setp.eq.u32 first, t, 0;
    setp.eq.u32 sends, r, 0;
    mad.lo.u32 mine, t, 4, s;
    st.shared.u32 [mine], 0;
    @first mbarrier.init.shared::cta.b64 [s + 128], 1;
    @first fence.mbarrier_init.release.cluster;
    @first mbarrier.arrive.expect_tx.shared::cta.b64 _, [s + 128], 128;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    @!sends bra receive;
    mapa.shared::cluster.u32 far, mine, 1;
    mapa.shared::cluster.u32 bar, s, 1;
    add.u32 v, t, 1;
    add.u32 bar, bar, 128;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [far], v, [bar];
    bra leave;
receive:
(wait)
    ld.shared.u32 v, [mine];
    ld.param.u64 out, [out_param];
    mad.wide.u32 at, t, 4, out;
    st.global.u32 [at], v;
    (late)
leave:
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ret;
}
"""
BARRIER = """
wait:
    mbarrier.try_wait.parity.shared::cta.b64 done, [s + 128], 0;
    @!done bra wait;
"""
POLLS_THE_LAST = """
poll:
    ld.volatile.shared.u32 last, [s + 124];
    setp.eq.u32 done, last, 0;
    @done bra poll;
"""
"""Takes the last element for the sign that all are there."""


def received(wait: str, schedule: str, seed: int, check: str = "off") -> np.ndarray:
    """What the receiver found: 1 to 32 if it waited for everything."""
    device = Device("sm_90a", seed=seed, schedule=schedule, check=check)  # type: ignore[arg-type]
    out = np.zeros(32, np.uint32)
    late = "" if wait == BARRIER else BARRIER.replace("wait:", "late:").replace("bra wait", "bra late")
    device.load(TEXT.replace("(wait)", wait).replace("(late)", late))["send"].launch(2, 32, [out], shared_bytes=136)
    return out


EVERYTHING = np.arange(1, 33)


@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
def test_the_barrier_waits_for_every_lane(schedule: str) -> None:
    """A thread that waits on the mbarrier finds all of it, in every order, and nothing is to be said of it."""
    for seed in SEEDS:
        assert (received(BARRIER, schedule, seed, "full") == EVERYTHING).all()


def test_only_random_landing_shows_who_takes_one_lane_for_all() -> None:
    """A poll of the last element is lucky where a warp's stores land at once; in random order some seed is not."""
    for schedule in ("adversarial", "fair"):
        assert all((received(POLLS_THE_LAST, schedule, seed) == EVERYTHING).all() for seed in SEEDS)
    found = [received(POLLS_THE_LAST, "random", seed) for seed in SEEDS]
    partly = [values for values in found if (values != EVERYTHING).any()]
    assert partly
    for values in partly:
        assert set(values[values != EVERYTHING].tolist()) == {0}
        assert values[31] == 32
    assert (np.stack(found) == np.stack([received(POLLS_THE_LAST, "random", seed) for seed in SEEDS])).all()


@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
def test_the_race_is_found_in_every_order(schedule: str) -> None:
    """With checks the poll needs no luck to be found out: nothing orders the read behind the stores."""
    with pytest.raises(RaceError, match=r"data|shared memory"):
        received(POLLS_THE_LAST, schedule, 0, "full")
