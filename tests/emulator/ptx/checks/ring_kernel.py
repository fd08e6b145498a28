"""The moves of a kernel with a ring of stages, with edges left out, and what the checks of order find of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilekit.emulator.core.checks.agents import Sync
from tilekit.emulator.core.checks.findings import Finding, Findings
from tilekit.emulator.core.checks.shadow import Memory
from tilekit.emulator.core.errors import Actor
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.ptx.checks.proxies import ProxyOrder
from tilekit.emulator.ptx.checks.race_words import explain
from tilekit.emulator.ptx.synchronisation.mbarrier import Mbarrier

WINDOW = 1 << 24
DYNAMIC = 1024
STAGES = 3
TILE = 16384
NOTES = f"""
//@role load warps=0-0
//@role mma warps=4-7
//@shared inputs.a offset=0 size={STAGES * TILE} stride={TILE} count={STAGES} kind=tile
//@shared output offset={STAGES * TILE} size={TILE} kind=tile
//@shared inputs.full offset=80000 size=24 stride=8 count={STAGES} kind=mbarrier arrive=load wait=mma
//@shared inputs.empty offset=80024 size=24 stride=8 count={STAGES} kind=mbarrier arrive=mma wait=load
"""


@dataclass(frozen=True)
class Line:
    line: int
    text: str
    provenance: str


EXPECT = Line(
    80, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16384;", "load Ring.expect tile_pipeline/ring.py:70"
)
TMA = Line(
    88, "cp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1, {%r5, %r6}], [%r2];", "load TmaLoader.load x:8"
)
WGMMA = Line(120, "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {...}, %rd1, %rd2;", "mma Wgmma.run")
RELEASE = Line(130, "mbarrier.arrive.shared::cta.b64 _, [%r3];", "mma Ring.release tile_pipeline/ring.py:90")
STMATRIX = Line(200, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r9], {...};", "mma Staged.write epilogue/staged.py:40")
STORE = Line(
    210, "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd3, {%r5}], [%r9];", "mma TmaStorer.store y:4"
)
KEEP: frozenset[str] = frozenset()


class Kernel:
    """The moves of a warp-specialised matmul; `without` names edges to leave out."""

    def __init__(self, without: frozenset[str] = KEEP, notes: str = NOTES) -> None:
        self.without = without
        self.order = ProxyOrder()
        self.findings = Findings(explain, SymbolMap.parse(notes), DYNAMIC, "matmul")
        self.shared = Memory("shared memory", WINDOW, 227 * 1024, self.findings.race, cta=1)
        self.c = Memory("c", 1 << 32, 1 << 20, self.findings.race)
        self.load = self.order.warp(Actor(1, 0, "load"))
        self.mma = [self.order.warp(Actor(1, 4 + i, "mma")) for i in range(4)]
        self.wgmma = [self.order.groups(w, "wgmma", waits_with="wgmma.wait_group") for w in self.mma]
        self.bulk = self.order.bulk_groups(self.mma[0])
        self.full = [Mbarrier(WINDOW + 8 * i, 1, f"inputs.full[{i}]") for i in range(STAGES)]
        self.empty = [Mbarrier(WINDOW + 64 + 8 * i, 4, f"inputs.empty[{i}]") for i in range(STAGES)]

    def fill(self, k: int) -> None:
        """The producer's step `k`: wait empty, expect, copy; the copy lands at once."""
        stage = k % STAGES
        if k >= STAGES and "wait empty" not in self.without:
            assert self.empty[stage].test((k // STAGES - 1) & 1)
            self.order.acquire(self.load, self.empty[stage].completed)
        self.order.release(self.load, self.full[stage].arriving)
        self.full[stage].arrive(expect_tx=TILE, by=self.load.actor, instruction=EXPECT)
        operation = self.order.issue(self.load, "TMA load", TMA, self.full[stage].arriving)
        self.shared.span(operation, self.tile(stage), self.tile(stage) + TILE, write=True)
        self.order.release(operation, self.full[stage].arriving)
        self.full[stage].complete_tx(TILE, by=self.load.actor, instruction=TMA)

    def multiply(self, k: int, warps: range = range(4)) -> None:
        """The consumers' step `k`: wait full, four wgmmas, wait for them, release the stage."""
        stage = k % STAGES
        for i in warps:
            warp, queue = self.mma[i], self.wgmma[i]
            if "wait full" not in self.without:
                self.order.acquire(warp, self.full[stage].completed)
            for step in range(4):
                operation = queue.issue(WGMMA)
                mask = sum(0b11 << (row * 8 + 2 * step) for row in range(128))
                self.shared.granules(operation, self.tile(stage), mask, write=False)
            queue.commit()
            if not self.without & {"wait wgmma", "release after wait"}:
                queue.wait()
            if "arrive empty" not in self.without:
                self.order.release(warp, self.empty[stage].arriving)
                self.empty[stage].arrive(by=warp.actor, instruction=RELEASE)
            if "release after wait" in self.without:
                queue.wait()

    def meet(self) -> None:
        """A named barrier of the consumer warps."""
        if "bar.sync" in self.without:
            return
        sync = Sync("bar 1")
        for warp in self.mma:
            self.order.release(warp, sync)
        for warp in self.mma:
            self.order.acquire(warp, sync)

    def store(self) -> None:
        """The epilogue: wait for the last store's reads, write the tile, fence, meet, one warp stores."""
        if "wait read" not in self.without:
            self.bulk.wait(read=True)
        self.meet()
        lanes = np.arange(32)
        out = WINDOW + DYNAMIC + STAGES * TILE
        for i, warp in enumerate(self.mma):
            for column in range(8):
                rows = out + i * 4096 + lanes * 128 + 16 * column
                self.shared.lanes(warp, rows, 16, write=True, instruction=STMATRIX)
            if "fence" not in self.without and not (i == 2 and "one fence" in self.without):
                self.order.fence_proxy_async(warp)
        self.meet()
        if "late fence" in self.without:
            for warp in self.mma[1:]:  # The first issues the store.
                self.order.fence_proxy_async(warp)
        if "reader's fence" in self.without:
            self.order.fence_proxy_async(self.mma[0])
        reads, writes = self.bulk.issue(STORE)
        self.shared.span(reads, out, out + TILE, write=False)
        self.c.rows(writes, 1 << 32, 64, 256, 4096, write=True)
        self.bulk.commit()
        if "wait written" not in self.without:
            self.bulk.wait()

    @staticmethod
    def tile(stage: int) -> int:
        return WINDOW + DYNAMIC + stage * TILE

    def run(self) -> list[Finding]:
        """Nine k-blocks with the producer as far ahead as it may be, and two output tiles."""
        for k in range(STAGES):
            self.fill(k)
        for k in range(9):
            self.multiply(k)
            self.fill(k + STAGES)
        self.store()
        self.store()
        return list(self.findings)
