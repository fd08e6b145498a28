"""Barriers and tensor copies, run alone by the emulator and compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from small_kernels import Array, SmallKernel, Tensor

from tilekit.assembly.types import U64
from tilekit.emulator import Deadlock, ProtocolError, RaceError
from tilekit.tile_io.tma import EVICT_FIRST

COUNT_UP = np.arange(1, 6 * 40 + 1, dtype=np.float32).reshape(6, 40)
BOX_BYTES = 4 * 8 * 4


def clipped(tensor: Array, x: int, y: int) -> Array:
    """The 4 x 8 box at column x and row y, zero outside the tensor."""
    padded = np.pad(tensor, 8)
    return padded[y + 8 : y + 12, x + 8 : x + 16]


def load_then_store(
    x: int, y: int, *, expect: int = BOX_BYTES, wait: bool = True, apart: bool = False, hint: bool = False
) -> Array:
    """Load a 4 x 8 box of `COUNT_UP` at (x, y) and store it to the origin of a zeroed tensor.

    With `apart`, the bytes are expected before the thread arrives; with `hint`, L2 is told how long to keep them.
    """
    out = Tensor(np.zeros((4, 8), np.float32), (8, 4))
    k = SmallKernel(maps=2)
    w = k.w
    tile = w.shared.allocate("tile", size=BOX_BYTES, alignment=128, kind="tile")
    full = k.barrier("full")
    address = w.shared_base + tile.offset
    with w.when(k.thread == 0):
        for tensor in k.maps:
            w.ptx.tma.prefetch_map(map=tensor)
        if apart:
            w.ptx.mbarrier.expect(bar=full, bytes=expect)
        else:
            w.ptx.mbarrier.arrive_expect(bar=full, bytes=expect)
        box = {"dst": address, "map": k.maps[0], "x": x & 0xFFFFFFFF, "y": y & 0xFFFFFFFF, "full": full}
        if hint:
            w.ptx.tma.load_2d_hint(**box, policy=w.constant(U64, EVICT_FIRST))
        else:
            w.ptx.tma.load_2d(**box)
        if apart:
            w.ptx.mbarrier.arrive(bar=full, active=k.thread == 0)
        if wait:
            w.ptx.mbarrier.wait_parity(bar=full, parity=0)
        policy = w.constant(U64, EVICT_FIRST)
        w.ptx.tma.store_2d(map=k.maps[1], x=0, y=0, src=address, policy=policy)
        w.ptx.tma.commit_stores()
        w.ptx.tma.wait_stores_read(pending=0)
        w.ptx.tma.wait_stores(pending=0)
    k.run(maps=[Tensor(COUNT_UP, (8, 4)), out])
    return out.read()


def test_a_policy_changes_nothing_but_l2() -> None:
    """`load_2d_hint` loads what `load_2d` loads."""
    np.testing.assert_array_equal(load_then_store(4, 3, hint=True), load_then_store(4, 3))


def test_bytes_are_expected_without_an_arrival() -> None:
    """`expect` raises the bytes that a phase waits for; the arrival comes later and by itself."""
    np.testing.assert_array_equal(load_then_store(8, 4, apart=True), clipped(COUNT_UP, 8, 4))
    with pytest.raises(Deadlock):
        load_then_store(8, 4, expect=BOX_BYTES + 16, apart=True)


@pytest.mark.parametrize(("x", "y"), [(0, 0), (16, 2), (36, 0), (8, 4), (36, 5), (-4, -2), (40, 0)])
def test_load_2d_fills_with_zero_outside(x: int, y: int) -> None:
    """A box inside, across each edge, a corner, negative coordinates, and wholly outside: all its bytes count."""
    np.testing.assert_array_equal(load_then_store(x, y), clipped(COUNT_UP, x, y))


def test_wait_is_needed() -> None:
    """Without `wait_parity` the store reads what has not landed: the emulator says so."""
    with pytest.raises((RaceError, ProtocolError), match="tensor"):
        load_then_store(0, 0, wait=False)


def test_expected_bytes_are_counted() -> None:
    """A barrier that expects one byte more than the box has never completes its phase."""
    with pytest.raises(Deadlock, match="full"):
        load_then_store(0, 0, expect=BOX_BYTES + 1)


@pytest.mark.parametrize("hint", [False, True])
@pytest.mark.parametrize(("x", "y", "z"), [(0, 0, 1), (4, 3, 2)])
def test_3d_copies(x: int, y: int, z: int, hint: bool) -> None:
    """`load_3d` (with a policy or not) and `store_3d` move a box of a batch, and clip each coordinate on its own."""
    source = np.arange(1, 3 * 5 * 8 + 1, dtype=np.float32).reshape(3, 5, 8)
    out = Tensor(np.full((3, 5, 8), np.float32(-1)), (8, 4, 1))
    k = SmallKernel(maps=2)
    w = k.w
    tile = w.shared.allocate("tile", size=BOX_BYTES, alignment=128, kind="tile")
    full = k.barrier("full")
    address = w.shared_base + tile.offset
    with w.when(k.thread == 0):
        w.ptx.mbarrier.arrive_expect(bar=full, bytes=BOX_BYTES)
        policy = w.constant(U64, EVICT_FIRST)
        load = w.ptx.tma.load_3d_hint if hint else w.ptx.tma.load_3d
        load(dst=address, map=k.maps[0], x=x, y=y, z=z, full=full, **({"policy": policy} if hint else {}))
        w.ptx.mbarrier.wait_parity(bar=full, parity=0)
        w.ptx.tma.store_3d(map=k.maps[1], x=x, y=y, z=z, src=address, policy=policy)
        w.ptx.tma.commit_stores()
        w.ptx.tma.wait_stores(pending=0)
    k.run(maps=[Tensor(source, (8, 4, 1)), out])
    expected = np.full_like(source, -1)
    expected[z, y : y + 4, x:] = source[z, y : y + 4, x:]
    np.testing.assert_array_equal(out.read(), expected)


@pytest.mark.parametrize("batched", [False, True])
def test_reductions_add_and_clip(batched: bool) -> None:
    """`reduce_add_2d` and `reduce_add_3d` add a box to what the tensor holds, as often as asked, and clip it."""
    source = np.arange(1, 33, dtype=np.float32).reshape(1, 4, 8)
    start = np.random.default_rng(2).integers(0, 99, (2, 5, 8)).astype(np.float32)
    out = Tensor(start if batched else start[1], (8, 4, 1) if batched else (8, 4))
    k = SmallKernel(maps=2)
    w = k.w
    tile = w.shared.allocate("tile", size=BOX_BYTES, alignment=128, kind="tile")
    full = k.barrier("full")
    address = w.shared_base + tile.offset
    with w.when(k.thread == 0):
        w.ptx.mbarrier.arrive_expect(bar=full, bytes=BOX_BYTES)
        w.ptx.tma.load_3d(dst=address, map=k.maps[0], x=0, y=0, z=0, full=full)
        w.ptx.mbarrier.wait_parity(bar=full, parity=0)
        at = {"x": 4, "y": 3, "z": 1} if batched else {"x": 4, "y": 3}
        add = w.ptx.tma.reduce_add_3d if batched else w.ptx.tma.reduce_add_2d
        for _ in range(2):
            add(map=k.maps[1], **at, src=address, policy=w.constant(U64, EVICT_FIRST))
        w.ptx.tma.commit_stores()
        w.ptx.tma.wait_stores(pending=0)
    k.run(maps=[Tensor(source, (8, 4, 1)), out])
    expected = start.copy()
    expected[1, 3:5, 4:8] += 2 * source[0, :2, :4]
    np.testing.assert_array_equal(out.read(), expected if batched else expected[1])


def stage_and_store(*, fence: bool, barrier: bool) -> Array:
    """Two warps write 128 f32 with `store_shared_f32x2`; one thread of the second stores them as a tensor."""
    out = Tensor(np.zeros((4, 32), np.float32), (32, 4))
    k = SmallKernel(maps=1, pointers=1, threads=64)
    w = k.w
    subtile = w.shared.allocate("subtile", size=512, alignment=128, kind="tile")
    address = w.shared_base + subtile.offset
    low, high = k.load(0, k.thread), k.load(0, k.thread + 64)
    w.ptx.memory.store_shared_f32x2(address=address + k.thread * 8, low=low, high=high)
    if fence:
        w.ptx.tma.fence_shared()
    if barrier:
        w.barrier(id=3, threads=64)
    with w.when(k.thread == 63):
        w.ptx.tma.store_2d(map=k.maps[0], x=0, y=0, src=address, policy=w.constant(U64, EVICT_FIRST))
        w.ptx.tma.commit_stores()
        w.ptx.tma.wait_stores(pending=0)
    k.run(np.arange(128, dtype=np.float32), maps=[out])
    return out.read()


def test_store_shared_fence_and_sync() -> None:
    """Pairs written by two warps, fenced and synchronised, are what the copy engine stores."""
    expected = np.arange(128, dtype=np.float32).reshape(2, 64).T.reshape(4, 32)
    np.testing.assert_array_equal(stage_and_store(fence=True, barrier=True), expected)


@pytest.mark.parametrize(("fence", "barrier"), [(False, True), (True, False)])
def test_fence_and_sync_are_both_needed(fence: bool, barrier: bool) -> None:
    """Without the proxy fence, or without the barrier, the emulator reports a race."""
    with pytest.raises(RaceError):
        stage_and_store(fence=fence, barrier=barrier)
