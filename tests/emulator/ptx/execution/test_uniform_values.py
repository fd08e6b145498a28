"""What is known to be the same for a whole warp, and where lanes meet: against what every thread computes by itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilekit.emulator import Device

THREADS = 128
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
CONSTANTS = (0, 1, 30, 31, 32, 33, 62, 63, 64, 65, 95, 96, 127, 128)
DERIVED: dict[str, Callable[[Any, int], Any]] = {
    "shr.u32": operator.rshift,
    "and.b32": operator.and_,
    "div.u32": operator.floordiv,
}
OPERANDS = {
    "shr.u32": (3, 4, 5, 6),
    "and.b32": (16, 31, 32, 48, 64, 96, 0xE0, 0xF0),
    "div.u32": (16, 31, 32, 33, 64, 96),
}
HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry probe(.param .u64 out_param) .maxntid 128 {
    .reg .b32 %t, %v, %w, %z;
    .reg .b64 %out, %at;
    .reg .pred %p, %q;
    ld.param.u64 %out, [out_param];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %at, %t, 4;
    add.s64 %out, %out, %at;
"""


def run(lines: list[str], results: int) -> npt.NDArray[np.uint32]:
    """What each thread stores, [results, threads]."""
    out = np.zeros((results, THREADS), np.uint32)
    text = HEAD + "\n".join(lines) + "\n    ret;\n}\n"
    Device("sm_90a").load(text)["probe"].launch(1, THREADS, [out])
    return out


def store(index: int, register: str = "%v") -> str:
    """Store a thread's value of one result."""
    return f"    st.global.b32 [%out+{4 * THREADS * index}], {register};"


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_comparisons_of_the_thread_number(comparison: str) -> None:
    """A comparison with any constant holds for the threads for which it holds, warp-uniform or not."""
    lines = []
    for index, constant in enumerate(CONSTANTS):
        lines += [f"    setp.{comparison}.u32 %p, %t, {constant};", "    selp.b32 %v, 1, 0, %p;", store(index)]
    expected = [COMPARISONS[comparison](np.arange(THREADS), constant) for constant in CONSTANTS]
    np.testing.assert_array_equal(run(lines, len(CONSTANTS)), np.array(expected, np.uint32))


@pytest.mark.parametrize("operation", DERIVED)
def test_what_is_derived_from_the_thread_number(operation: str) -> None:
    """Shifts, masks and quotients of the thread number by any constant."""
    constants = OPERANDS[operation]
    lines = []
    for index, constant in enumerate(constants):
        lines += [f"    {operation} %v, %t, {constant};", store(index)]
    expected = [DERIVED[operation](np.arange(THREADS), constant) for constant in constants]
    np.testing.assert_array_equal(run(lines, len(constants)), np.array(expected, np.uint32))


@pytest.mark.parametrize("comparison", COMPARISONS)
@pytest.mark.parametrize("constant", CONSTANTS)
def test_uniform_exactly_at_the_edges_of_warps(comparison: str, constant: int) -> None:
    """A comparison of order is kept as one value exactly where it divides the threads between warps."""
    line = f"    setp.{comparison}.u32 %p, %t, {constant};\n    selp.b32 %v, 1, 0, %p;\n{store(0)}\n    ret;\n}}\n"
    program = Device("sm_90a").load(HEAD + line).program("probe", aligned_warps=True)
    predicate = next(register for register in program.registers if register.type == "pred")
    answers = COMPARISONS[comparison](np.arange(4096).reshape(-1, 32), constant)
    same = bool((answers == answers[:, :1]).all())
    # `x < 0` and `x >= 0` of unsigned numbers are known too: 0 is a warp's edge.
    assert program.is_uniform(predicate) == same


def test_code_behind_a_trap_that_some_might_execute() -> None:
    """Values from before a guarded trap are there behind it, and lanes that part before it meet behind it."""
    lines = [
        "    mul.lo.u32 %v, %t, 3;",
        "    setp.gt.u32 %p, %t, 1000;",
        "    @%p trap;",
        store(0),
        "    and.b32 %w, %t, 1;",
        "    setp.ne.u32 %q, %w, 0;",
        "    mov.u32 %z, 7;",
        "    @%q bra ODD;",
        "    mov.u32 %z, 5;",
        "    @%p trap;",
        "    add.u32 %z, %z, %v;",
        "ODD:",
        "    bar.warp.sync 0xffffffff;",
        store(1, "%z"),
    ]
    threads = np.arange(THREADS)
    expected = [3 * threads, np.where(threads % 2, 7, 5 + 3 * threads)]
    np.testing.assert_array_equal(run(lines, 2), np.array(expected, np.uint32))


@pytest.mark.parametrize(
    ("stop", "following"), [("trap", ()), ("@%p trap", (1,)), ("brkpt", ()), ("bra END", (2,)), ("@%p bra END", (2, 1))]
)
def test_what_follows(stop: str, following: tuple[int, ...]) -> None:
    """Nothing follows a trap, what stands behind follows a guarded one, and lanes that trap are not waited for."""
    lines = f"setp.gt.u32 %p, %t, 1000; {stop}; mov.u32 %v, 1; bra END;\nEND:\n{store(0)}\n    ret;\n}}\n"
    program = Device("sm_90a").load(HEAD + lines).program("probe", aligned_warps=True)
    assert program.flow.blocks[0].successors == following


def test_lanes_that_trap_are_not_met() -> None:
    """A branch to a trap joins where the other side goes on, which is a barrier of all lanes."""
    lines = """
    setp.gt.u32 %p, %t, 1000;
    @%p bra WRONG;
    mov.u32 %v, 4;
    bra ON;
WRONG:
    trap;
ON:
""" + store(0) + "\n    ret;\n}\n"  # fmt: skip
    program = Device("sm_90a").load(HEAD + lines).program("probe", aligned_warps=True)
    blocks = program.flow.blocks
    assert [block.join for block in blocks[:2]] == [1, 3]
