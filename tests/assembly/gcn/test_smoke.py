"""Smoke kernels for both chips, as text and as a code object: the same answer in any order, and nothing found."""

from __future__ import annotations

import re
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


# Without waits and wait states. What a person would write by hand has as many, but for what is computed again where it
# is used again (lane / 16, lane % 16), and the offset of an index whose product with 4 may need more than 32 bits.
MOST = {"vector_add": 24, "mfma_tile": 52, "double_buffer": 88}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", SMOKE)
def test_no_more_instructions_than_needed(name: str, chip: str) -> None:
    """Constants, copies, known predicates and dead results cost nothing; the bounds are what there was when written."""
    smoke = SMOKE[name](chip)
    body = smoke.text[smoke.text.index(f"\n{name}:") : smoke.text.index(".size")].splitlines()
    lines = [line.split("//")[0].strip() for line in body]
    counted = [line for line in lines if line and not line.endswith(":") and not line.startswith(("s_nop", "s_wait"))]
    assert len(counted) <= MOST[name]
    idle = [line for line in counted if re.match(r"[sv]_mov_b(32|64) (\S+), \2$", line)]
    assert idle == []
    assert name == "vector_add" or "saveexec" not in smoke.text, "every predicate is known"
