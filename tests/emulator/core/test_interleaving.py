"""The interleaving that every room shares, on a small machine: who runs next, what lands when, how it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilekit.emulator.core.errors import Deadlock, Where
from tilekit.emulator.core.interleaving import Interleaving
from tilekit.emulator.core.schedules import Policy, Starts, Waiting


class Wave:
    """A warp that runs for some turns; it issues a copy in its first."""

    def __init__(self, group: int, turns: int) -> None:
        self.group = group
        self.turns = turns
        self.queued = False


class Copy:
    """A copy that lands in one step."""

    where = Where()

    def __init__(self, land: Callable[[], None]) -> None:
        self.done = False
        self._land = land

    def land(self) -> bool:
        self._land()
        self.done = True
        return True


class Toy(Interleaving[Wave, int]):
    """Groups of one wave each; a group ends with its wave, and `stuck` ones wait for ever."""

    def __init__(self, policy: Policy, seed: int = 0, *, starts: Starts = "ascending", stuck: bool = False) -> None:
        super().__init__(policy, seed, groups=5, starts=starts, at_first=2, at_most=3, observers=())
        self.stuck = stuck
        self.log: list[str] = []
        self.most = 0

    def start_next(self) -> None:
        if self.waiting:
            number = self.waiting.popleft()
            self.resident.append(number)
            self.most = max(self.most, len(self.resident))
            self.log.append(f"start {number}")
            self.enqueue(Wave(number, 3))

    def turn(self, warp: Wave) -> None:
        if warp.turns == 3:
            number = warp.group
            self.submit(Copy(lambda: self.log.append(f"land {number}")))
        warp.turns -= 1
        self.events += 1
        if warp.turns:
            self.enqueue(warp)
        elif not self.stuck:
            self.log.append(f"end {warp.group}")
            self.resident.remove(warp.group)
            self.start_next()

    def look(self, *, idle: bool) -> None:
        raise AssertionError("nothing here spins")

    def time_out(self, *, again: bool = False) -> bool:
        return False

    def deadlock(self) -> Deadlock:
        return Deadlock(f"{len(self.resident)} wait")


def run(policy: Policy, seed: int = 0, starts: Starts = "ascending") -> Toy:
    toy = Toy(policy, seed, starts=starts)
    toy.run()
    return toy


@pytest.mark.parametrize("policy", ["fair", "random", "adversarial"])
def test_everything_runs_and_lands_once(policy: Policy) -> None:
    """Each group starts, ends and has its copy land, whatever the order; no more are there than there is room for."""
    for seed in range(20):
        toy = run(policy, seed)
        assert sorted(toy.log) == sorted(f"{what} {n}" for what in ("start", "land", "end") for n in range(5))
        assert toy.most <= 3
        assert toy.issued == 5


def test_copies_land_as_the_policy_says() -> None:
    """Fair copies land before the next turn of any warp; adversarial ones when no warp can run any more."""
    fair = run("fair").log
    assert fair.index("land 0") < fair.index("end 0")
    late = run("adversarial").log
    assert {entry.split()[0] for entry in late[-5:]} == {"land"}


def test_a_seed_gives_its_order_again() -> None:
    """The same seed gives the same order; among many seeds there are different ones."""
    assert run("random", 7).log == run("random", 7).log
    assert len({tuple(run("random", seed).log) for seed in range(10)}) > 1


def test_groups_start_in_the_order_asked_for() -> None:
    """Ascending and descending starts."""
    for starts, first in (("ascending", "start 0"), ("descending", "start 4")):
        assert run("fair", starts=starts).log[0] == first


def test_a_standstill_is_a_deadlock() -> None:
    """When none can run, nothing lands, and no group may start, the room's own words end the run."""
    toy = Toy("fair", stuck=True)
    with pytest.raises(Deadlock, match="3 wait"):
        toy.run()


@pytest.mark.parametrize("starts", ["ascending", "descending", "random"])
def test_every_group_starts_once(starts: Starts) -> None:
    """The numbers taken are all there are, each once; at random in another order for another seed."""
    orders = []
    for seed in range(5):
        waiting = Waiting(40, starts, seed)
        orders.append([waiting.popleft() for _ in range(len(waiting))])
        assert sorted(orders[-1]) == list(range(40))
        assert not waiting
    assert (len({tuple(order) for order in orders}) == 5) == (starts == "random")


def test_random_starts_favour_no_group() -> None:
    """Each of four groups starts first, and last, in a quarter of the orders (within five deviations)."""
    orders = []
    for seed in range(4000):
        waiting = Waiting(4, "random", seed)
        orders.append([waiting.popleft() for _ in range(4)])
    for place in (0, 3):
        counts = [sum(order[place] == group for order in orders) for group in range(4)]
        assert all(abs(count - 1000) < 140 for count in counts)
