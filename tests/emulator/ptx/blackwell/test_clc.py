"""Cluster launch control: running clusters take over the ones that have not started."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, EmulatorError, LaunchError, ProtocolError


def kernel(cluster: int = 1, *, fence: str = "fence.proxy.async.shared::cta;", stop: str = "@!%p1 bra DONE;") -> str:
    """Every cluster adds 1 to the counter of each tile that it works on, then asks for another one.

    One thread of the first CTA asks for all; all CTAs meet before the answer's memory is used again.
    """
    multicast = ".multicast::cluster::all" if cluster > 1 else ""
    meet = "barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;" if cluster > 1 else "bar.sync 0;"
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry persistent(.param .u64 counts, .param .u64 owners)
.reqntid 32, 1, 1
{{
  .reg .pred %p<6>; .reg .b32 %r<20>, %bar, %answer, %rank, %phase, %x, %y, %z, %thread; .reg .b64 %counts, %at;
  .reg .b128 %q;
  .shared .align 16 .b8 answer[16];
  .shared .align 8 .b8 bar[8];
  mov.u32 %bar, bar;
  mov.u32 %answer, answer;
  mov.u32 %rank, %cluster_ctarank;
  mov.u32 %thread, %tid.x;
  mov.u32 %phase, 0;
  mov.u32 %x, %ctaid.x;
  mov.u32 %y, %ctaid.y;
  mov.u32 %z, %ctaid.z;
  ld.param.u64 %counts, [counts];
  setp.eq.u32 %p0, %thread, 0;
  @%p0 mbarrier.init.shared::cta.b64 [%bar], 1;
  fence.mbarrier_init.release.cluster;
  {meet}
TILE:
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;
  {meet}
  setp.eq.u32 %p2, %rank, 0;
  and.pred %p2, %p2, %p0;
  @%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{multicast}.b128 [%answer], [%bar];
  mov.u32 %r1, %nctaid.x;
  mov.u32 %r2, %nctaid.y;
  mad.lo.u32 %r3, %z, %r2, %y;
  mad.lo.u32 %r3, %r3, %r1, %x;
  mul.wide.u32 %at, %r3, 4;
  add.s64 %at, %at, %counts;
  @%p0 red.global.add.u32 [%at], 1;
POLL:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%bar], %phase;
  @!%p3 bra POLL;
  xor.b32 %phase, %phase, 1;
  ld.shared.b128 %q, [%answer];
  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q;
  {stop}
  clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%x, %y, %z, _}}, %q;
  clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r5, %q;
  sub.u32 %r5, %r5, %y;
  add.u32 %x, %x, %rank;
  add.u32 %x, %x, %r5;
  {fence}
  {meet}
  bra TILE;
DONE:
  {meet}
  ret;
}}
"""


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
def test_every_tile_once(cluster: int, schedule: str) -> None:
    """Started or taken over, each tile of a three-dimensional grid is worked on exactly once."""
    grid = (6, 5, 3)
    for seed in range(3):
        counts = np.zeros(grid[::-1], np.uint32)
        device = Device("sm_100a", seed=seed, schedule=schedule)  # type: ignore[arg-type]
        report = device.load(kernel(cluster))["persistent"].launch(grid, 32, [counts, None], cluster=(cluster, 1, 1))
        assert (counts == 1).all(), counts
        assert report.clean, str(report)


def test_few_clusters_run() -> None:
    """Clusters that were taken over never start: far fewer warps run than the grid has CTAs."""
    counts = np.zeros(200, np.uint32)
    started = []
    Device("sm_100a").load(kernel())["persistent"].launch(
        200, 32, [counts, None], progress=lambda done, total, seconds: started.append(done)
    )
    assert (counts == 1).all()
    assert len(started) < 20
    assert started[-1] == 200


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("multiprocessors", [2, 4])
def test_few_multiprocessors(cluster: int, multiprocessors: int) -> None:
    """A device of few multiprocessors starts no more clusters than they hold: all other tiles are taken over."""
    counts = np.zeros(200, np.uint32)
    ended: list[int] = []
    device = Device("sm_100a", multiprocessors=multiprocessors)
    device.load(kernel(cluster))["persistent"].launch(
        200, 32, [counts, None], cluster=cluster, shared_bytes=200_000, progress=lambda done, *_: ended.append(done)
    )
    assert (counts == 1).all()
    assert len(ended) == min(multiprocessors, 4) // cluster


def test_too_few_multiprocessors() -> None:
    """A cluster that the device cannot hold, and a device without multiprocessors, are refused with what is legal."""
    with pytest.raises(LaunchError, match="multiprocessors=0 is not allowed; legal: 1 to 148 on sm_100a"):
        Device("sm_100a", multiprocessors=0)
    text = kernel(2)
    with pytest.raises(LaunchError, match="a cluster of 2 CTAs on a device that holds 1 of them at once"):
        Device("sm_100a", multiprocessors=1).load(text)["persistent"].launch(
            4, 32, [np.zeros(4, np.uint32), None], cluster=2, shared_bytes=200_000
        )


def test_request_after_refusal() -> None:
    """Asking again after an answer without a cluster is an error."""
    counts = np.zeros(4, np.uint32)
    with pytest.raises(ProtocolError, match="after this warp has seen a request fail"):
        Device("sm_100a").load(kernel(stop=""))["persistent"].launch(4, 32, [counts, None], step_budget=100_000)


def test_answer_overwritten_while_read() -> None:
    """A CTA that does not wait for its peer's reads before the next request is a race."""
    text = kernel(2).replace("  fence.proxy.async.shared::cta;\n  barrier.cluster.arrive.aligned;\n", "", 1)
    text = text.replace("  barrier.cluster.wait.aligned;\n  bra TILE;", "  bra TILE;")
    text = text.replace("16;\n  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;", "16;")
    with pytest.raises(EmulatorError, match=r"race|phase|bytes|tx"):
        Device("sm_100a").load(text)["persistent"].launch(40, 32, [np.zeros(40, np.uint32), None], cluster=2)
