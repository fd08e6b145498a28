"""Smoke kernels for both chips, as text and as a code object: the same answer in any order, and nothing found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from smoke import SMOKE, Smoke

from tilekit.emulator import Device
from tilekit.runtime.assembler import assemble

CHIPS = ("gfx942", "gfx950")


def launch(smoke: Smoke, module: str | bytes, chip: str, **options: Any) -> np.ndarray[Any, Any]:
    """Run it once and return its output."""
    device = Device(chip, **options)
    arguments = [device.buffer(a) if isinstance(a, np.ndarray) else a for a in smoke.arguments]
    report = device.load(module)[smoke.entry].launch(grid=smoke.grid, block=smoke.block, args=arguments)
    assert report.clean, report
    assert not report.remarks, report
    found: np.ndarray[Any, Any] = arguments[smoke.output].read()
    return found


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", SMOKE)
def test_text_and_code_object_agree(name: str, chip: str) -> None:
    """The emulator runs the text, and what LLVM made of it; NumPy says what comes out."""
    for seed in range(4):
        smoke = SMOKE[name](chip, seed)
        image = assemble(smoke.text, chip, kernel_name=smoke.entry).image
        for schedule in ("adversarial", "random", "fair"):
            for module in (smoke.text, image):
                found = launch(smoke, module, chip, seed=seed, schedule=schedule)
                assert (found == smoke.expected).all(), (seed, schedule)


@pytest.mark.parametrize("chip", CHIPS)
def test_resources_are_what_was_allocated(chip: str) -> None:
    """The descriptor holds the allocation, LDS that was declared, and no scratch."""
    smoke = SMOKE["double_buffer"](chip)
    built = assemble(smoke.text, chip, kernel_name=smoke.entry).resources
    assert built.static_shared_bytes == 2 * 16 * 32 * 2
    assert built.stack_bytes == 0
    assert 4 <= built.agprs <= 8, "the sums are in accumulator registers: a wave has its SIMD alone"
    assert built.vgprs + built.agprs == built.registers


def test_a_wait_too_few_is_found() -> None:
    """Without its waits the double buffer is wrong, and the emulator says so: the check is one."""
    smoke = SMOKE["double_buffer"]("gfx950")
    lines = [line for line in smoke.text.splitlines() if "s_waitcnt vmcnt" not in line]
    assert len(lines) < len(smoke.text.splitlines())
    with pytest.raises(Exception, match=r"wait|race"):
        launch(smoke, "\n".join(lines), "gfx950")
