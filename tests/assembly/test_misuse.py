"""What cannot be traced is refused where it is written, with what to write instead."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilekit.assembly.errors import FragmentError, TraceError
from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.types import B16, B32, DSMEM, F32, GMEM, PRED, SMEM, U32, U64
from tilekit.assembly.values import RegisterTile
from tilekit.assembly.writer import Role, Writer
from tilekit.errors import TilekitError
from tilekit.targets import SM_80, SM_90A, SM_100A, Target

LOAD = Role("load", range(4), frozenset({"load", "sync", "wait"}))
MMA = Role("mma", range(4, 8), frozenset({"mma", "wait"}))


@pytest.fixture
def w() -> Writer:
    """A writer for a Hopper kernel of 256 threads."""
    return Writer("misused", target="sm_90a", threads=256)


@contextmanager
def refused(kind: type[TilekitError], code: str, *words: str) -> Iterator[None]:
    """Expect an error of this kind and code whose message has all of `words`."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


# -- Python control flow on device values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda p, x: 1 if p else 2,
        lambda p, x: p and x,
        lambda p, x: p or x,
        lambda p, x: not p,
        lambda p, x: 0 <= x < 4,
        lambda p, x: x in (1, 2),
        lambda p, x: max(x, 3),
        lambda p, x: bool(x),
    ],
    ids=["if", "and", "or", "not", "chained", "in", "max", "bool"],
)
def test_device_values_have_no_truth(w: Writer, use: Callable[..., object]) -> None:
    """A Python condition on a device value says to write `w.when`, `&` or `w.select`."""
    x = w.constant(U32, 5)
    with refused(TraceError, "TK-TRACE-002", "w.when(condition)", "a & b", "w.select"):
        use(x < 7, x)


@pytest.mark.parametrize(
    "use",
    [lambda x: range(x), lambda x: [1, 2][x], lambda x: int(x), lambda x: list(x), lambda x: sum(x)],
    ids=["range", "index", "int", "list", "sum"],
)
def test_device_values_are_no_integers(w: Writer, use: Callable[..., object]) -> None:
    """Python's `range`, indexing and iteration on a device value say to write `w.range`."""
    with refused(TraceError, "TK-TRACE-003", "w.range(count)"):
        use(w.constant(U32, 5))


def test_when_needs_a_predicate(w: Writer) -> None:
    """A build-time condition belongs into a Python `if`, and a number is no condition."""
    for condition in (True, w.constant(U32, 1)):
        with refused(TraceError, "TK-TRACE-006", "Python `if`"), w.when(condition):  # type: ignore[arg-type]
            pass


# -- leaving early -----------------------------------------------------------------------------------------------------


def test_break_out_of_a_loop_is_reported_at_the_end(w: Writer) -> None:
    """The text of a kernel with a loop left by `break` is refused; the message points at the loop's line."""
    for _ in w.range(4, name="step"):
        break
    with refused(TraceError, "TK-TRACE-007", "device loop over 'step'", f"{__name__}.py:", "w.when"):
        w.text()


def test_the_loop_that_was_left_is_named_not_the_one_around_it(w: Writer) -> None:
    """With two loops of one name, the inner one's line is reported, when the outer one closes."""

    def trace() -> None:
        for _ in w.range(4):
            for _ in w.range(8):
                break

    first = trace.__code__.co_firstlineno
    with refused(TraceError, "TK-TRACE-007", f":{first + 2} ("):
        trace()


def test_break_in_a_role_is_reported_when_the_role_closes(w: Writer) -> None:
    """A loop left inside a role does not leak into the next role."""
    warp = w.warp()
    with refused(TraceError, "TK-TRACE-007", "device loop over 'k'"), w.role(LOAD, warp):
        for k in w.range(4, name="k"):
            with w.when(k == 2):
                break


def test_a_swallowed_exception_is_reported(w: Writer) -> None:
    """An exception that left a branch and was caught outside does not pass unseen."""
    with pytest.raises(ZeroDivisionError), w.when(w.constant(U32, 1) == 1):
        raise ZeroDivisionError
    with refused(TraceError, "TK-TRACE-007", "branch"):
        w.text()


# -- types -------------------------------------------------------------------------------------------------------------


def test_arithmetic_that_a_type_lacks(w: Writer) -> None:
    """A tensor map has no sum, an f32 no bits, a predicate no order."""
    uses: list[Callable[[], object]] = [
        lambda: w.tensor_map("m") + 1,
        lambda: w.constant(F32, 1.0) & 1,
        lambda: w.constant(F32, 1.0) // 2,
        lambda: w.constant(F32, 1.0) % 2,
        lambda: w.constant(F32, 1.0) >> 2,
        lambda: ~w.constant(F32, 1.0),
        lambda: (w.constant(U32, 1) == 1) == (w.constant(U32, 1) == 2),
        lambda: (w.constant(U32, 1) == 1) << 2,
        lambda: w.constant(B32, 1) < 2,
        lambda: w.constant(U32, 1) == "one",
    ]
    for use in uses:
        with refused(TraceError, "TK-TRACE-004"):
            use()


@pytest.mark.parametrize(
    ("use", "code", "words"),
    [
        (lambda v: v / 3, "TK-TRACE-004", "w.isa.elementwise.divide(a=, b=)"),
        (lambda v: 3 / v, "TK-TRACE-004", "w.isa.elementwise.divide(a=, b=)"),
        (lambda v: v // 3, "TK-TRACE-004", "w.isa.elementwise.divide(a=, b=)"),
        (abs, "TK-TRACE-004", "w.isa.elementwise.absolute(x=)"),
        (lambda v: v**2, "TK-TRACE-004", "write x * x"),
        (lambda v: 2**v, "TK-TRACE-004", "w.isa.elementwise.exp2(x=)"),
        (lambda v: divmod(v, 2), "TK-TRACE-004", "write // and %"),
        (lambda v: v @ v, "TK-TRACE-004", "Wgmma"),
        (lambda v: v[0], "TK-TRACE-004", "w.tile(type, count, name)"),
        (float, "TK-TRACE-004", "no Python float"),
        (math.sqrt, "TK-TRACE-004", "w.isa.elementwise"),
        (np.exp, "TK-TRACE-004", "NumPy's exp"),
        (lambda v: np.maximum(v, 0), "TK-TRACE-004", "NumPy's maximum"),
        (np.absolute, "TK-TRACE-004", "w.isa.elementwise.absolute(x=)"),
        (lambda v: f"{v:.2f}", "TK-TRACE-003", "'.2f'"),
    ],
)
def test_operators_that_no_value_has(w: Writer, use: Callable[[Any], object], code: str, words: str) -> None:
    """What Python, `math` and NumPy would compute is refused with the fragment or the operator that does."""
    with refused(TraceError, code, "<f32 c>", words):
        use(w.constant(F32, 2.0))


def test_a_value_is_shown_in_a_message_of_one_s_own(w: Writer) -> None:
    """Without a format, a device value has a text."""
    assert f"{w.constant(F32, 2.0)}" == "<f32 c>"


def test_a_division_by_nothing(w: Writer) -> None:
    """A constant divisor of 0 is refused: the instruction would not."""
    for use in (lambda: w.lane() // 0, lambda: w.lane() % 0):
        with refused(TraceError, "TK-TRACE-005", "divided by 0", "at least 1"):
            use()


def test_a_choice_of_another_type(w: Writer) -> None:
    """`select` of other values than u32 is told that its fourth argument is the type, which is then enough."""
    value = w.constant(F32, 2.0)
    for pair in ((value, 0.0), (0, value)):
        with refused(TraceError, "TK-TRACE-005", "<f32 c>", "w.select(condition, if_true, if_false, registers.F32)"):
            w.select(w.lane() < 2, *pair)
    assert w.select(w.lane() < 2, value, 0.0, F32).type is F32


@pytest.mark.parametrize(
    ("bounds", "nearest"),
    [({"start": -1}, "0"), ({"step": -1}, "1"), ({"step": 0}, "1"), ({"start": 1 << 32}, str((1 << 32) - 1))],
)
def test_a_loop_of_impossible_bounds(w: Writer, bounds: dict[str, int], nearest: str) -> None:
    """Numbers that a u32 counter cannot begin, end or step by are refused with the nearest that it can."""
    for stop, how in ((8, bounds), (-1, {})):
        with refused(TraceError, "TK-TRACE-005", f"nearest: {nearest if how else 0}"):
            for _ in w.range(stop, **how):
                pass


def test_a_loop_of_two_positions_or_no_name(w: Writer) -> None:
    """``w.range(0, n)`` is told how a start is given; a loop's and a variable's name become part of the text."""
    with refused(TraceError, "TK-PART-001", "w.range(stop, start=..., step=...)"):
        list(w.range(0, 4))
    for use in (
        lambda: list(w.range(4, name=3)),  # type: ignore[arg-type]
        lambda: list(w.repeat("an other", uniform=True)),
        lambda: w.variable(U32, 0, "a-b"),
    ):
        with refused(TraceError, "TK-PART-001", "name="):
            use()


def test_operands_of_another_class(w: Writer) -> None:
    """Registers of different width or class do not mix, and a fraction is no integer."""
    small, wide, real = w.constant(U32, 1), w.constant(U64, 1), w.constant(F32, 1)
    uses: list[Callable[[], object]] = [
        lambda: small + wide,
        lambda: small + real,
        lambda: small * 0.5,
        lambda: wide < small,
        lambda: w.select(small == 1, wide, small),
        lambda: w.select(small, 1, 2),
        lambda: w.widen_multiply(wide, 2),
        lambda: small.assign(real),
        lambda: small << wide,
    ]
    for use in uses:
        with refused(TraceError, "TK-TRACE-005"):
            use()


def test_retyping_keeps_the_width(w: Writer) -> None:
    """A register is seen as another type of its width only."""
    assert w.constant(U32, 1).retyped(SMEM).type is SMEM
    with refused(TraceError, "TK-TRACE-001", "32 bits", "64", "widen_multiply"):
        w.constant(U32, 1).retyped(GMEM)


def test_names_of_parameters_and_targets(w: Writer) -> None:
    """A parameter is declared once, and the target is one the writer knows."""
    w.parameter("rows", U32)
    with refused(TraceError, "TK-TRACE-009", "'rows'"):
        w.tensor_map("rows")
    with refused(TraceError, "TK-TRACE-008", "sm_90a", "sm_91"):
        Writer("k", target="sm_91", threads=32)


# -- calls of fragments ------------------------------------------------------------------------------------------------


def test_unknown_fragments(w: Writer) -> None:
    """A misspelt file or fragment lists what there is."""
    with pytest.raises(AttributeError, match=r"'mbarier'.*mbarrier"):
        w.ptx.mbarier.init()
    with pytest.raises(AttributeError, match=r"mbarrier\.innit.*test_misuse\.py.*init.*TK-FRAG-003"):
        w.ptx.mbarrier.innit()


def test_missing_and_unknown_operands(w: Writer) -> None:
    """The message names the fragment, its file and line, what it takes, what is missing and what is unknown."""
    with refused(FragmentError, "TK-FRAG-002", "init", "mbarrier.ptx:", "missing: count", "unknown: cnt"):
        w.ptx.mbarrier.init(bar=w.shared_base, cnt=1)


def test_wrong_operand_types(w: Writer) -> None:
    """An address of another space, a register of another width and a list of another length name operand and value."""
    bar, far = w.shared_base, w.new(DSMEM, "far", uniform=True)
    with refused(FragmentError, "TK-FRAG-002", "operand bar is smem", "<dsmem far>"):
        w.ptx.mbarrier.init(bar=far, count=1)
    with refused(FragmentError, "TK-FRAG-002", "operand bar is smem", "given 64"):
        w.ptx.mbarrier.init(bar=64, count=1)
    with refused(FragmentError, "TK-FRAG-002", "operand count is u32", "b16"):
        w.ptx.mbarrier.init(bar=bar, count=w.constant(B16, 1))
    with refused(FragmentError, "TK-FRAG-002", "operand count is u32", "True"):
        w.ptx.mbarrier.init(bar=bar, count=True)
    with refused(FragmentError, "TK-FRAG-002", "operand values is b32[4]", "3 x b32"):
        w.ptx.stmatrix.store_x4(address=bar, values=w.tile(B32, 3, "packed"))
    with refused(FragmentError, "TK-FRAG-002", "operand values is b32[4]", "<b16"):
        w.ptx.stmatrix.store_x4(address=bar, values=RegisterTile([w.constant(B16, 0)] * 4))
    with refused(FragmentError, "TK-FRAG-002", "operand values is b32[4]"):
        w.ptx.stmatrix.store_x4(address=bar, values=w.constant(B32, 0))


def test_operands_without_a_name(w: Writer) -> None:
    """Operands in order are told which names they have."""
    with refused(FragmentError, "TK-FRAG-002", "init", "given 2 without", "(bar=..., count=...)"):
        w.ptx.mbarrier.init(w.shared_base, 1)


def test_a_fraction_for_an_integer_operand(w: Writer) -> None:
    """A Python float stands for f32 operands only."""
    with refused(TraceError, "TK-TRACE-005", "2.5", "nearest: 2"):
        w.ptx.mbarrier.init(bar=w.shared_base, count=2.5)
    w.ptx.elementwise.relu(x=2.5)


@pytest.mark.parametrize(
    ("count", "nearest"), [(20, "24"), (25, "24"), (31, "32"), (257, "256"), (40.0, "40"), ("40", "24"), (None, "24")]
)
def test_illegal_immediates(w: Writer, count: object, nearest: str) -> None:
    """A build-time operand outside its rule names the rule and the nearest legal value."""
    with refused(FragmentError, "TK-FRAG-002", f"count={count!r}", "24..256 step 8", f"nearest: {nearest}"):
        w.ptx.warp.release_registers(count=count)


def test_illegal_words(w: Writer) -> None:
    """A word outside the list names the list and the nearest."""
    acc, desc = w.tile(F32, 4, "acc"), w.ptx.wgmma.descriptor(low=0, high=0)
    with refused(FragmentError, "TK-FRAG-002", "type='bf61'", "bf16|f16", "nearest: bf16"):
        w.ptx.wgmma.mma_16bit(acc=acc, a=desc, b=desc, accumulate=True, n=8, type="bf61", a_mn_major=0, b_mn_major=0)


def test_a_guard_must_be_a_register(w: Writer) -> None:
    """`@${valid}` takes no constant, unlike a predicate that an instruction reads as an operand."""
    address = w.constant(U64, 0).retyped(GMEM)
    with refused(FragmentError, "TK-FRAG-002", "operand valid", "guards an instruction", "Python `if`", "True"):
        w.ptx.memory.store_global_f32(address=address, value=0.0, valid=True)
    w.ptx.memory.store_global_f32(address=address, value=0.0, valid=w.constant(PRED, True))


PLAIN_SM_90 = replace(SM_90A, name="sm_90", architectures=("sm_80", "sm_90"))


@pytest.mark.parametrize(("target", "runs"), [(SM_90A, True), (PLAIN_SM_90, False), (SM_100A, False), (SM_80, False)])
def test_fragments_of_another_chip(target: Target, runs: bool) -> None:
    """wgmma exists on sm_90a alone: neither before nor after; the error says what is placed, for what, and where."""
    w = Writer("k", target=target, threads=128)
    if runs:
        w.ptx.wgmma.fence()
    else:
        with refused(
            FragmentError, "TK-FRAG-003", "fence", "needs sm_90a", target.name, "test_misuse.py", "test_fragments_of"
        ):
            w.ptx.wgmma.fence()


# -- divergence --------------------------------------------------------------------------------------------------------


def test_aligned_fragments_need_whole_warps(w: Writer) -> None:
    """Under a condition or in a loop that lanes may see differently, an aligned fragment is refused."""
    thread = w.thread()
    with refused(FragmentError, "TK-FRAG-004", "fence", "diverged"), w.when(thread < 3):
        w.ptx.wgmma.fence()
    w = Writer("k", target="sm_90a", threads=128)
    with refused(FragmentError, "TK-FRAG-004"):
        for _ in w.range(w.thread()):
            w.ptx.wgmma.fence()


def test_uniform_conditions_do_not_diverge(w: Writer) -> None:
    """Parameters, warp indices, constants, and what is computed from them, are uniform."""
    n = w.parameter("n", U32)
    warp = w.warp()
    with w.when((warp < 4) & (w.select(n > 2, n, 7) != 7)):
        for _ in w.range(n * 2, start=warp, step=3):
            w.ptx.wgmma.fence()
    assert not w.divergent


@pytest.mark.parametrize(
    "make",
    [
        lambda w, lane: w.select(w.constant(U32, 1) == 1, lane, 0),
        lambda w, lane: w.select(lane == 1, 5, 6),
        lambda w, lane: w.minimum(w.constant(U32, 9), lane),
        lambda w, lane: w.constant(U32, 9) + lane,
        lambda w, lane: w.constant(U32, lane),
        lambda w, lane: w.variable(U32, lane, "v"),
        lambda w, lane: w.ptx.cluster.map_address(address=w.shared_base, rank=lane).retyped(U32),
        lambda w, lane: w.widen_multiply(w.constant(U32, 9), lane),
    ],
    ids=["choice", "condition", "minimum", "sum", "constant", "variable", "fragment", "product"],
)
def test_divergence_spreads(w: Writer, make: Callable[..., object]) -> None:
    """What depends on a lane's number, in any operand, is not uniform."""
    assert not make(w, w.lane()).uniform  # type: ignore[attr-defined]


def test_assignment_under_divergence_is_not_uniform(w: Writer) -> None:
    """A register set in some lanes only differs from lane to lane afterwards, although the value was uniform."""
    flag = w.variable(U32, 0, "flag")
    assert flag.uniform
    with w.when(w.lane() == 0):
        flag.assign(1)
    with refused(FragmentError, "TK-FRAG-004"), w.when(flag == 1):
        w.ptx.wgmma.fence()


# -- roles -------------------------------------------------------------------------------------------------------------


def test_roles_use_only_what_they_may(w: Writer) -> None:
    """A matrix instruction in the load role, and a copy in the mma role, name fragment, kind and role."""
    warp = w.warp()
    with w.role(LOAD, warp):
        with refused(
            FragmentError, "TK-ROLE-001", "fence", "'mma'", "role 'load'", "control, load, scalar, sync, wait"
        ):
            w.ptx.wgmma.fence()
        w.ptx.mbarrier.fence_init()
        w.warp_sync()
    with w.role(MMA, warp):
        with refused(FragmentError, "TK-ROLE-001", "fence_init", "'sync'", "role 'mma'"):
            w.ptx.mbarrier.fence_init()
        w.ptx.wgmma.fence()
    w.ptx.mbarrier.fence_init()


def test_a_role_is_entered_by_the_warp_s_index(w: Writer) -> None:
    """Another value, such as the thread's index, and what is no role are refused; a warp's index read anew is not."""
    for value in (w.thread(), w.cta(), w.constant(U32, 0), 0):
        with refused(TraceError, "TK-PART-001", "w.role(warp=", "w.warp()"), w.role(LOAD, value):  # type: ignore[arg-type]
            pass
    with refused(TraceError, "TK-PART-001", "w.role(role='load')"), w.role("load", w.warp()):  # type: ignore[arg-type]
        pass
    with w.role(LOAD, w.warp()):
        pass
    with w.role(MMA, w.broadcast(w.thread() >> 5, lane=0)):
        pass


def test_roles_are_disjoint(w: Writer) -> None:
    """Two roles may neither nest nor share a warp."""
    warp = w.warp()
    with w.role(LOAD, warp), refused(TraceError, "TK-ROLE-002", "'mma'", "inside role 'load'"), w.role(MMA, warp):
        pass
    other = Role("other", range(3, 5), frozenset())
    with refused(TraceError, "TK-ROLE-002", "'load' and 'other'"), w.role(other, warp):
        pass


def test_messages_are_sentences_with_a_code(w: Writer) -> None:
    """Every error prints its stable code, once, at the end."""
    with pytest.raises(TraceError) as caught:
        w.constant(U32, 1.5)
    assert re.fullmatch(r"[^\[]+ \[TK-TRACE-005\]", str(caught.value))


def test_a_value_of_some_lanes_is_not_used_by_all() -> None:
    """What is made under `w.when` is there for the lanes that were: behind it, arithmetic and fragments refuse it."""
    w = Writer("example", target="sm_90a", threads=32)
    out, own = w.parameter("out", GMEM), w.variable(U32, 0, "own")
    with w.when(w.lane() < 2):
        with w.when(w.lane() < 1):
            twice = w.lane() * 2
        more = w.lane() + 1
        own.assign(more + 3)
    value = w.isa.convert.float_u32(whole=own)  # it has one in all lanes
    for use in (
        lambda: twice + 1,
        lambda: w.isa.convert.float_u32(whole=more),
        lambda: own.assign(twice),
        lambda: w.isa.memory.store_global_f32(address=out, value=value, valid=more == 1),
    ):
        with pytest.raises(TraceError, match=r"is made under w.when\(\) at .*nearest: a w.variable") as caught:
            use()
        assert caught.value.code == "TK-TRACE-021"
    more.assign(own)
    assert (more + 1).type is U32


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_a_value_of_some_lanes_is_used_by_the_same_lanes(target: str) -> None:
    """Two branches on one predicate have the same lanes, as long as nobody overwrites it; nested ones need both."""
    w = Writer("example", target=target, threads=64)
    few, fewer = w.lane() < 8, w.lane() < 4
    with w.when(few):
        once = w.lane() + 1
        with w.when(fewer):
            twice = once * 2
    with w.when(few):
        assert (once + 1).type is U32
        with pytest.raises(TraceError, match="TK-TRACE-021"):
            twice + 1
    with w.when(fewer), w.when(few):
        assert (twice + once).type is U32
    few.assign(w.lane() < 16)
    with w.when(few), pytest.raises(TraceError, match="TK-TRACE-021"):
        once + 1


def test_what_is_no_fragment_is_not_placed(w: Writer) -> None:
    """A writer that is given where its shared memory is asked for names what it takes and what reserves memory."""
    with refused(FragmentError, "TK-FRAG-002", "SharedDeclaration", "w.shared.place"):
        w.place(SharedDeclaration("a", 16, 2, 16, "tile"))  # type: ignore[arg-type]
    with refused(TraceError, "TK-SHARED-001", "SharedDeclaration", "given 3", "w.shared.allocate"):
        w.shared.place(3)  # type: ignore[arg-type]


def test_a_parameter_s_value_is_a_function(w: Writer) -> None:
    """A number where the call is asked for one is refused where it is declared, with the function to write."""
    with refused(TraceError, "TK-FIT-001", "w.parameter('k')", "given 64", "nearest: lambda call: 64"):
        w.parameter("k", U32, 64)  # type: ignore[arg-type]
