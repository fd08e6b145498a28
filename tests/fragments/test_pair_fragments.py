"""Copies by CTA pairs and cluster launch control, run alone by the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from blackwell_kernel import BlackwellKernel
from small_kernels import Array, Tensor

from tilekit.assembly.types import U32, U64
from tilekit.emulator import Deadlock
from tilekit.tile_io.tma import EVICT_FIRST

SOURCE = np.arange(8 * 8, dtype=np.float32).reshape(8, 8)


def pair_load(*, batched: bool, multicast: bool, extra: int = 0) -> Array:
    """Each CTA loads half of a tile, to itself or to both; the leader counts all bytes; each stores what it has."""
    box = (8, 4, 1) if batched else (8, 4)
    loads = Tensor(SOURCE.reshape(1, 8, 8) if batched else SOURCE, box)
    out = Tensor(np.zeros((2, 8, 8), np.float32), (8, 8, 1))
    k = BlackwellKernel(maps=2, threads=32, group=2)
    w = k.w
    tile = w.shared_base + w.shared.allocate("tile", size=256, alignment=128, kind="tile").offset
    full = k.barrier("full")
    rank = w.ptx.cluster.cta_rank()
    with w.when(k.thread == 0):
        for register in range(64):  # what is not loaded must be 0
            w.ptx.memory.store_shared_f32(address=tile + 4 * register, value=0.0)
        w.ptx.tma.fence_shared()
    w.warp_sync()
    k.meet()
    with w.when((k.thread == 0) & (rank == 0)):
        w.ptx.mbarrier.arrive_expect(bar=full, bytes=(512 if multicast else 256) + extra)
    with w.when(k.thread == 0):
        leader = w.ptx.cluster.map_address(address=full, rank=0)
        name = f"load_{3 if batched else 2}d" + ("_multicast" if multicast else "") + "_pair"
        operands = {"dst": tile + rank.retyped(tile.type) * 128, "map": k.maps[0], "x": 0, "y": rank * 4}
        operands |= {"z": 0} if batched else {}
        operands |= {"mask": k.both()} if multicast else {}
        getattr(w.ptx.tma, name)(**operands, full=leader)
    with w.when((k.thread == 0) & (rank == 0)):
        w.ptx.mbarrier.wait_parity(bar=full, parity=0)
    w.warp_sync()
    k.meet()
    with w.when(k.thread == 0):
        w.ptx.tma.store_3d(map=k.maps[1], x=0, y=0, z=rank, src=tile, policy=w.constant(U64, EVICT_FIRST))
        w.ptx.tma.commit_stores()
        w.ptx.tma.wait_stores(pending=0)
    k.run(maps=[loads, out])
    return out.read()


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("multicast", [False, True])
def test_bytes_count_on_the_leader(batched: bool, multicast: bool) -> None:
    """`load_2d_pair`, `load_3d_pair` and their multicasts bring boxes to each CTA and count them on the leader."""
    got = pair_load(batched=batched, multicast=multicast)
    halves = np.zeros((2, 8, 8), np.float32)
    halves[0, :4], halves[1, 4:] = SOURCE[:4], SOURCE[4:]
    np.testing.assert_array_equal(got, [SOURCE, SOURCE] if multicast else halves)


@pytest.mark.parametrize("multicast", [False, True])
def test_the_leader_counts_every_byte(multicast: bool) -> None:
    """A leader that expects one byte more waits for ever: the bytes of both CTAs are counted, no more."""
    with pytest.raises(Deadlock, match="full"):
        pair_load(batched=False, multicast=multicast, extra=1)


@pytest.mark.parametrize("group", [1, 2])
def test_clusters_take_over_work(group: int) -> None:
    """Each cluster asks once: some obtain one that has not started, the others read 0, and all work is done once."""
    clusters = 160 // group
    done, answers = np.zeros(clusters, np.uint32), np.full((2, clusters * group), 7, np.uint32)
    k = BlackwellKernel(pointers=2, threads=32, group=group)
    w = k.w
    w.shared.allocate("ballast", size=200 * 1024, alignment=128, kind="scratch")  # one CTA an SM
    answer = w.shared_base + w.shared.allocate("answer", size=16, alignment=16, kind="scratch").offset
    bar = k.barrier("answered")
    rank, index = w.ptx.cluster.cta_rank(), w.ptx.cluster.cluster_index()
    with w.when(k.thread == 0):
        w.ptx.mbarrier.arrive_expect(bar=bar, bytes=16)
    w.warp_sync()
    k.meet()
    with w.when((k.thread == 0) & (rank == 0)):
        request = w.ptx.clc.try_cancel_multicast if group == 2 else w.ptx.clc.try_cancel
        request(dst=answer, bar=bar)
    w.warp_sync()
    w.ptx.mbarrier.wait_parity(bar=bar, parity=0)
    obtained, x = w.ptx.clc.response(src=answer)
    assert obtained.uniform, "what it guards may hold aligned instructions"
    assert x.uniform
    w.warp_sync()
    with w.when(k.thread == 0):
        k.store(1, index * group + rank, w.select(obtained, w.constant(U32, 1), 0))
        k.store(1, index * group + rank + clusters * group, x)
    with w.when((k.thread == 0) & (rank == 0)):
        w.ptx.memory.add_release_gpu(address=k.element(0, index), value=1)
        with w.when(obtained):
            w.ptx.memory.add_release_gpu(address=k.element(0, x // group), value=1)
    w.warp_sync()
    k.meet()
    k.run(done, answers, grid=clusters * group)
    assert (done == 1).all()
    got, first = answers.reshape(2, clusters, group)
    taken = (first // group)[got == 1]
    assert set(answers[0]) == {0, 1, 7}, "obtained, not obtained, and never started"
    assert (first[got == 0] == 0).all()
    assert (first[got == 1] % group == 0).all()
    assert (got[got[:, 0] != 7] == got[got[:, 0] != 7, :1]).all(), "both CTAs of a cluster read the same answer"
    assert set(taken.tolist()) == set(np.flatnonzero(got[:, 0] == 7).tolist())
