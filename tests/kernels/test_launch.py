"""What a kernel parameter follows from: said where it is declared, and asked for at a launch."""

from __future__ import annotations

from typing import Any

import pytest

from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16
from tilekit.errors import ArgumentError
from tilekit.kernels.launch import bind_parameters
from tilekit.runtime import parameters as runtime
from tilekit.tiles.call import Call, Matrix, Schedule


def call(**fields: Any) -> Call:
    """A product of 32 x 16 by 16 x 8 that knows its output alone."""
    d = Matrix("out", BF16, (8, 32), pitch=48)
    return Call(m=32, n=8, k=16, matrices={"d": d}, addresses={"d": 0x100}, resident=3, **fields)


def writer() -> Writer:
    """An empty kernel."""
    return Writer("empty", target="sm_90a", threads=32)


def test_values_follow_from_the_call() -> None:
    """Each parameter is asked in its order, once the schedule is known; the grid is whole clusters."""
    w = writer()
    w.parameter("k", U32, lambda call: call.k)
    w.parameter("d", GMEM, lambda call: call.address("d"))
    w.parameter("beta", F32, lambda call: call.number("beta"))
    w.parameter("pitch", U32, lambda call: call.matrix("d").row_pitch)
    w.parameter("clusters", U32, lambda call: call.schedule.clusters)
    w.parameter("memory", GMEM, lambda call: call.allocate("memory", 8 * call.ctas))
    asked = []

    def scratch(name: str, size: int) -> int:
        asked.append((name, size))
        return 0x400

    made = bind_parameters(
        w.parameters, lambda call: Schedule(5, 7), call(numbers={"beta": 0.5}, scratch=scratch, cluster_size=2)
    )
    assert made.grid == 10
    assert made.tiles == 7
    assert asked == [("memory", 80)]
    assert made.parameters == (
        runtime.U32(16),
        runtime.Pointer(0x100),
        runtime.F32(0.5),
        runtime.U32(24),
        runtime.U32(5),
        runtime.Pointer(0x400),
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "'k' does not say how its value follows"),
        (lambda call: call.address("bias"), "the address 'bias', which this call does not have; it has d"),
        (lambda call: call.matrix("c"), "the matrix 'c'"),
        (lambda call: call.number("beta"), "the number 'beta', which this call does not have; it has none"),
        (lambda call: call.allocate("sums", 4), "asks for 4 bytes of device memory for its sums"),
    ],
)
def test_what_a_call_does_not_have_is_named(value: Any, words: str) -> None:
    """A parameter without a value, or one that follows from something missing, is an error that says which."""
    w = writer()
    w.parameter("k", U32, value)
    with pytest.raises(ArgumentError, match="TK-PAR-003") as caught:
        bind_parameters(w.parameters, lambda call: Schedule(1, 1), call())
    assert words in str(caught.value)


def test_what_follows_twice_is_made_once() -> None:
    """Parameters that follow from the same plan make it once a call, and anew for the next call."""
    made = []
    one = call()
    for _ in range(3):
        one.once("plan", lambda: made.append(len(made)))
    call().once("plan", lambda: made.append(len(made)))
    assert made == [0, 1]
