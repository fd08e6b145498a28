"""The race check against a slow model that keeps every access and every ordered pair."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tilekit.emulator.core.checks.agents import Agent, Operation, Sync
from tilekit.emulator.core.checks.shadow import Memory, Race
from tilekit.emulator.core.errors import Actor
from tilekit.emulator.ptx.checks.proxies import ProxyOrder

BASE = 1 << 24
SIZE = 3 * 8192


@dataclass
class Knowledge:
    """What is ordered before an agent's next step, as sets of access numbers."""

    before: set[int] = field(default_factory=set)
    fenced: set[int] = field(default_factory=set)

    def learn(self, other: Knowledge) -> None:
        self.before |= other.before
        self.fenced |= other.fenced

    def copy(self) -> Knowledge:
        return Knowledge(set(self.before), set(self.fenced))


@dataclass
class Seen:
    lo: int
    hi: int
    write: bool
    atomic: bool
    asynchronous: bool


class Model:
    """All accesses by number; the definition of a race, applied to every pair and byte."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.last_writer = np.full(SIZE, -1)

    def access(self, knowledge: Knowledge, new: Seen) -> bool:
        racy = False
        for number, old in enumerate(self.seen):
            if old.lo < new.hi and new.lo < old.hi and (old.write or new.write) and not (old.atomic and new.atomic):
                racy |= number not in knowledge.before
        if new.asynchronous:
            for number in set(self.last_writer[new.lo : new.hi].tolist()) - {-1}:
                racy |= not self.seen[number].asynchronous and number not in knowledge.fenced
        if new.write:
            self.last_writer[new.lo : new.hi] = len(self.seen)
        self.seen.append(new)
        return racy


def extent(rng: random.Random) -> tuple[int, int]:
    """A span of one of the sizes that kernels use, at an address of the same alignment."""
    unit, most = rng.choice([(1, 20), (4, 40), (16, 60), (128, 16), (1024, 8), (8192, 2)])
    size = unit * rng.randint(1, most)
    lo = rng.randrange(0, SIZE - min(size, SIZE) + 1, unit) if size < SIZE else 0
    return lo, min(lo + size, SIZE)


class Run:
    """The same random program on the checker and on the model."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.races: list[Race] = []
        self.order = ProxyOrder()
        self.memory = Memory("shared memory", BASE, SIZE, self.races.append, cta=1)
        self.model = Model()
        self.warps = [self.order.warp(Actor(1, i)) for i in range(4)]
        self.knowledge = [Knowledge() for _ in self.warps]
        self.syncs = [(Sync(f"s{i}"), Knowledge()) for i in range(3)]
        self.flying: list[tuple[Operation, Knowledge]] = []
        self.queues = [self.order.groups(w, "wgmma", waits_with="wait_group") for w in self.warps]
        self.open: list[set[int]] = [set() for _ in self.warps]
        self.committed: list[list[set[int]]] = [[] for _ in self.warps]

    def access(self, party: Agent | Operation, knowledge: Knowledge, *, write: bool, atomic: bool) -> bool:
        lo, hi = extent(self.rng)
        before = len(self.races)
        kind = self.rng.random()
        if hi - lo <= 512 and (hi - lo) % 4 == 0 and kind < 0.4:
            order = np.arange(lo + BASE, hi + BASE, 4)
            np.random.default_rng(self.rng.randrange(99)).shuffle(order)
            self.memory.lanes(party, order, 4, write=write, atomic=atomic)
        elif lo % 16 == 0 and hi % 16 == 0 and kind < 0.6:
            self.memory.granules(party, lo + BASE, (1 << (hi - lo) // 16) - 1, write=write, atomic=atomic)
        elif kind < 0.8:
            cut = self.rng.randint(lo, hi)
            self.memory.extents(party, [(cut + BASE, hi + BASE), (lo + BASE, cut + BASE)], write=write, atomic=atomic)
        else:
            self.memory.span(party, lo + BASE, hi + BASE, write=write, atomic=atomic)
        racy = self.model.access(knowledge, Seen(lo, hi, write, atomic, party.asynchronous))
        assert (len(self.races) > before) == racy, f"checker says {len(self.races) > before}, model {racy}"
        return racy

    def meet(self) -> None:
        """Order almost every agent after everything, as a barrier at the end of a phase does: histories grow long."""
        sync, known = self.syncs[0]
        for i, warp in enumerate(self.warps):
            self.queues[i].commit()
            self.queues[i].wait()
            self.knowledge[i].before |= self.open[i].union(*self.committed[i])
            self.open[i], self.committed[i] = set(), []
            if self.rng.random() < 0.98:
                self.fence(i)
            if self.rng.random() < 0.98:
                self.order.release(warp, sync)
                known.learn(self.knowledge[i])
        while self.flying and self.rng.random() < 0.98:
            operation, landed = self.flying.pop()
            self.order.release(operation, sync)
            known.learn(landed)
        for warp, knowledge in zip(self.warps, self.knowledge, strict=True):
            self.order.acquire(warp, sync)
            knowledge.learn(known)

    def fence(self, i: int) -> None:
        self.order.fence_proxy_async(self.warps[i])
        self.knowledge[i].fenced |= self.knowledge[i].before

    def step(self) -> bool:
        """Do one random step; True when it raced."""
        rng = self.rng
        i = rng.randrange(len(self.warps))
        warp, knowledge = self.warps[i], self.knowledge[i]
        choice = rng.choices(
            ["access", "release", "acquire", "fence", "issue", "land", "group", "commit", "wait", "meet"],
            [4, 5, 6, 2, 3, 4, 2, 1, 2, 30],
        )[0]
        if choice == "meet":
            self.meet()
            return False
        if choice == "access":
            write, atomic = rng.random() < 0.3, rng.random() < 0.15
            number = len(self.model.seen)
            racy = self.access(warp, knowledge, write=write, atomic=atomic)
            knowledge.before.add(number)
            return racy
        if choice == "release":
            sync, known = rng.choice(self.syncs)
            self.order.release(warp, sync)
            known.learn(knowledge)
        elif choice == "acquire":
            sync, known = rng.choice(self.syncs)
            self.order.acquire(warp, sync)
            knowledge.learn(known)
        elif choice == "fence":
            self.fence(i)
        elif choice == "issue":
            operation = self.order.issue(warp, "TMA load", None)
            known = knowledge.copy()
            number = len(self.model.seen)
            racy = self.access(operation, known, write=rng.random() < 0.5, atomic=False)
            known.before.add(number)
            self.flying.append((operation, known))
            return racy
        elif choice == "land" and self.flying:
            operation, known = self.flying.pop(rng.randrange(len(self.flying)))
            sync, target = rng.choice(self.syncs)
            self.order.release(operation, sync)
            target.learn(known)
        elif choice == "group":
            operation = self.queues[i].issue(None)
            number = len(self.model.seen)
            racy = self.access(operation, knowledge.copy(), write=False, atomic=False)
            self.open[i].add(number)
            return racy
        elif choice == "commit":
            self.queues[i].commit()
            self.committed[i].append(self.open[i])
            self.open[i] = set()
        elif choice == "wait":
            keep = rng.randrange(3)
            self.queues[i].wait(keep)
            while len(self.committed[i]) > keep:
                knowledge.before |= self.committed[i].pop(0)
        return False


@pytest.mark.parametrize("block", range(8))
def test_first_race_is_where_the_definition_puts_it(block: int) -> None:
    """On random programs the checker is silent before the first race of the model and speaks at it."""
    raced = 0
    for seed in range(block * 80, block * 80 + 80):
        run = Run(seed)
        for _ in range(120):
            if run.step():
                raced += 1
                break
    # Both outcomes must occur, or the comparison would prove little.
    assert raced < 80
    assert raced > 20
