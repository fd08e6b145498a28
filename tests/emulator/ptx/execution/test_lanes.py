"""Lanes that part and meet, uniform registers, predication: the value of every lane after control flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device
from tilekit.emulator.ptx.compiler.program import Program

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
Array = np.ndarray[Any, Any]


def run(body: str, *, threads: int = 32, registers: str = "", check: Any = "full") -> Array:
    """Run a body that leaves a u32 in %r; the value of each thread."""
    text = f"""{HEADER}.visible .entry k(.param .u64 out)
{{
  .reg .b32 %r, %t, %u, %v, %w; .reg .pred %p, %q; .reg .b64 %o, %a; {registers}
  mov.u32 %t, %tid.x;
  {body}
  ld.param.u64 %o, [out];
  mul.wide.u32 %a, %t, 4;
  add.s64 %o, %o, %a;
  st.global.u32 [%o], %r;
  ret;
}}
"""
    out = np.zeros(threads, np.uint32)
    Device(check=check).load(text)["k"].launch(1, threads, [out])
    return out


def program(body: str) -> Program:
    """The analysed kernel."""
    text = f"{HEADER}.visible .entry k() {{ .reg .b32 %r<9>; .reg .pred %p<9>; {body} ret; }}"
    return Device().load(text).program("k", aligned_warps=True)


LANE = np.arange(32)


def test_if_else() -> None:
    """Both sides of a branch, with a register that both write and that is read after they meet."""
    body = "setp.lt.u32 %p, %t, 10; @%p bra A; mov.u32 %r, 1; bra B; A: mov.u32 %r, 2; B: add.u32 %r, %r, %t;"
    np.testing.assert_array_equal(run(body), np.where(LANE < 10, 2, 1) + LANE)


def test_value_from_before_a_one_sided_branch() -> None:
    """A uniform value overwritten by some lanes only."""
    body = "mov.u32 %r, 7; setp.eq.u32 %p, %t, 3; @!%p bra B; mov.u32 %r, 9; B:"
    np.testing.assert_array_equal(run(body), np.where(LANE == 3, 9, 7))


def test_loop_with_divergent_exit() -> None:
    """A uniform counter read after lanes leave the loop at different iterations."""
    body = "mov.u32 %u, 0; LOOP: add.u32 %u, %u, 1; setp.lt.u32 %p, %u, %t; @%p bra LOOP; mov.u32 %r, %u;"
    np.testing.assert_array_equal(run(body), np.maximum(LANE, 1))


def test_nested_divergence_in_a_loop() -> None:
    """An inner branch parts lanes in every iteration of an outer divergent loop."""
    body = """
      mov.u32 %r, 0; mov.u32 %u, 0;
      LOOP: and.b32 %v, %t, 1; setp.eq.u32 %p, %v, 0; @%p bra EVEN;
      add.u32 %r, %r, 3; bra NEXT;
      EVEN: add.u32 %r, %r, 5;
      NEXT: add.u32 %u, %u, 1; setp.le.u32 %q, %u, %t; @%q bra LOOP;"""
    np.testing.assert_array_equal(run(body), np.where(LANE % 2, 3, 5) * (LANE + 1))


def test_early_exit_of_some_lanes() -> None:
    """Lanes that exit leave the others running."""
    body = "mov.u32 %r, 1; setp.gt.u32 %p, %t, 20; @%p exit; bar.warp.sync 0xffffffff; add.u32 %r, %r, %t;"
    np.testing.assert_array_equal(run(body), np.where(LANE > 20, 0, LANE + 1))


def test_predicated_instructions() -> None:
    """Guards on arithmetic, moves and stores, uniform and not."""
    body = """
      mov.u32 %r, 5; setp.lt.u32 %p, %t, 4; @%p add.u32 %r, %r, %t; @!%p mov.u32 %r, 0;
      mov.u32 %u, 1; setp.eq.u32 %q, %u, 1; @%q add.u32 %r, %r, 100; @!%q mov.u32 %r, 77;"""
    np.testing.assert_array_equal(run(body), np.where(LANE < 4, 5 + LANE, 0) + 100)


def test_elected_lane() -> None:
    """elect.sync chooses the lowest lane; a shuffle spreads what it computed."""
    body = """
      mov.u32 %r, 0; elect.sync %v|%p, 0xffffffff; @!%p bra B;
      mov.u32 %u, 0; L: add.u32 %u, %u, 1; setp.lt.u32 %q, %u, 40; @%q bra L; mov.u32 %r, %u;
      B: shfl.sync.idx.b32 %r, %r, %v, 31, 0xffffffff;"""
    np.testing.assert_array_equal(run(body), np.full(32, 40))


def test_partial_warp() -> None:
    """A block that is no multiple of 32: the missing lanes do nothing, votes count the live ones."""
    body = "setp.ge.u32 %p, %t, 0; vote.sync.ballot.b32 %r, %p, 0xffffffff;"
    np.testing.assert_array_equal(run(body, threads=40), [0xFFFFFFFF] * 32 + [0xFF] * 8)


def test_warp_index_is_uniform() -> None:
    """tid / 32, role dispatch, loop counters and shuffles from lane 0 are Python integers; tid is not."""
    analysed = program(
        "mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.eq.u32 %p0, %r1, 2; setp.lt.u32 %p1, %r0, 128;"
        "shfl.sync.idx.b32 %r2, %r0, 0, 31, 0xffffffff; add.u32 %r3, %r1, %r2; add.u32 %r4, %r0, 1;"
    )
    kinds = {register.name: analysed.is_uniform(register) for register in analysed.registers}
    assert kinds == {
        "%r0": False, "%r1": True, "%p0": True, "%p1": True, "%r2": True, "%r3": True, "%r4": False
    }  # fmt: skip


def test_reused_register_names_are_separate_values() -> None:
    """A scratch register that once held a lane's value is uniform where it holds a uniform one."""
    analysed = program("mov.u32 %r0, %laneid; add.u32 %r1, %r0, 1; mov.u32 %r0, 5; add.u32 %r2, %r0, 1;")
    kinds = [(register.name, analysed.is_uniform(register)) for register in analysed.registers]
    assert sorted(kinds) == [("%r0", False), ("%r0", True), ("%r1", False), ("%r2", True)]


@pytest.mark.parametrize("seed", range(12))
def test_random_control_flow(seed: int) -> None:
    """Random programs of branches, loops and predicated updates against a lane-by-lane interpreter."""
    random = np.random.default_rng(seed)
    lines: list[str] = []
    plan: list[tuple[Any, ...]] = []
    for number in range(8):
        kind = random.integers(4)
        constant, limit = int(random.integers(1, 9)), int(random.integers(33))
        if kind == 0:
            lines.append(f"mad.lo.u32 %r, %r, {constant}, %t;")
        elif kind == 1:
            lines.append(f"setp.lt.u32 %p, %t, {limit}; @%p add.u32 %r, %r, {constant};")
        elif kind == 2:
            lines.append(
                f"setp.lt.u32 %p, %t, {limit}; @%p bra T{number}; xor.b32 %r, %r, {constant}; mov.u32 %u, {constant};"
                f"bra J{number}; T{number}: add.u32 %r, %r, 11; mov.u32 %u, 2; J{number}: add.u32 %r, %r, %u;"
            )
        else:
            lines.append(
                f"and.b32 %v, %t, {constant}; L{number}: add.u32 %r, %r, %v; setp.gt.u32 %q, %v, 0;"
                f"@%q sub.u32 %v, %v, 1; @%q bra L{number};"
            )
        plan.append((kind, constant, limit))
    expected = []
    for t in range(32):
        r = 1
        for kind, constant, limit in plan:
            if kind == 0:
                r = r * constant + t
            elif kind == 1:
                r += constant if t < limit else 0
            elif kind == 2:
                r = r + 11 + 2 if t < limit else (r ^ constant) + constant
            else:
                v = t & constant
                r += sum(range(v + 1))
            r &= 0xFFFFFFFF
        expected.append(r)
    np.testing.assert_array_equal(run("mov.u32 %r, 1; mov.u32 %u, 0;" + "\n".join(lines)), expected)


def test_exited_lanes_do_not_count_for_barriers() -> None:
    """Lanes that returned early are missing from no barrier: the rest of their warp still meets the others."""
    body = "mov.u32 %r, 1; setp.gt.u32 %p, %t, 40; @%p exit; bar.sync 0; add.u32 %r, %r, %t;"
    thread = np.arange(64)
    np.testing.assert_array_equal(run(body, threads=64), np.where(thread > 40, 0, thread + 1))
