"""Ordinary and asynchronous accesses of single threads, run alone by the emulator and compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from small_kernels import Array, SmallKernel

from tilekit.assembly.types import F32, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.emulator import EmulatorError, MemoryFault, RaceError

LANES = 32


def scratch(k: SmallKernel, size: int) -> Value:
    """Shared memory."""
    return k.w.shared_base + k.w.shared.allocate("scratch", size=size, alignment=128, kind="scratch").offset


def at(base: Value, index: Value, size: int) -> Value:
    """Address of an element of shared memory."""
    return base + index.retyped(base.type) * size


def test_shared_stores_and_loads() -> None:
    """What `store_shared_f32` and `store_shared_b16` wrote, other lanes load as a word, pairs and bits."""
    source = np.random.default_rng(5).normal(size=2 * LANES).astype(np.float32)
    out = np.zeros((6, LANES), np.float32)
    halves = np.zeros(LANES, np.uint32)
    k = SmallKernel(pointers=3)
    w, memory = k.w, k.w.ptx.memory
    words, pairs = (
        scratch(k, 8 * LANES),
        w.shared_base + w.shared.allocate("b16", size=128, alignment=128, kind="tile").offset,
    )
    for part in range(2):
        index = k.thread + LANES * part
        memory.store_shared_f32(address=at(words, index, 4), value=k.load(0, index))
        narrow = w.ptx.convert.narrow_u16(wide=index)
        memory.store_shared_b16(address=at(pairs, index, 2), value=narrow)
    w.warp_sync()
    other = k.thread ^ 31
    low, high = memory.load_shared_f32x2(address=at(words, other, 8))
    both = memory.load_shared_b32x2(address=at(words, other, 8))
    one = memory.load_shared_f32(address=at(words, other, 4))
    bits = memory.load_shared_b32(address=at(words, other, 4))
    for row, value in enumerate((low, high, one, bits, *both)):
        k.store(1, k.thread + LANES * row, value)
    k.store(2, k.thread, memory.load_shared_b32(address=at(pairs, k.thread, 4)))
    k.run(source, out, halves)
    backwards = source.reshape(LANES, 2)[::-1]
    first = source[:LANES][::-1]
    np.testing.assert_array_equal(out, [backwards[:, 0], backwards[:, 1], first, first, *backwards.T])
    np.testing.assert_array_equal(halves.view(np.uint16), np.arange(2 * LANES))


def test_arrive_lets_others_go_on() -> None:
    """`barrier.arrive` counts the first warp, which goes on; the second one waits for it, and reads what it wrote."""
    out = np.zeros(LANES, np.uint32)
    k = SmallKernel(pointers=1, threads=2 * LANES)
    w = k.w
    base, lane = scratch(k, 4 * LANES), k.thread & (LANES - 1)
    warp = w.warp()
    with w.when(warp == 0):
        w.ptx.memory.store_shared_b32(address=at(base, lane, 4), value=lane + 7)
        w.barrier_arrive(id=w.constant(U32, 3), threads=2 * LANES)
    with w.when(warp == 1):
        w.barrier(id=w.constant(U32, 3), threads=2 * LANES)
        k.store(0, lane, w.ptx.memory.load_shared_b32(address=at(base, lane, 4)))
    k.run(out)
    np.testing.assert_array_equal(out, np.arange(LANES) + 7)


def test_store_shared_b32_keeps_the_bits() -> None:
    """`store_shared_b32` stores any 32-bit register; another lane reads it."""
    values = np.random.default_rng(6).integers(0, 1 << 32, LANES, dtype=np.uint32)
    out = np.zeros(LANES, np.uint32)
    k = SmallKernel(pointers=2)
    base = scratch(k, 4 * LANES)
    k.w.ptx.memory.store_shared_b32(address=at(base, k.thread, 4), value=k.load(0, k.thread, U32))
    k.w.warp_sync()
    k.store(1, k.thread, k.w.ptx.memory.load_shared_b32(address=at(base, k.thread ^ 1, 4)))
    k.run(values, out)
    np.testing.assert_array_equal(out, values[np.arange(LANES) ^ 1])


def reversed_vectors(k: SmallKernel, size: int) -> None:
    """Each lane copies a vector of four f32, `size` bytes from its neighbour's, in reverse order."""
    w = k.w
    values = w.ptx.memory.load_global_f32x4(address=k.element(0, k.thread, size))
    swapped = w.tile(F32, 4, "swapped")
    for register, value in zip(swapped, tuple(values)[::-1], strict=True):
        register.assign(value)
    w.ptx.memory.store_global_f32x4(address=k.element(1, k.thread, 16), values=swapped)


def test_vectors_of_four() -> None:
    """`load_global_f32x4` and `store_global_f32x4` move four f32 in order."""
    source = np.arange(4 * LANES, dtype=np.float32)
    out = np.zeros((LANES, 4), np.float32)
    k = SmallKernel(pointers=2)
    reversed_vectors(k, 16)
    k.run(source, out)
    np.testing.assert_array_equal(out, source.reshape(LANES, 4)[:, ::-1])


def test_vectors_of_four_in_shared_memory() -> None:
    """`store_shared_b32x4` and `load_shared_b32x4` move four words in order, for other lanes to read."""
    source = np.arange(4 * LANES, dtype=np.float32)
    out = np.zeros((LANES, 4), np.float32)
    k = SmallKernel(pointers=2)
    memory = k.w.ptx.memory
    base = scratch(k, 16 * LANES)
    words = RegisterTile([k.load(0, k.thread * 4 + word, U32) for word in range(4)])
    memory.store_shared_b32x4(address=at(base, k.thread, 16), values=words)
    k.w.warp_sync()
    for word, value in enumerate(memory.load_shared_b32x4(address=at(base, k.thread ^ 1, 16))):
        k.store(1, k.thread * 4 + word, value)
    k.run(source, out)
    np.testing.assert_array_equal(out, source.reshape(LANES, 4)[np.arange(LANES) ^ 1])


def test_vectors_must_be_aligned() -> None:
    """A vector that does not start at a multiple of 16 bytes faults."""
    k = SmallKernel(pointers=2)
    reversed_vectors(k, 8)
    with pytest.raises(MemoryFault):
        k.run(np.zeros(4 * LANES, np.float32), np.zeros(4 * LANES, np.float32))


def message(*, release: str, acquire: bool) -> Array:
    """CTA 0 writes data, then a flag; CTA 1 polls the flag, then reads the data."""
    data, flag, out = np.zeros(LANES, np.float32), np.zeros(1, np.uint32), np.zeros(LANES, np.float32)
    k = SmallKernel(pointers=3)
    w, memory = k.w, k.w.ptx.memory
    cta = w.ptx.cluster.cluster_index()
    address = k.element(1, 0)
    one = w.constant(U32, 1)
    with w.when((cta == 0) & (k.thread == 0)):
        for lane in range(LANES):
            k.store(0, w.constant(U32, lane), w.constant(F32, lane + 1.0))
        if release == "store":
            memory.store_release_gpu(address=address, value=one)
        elif release == "add":
            memory.add_release_gpu(address=address, value=one)
        else:
            k.store(1, w.constant(U32, 0), one)
    with w.when((cta == 1) & (k.thread == 0)):
        tries = w.constant(U32, 1 << 16)
        for _ in w.range(tries):
            value = memory.load_acquire_gpu(address=address) if acquire else k.load(1, w.constant(U32, 0), U32)
            tries.assign(w.select(value == 1, w.constant(U32, 0), 1 << 16))
        for first in range(0, LANES, 4):
            values = memory.load_global_f32x4(address=k.element(0, first))
            memory.store_global_f32x4(address=k.element(2, first), values=values)
    k.run(data, flag, out, grid=2)
    assert flag[0] == 1
    return out


@pytest.mark.parametrize("release", ["store", "add"])
def test_release_and_acquire_pass_data_on(release: str) -> None:
    """`store_release_gpu` or `add_release_gpu` by one CTA, `load_acquire_gpu` by another: the data can be read."""
    np.testing.assert_array_equal(message(release=release, acquire=True), np.arange(1, LANES + 1))


@pytest.mark.parametrize(("release", "acquire"), [("plain", True), ("store", False)])
def test_release_and_acquire_are_both_needed(release: str, acquire: bool) -> None:
    """With an ordinary store or an ordinary load of the flag the emulator finds the race."""
    with pytest.raises(RaceError):
        message(release=release, acquire=acquire)


def last_arriver(*, counts: bool = True, acquires: bool = True) -> Array:
    """Each of three CTAs writes its number and counts itself; the one that counts last adds all numbers."""
    data, count, out = np.zeros(3, np.float32), np.zeros(1, np.uint32), np.zeros(1, np.float32)
    k = SmallKernel(pointers=3)
    w, memory = k.w, k.w.ptx.memory
    cta = w.ptx.special.cta_index()
    with w.when(k.thread == 0):
        for number in range(3):
            with w.when(cta == number):
                k.store(0, w.constant(U32, number), w.constant(F32, 10.0**number))
        address = k.element(1, 0)
        if counts:
            before = memory.count_gpu(address=address, value=1)
        else:
            before = w.ptx.start_order.take(address=address, last=2)
        with w.when(before == 2):
            if acquires:
                memory.acquire_gpu()
            total = w.constant(F32, 0.0)
            for number in range(4):
                valid = k.thread >= number // 3
                value = memory.load_coherent_f32(address=k.element(0, number), valid=valid)
                total.assign(total + value)
            k.store(2, w.constant(U32, 0), total)
    k.run(data, count, out, grid=3)
    return out


def test_who_counts_last_reads_what_all_wrote() -> None:
    """`count_gpu` orders what was written before, `acquire_gpu` what is read behind; `load_coherent_f32` if `valid`."""
    assert last_arriver()[0] == 111


@pytest.mark.parametrize("missing", ["counts", "acquires"])
def test_an_unordered_count_is_a_race(missing: str) -> None:
    """With a relaxed count (`start_order.take`), or without `acquire_gpu`, the emulator finds the race."""
    with pytest.raises(RaceError):
        last_arriver(**{missing: False})


def asynchronous(width: int, *, wait: str) -> Array:
    """Each lane copies `width` bytes, of which only the first width * (lane % 3) / 2 count, and reads a neighbour's."""
    words = width // 4
    source = np.random.default_rng(9).integers(1, 1 << 32, (LANES, words), dtype=np.uint32)
    out = np.zeros((LANES, words), np.uint32)
    k = SmallKernel(pointers=2)
    w, copies = k.w, k.w.ptx.cp_async
    base = scratch(k, 16 * LANES)
    arrived = k.barrier("arrived", count=LANES)
    size = (k.thread % 3) * (width // 2)
    source_address = k.element(0, k.thread, width)
    getattr(copies, f"copy_{width}")(dst=at(base, k.thread, width), src=source_address, bytes=size)
    if wait == "group":
        copies.commit()
        copies.wait(pending=0)
    elif wait == "all":
        copies.wait_all()
    elif wait == "arrive":
        w.ptx.mbarrier.cp_async_arrive(bar=arrived)
        w.ptx.mbarrier.wait_parity(bar=arrived, parity=0)
    elif wait == "wrong group":
        copies.commit()
        copies.wait(pending=1)
    w.warp_sync()
    for word in range(words):
        value = w.ptx.memory.load_shared_b32(address=at(base, k.thread ^ 1, width) + 4 * word)
        k.store(1, k.thread * words + word, value)
    k.run(source.reshape(-1), out)
    bytes_ = source.view(np.uint8).reshape(LANES, width).copy()
    bytes_[np.arange(width) >= (np.arange(LANES) % 3 * (width // 2))[:, None]] = 0
    np.testing.assert_array_equal(out, bytes_.view(np.uint32)[np.arange(LANES) ^ 1])
    return out


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("wait", ["group", "all", "arrive"])
def test_asynchronous_copies_fill_with_zero(width: int, wait: str) -> None:
    """`copy_4`, `copy_8`, `copy_16` bring the bytes that count and 0; each way to wait for them is enough."""
    assert asynchronous(width, wait=wait).any()


@pytest.mark.parametrize("wait", ["none", "wrong group"])
def test_asynchronous_copies_are_waited_for(wait: str) -> None:
    """Without a wait, or with one that lets the latest group be, the early read is noticed."""
    with pytest.raises(EmulatorError):
        asynchronous(16, wait=wait)


def test_groups_complete_in_order() -> None:
    """`wait(pending=1)` is enough for the first of two groups."""
    source, out = np.arange(2 * LANES, dtype=np.float32), np.zeros(2 * LANES, np.float32)
    k = SmallKernel(pointers=2)
    w, copies = k.w, k.w.ptx.cp_async
    base = scratch(k, 8 * LANES)
    for part in range(2):
        index = k.thread + LANES * part
        copies.copy_4(dst=at(base, index, 4), src=k.element(0, index), bytes=4)
        copies.commit()
    for part in range(2):
        copies.wait(pending=1 - part)
        index = k.thread + LANES * part
        k.store(1, index, w.ptx.memory.load_shared_f32(address=at(base, index, 4)))
    k.run(source, out)
    np.testing.assert_array_equal(out, source)
