"""Copies that complete on a peer's mbarrier: its initialisation must be ordered before they are issued."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import BarrierFault, Device, LaunchReport

FENCE = "@p fence.mbarrier_init.release.cluster;"
MEET = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;"
TEXT = f"""
.version 8.0
.target sm_90a
.address_size 64
//@shared data offset=0 size=128
//@shared full offset=128 size=8 kind=mbarrier
.extern .shared .align 128 .b8 smem[];
.visible .entry share(.param .u64 in_param) .reqnctapercluster 2 .maxntid 32 {{
    .reg .b64 in;
    .reg .b32 s, t, r;
    .reg .b16 both;
    .reg .pred p, q, done;
    mov.u32 s, smem;
    mov.u32 t, %tid.x;
    setp.eq.u32 p, t, 0;
    @p mbarrier.init.shared::cta.b64 [s + 128], 1;
    {FENCE}
    {MEET}
    @p mbarrier.arrive.expect_tx.shared::cta.b64 _, [s + 128], 128;
    mov.u32 r, %cluster_ctarank;
    setp.eq.and.u32 q, r, 0, p;
    ld.param.u64 in, [in_param];
    mov.b16 both, 3;
    @q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [s], [in], 128, [s + 128], both;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 done, [s + 128], 0;
    @!done bra wait;
    barrier.cluster.arrive.relaxed.aligned;
    barrier.cluster.wait.acquire.aligned;
    ret;
}}
"""


def launch(text: str, seed: int = 0) -> LaunchReport:
    """One cluster of two CTAs."""
    device = Device("sm_90a", seed=seed)
    return device.load(text)["share"].launch(2, 32, [np.ones(32, np.float32)], shared_bytes=136)


def test_initialised_and_published_is_clean() -> None:
    """After the fence and the cluster barrier a peer's mbarrier may be reached, in every order."""
    assert all(launch(TEXT, seed).clean for seed in range(4))


def test_init_that_no_fence_publishes() -> None:
    """A relaxed cluster barrier alone does not publish the initialisation: both places and the fence are named."""
    with pytest.raises(BarrierFault, match=r"full of CTA 1 is used by a warp that its init.* not ordered") as caught:
        launch(TEXT.replace(FENCE, ""))
    assert "cp.async.bulk" in str(caught.value)
    assert "initialised by warp 0 of CTA 1, at line 16: @p mbarrier.init" in str(caught.value)
    assert "fence.mbarrier_init.release.cluster, then barrier.cluster.arrive and wait" in caught.value.hint


def test_init_that_no_barrier_orders() -> None:
    """Without a cluster barrier the copy meets no mbarrier, or one whose initialisation it cannot know of."""
    told = set()
    for seed in range(6):
        with pytest.raises(BarrierFault) as caught:
            launch(TEXT.replace(MEET, ""), seed)
        told.add(caught.value.message.partition(" of CTA 1 ")[2] or caught.value.message)
        assert "cluster barrier" in caught.value.hint or "barrier.cluster.arrive" in caught.value.hint
    assert told == {
        "is used by a warp that its initialisation is not ordered before",
        "no mbarrier has been initialised at 0x1000480, full of CTA 1",
    }
