"""What is uniform in a loop's first round and not in the second is an error where lanes must be together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Writer

Body = Callable[[Writer], None]


def text(body: Body) -> str:
    """The text of a kernel of one warp."""
    w = Writer("example", target="sm_90a", threads=32)
    body(w)
    return w.text()


def meet(w: Writer) -> None:
    """An aligned fragment."""
    w.barrier(id=0, threads=32)


def later_in_the_loop(w: Writer) -> None:
    k = w.variable(U32, 0, "k")
    for _ in w.range(4):
        with w.when(k < 1):
            meet(w)
        k.assign(k + w.lane())


def by_way_of_others(w: Writer) -> None:
    k = w.variable(U32, 0, "k")
    for _ in w.range(4):
        seen = k + 1
        twice = seen * 2
        with w.when(twice < 9):
            meet(w)
        k.assign(w.lane())


def by_way_of_a_round_more(w: Writer) -> None:
    k, held = w.variable(U32, 0, "k"), w.variable(U32, 0, "held")
    for _ in w.range(4):
        with w.when(held < 1):
            meet(w)
        held.assign(k)
        k.assign(w.lane())


def in_an_inner_loop(w: Writer) -> None:
    k = w.variable(U32, 4, "k")
    for _ in w.range(4):
        for _ in w.range(k, name="inner"):
            meet(w)
        k.assign(w.lane())


def where_lanes_diverge(w: Writer) -> None:
    k = w.variable(U32, 0, "k")
    for _ in w.range(4):
        with w.when(k < 1):
            meet(w)
        with w.when(w.lane() < 3):
            k.assign(1)


def behind_a_branch_that_may_not_run(w: Writer) -> None:
    k, n = w.variable(U32, 0, "k"), w.parameter("n", U32, lambda call: 1)
    for _ in w.range(4):
        with w.when(n < 3):
            k.assign(0)
        with w.when(k < 1):
            meet(w)
        k.assign(w.lane())


def that_goes_round_again(w: Writer) -> None:
    k = w.variable(U32, 0, "k")
    for _ in w.range(4):
        for turn in w.repeat("again", uniform=True):
            meet(w)
            turn.again = k < 1
        k.assign(w.lane())


WRONG: tuple[Body, ...] = (
    later_in_the_loop,
    by_way_of_others,
    by_way_of_a_round_more,
    in_an_inner_loop,
    where_lanes_diverge,
    behind_a_branch_that_may_not_run,
    that_goes_round_again,
)


@pytest.mark.parametrize("body", WRONG, ids=lambda body: body.__name__)
def test_what_the_second_round_would_diverge_by(body: Body) -> None:
    """The error names the fragment, where it is placed, and the assignment further down."""
    with pytest.raises(TraceError, match="must be executed by whole warps") as caught:
        text(body)
    assert caught.value.code == "TK-TRACE-020"
    assert "test_loop_uniformity.py" in str(caught.value)


def before_the_loop(w: Writer) -> None:
    k = w.variable(U32, 0, "k")
    with w.when(k < 1):
        meet(w)
    for _ in w.range(4):
        k.assign(k + w.lane())


def overwritten_at_the_top(w: Writer) -> None:
    k = w.variable(U32, 0, "k")
    for i in w.range(4):
        k.assign(i)
        with w.when(k < 1):
            meet(w)
        k.assign(k + w.lane())


def broadcast_at_the_end(w: Writer) -> None:
    k = w.variable(U32, 0, "k")
    for _ in w.range(4):
        with w.when(k < 1):
            meet(w)
        k.assign(w.broadcast(k + w.lane(), lane=0))


def broadcast_at_the_top(w: Writer) -> None:
    k = w.variable(U32, 0, "k")
    for _ in w.range(4):
        with w.when(w.broadcast(k, lane=0) < 1):
            meet(w)
        k.assign(w.lane())


def nothing_aligned(w: Writer) -> None:
    k = w.variable(U32, 0, "k")
    for _ in w.range(4):
        with w.when(k < 1):
            k.assign(k + 1)
        k.assign(k + w.lane())
    meet(w)


RIGHT: tuple[Body, ...] = (
    before_the_loop,
    overwritten_at_the_top,
    broadcast_at_the_end,
    broadcast_at_the_top,
    nothing_aligned,
)


@pytest.mark.parametrize("body", RIGHT, ids=lambda body: body.__name__)
def test_what_stays_together(body: Body) -> None:
    """A value that is uniform wherever it is read, or read where lanes may be apart, is none."""
    assert ".entry example" in text(body)
