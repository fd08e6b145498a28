"""What reaches a CTA's shared memory must be ordered before its end: said under every seed, or under none."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, EmulatorError, ProtocolError

SCHEDULES = ("adversarial", "random", "fair")

READ = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry reads(.param .u64 out_param) {
    .reg .b64 out, offset;
    .reg .b32 rank, peer, lane, here, there, value;
    .shared .align 16 .b32 words[32];
    ld.param.u64 out, [out_param];
    mov.u32 rank, %cluster_ctarank;
    mov.u32 lane, %tid.x;
    xor.b32 peer, rank, 1;
    mov.u32 here, words;
    mad.lo.u32 here, lane, 4, here;
    mad.lo.u32 value, rank, 100, lane;
    st.shared.u32 [here], value;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mapa.shared::cluster.u32 there, here, peer;
    ld.shared::cluster.u32 value, [there];
    {end}
    mad.lo.u32 rank, rank, 32, lane;
    mul.wide.u32 offset, rank, 4;
    add.u64 out, out, offset;
    st.global.u32 [out], value;
    ret;
}
"""

COPY = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry copies(.param .u64 in_param) {
    .reg .b64 in;
    .reg .b32 bar, to;
    .reg .pred done;
    .shared .align 16 .b8 tile[128];
    .shared .align 8 .b64 full;
    ld.param.u64 in, [in_param];
    mov.u32 bar, full;
    mov.u32 to, tile;
    mbarrier.init.shared::cta.b64 [bar], 1;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [in], 128, [bar];
    {end}
    ret;
}
"""

TELL = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry tells(.param .u64 out_param) {
    .reg .b64 out;
    .reg .b32 rank, lane, word, bar, there, bar_there, value;
    .reg .pred first, second, done;
    .shared .align 16 .b32 words[4];
    .shared .align 8 .b64 told;
    ld.param.u64 out, [out_param];
    mov.u32 rank, %cluster_ctarank;
    mov.u32 lane, %tid.x;
    mov.u32 word, words;
    mov.u32 bar, told;
    setp.eq.u32 first, lane, 0;
    @first mbarrier.init.shared::cta.b64 [bar], 1;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    setp.eq.u32 second, rank, 1;
    @second bra tell;
again:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [bar], 0;
    @!done bra again;
    ld.shared.u32 value, [word];
    @first st.global.u32 [out], value;
    ret;
tell:
    mapa.shared::cluster.u32 there, word, 0;
    mapa.shared::cluster.u32 bar_there, bar, 0;
    @first st.shared::cluster.u32 [there], 7;
    @first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [bar_there];
    ret;
}
"""

WAIT = """
again:
    mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0;
    @!done bra again;
"""


def read(end: str, schedule: str, seed: int) -> bool:
    """Each CTA of a pair reads the other's memory; whether what it read is right."""
    out = np.zeros(64, np.uint32)
    device = Device("sm_90a", seed=seed, schedule=schedule)  # type: ignore[arg-type]
    text = READ.replace("{end}", end)
    assert device.load(text)["reads"].launch(2, 32, [out], cluster=2).clean
    return out.tolist() == [*range(100, 132), *range(32)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("release", ["", ".relaxed"])
def test_a_peer_that_is_met(release: str, schedule: str) -> None:
    """Behind a cluster barrier no CTA has gone too early, though it orders no memory."""
    end = f"barrier.cluster.arrive{release}.aligned; barrier.cluster.wait.aligned;"
    assert all(read(end, schedule, seed) for seed in range(6))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_peer_that_is_not_met(schedule: str) -> None:
    """Without it, the read is a fault in every order, in time or not, with the same words."""
    said = set()
    for seed in range(12):
        with pytest.raises(ProtocolError) as caught:
            read("", schedule, seed)
        said.add(str(caught.value.message))
    assert said <= {f"CTA {rank} exited before an access to its shared memory was complete" for rank in (0, 1)}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_lane_of_the_peer_tells(schedule: str) -> None:
    """A lane that writes to a peer and arrives there is done when the peer, which waits for it, ends."""
    for seed in range(6):
        out = np.zeros(1, np.uint32)
        device = Device("sm_90a", seed=seed, schedule=schedule)  # type: ignore[arg-type]
        assert device.load(TELL)["tells"].launch(2, 32, [out], cluster=2).clean
        assert out[0] == 7


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_copy_that_is_not_waited_for(schedule: str) -> None:
    """A copy into shared memory that its CTA does not wait for is a fault, also where it lands at once."""
    for seed in range(6):
        with pytest.raises(EmulatorError, match="CTA 0 exited before a copy that completes on full was complete"):
            copy("", schedule, seed)
    copy(WAIT, schedule, 0)


def copy(end: str, schedule: str, seed: int) -> None:
    """One thread brings 128 bytes."""
    device = Device("sm_90a", seed=seed, schedule=schedule)  # type: ignore[arg-type]
    report = device.load(COPY.replace("{end}", end))["copies"].launch(1, 1, [np.ones(32, np.float32)])
    assert report.clean
    assert not report.remarks
