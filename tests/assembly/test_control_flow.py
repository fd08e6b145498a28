"""Device loops, branches and roles: what the traced text does when it runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_kernels import SmallKernel

from tilekit.assembly.types import F32, PRED, S32, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer

LOAD = Role("load", range(1), frozenset({"load", "sync", "wait", "store"}))
MMA = Role("mma", range(1, 3), frozenset({"mma", "store"}))


def counters(start: int, stop: int, step: int, *, constant: bool) -> list[int]:
    """The counters of a device loop, in order, from bounds that are constants of the text or values of the run."""
    out = np.full(40, 999, np.uint32)
    k = SmallKernel(pointers=2)
    w = k.w
    bounds: list[Value | int] = [start, stop, step]
    if not constant:
        bounds = [k.load(1, w.constant(U32, i), U32) for i in range(3)]
    done = w.variable(U32, 0, "done")
    for i in w.range(bounds[1], start=bounds[0], step=bounds[2]):
        with w.when(k.thread == 0):
            k.store(0, done, i)
        done.assign(done + 1)
    with w.when(k.thread == 0):
        k.store(0, w.constant(U32, 39), done)
    k.run(out, np.array([start, stop, step], np.uint32))
    assert (out[out[39] : 39] == 999).all()
    return out[: out[39]].tolist()


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "run-time"])
@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [(0, 0, 1), (0, 1, 1), (0, 7, 1), (5, 5, 1), (7, 3, 2), (3, 10, 3), (2, 4, 50), (0, 9, 3)],
)
def test_range_counts_like_python(start: int, stop: int, step: int, constant: bool) -> None:
    """Zero, one and many rounds, with steps that meet the end and steps that jump over it, as Python's `range`."""
    assert counters(start, stop, step, constant=constant) == list(range(start, stop, step))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 7))
def test_range_counts_like_python_anywhere(start: int, stop: int, step: int) -> None:
    """The same for any bounds."""
    assert counters(start, stop, step, constant=False) == list(range(start, stop, step))


def test_nested_loops() -> None:
    """An inner loop begins anew in each round of the outer one, and may depend on its counter."""
    out = np.zeros(1, np.uint32)
    k = SmallKernel(pointers=1)
    total = k.w.variable(U32, 0, "total")
    for i in k.w.range(5):
        for j in k.w.range(i, name="j"):
            total.assign(total + i * 10 + j)
    k.store(0, k.w.constant(U32, 0), total)
    k.run(out)
    assert out[0] == sum(i * 10 + j for i in range(5) for j in range(i))


def test_lanes_leave_a_loop_on_their_own() -> None:
    """A loop whose bound differs from lane to lane runs as often as each lane asks."""
    out = np.zeros(32, np.uint32)
    k = SmallKernel(pointers=1)
    total = k.w.variable(U32, 0, "total")
    for i in k.w.range(k.thread):
        total.assign(total + i)
    k.store(0, k.thread, total)
    k.run(out)
    np.testing.assert_array_equal(out, [sum(range(n)) for n in range(32)])


def test_nested_when() -> None:
    """A branch runs in the lanes where its condition holds, a nested one where both do, and all meet again behind."""
    out = np.zeros(32, np.uint32)
    k = SmallKernel(pointers=1)
    w = k.w
    result = w.variable(U32, 0, "result")
    with w.when(k.thread < 20):
        result.assign(result + 1)
        with w.when((k.thread & 1) == 1):
            result.assign(result + 10)
        result.assign(result + 100)
    k.store(0, k.thread, result)
    k.run(out)
    np.testing.assert_array_equal(out, [(101 + 10 * (n % 2)) if n < 20 else 0 for n in range(32)])


def test_roles_run_in_their_warps_only() -> None:
    """Each role's body runs in its warps, once; warps of no role pass both by."""
    out = np.zeros(128, np.uint32)
    k = SmallKernel(pointers=1, threads=128)
    w = k.w
    warp = w.warp()
    for role, mark in ((LOAD, 7), (MMA, 9)):
        with w.role(role, warp):
            k.store(0, k.thread, w.constant(U32, mark))
    k.run(out)
    np.testing.assert_array_equal(out, np.repeat([7, 9, 9, 0], 32))


def test_role_registers_are_scoped() -> None:
    """Registers of a role are declared in its block, and roles do not share a name."""
    w = Writer("roles", target="sm_90a", threads=96)
    warp = w.warp()
    with w.role(LOAD, warp):
        first = w.constant(U32, 1)
    with w.role(MMA, warp):
        second = w.constant(U32, 2)
    assert first.text != second.text
    blocks = w.text().split("\n    {\n")
    assert f" {first.text};" in blocks[1].partition("mov")[0]
    assert f" {second.text};" in blocks[2].partition("mov")[0]


EXPRESSIONS = {
    "add": (lambda w, a, b: a + b, lambda a, b: a + b),
    "add number": (lambda w, a, b: 5 + a, lambda a, b: a + np.uint32(5)),
    "sub": (lambda w, a, b: a - b, lambda a, b: a - b),
    "number sub": (lambda w, a, b: 7 - a, lambda a, b: np.uint32(7) - a),
    "mul": (lambda w, a, b: a * b, lambda a, b: a * b),
    "div": (lambda w, a, b: a // (b | 1), lambda a, b: a // (b | 1)),
    "rem": (lambda w, a, b: a % (b | 1), lambda a, b: a % (b | 1)),
    "div and rem by constants": (
        lambda w, a, b: (a // 8) ^ (a % 8) ^ (b // 12) ^ (b % 12),
        lambda a, b: (a // 8) ^ (a % 8) ^ (b // 12) ^ (b % 12),
    ),
    "and or xor": (lambda w, a, b: ((a & b) | 12) ^ b, lambda a, b: ((a & b) | 12) ^ b),
    "not": (lambda w, a, b: ~a, lambda a, b: ~a),
    "shifts": (lambda w, a, b: (a << 3) + (a >> (b & 7)), lambda a, b: (a << 3) + (a >> (b & 7))),
    "minimum": (lambda w, a, b: w.minimum(a, b), np.minimum),
    "select": (lambda w, a, b: w.select(a < b, a, 3), lambda a, b: np.where(a < b, a, 3)),
    "compare": (
        lambda w, a, b: w.select((a <= b) & ~(a == 4) | (b > a) ^ (a != 9), 1, 0),
        lambda a, b: ((a <= b) & ~(a == 4) | (b > a) ^ (a != 9)).astype(np.uint32),
    ),
    "of a number": (
        lambda w, a, b: (1000 // (a | 1)) + (1000 % (b | 1)) ^ (1 << (b & 7)) ^ (4096 >> (a & 7)) ^ (12 & a | (3 | b)),
        lambda a, b: (1000 // (a | 1) + 1000 % (b | 1)) ^ (1 << (b & 7)) ^ (4096 >> (a & 7)) ^ (12 & a | (3 | b)),
    ),
    "negative": (lambda w, a, b: -a, lambda a, b: -a),
    "of NumPy's": (
        lambda w, a, b: w.select(np.uint32(9) < a, np.uint32(2) * a + np.add(b, np.uint32(5)), np.negative(b)),
        lambda a, b: np.where(a > 9, 2 * a + b + 5, -b),
    ),
    "wide": (
        lambda w, a, b: (w.widen_multiply(a, b) >> 32) + 0,
        lambda a, b: (a.astype(np.uint64) * b) >> np.uint64(32),
    ),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_compute(name: str) -> None:
    """Python's operators on device values compute what NumPy's do on u32."""
    traced, expected = EXPRESSIONS[name]
    a, b = np.random.default_rng(5).integers(0, 1 << 32, (2, 32), dtype=np.uint32)
    a[:3], b[:3] = (4, 9, 0), (4, 8, 0)
    out = np.zeros(32, np.uint32)
    k = SmallKernel(pointers=3)
    result = traced(k.w, k.load(0, k.thread, U32), k.load(1, k.thread, U32))
    if result.type.bits == 64:
        result = lower_half(k, result)
    k.store(2, k.thread, result)
    k.run(a, b, out)
    np.testing.assert_array_equal(out, expected(a, b).astype(np.uint32))


def lower_half(k: SmallKernel, wide: Value) -> Value:
    """The lower 32 bits: there is no fragment for it, as no kernel needs one."""
    narrow = k.w.new(U32, "narrow", uniform=False)
    k.w.emit(f"cvt.u32.u64 {narrow.text}, {wide.text};")
    return narrow


def test_no_instructions_for_neutral_operands() -> None:
    """Adding 0, multiplying by 1, dividing by 1 and shifting by 0 emit nothing."""
    w = Writer("neutral", target="sm_90a", threads=32)
    x = w.constant(U32, 3)
    before = w.text()
    assert all(y is x for y in (x + 0, 0 + x, x - 0, x * 1, 1 * x, x // 1, x << 0, x >> 0))
    assert w.text() == before


def test_powers_of_two_divide_by_shifts() -> None:
    """Unsigned, by a constant power of two: no division. Signed ones round towards zero, so they divide."""
    w = Writer("powers", target="sm_90a", threads=32)
    unsigned, signed = w.constant(U32, 3), w.constant(S32, -3)
    _ = unsigned // 8, unsigned % 8
    assert not re.search(r"\b(div|rem)\.", w.text())
    _ = signed // 8, signed % 8
    assert {"div.s32", "rem.s32"} <= set(re.findall(r"(?:div|rem)\.\w+", w.text()))


def test_f32_arithmetic() -> None:
    """f32 values add, subtract, multiply, compare and select."""
    x = np.linspace(-4, 4, 32, dtype=np.float32)
    out = np.zeros(32, np.float32)
    k = SmallKernel(pointers=2)
    value = k.load(0, k.thread)
    k.store(1, k.thread, k.w.select(value < 0.5, value * value - 2.5, value + 1.25, F32))
    k.run(x, out)
    np.testing.assert_array_equal(out, np.where(x < 0.5, x * x - np.float32(2.5), x + np.float32(1.25)))


def test_variables_keep_their_value_across_branches() -> None:
    """`assign` overwrites the register, a Python assignment only names a new one."""
    out = np.zeros(32, np.uint32)
    k = SmallKernel(pointers=1)
    w = k.w
    seen = w.variable(PRED, False, "seen")  # type: ignore[arg-type]
    total = w.variable(U32, 1, "total")
    renamed = total
    for i in w.range(4):
        renamed = total + 100
        with w.when((i == 2) & ~seen):
            total.assign(total + i)
            seen.assign(i == 2)
    k.store(0, k.thread, total)
    k.run(out)
    assert renamed is not total
    np.testing.assert_array_equal(out, 3)


def test_text_is_the_same_twice() -> None:
    """Two traces of one program give one text, so caches and golden files can rely on it."""

    def trace() -> str:
        k = SmallKernel(pointers=1)
        for i in k.w.range(3):
            with k.w.when(k.thread == i):
                k.store(0, k.thread, i)
        return k.w.text()

    first, second = (trace() for _ in range(2))
    assert first == second
    assert Path(__file__).name in first
