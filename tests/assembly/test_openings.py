"""A branch, loop or role that is made and not entered is refused with its line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.roles import elected, one_thread, working_threads
from tilekit.tiles.cluster import Cluster

LOAD = Role("load", range(1), frozenset({"load"}), one_thread=True)


@pytest.mark.parametrize(
    ("make", "write"),
    [
        (lambda w: w.when(w.lane() < 2), "with w.when(condition):"),
        (lambda w: w.role(LOAD, w.warp()), "with w.role(role, warp):"),
        (lambda w: w.range(4), "for i in w.range(n):"),
        (lambda w: w.repeat("again", uniform=True), "for turn in w.repeat(...):"),
        (lambda w: one_thread(w, w.warp(), LOAD), "with one_thread(w, warp, role):"),
        (lambda w: elected(w), "with elected(w):"),
        (
            lambda w: working_threads(w, w.warp(), LOAD, Cluster.read(w, 1, 1)),
            "with working_threads(w, warp, role, cluster):",
        ),
    ],
    ids=["when", "role", "range", "repeat", "one_thread", "elected", "working_threads"],
)
def test_what_is_not_entered_is_refused(make: Callable[[Writer], object], write: str) -> None:
    """Before the next instruction, or at the end, the line that lacks `with` or `for` is named, and what to write."""
    for then in (lambda w: w.constant(U32, 1), lambda w: w.text()):
        w = Writer("forgetful", target="sm_90a", threads=64)
        make(w)
        with pytest.raises(TraceError, match=r"what test_openings\.py:\d+ .* is not entered") as caught:
            then(w)
        assert caught.value.code == "TK-TRACE-022"
        assert write in str(caught.value)


def test_what_is_entered_later_is_not_refused() -> None:
    """A branch and a loop may be made first and entered when nothing has been traced between."""
    w = Writer("patient", target="sm_90a", threads=64)
    holds = w.lane() < 2
    branch = w.when(holds)
    with branch:
        rounds = w.range(4)
        for i in rounds:
            w.constant(U32, i)
    assert w.text()
