"""Clusters, run by the emulator: ranks, remote arrivals and multicast copies."""

from __future__ import annotations

import numpy as np
import pytest
from small_kernels import Array, SmallKernel, Tensor

from tilekit.assembly.types import U64
from tilekit.emulator import Deadlock
from tilekit.tile_io.tma import EVICT_FIRST, EVICT_LAST


def test_ranks_and_indices() -> None:
    """`cta_rank`, `cluster_index` and `cluster_count` in a grid of three clusters of two."""
    out = np.zeros((3, 6), np.uint32)
    k = SmallKernel(pointers=1, cluster=2)
    cluster = k.w.ptx.cluster
    rank, index, count = cluster.cta_rank(), cluster.cluster_index(), cluster.cluster_count()
    with k.w.when(k.thread == 0):
        for row, value in enumerate((rank, index, count)):
            k.store(0, index * 2 + rank + 6 * row, value)
    k.run(out, grid=6)
    np.testing.assert_array_equal(out, [[0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2], [3] * 6])


def remote_arrivals(*, arriving: int) -> None:
    """CTA 0 waits for two arrivals on its barrier, which the first `arriving` lanes of CTA 1 bring from afar."""
    k = SmallKernel(cluster=2)
    w = k.w
    bar = k.barrier("ready", count=2)
    rank = w.ptx.cluster.cta_rank()
    with w.when(rank == 1):
        remote = w.ptx.cluster.map_address(address=bar, rank=0)
        w.ptx.mbarrier.arrive_remote(bar=remote, active=k.thread < arriving)
    with w.when(rank == 0):
        w.ptx.mbarrier.wait_parity(bar=bar, parity=0)
    w.warp_sync()
    w.ptx.cluster.arrive()
    w.ptx.cluster.wait()
    k.run(grid=2)


def test_remote_arrivals_complete_a_phase() -> None:
    """`map_address` and `arrive_remote` reach the barrier of the CTA that is named, in the lanes that are active."""
    remote_arrivals(arriving=2)


def test_a_missing_remote_arrival_is_a_deadlock() -> None:
    """With one arrival of two the wait never ends: predication counts lanes one by one."""
    with pytest.raises(Deadlock, match="ready"):
        remote_arrivals(arriving=1)


def remote_expectation(*, bytes_: int = 128) -> Array:
    """CTA 1 tells CTA 0's barrier how many bytes to expect, and arrives; CTA 0 loads, waits and stores."""
    source, out = np.arange(32, dtype=np.float32).reshape(4, 8), Tensor(np.zeros((4, 8), np.float32), (8, 4))
    k = SmallKernel(maps=2, cluster=2)
    w = k.w
    tile = w.shared_base + w.shared.allocate("tile", size=128, alignment=128, kind="tile").offset
    full = k.barrier("full")
    rank = w.ptx.cluster.cta_rank()
    with w.when(rank == 1):
        remote = w.ptx.cluster.map_address(address=full, rank=0)
        w.ptx.mbarrier.arrive_expect_remote(bar=remote, bytes=bytes_, active=k.thread == 3)
    with w.when((rank == 0) & (k.thread == 0)):
        w.ptx.tma.load_2d(dst=tile, map=k.maps[0], x=0, y=0, full=full)
        w.ptx.mbarrier.wait_parity(bar=full, parity=0)
        w.ptx.tma.store_2d(map=k.maps[1], x=0, y=0, src=tile, policy=w.constant(U64, EVICT_FIRST))
        w.ptx.tma.commit_stores()
        w.ptx.tma.wait_stores(pending=0)
    w.warp_sync()
    w.ptx.cluster.arrive()
    w.ptx.cluster.wait()
    k.run(maps=[Tensor(source, (8, 4)), out], grid=2)
    np.testing.assert_array_equal(out.read(), source)
    return source


def test_bytes_can_be_expected_from_afar() -> None:
    """`arrive_expect_remote` arrives once, in the active lane, and its bytes are those the copy brings."""
    assert remote_expectation().any()


def test_bytes_expected_from_afar_are_counted() -> None:
    """Four bytes more than come are waited for without end."""
    with pytest.raises(Deadlock, match="full"):
        remote_expectation(bytes_=132)


def test_vectors_of_another_cta() -> None:
    """`store_dsmem_f32x4` writes to the other CTA, `load_dsmem_f32x4` reads what the other CTA was given."""
    source = np.random.default_rng(8).normal(size=(2, 32, 4)).astype(np.float32)
    out = np.zeros((2, 32, 4), np.float32)
    k = SmallKernel(pointers=2, cluster=2)
    w, memory = k.w, k.w.ptx.memory
    subtile = w.shared_base + w.shared.allocate("subtile", size=512, alignment=128, kind="scratch").offset
    rank = w.ptx.cluster.cta_rank()
    own = rank * 32 + k.thread
    there = w.ptx.cluster.map_address(address=subtile + k.thread.retyped(subtile.type) * 16, rank=rank ^ 1)
    memory.store_dsmem_f32x4(address=there, values=memory.load_global_f32x4(address=k.element(0, own, 16)))
    w.ptx.cluster.arrive()
    w.ptx.cluster.wait()
    memory.store_global_f32x4(address=k.element(1, own, 16), values=memory.load_dsmem_f32x4(address=there))
    w.ptx.cluster.arrive()
    w.ptx.cluster.wait()
    k.run(source, out, grid=2)
    np.testing.assert_array_equal(out, source)


def local_arrivals(*, count: int) -> None:
    """Four phases of three arrivals: lanes 5, 13 and 21; a barrier of `count` waits for them, phase by phase."""
    k = SmallKernel()
    w = k.w
    bar = k.barrier("step", count=count)
    active = ((k.thread & 7) == 5) & (k.thread < 24)
    for phase in range(4):
        w.ptx.mbarrier.arrive(bar=bar, active=active)
        w.ptx.mbarrier.wait_parity(bar=bar, parity=phase % 2)
    k.run()


def test_local_arrivals_complete_phases() -> None:
    """`arrive` counts the active lanes, and every completed phase turns the parity."""
    local_arrivals(count=3)


def test_a_missing_local_arrival_is_a_deadlock() -> None:
    """A barrier of four never completes with three arrivals."""
    with pytest.raises(Deadlock, match="step"):
        local_arrivals(count=4)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("hint", [False, True])
def test_multicast_reaches_every_cta_of_the_mask(batched: bool, hint: bool) -> None:
    """Each CTA of two sends its half of a tile to both; each then holds the whole tile, all bytes counted."""
    source = np.arange(8 * 8, dtype=np.float32).reshape(8, 8)
    shape = (2, 8, 8)  # one copy of the tile from each CTA
    box = (8, 4, 1) if batched else (8, 4)
    loads = Tensor(source.reshape(1, 8, 8) if batched else source, box)
    out = Tensor(np.zeros(shape, np.float32), (8, 8, 1))
    k = SmallKernel(maps=2, cluster=2)
    w = k.w
    tile = w.shared.allocate("tile", size=256, alignment=128, kind="tile")
    full = k.barrier("full")
    rank = w.ptx.cluster.cta_rank()
    with w.when(k.thread == 0):
        w.ptx.mbarrier.arrive_expect(bar=full, bytes=256)
        mask = w.ptx.convert.narrow_u16(wide=w.constant(rank.type, 0b11))
        half = w.shared_base + tile.offset + rank * 128
        load = getattr(w.ptx.tma, f"load_{3 if batched else 2}d_multicast{'_hint' * hint}")
        more = ({"z": 0} if batched else {}) | ({"policy": w.constant(U64, EVICT_LAST)} if hint else {})
        load(dst=half, map=k.maps[0], x=0, y=rank * 4, full=full, mask=mask, **more)
        w.ptx.mbarrier.wait_parity(bar=full, parity=0)
        whole = w.shared_base + tile.offset
        w.ptx.tma.store_3d(map=k.maps[1], x=0, y=0, z=rank, src=whole, policy=w.constant(U64, EVICT_FIRST))
        w.ptx.tma.commit_stores()
        w.ptx.tma.wait_stores(pending=0)
    w.warp_sync()
    w.ptx.cluster.arrive()
    w.ptx.cluster.wait()
    k.run(grid=2, maps=[loads, out])
    np.testing.assert_array_equal(out.read(), [source, source])


def test_register_budgets_balance() -> None:
    """One warpgroup of three releases registers, the others acquire them, and all go on."""
    out = np.zeros(384, np.uint32)
    k = SmallKernel(pointers=1, threads=384)
    w = k.w
    warp = w.warp()
    with w.when(warp < 4):
        w.ptx.warp.release_registers(count=40)
    with w.when(warp >= 4):
        w.ptx.warp.acquire_registers(count=232)
    k.store(0, k.thread, k.thread)
    k.run(out)
    np.testing.assert_array_equal(out, np.arange(384))
