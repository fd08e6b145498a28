"""Checks of the GCN fragments that reach memory by a buffer's descriptor."""

from __future__ import annotations

from typing import Any

import numpy as np
from gcn_alone import THREADS
from gcn_checks import LANES, MEMORY, Array, check, same

from tilekit.assembly.types import B32, GMEM, SMEM, U32
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device


@check("buffer.descriptor", "buffer.advance")
def _descriptors(chip: str) -> None:
    before = BufferKernel(chip, 1000).words()
    same(before[2:], np.array([1000, 0x20000], np.uint32))
    for step, left in ((128, 872), (5000, 0)):
        w = BufferKernel(chip, 1000)
        w.advance(step)
        after = w.words()
        same(after[:2], np.array([before[0] + step, before[1]], np.uint32))
        same(after[2:], np.array([left, 0x20000], np.uint32))


class BufferKernel:
    """A kernel with a descriptor of `size` bytes of memory."""

    def __init__(self, chip: str, size: int, memory: Array = MEMORY) -> None:
        self.chip, self.memory = chip, memory
        self.w = w = Writer("alone", target=chip, threads=THREADS)
        base, self.out = w.parameter("memory", GMEM), w.parameter("out", GMEM)
        self.thread = w.thread()
        self.rows = 0
        self.buffer = w.gcn.buffer.descriptor(base=base, bytes=size)

    def advance(self, step: int) -> None:
        self.w.gcn.buffer.advance(buffer=self.buffer, bytes=step)

    def store(self, value: Any) -> None:
        address = (self.out + self.w.widen_multiply(self.thread + self.rows * THREADS, 4)).retyped(GMEM)
        self.w.isa.memory.store_release_gpu(address=address, value=value.retyped(U32))
        self.rows += 1

    def launch(self) -> tuple[Array, Array]:
        """What was stored, and memory in the end."""
        device = Device(self.chip)
        memory = device.buffer(self.memory, "memory")
        out = device.buffer(np.zeros((max(self.rows, 1), THREADS), np.uint32), "out")
        report = device.load(self.w.text())["alone"].launch(grid=1, block=THREADS, args=[memory, out])
        assert not report.findings, report
        return out.read(), memory.read()

    def words(self) -> Array:
        """The descriptor's words, the same in all lanes."""
        for word in self.buffer:
            self.store(word)
        found = self.launch()[0]
        assert (found == found[:, :1]).all()
        return np.ascontiguousarray(found[:, 0])


@check("buffer.load_b32", "buffer.load_b32x2", "buffer.load_b32x3", "buffer.load_b32x4", "buffer.store_b32",
       "buffer.store_b32x2", "buffer.store_b32x3", "buffer.store_b32x4")  # fmt: skip
def _buffers(chip: str) -> None:
    for count, suffix in ((1, ""), (2, "x2"), (3, "x3"), (4, "x4")):
        size = 16 * 50 + 16
        k = BufferKernel(chip, size)
        found = getattr(k.w.gcn.buffer, f"load_b32{suffix}")(buffer=k.buffer, place=k.thread * 16, offset=16)
        for word in [found] if count == 1 else found:
            k.store(word)
        loaded = k.launch()[0].T
        inside = size > LANES * 16 + 16
        wanted = np.where(inside[:, None], MEMORY[(LANES[:, None] * 4 + 4 + np.arange(count))], 0)
        same(loaded, wanted)
        k = BufferKernel(chip, size)
        tile = k.w.tile(U32, count, "row")
        for i, register in enumerate(tile):
            register.assign(k.thread + (7 + i))
        given = {"value": tile[0]} if count == 1 else {"values": tile}
        getattr(k.w.gcn.buffer, f"store_b32{suffix}")(buffer=k.buffer, place=k.thread * 16, offset=16, **given)
        after = k.launch()[1]
        wanted = MEMORY.copy()
        for lane in LANES[inside]:
            wanted[lane * 4 + 4 : lane * 4 + 4 + count] = lane + 7 + np.arange(count)
        same(after, wanted)


@check("buffer_lds.load_b32", "buffer_lds.load_b32x3", "buffer_lds.load_b32x4", "buffer_lds.commit", "buffer_lds.wait",
       "barrier.sync_cta", "barrier.sync_cta_shared", "barrier.meet", "barrier.warp_sync",
       "barrier.warp_sync_shared")  # fmt: skip
def _loads_to_lds(chip: str) -> None:
    for name, words in (("load_b32", 1), ("load_b32x3", 3), ("load_b32x4", 4)):
        if chip == "gfx942" and words > 1:
            continue
        for barrier in ("sync_cta", "sync_cta_shared", "meet"):
            k = BufferKernel(chip, 64 * 4 * words * 2)
            w = k.w
            block = w.shared.allocate("block", size=2 * 256 * words, alignment=16).at(w, w.constant(U32, 0))
            for half in range(2):
                place = k.thread * (4 * words) + 256 * words * half
                getattr(w.gcn.buffer_lds, name)(buffer=k.buffer, place=place, lds=block + 256 * words * half, offset=0)
                w.gcn.buffer_lds.commit()
            w.gcn.buffer_lds.wait(pending=1)
            getattr(w.gcn.barrier, barrier)()
            w.isa.barrier.warp_sync_shared()
            other = (k.thread ^ 1) * 4
            k.store(w.gcn.lds.read_b32(address=block + other, offset=0))
            w.gcn.buffer_lds.wait(pending=0)
            w.isa.barrier.warp_sync()
            k.store(w.gcn.lds.read_b32(address=block + k.thread * 4 + 256 * words, offset=0))
            found = k.launch()[0]
            same(found[0], MEMORY[LANES ^ 1])
            same(found[1], MEMORY[64 * words + LANES])


@check("buffer.load_b16")
def _halves(chip: str) -> None:
    k = BufferKernel(chip, 2 * 50 + 3)
    k.store(k.w.gcn.buffer.load_b16(buffer=k.buffer, place=k.thread * 2, offset=2))
    halves = MEMORY.view(np.uint16)[LANES + 1].astype(np.uint32)
    same(k.launch()[0][0], np.where(LANES * 2 + 4 <= 103, halves, 0))


@check("lds.refill_b32x4", "lds.refill_u8", "buffer.refill_b32x4", "buffer.load_b8")
def _refills(chip: str) -> None:
    k = BufferKernel(chip, 16 * 50)
    w = k.w
    box = w.shared.allocate("box", size=16 * THREADS).at(w, w.constant(U32, 0))
    row = w.tile(U32, 4, "row")
    w.gcn.buffer.refill_b32x4(buffer=k.buffer, place=k.thread * 16, values=row, offset=16)
    w.gcn.lds.write_b32x4(address=(box + k.thread * 16).retyped(SMEM), values=row, offset=0)
    w.isa.barrier.sync_cta()
    w.gcn.lds.refill_b32x4(address=(box + (k.thread ^ 1) * 16).retyped(SMEM), values=row, offset=0)
    for word in row:
        k.store(word)
    byte = w.tile(B32, 1, "byte")[0]
    w.gcn.lds.refill_u8(address=(box + k.thread * 15).retyped(SMEM), value=byte, offset=1)
    k.store(byte)
    k.store(w.gcn.buffer.load_b8(buffer=k.buffer, place=k.thread * 13, offset=3))
    *rows, read, last = k.launch()[0]
    inside = (LANES ^ 1) * 16 + 16 < 16 * 50
    wanted = np.where(inside[:, None], MEMORY[(LANES ^ 1)[:, None] * 4 + 4 + np.arange(4)], 0)
    same(np.stack(rows), np.ascontiguousarray(wanted.T))
    boxed = LANES * 15 + 1 + 16
    same(read, np.where(boxed < 16 * 50, MEMORY.view(np.uint8)[boxed], 0).astype(np.uint32))
    single = MEMORY.view(np.uint8)[LANES * 13 + 3]
    same(last, np.where(LANES * 13 + 3 < 16 * 50, single, 0).astype(np.uint32))


@check("buffer_lds.load_b32_along", "buffer_lds.load_b32x4_along")
def _loads_to_lds_along(chip: str) -> None:
    for name, words in (("load_b32_along", 1), ("load_b32x4_along", 4)):
        if chip == "gfx942" and words > 1:
            continue
        size = 256 * words - 64
        k = BufferKernel(chip, size)
        w = k.w
        block = w.shared.allocate("block", size=256 * words + 4096, alignment=16).at(w, w.constant(U32, 0))
        outside = w.select(k.thread == 3, 0xFFFF_FFF0, 0)
        given = {"place": k.thread * (4 * words), "outside": outside, "along": w.constant(U32, 32), "lds": block}
        getattr(w.gcn.buffer_lds, name)(buffer=k.buffer, behind=4096, **given)
        w.gcn.buffer_lds.commit()
        w.gcn.buffer_lds.wait(pending=0)
        w.isa.barrier.sync_cta()
        k.store(w.gcn.lds.read_b32(address=(block + k.thread * (4 * words)).retyped(SMEM), offset=4096))
        inside = (LANES * 4 * words + 32 < size) & (LANES != 3)
        same(k.launch()[0][0], np.where(inside, MEMORY[LANES * words + 8], 0))
