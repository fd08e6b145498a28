"""A wait on an mbarrier may give up: kernels that repeat it are clean, those that do not are caught, and told why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilekit.emulator import Device, EmulatorError, Kernel, RaceError
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
