"""Loops in which nothing changes end at once, with an error; those that something ends do not."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from tilekit.cli.app import app
from tilekit.emulator import Device, LaunchReport, Livelock, StepBudgetExceeded

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 dsm[];\n"
PROLOGUE = (
    ".reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .local .u32 own;"
    "ld.param.u64 %rd0, [x]; mov.u32 %r0, %tid.x; mov.u32 %r5, %ctaid.x; mov.u32 %r2, 0; mov.u32 %r3, dsm;"
)
SPIN = "A: ld.volatile.global.u32 %r1, [%rd0]; setp.eq.u32 %p0, %r1, 0; @%p0 bra A;"
STORE = "st.volatile.global.u32 [%rd0], 1;"
BARRIER = (
    "setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r3], 5; bar.sync 0;"
    "setp.lt.u32 %p1, %r0, 32; @%p1 bra A;"
    "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; add.u32 %r2, %r2, %step;"
    "setp.lt.u32 %p2, %r2, 20; @%p2 bra W;"
    f"{STORE} bra E; {SPIN} E:"
)
"""A warp that waits for an mbarrier a number of times, and then ends the polling of another."""
STEPS = "mov.u32 %r4, %step; A: add.u32 %r2, %r2, %r4; setp.lt.u32 %p0, %r2, 10; @%p0 bra A;"
"""A loop whose lanes go on by steps of their own, and do not use the sum later."""


def text(body: str) -> str:
    """The kernel ``k`` with a body."""
    return f"{HEAD}.visible .entry k(.param .u64 x)\n{{\n{PROLOGUE}\n{body}\nret;\n}}\n"


def run(body: str, grid: int, block: int, schedule: str, budget: int = 50_000_000) -> LaunchReport:
    """Launch it on 64 zeros."""
    device = Device("sm_90a", schedule=schedule)  # type: ignore[arg-type]
    x = device.buffer(np.zeros(64, np.uint32))
    return device.load(text(body))["k"].launch(grid, block, [x], shared_bytes=64, step_budget=budget)


ENDLESS = {
    "branch to itself": ("A: bra A;", 1, 32),
    "many warps": ("A: add.u32 %r1, %r1, 0; bra A;", 300, 128),
    "back and forth": ("A: xor.b32 %r2, %r2, 1; bra A;", 1, 32),
    "one CTA of two": ("setp.eq.u32 %p1, %r5, 0; @%p1 bra E; A: bra A; E:", 2, 64),
    "poll that is never answered": (SPIN, 16, 64),
    "store of the same": ("A: st.global.u32 [%rd0], 1; bra A;", 1, 32),
    "poll beside a wait that never ends": (BARRIER.replace("%step", "0"), 1, 64),
    "lane that others have left": (STEPS.replace("%step", "%laneid"), 1, 32),
    "half a warp that the other has left": (STEPS.replace("%step", "%laneid; shr.u32 %r4, %r4, 4"), 1, 32),
    "lane of a warp that is not full": (STEPS.replace("%step", "%laneid"), 1, 20),
    "lane of each of many warps": (STEPS.replace("%step", "%laneid"), 70, 128),
    "lane beside one that waits for it": (
        "bar.warp.sync 0xffffffff; setp.eq.u32 %p1, %r0, 0; @%p1 bra B; bar.warp.sync 0xffffffff; bra E;"
        f"B: {STEPS.replace('%step', '%laneid')} bar.warp.sync 0xffffffff; E:",
        1,
        32,
    ),
}


@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
@pytest.mark.parametrize("name", ENDLESS)
def test_loop_without_end(name: str, schedule: str) -> None:
    """It is an error within a few hundred thousand blocks, at an instruction of the loop, with where each warp is."""
    body, grid, block = ENDLESS[name]
    with pytest.raises(Livelock, match="the launch never ends") as caught:
        run(body, grid, block, schedule)
    assert not isinstance(caught.value, StepBudgetExceeded)
    assert caught.value.line
    assert caught.value.line > 6
    assert ", warp " in str(caught.value)
    assert caught.value.details["steps"] < 1_000_000


ENDING = {
    "counted": ("A: add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, 100000; @%p0 bra A;", 1, 32),
    "counted by each lane": (
        "mov.u32 %r4, %laneid; A: add.u32 %r2, %r2, 1; add.u32 %r4, %r4, %r2;setp.lt.u32 %p0, %r4, 100000; @%p0 bra A;",
        1,
        20,
    ),
    "counted in local memory": (
        "st.local.u32 [own], %r2; A: ld.local.u32 %r1, [own]; add.u32 %r1, %r1, 1; st.local.u32 [own], %r1;"
        "setp.lt.u32 %p0, %r1, 20000; mov.u32 %r1, 0; @%p0 bra A;",
        1,
        32,
    ),
    "counted in global memory": (
        "A: ld.global.u32 %r1, [%rd0]; add.u32 %r1, %r1, 1; st.global.u32 [%rd0], %r1;"
        "setp.lt.u32 %p0, %r1, 50000; mov.u32 %r1, 0; @%p0 bra A;",
        1,
        1,
    ),
    "poll that another CTA answers late": (
        "setp.eq.u32 %p1, %r5, 0; @%p1 bra A;"
        f"L: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 60000; @%p2 bra L; {STORE} bra E; {SPIN} E:",
        2,
        1,
    ),
    "poll that another lane answers": (f"setp.eq.u32 %p1, %r0, 3; @%p1 bra B; {SPIN} bra E; B: {STORE} E:", 1, 32),
    "clock": ("A: mov.u32 %r1, %clock; setp.lt.u32 %p0, %r1, 60000; @%p0 bra A;", 1, 32),
    "timer": ("A: nanosleep.u32 20; mov.u64 %rd1, %globaltimer; setp.lt.u64 %p0, %rd1, 60000; @%p0 bra A;", 1, 32),
    "poll that a warp answers which gives up": (BARRIER.replace("%step", "1"), 1, 64),
    "poll of what an asynchronous copy brings": (
        "setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r3], 1; fence.proxy.async; bar.sync 0;"
        "@!%p1 bra A; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16; add.u32 %r4, %r3, 16;"
        "st.shared.u32 [%r4], 7; fence.proxy.async;"
        "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r4], 16; cp.async.bulk.commit_group;"
        f"cp.async.bulk.wait_group 0; bra E; {SPIN} E:",
        1,
        64,
    ),
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
@pytest.mark.parametrize("name", ENDING)
def test_loop_that_ends(name: str, schedule: str) -> None:
    """Whatever ends a loop late - a count, a clock, another CTA, lane or unit - is waited for."""
    body, grid, block = ENDING[name]
    device = Device("sm_90a", schedule=schedule, check="off")  # type: ignore[arg-type]
    x = device.buffer(np.zeros(64, np.uint32))
    device.load(text(body))["k"].launch(grid, block, [x], shared_bytes=64)


def test_step_budget_is_named() -> None:
    """A loop that changes without an end is stopped by the step budget, which the message names."""
    with pytest.raises(StepBudgetExceeded, match="step_budget=20000") as caught:
        run("A: add.u32 %r2, %r2, 1; bra A;", 1, 32, "fair", budget=20_000)
    assert "Kernel.launch of tilekit.emulator takes step_budget=200000" in caught.value.hint
    assert "tilekit emulate of a file --step-budget (bind takes neither)" in caught.value.hint


def test_step_budget_on_the_command_line(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """`tilekit emulate --step-budget` sets it; what is no number of steps is refused."""
    file = tmp_path / "endless.ptx"
    file.write_text(text("A: add.u32 %r2, %r2, 1; bra A;"))
    command = ["emulate", str(file), "--block", "32", "--shared", "64", "--arg", "u32[64]=zeros"]
    result = CliRunner().invoke(app, [*command, "--step-budget", "20000"])
    assert result.exit_code == 1
    assert "step_budget=20000" in result.output
    result = CliRunner().invoke(app, [*command, "--step-budget", "0"])
    assert result.exit_code == 2
    assert "step_budget=0" in result.output
