"""An elected lane's loop is run by its whole warp where that changes nothing, and keeps its branch elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilekit.assembly.ptx import module
from tilekit.assembly.types import GMEM, PRED, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device

OWN = """
//! fragment  add
//! about     Add to a counter.
//! in        address  gmem
//! in        value    u32
//! kind      memory
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
red.global.add.u32 [${address}], ${value};

//! fragment  add_twice
//! about     Add to a counter, in two instructions.
//! in        address  gmem
//! in        value    u32
//! kind      memory
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
red.global.add.u32 [${address}], ${value};
red.global.add.u32 [${address}], 0;

//! fragment  add_on_one_line
//! about     The same on one line.
//! in        address  gmem
//! in        value    u32
//! kind      memory
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
red.global.add.u32 [${address}], ${value}; red.global.add.u32 [${address}], 0;

//! fragment  add_in_a_scope
//! about     The same, with a register of its own.
//! in        address  gmem
//! in        value    u32
//! kind      memory
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
{ .reg .b32 own; mov.b32 own, ${value}; red.global.add.u32 [${address}], own; }

//! fragment  add_where
//! about     Add to a counter where a condition holds.
//! in        address  gmem
//! in        value    u32
//! in        holds    pred
//! kind      memory
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
@${holds} red.global.add.u32 [${address}], ${value};

//! fragment  add_where_twice
//! about     The same, in two instructions.
//! in        address  gmem
//! in        value    u32
//! in        holds    pred
//! kind      memory
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
@${holds} red.global.add.u32 [${address}], ${value};
@${holds} red.global.add.u32 [${address}], ${value};

//! fragment  add_where_or
//! about     Add to a counter where either of two conditions holds.
//! in        address  gmem
//! in        holds    pred
//! in        others   pred
//! kind      memory
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
@${holds} red.global.add.u32 [${address}], 1;
@${others} red.global.add.u32 [${address}], 1;

//! fragment  add_and_add_where
//! about     Add to a counter, and once more where a condition holds.
//! in        address  gmem
//! in        value    u32
//! in        holds    pred
//! kind      memory
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
red.global.add.u32 [${address}], ${value};
@${holds} red.global.add.u32 [${address}], ${value};

//! fragment  fetch_add
//! about     Add to a counter, and return what it was.
//! in        address  gmem
//! in        value    u32
//! out       was      u32
//! kind      memory
//! target    sm_80  ptx 7.0
//! see       PTX ISA, atom
atom.global.add.u32 ${was}, [${address}], ${value};

//! fragment  wait_and_add
//! about     Add to a counter, and say that it is a wait.
//! in        address  gmem
//! in        value    u32
//! kind      wait
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
red.global.add.u32 [${address}], ${value};

//! fragment  wait_and_add_twice
//! about     The same, in two instructions.
//! in        address  gmem
//! in        value    u32
//! kind      wait
//! target    sm_80  ptx 7.0
//! see       PTX ISA, red
red.global.add.u32 [${address}], ${value};
red.global.add.u32 [${address}], 0;
"""

Body = Callable[["Kernel"], None]


class Kernel:
    """One warp, four counters in global memory, and whatever a body does in the elected lane."""

    def __init__(self, folder: Path, body: Body, chip: str = "sm_90a") -> None:
        file = folder / "own.ptx"
        file.write_text(OWN)
        self.w = w = Writer("small", target=chip, threads=32)
        counters = w.parameter("counters", GMEM)
        self.rounds = w.parameter("rounds", U32)
        self.own = w.fragments(file)
        self.places = [(counters + 4 * at).retyped(GMEM) for at in range(4)]
        self.before = w.variable(U32, 7, "before")
        elected = w.elect()
        with w.when(elected):
            self.earlier = self.rounds + 2
        with w.when(elected):
            body(self)
        w.warp_sync()
        with w.when(w.elect()):
            self.own.add(address=self.places[3], value=self.before)
        self.text = w.text()

    def add(self, at: int, value: Any) -> None:
        """Add to a counter, in the lanes that are here."""
        self.own.add(address=self.places[at], value=value)

    @property
    def together(self) -> bool:
        """Whether the whole warp runs the body: of two branches that of the one without a loop is left."""
        return self.text.count("@!elected bra") == 1

    def counts(self, rounds: int = 3) -> list[int]:
        """The counters behind a launch."""
        device, out = Device("sm_90a"), np.zeros(4, np.uint32)
        kernel = device.load(self.text)["small"]
        kernel.launch(grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, args=[out, np.uint32(rounds)])
        return list(map(int, out))


def adds(k: Kernel) -> None:
    """The sum of the rounds' numbers, and their count."""
    for i in k.w.range(k.rounds):
        k.add(0, i)
        k.add(1, 1)


def adds_in_a_branch(k: Kernel) -> None:
    """A loop in a loop, and a branch that all lanes take alike."""
    for i in k.w.range(k.rounds):
        with k.w.when(i == 1):
            for _ in k.w.range(k.rounds):
                k.add(0, 1)
        k.add(1, k.w.select(i > 0, i * 10, 5))


def adds_by_lane(k: Kernel) -> None:
    """A value that differs from lane to lane decides nothing: the elected lane's counts."""
    lane = k.w.lane()
    total = k.w.variable(U32, 0, "total")
    for i in k.w.range(k.rounds):
        total.assign(total + i)
        k.add(0, total + (lane - lane))


def waits_of_its_own(k: Kernel) -> None:
    """A wait of another file is a lane's: nobody knows what else it does."""
    for _ in k.w.range(k.rounds):
        k.own.wait_and_add(address=k.places[0], value=1)


def values_of_an_earlier_branch(k: Kernel) -> None:
    """What only the elected lane has may be what it adds."""
    for _ in k.w.range(k.rounds):
        k.add(0, k.earlier)


def without_a_loop(k: Kernel) -> None:
    """Nothing that comes round."""
    k.add(0, 1)


def with_two_instructions(k: Kernel) -> None:
    """Each gets the predicate."""
    for _ in k.w.range(k.rounds):
        k.own.add_twice(address=k.places[0], value=1)


def with_two_on_a_line(k: Kernel) -> None:
    """The same."""
    for _ in k.w.range(k.rounds):
        k.own.add_on_one_line(address=k.places[0], value=1)


def with_a_scope(k: Kernel) -> None:
    """The same, in braces."""
    for _ in k.w.range(k.rounds):
        k.own.add_in_a_scope(address=k.places[0], value=1)


def with_a_guard(k: Kernel) -> None:
    """A fragment that has one: both are one predicate, which each use makes anew."""
    later = k.w.variable(PRED, False, "later")
    for i in k.w.range(k.rounds):
        k.own.add_where(address=k.places[0], value=1, holds=later)
        later.assign(i < 1)
        k.own.add_where(address=k.places[1], value=1, holds=later)
        k.own.add_where_twice(address=k.places[2], value=1, holds=i > 1)


def with_two_guards(k: Kernel) -> None:
    """Of one fragment, which two predicates would be needed for."""
    for i in k.w.range(k.rounds):
        k.own.add_where_or(address=k.places[0], holds=i > 1, others=i < 1)


def with_half_a_guard(k: Kernel) -> None:
    """Of one fragment, too."""
    for i in k.w.range(k.rounds):
        k.own.add_and_add_where(address=k.places[0], value=1, holds=i > 1)


def with_a_result(k: Kernel) -> None:
    """What it does is done once, and what it returns is the elected lane's."""
    for _ in k.w.range(k.rounds):
        was = k.own.fetch_add(address=k.places[0], value=1)
        k.add(1, was)


def for_so_many_lanes(k: Kernel) -> None:
    """As many rounds as the lane's number says, and lanes would part."""
    for _ in k.w.range(k.w.lane() + 2):
        k.add(0, 1)


def where_lanes_part_later(k: Kernel) -> None:
    """What the branch asks is alike in the first round only."""
    limit = k.w.variable(U32, 5, "limit")
    for i in k.w.range(k.rounds):
        with k.w.when(i < limit):
            k.add(0, 1)
        limit.assign(k.w.lane() + 5)


def as_often_as_an_earlier_branch_says(k: Kernel) -> None:
    """Other lanes have no number of rounds."""
    for _ in k.w.range(k.earlier):
        k.add(0, 1)


def with_a_wait_of_two_instructions(k: Kernel) -> None:
    """A wait of another file, too."""
    for _ in k.w.range(k.rounds):
        k.own.wait_and_add_twice(address=k.places[0], value=1)


def with_a_line_of_its_own(k: Kernel) -> None:
    """A line that nothing is known of."""
    for _ in k.w.range(k.rounds):
        k.w.emit("membar.gl;")
        k.add(0, 1)


def what_is_read_behind(k: Kernel) -> None:
    """A variable of before the branch: other lanes keep what they had."""
    for _ in k.w.range(k.rounds):
        k.add(0, 1)
        k.before.assign(k.before + 100)


TOGETHER: list[tuple[Body, list[int]]] = [
    (waits_of_its_own, [3, 0, 0, 7]),
    (values_of_an_earlier_branch, [15, 0, 0, 7]),
    (adds, [3, 3, 0, 7]),
    (adds_in_a_branch, [3, 35, 0, 7]),
    (adds_by_lane, [4, 0, 0, 7]),
    (with_two_instructions, [3, 0, 0, 7]),
    (with_a_wait_of_two_instructions, [3, 0, 0, 7]),
    (with_a_guard, [1, 1, 2, 7]),
]

APART: list[tuple[Body, list[int]]] = [
    (without_a_loop, [1, 0, 0, 7]),
    (with_two_guards, [2, 0, 0, 7]),
    (with_half_a_guard, [4, 0, 0, 7]),
    (with_two_on_a_line, [3, 0, 0, 7]),
    (with_a_scope, [3, 0, 0, 7]),
    (with_a_result, [3, 3, 0, 7]),
    (for_so_many_lanes, [2, 0, 0, 7]),
    (where_lanes_part_later, [3, 0, 0, 7]),
    (as_often_as_an_earlier_branch_says, [5, 0, 0, 7]),
    (with_a_line_of_its_own, [3, 0, 0, 7]),
    (what_is_read_behind, [3, 0, 0, 307]),
]


@pytest.mark.parametrize(("body", "counts"), TOGETHER, ids=[body.__name__ for body, _ in TOGETHER])
def test_the_whole_warp_goes_round(tmp_path: Path, body: Body, counts: list[int]) -> None:
    """No branch is left, each effect has the predicate, and each happens once."""
    kernel = Kernel(tmp_path, body)
    assert kernel.together
    assert kernel.counts() == counts


@pytest.mark.parametrize(("body", "counts"), APART, ids=[body.__name__ for body, _ in APART])
def test_the_branch_stays(tmp_path: Path, body: Body, counts: list[int]) -> None:
    """Where all lanes would do something else than one."""
    kernel = Kernel(tmp_path, body)
    assert kernel.text.count("@!elected bra") == 2
    assert kernel.counts() == counts


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_loops_may_have_no_round(tmp_path: Path, rounds: int) -> None:
    """The whole warp jumps over them."""
    assert Kernel(tmp_path, adds).counts(rounds) == [sum(range(rounds)), rounds, 0, 7]


@pytest.mark.parametrize("chip", ["sm_80", "sm_100a", "sm_120a"])
def test_other_chips_keep_their_branches(tmp_path: Path, chip: str) -> None:
    """Where ptxas needs none of this, or no instruction elects a lane."""
    assert not Kernel(tmp_path, adds, chip).together


def drawn(seed: int) -> Body:
    """A body of loops, branches, variables and effects, of which some can be given a predicate."""

    def body(k: Kernel) -> None:
        chance = random.Random(seed)
        w = k.w
        lane = w.lane()
        variables = [k.before, *(w.variable(U32, chance.randrange(4), "v") for _ in range(2))]

        def value(known: list[Value]) -> Value:
            one, other = chance.choice(known), chance.choice([*known, chance.randrange(1, 6)])
            made: list[Callable[[], Value]] = [
                lambda: one + other,
                lambda: w.select(one == other, one, other),
                lambda: one * 3,
            ]
            return chance.choice(made)()

        def statements(depth: int, known: list[Value]) -> None:
            for _ in range(chance.randrange(1, 4)):
                what = chance.choice(("add", "where", "loop", "when", "assign", "fetch", "twice"))
                if what == "add":
                    k.add(chance.randrange(3), value(known))
                elif what == "where":
                    place, holds = k.places[chance.randrange(3)], value(known) > chance.randrange(4)
                    chance.choice((k.own.add_where, k.own.add_where_twice))(address=place, value=1, holds=holds)
                elif what == "loop" and depth < 3:
                    for i in w.range(chance.choice([k.rounds, 2]), name="i"):
                        statements(depth + 1, [*known, i])
                elif what == "when" and depth < 3:
                    with w.when(chance.choice(known) > chance.randrange(3)):
                        statements(depth + 1, known)
                elif what == "assign":
                    chance.choice(variables[chance.random() < 0.8 :]).assign(value(known))
                elif what == "fetch" and chance.random() < 0.2:
                    k.own.fetch_add(address=k.places[chance.randrange(3)], value=value(known))
                elif what == "twice":
                    k.own.add_twice(address=k.places[chance.randrange(3)], value=value(known))

        known = [k.rounds, *variables]
        if chance.random() < 0.3:
            known.append(lane)
        for i in w.range(k.rounds):
            statements(1, [*known, i])
            k.add(0, 1)

    return body


def test_drawn_bodies_do_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred bodies with the branch and as they are: the same counts, and both ways occur."""
    ways = []
    for seed in range(100):
        kernel = Kernel(tmp_path, drawn(seed))
        with monkeypatch.context() as patched:
            patched.setattr(module, "converged", lambda body: body)
            branching = Kernel(tmp_path, drawn(seed))
        assert not branching.together
        assert kernel.counts() == branching.counts(), f"seed {seed}"
        ways.append(kernel.together)
    assert min(ways.count(True), ways.count(False)) > 10
