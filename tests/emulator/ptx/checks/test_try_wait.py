"""A wait on an mbarrier may give up: kernels that repeat it are clean, those that do not are caught, and told why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilekit.emulator import Deadlock, Device, EmulatorError, Kernel, RaceError
from tilekit.emulator.core.schedules import Policy

TEXT = (Path(__file__).parents[4] / "examples" / "double.ptx").read_text()
ONCE = TEXT.replace("    @!done bra wait_full;\n", "")


def kernel(text: str, seed: int = 0, schedule: Policy = "adversarial") -> Kernel:
    """The example's kernel on a device of its own."""
    return Device("sm_90a", seed=seed, schedule=schedule).load(text)["double_it"]


def arguments() -> list[object]:
    """One chunk: every wait happens once."""
    return [np.ones(32, np.float32), np.zeros(32, np.float32), np.uint32(1)]


@pytest.mark.parametrize("seed", range(5))
def test_a_wait_that_is_not_repeated_is_caught_at_once(seed: int) -> None:
    """The first wait of a warp at an instruction gives up when adversarial: even one that runs once is no luck."""
    with pytest.raises(EmulatorError) as caught:
        kernel(ONCE, seed).launch(1, 64, arguments(), shared_bytes=288)
    told = [line for line in str(caught.value).splitlines() if "went on although its wait for full[0] phase 0" in line]
    assert len(told) == 1
    assert "role double (warp 1)" in told[0]
    assert "repeat it until it returns true, at line 71: mbarrier.try_wait" in told[0]


def test_an_answer_that_nothing_reads_orders_nothing() -> None:
    """Even where no wait gives up and all data are in time: what comes behind such a wait races."""
    with pytest.raises(RaceError, match=r"no wait for full\[0\] phase 0 by role double \(warp 1\)"):
        kernel(ONCE, schedule="fair").launch(1, 64, arguments(), shared_bytes=288)


def test_explore_finds_it_in_eight_tries() -> None:
    """Eight orders are enough for a wait that is not repeated."""
    assert kernel(ONCE).explore(8, 1, 64, arguments(), shared_bytes=288).failure is not None


def test_a_wait_that_is_repeated_is_not_blamed() -> None:
    """A fault in a kernel whose waits are loops says nothing about them."""
    early = TEXT.replace("    ld.shared.f32 x, [buffer];\n", "").replace(
        "    add.u64 out, out, 128;\n", "    ld.shared.f32 x, [buffer];\n    add.u64 out, out, 128;\n", 1
    )
    with pytest.raises(EmulatorError) as caught:
        kernel(early).launch(
            1, 64, [np.ones(192, np.float32), np.zeros(192, np.float32), np.uint32(6)], shared_bytes=288
        )
    assert "went on although" not in str(caught.value)
    assert kernel(TEXT).explore(8, 1, 64, arguments(), shared_bytes=288).clean


ASKS = (
    TEXT.replace(".reg .pred p, done;", ".reg .pred p, done, asked, ready;")
    .replace("double:\n", "double:\n    setp.ne.u32 ready, chunk, chunk;\n")
    .replace("wait_full:\n", "    @ready bra filled;\nwait_full:\n")
    .replace("    @!done bra wait_full;\n", "    @!done bra wait_full;\nfilled:\n")
    .replace(
        "    @p bra next;\n",
        """
    and.b32 stage, chunk, 1;
    shr.u32 phase, chunk, 1;
    and.b32 phase, phase, 1;
    mad.lo.u32 full, stage, 8, base;
    mbarrier.test_wait.parity.shared::cta.b64 asked, [full + 256], phase;
    mov.pred ready, asked;
    @p bra next;
""",
    )
)
"""It asks ahead whether the next stage is full, and waits only if that was not so."""


@pytest.mark.parametrize("seed", range(3))
def test_who_asks_ahead_is_not_blamed(seed: int) -> None:
    """An answer that is put by is no wait that should be repeated: a kernel that hangs elsewhere is not told so."""
    inputs = [np.ones(192, np.float32), np.zeros(192, np.float32), np.uint32(6)]
    assert kernel(ASKS, seed).launch(1, 64, inputs, shared_bytes=288).clean
    hangs = ASKS.replace("finish:\n", "    barrier.sync 1, 64;\nfinish:\n")
    with pytest.raises(Deadlock) as caught:
        kernel(hangs, seed).launch(1, 64, inputs, shared_bytes=288)
    assert "role double (warp 1) waits for bar 1" in str(caught.value)
    assert "went on although" not in str(caught.value)


def test_a_deadlock_names_its_kernel() -> None:
    """As every other fault does."""
    with pytest.raises(Deadlock) as caught:
        kernel(TEXT.replace("mbarrier.arrive.shared::cta.b64 _, [full + 272];", "")).launch(
            1, 64, [np.ones(192, np.float32), np.zeros(192, np.float32), np.uint32(6)], shared_bytes=288
        )
    assert caught.value.kernel == "double_it"
    assert str(caught.value).splitlines()[1] == "  in kernel double_it"
