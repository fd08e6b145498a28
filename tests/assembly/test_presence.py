"""What a loop's body makes stays in the loop, and Python's `+=` gathers nothing in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from small_kernels import SmallKernel

from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import F32, PRED, U32
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer


@pytest.fixture
def w() -> Writer:
    """A writer for a Hopper kernel of a warp."""
    return Writer("gathering", target="sm_90a", threads=32)


@pytest.mark.parametrize("start", [0.0, None], ids=["number", "constant"])
def test_a_sum_of_python_names_is_refused_behind_the_loop(w: Writer, start: float | None) -> None:
    """``s = s + v`` leaves the last round's value: it is refused with the loop, its line and what to write."""
    s: Operand = w.constant(F32, 0.0) if start is None else start
    for i in w.range(4, name="turn"):
        s = w.isa.convert.float_u32(whole=i) + s
    with pytest.raises(
        TraceError, match=r"device loop over 'turn', left at test_presence.*s.assign\(s \+ v\)"
    ) as caught:
        w.constant(F32, s)
    assert caught.value.code == "TK-TRACE-021"


def test_no_use_of_a_round_s_value_is_let_through(w: Writer) -> None:
    """Arithmetic, fragments, tiles, branches and loops take no round's value behind its loop, nor its counter."""
    for i in w.repeat("again", uniform=True):
        value, holds = w.lane() + 1, w.lane() < 3
        tile = w.tile(U32, 4, "tile")
        i.again = w.constant(U32, 1) == 0
    for counter in w.range(4):
        assert (counter + 1).type is U32

    def branch() -> None:
        with w.when(holds):
            pass

    uses: list[Callable[[], object]] = [
        lambda: value + 1,
        lambda: w.isa.convert.float_u32(whole=value),
        lambda: w.ptx.stmatrix.store_x4(address=w.shared_base, values=tile),
        branch,
        lambda: list(w.range(value)),
        lambda: counter + 1,
    ]
    for use in uses:
        with pytest.raises(TraceError, match="TK-TRACE-021"):
            use()


def test_what_a_round_made_is_used_in_its_round(w: Writer) -> None:
    """Within the loop, in inner ones too, a round's values are there; so is one that is assigned behind the loop."""
    for i in w.range(4):
        value = i + 1
        for j in w.range(value, name="j"):
            assert (value + j).type is U32
        with w.when(value < 3):
            assert (value + 2).type is U32
    value.assign(7)
    assert (value + 1).type is U32


def test_a_variable_gathers() -> None:
    """A variable of before the loop, assigned in it, is the sum behind it: what the refusal says to write."""
    out = np.zeros(1, np.uint32)
    k = SmallKernel(pointers=1)
    total = k.w.variable(U32, 0, "total")
    for i in k.w.range(10):
        total.assign(total + i)
    k.store(0, k.w.constant(U32, 0), total)
    k.run(out)
    assert out[0] == 45


@pytest.mark.parametrize("sign", ["+", "-", "*", "//", "%", "<<", ">>", "&", "|", "^"])
def test_augmented_assignment_of_a_variable_is_refused(w: Writer, sign: str) -> None:
    """Every ``s += v`` of a variable names another register: refused with the assignment to write, in a loop or not."""
    with pytest.raises(TraceError, match="is a variable") as caught:
        exec(f"s {sign}= 2", {"s": w.variable(U32, 8, "s")})
    assert caught.value.code == "TK-TRACE-023"
    assert f"s.assign(s {sign} v)" in str(caught.value)


def test_augmented_assignment_in_a_loop(w: Writer) -> None:
    """``s += v`` of what was made before the loop is refused; of what the round made, or outside of loops, not."""
    s = w.constant(U32, 0)
    s += 3
    for i in w.range(4):
        own = s + i
        own += 1
        i += own
        with pytest.raises(TraceError, match=r"is made before the device loop.*TK-TRACE-023"):
            s += own
        with w.when(i < 3), pytest.raises(TraceError, match="TK-TRACE-023"):
            s ^= own
        for j in w.range(2, name="j"):
            with pytest.raises(TraceError, match="TK-TRACE-023"):
                own += j
    s += 1
    assert isinstance(s, Value)


def test_a_repeated_loop_goes_on_by_what_its_round_made(w: Writer) -> None:
    """`turn.again` may be made in the round, in no inner loop of it."""
    for turn in w.repeat("polls", uniform=True):
        turn.again = w.constant(U32, 1) == 0

    def of_an_inner_loop() -> None:
        for turn in w.repeat("polls", uniform=True):
            for _ in w.range(2):
                turn.again = w.constant(PRED, True)

    with pytest.raises(TraceError, match="TK-TRACE-021"):
        of_an_inner_loop()
