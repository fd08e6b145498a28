"""Random kernels, finished, do on the emulator what NumPy does, with nothing to report and no wait too many."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from tests.assembly.gcn.launching import launch, module
from tests.assembly.gcn.machine import LANES
from tests.assembly.gcn.random_kernels import INPUT_WORDS, LDS_WORDS, RandomKernel, expected
from tests.assembly.gcn.replay import too_early
from tests.assembly.gcn.verification import verify
from tilekit.assembly.gcn.finish import Finished, finish
from tilekit.assembly.gcn.improvement import improved
from tilekit.emulator import EmulatorError, MissingWait
from tilekit.runtime.assembler import assemble

CHIPS = ("gfx942", "gfx950")
LDS_BYTES = 4 * LANES * LDS_WORDS


def inputs_of(seed: int) -> np.ndarray:
    """What the kernels load."""
    return np.random.default_rng(seed).integers(0, 1 << 32, INPUT_WORDS, np.uint32)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("first", range(0, 240, 20))
def test_finished_kernels_do_what_they_mean(first: int) -> None:
    """Two waves, memory that lands as late as it may, every check: no findings, and each word as NumPy has it."""
    for seed in range(first, first + 20):
        chip = CHIPS[seed % 2]
        kernel = RandomKernel(seed, 40)
        inputs = inputs_of(seed)
        want = expected(kernel, 2, inputs)
        out = np.zeros_like(want)
        text = module(finish(kernel.code, chip=chip), chip, lds=2 * LDS_BYTES)
        report = launch(text, chip, [inputs, out], waves=2, seed=seed)
        assert not report.findings, (seed, report.findings[0])
        assert (out == want).all(), seed


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("first", range(1000, 1080, 20))
def test_improved_kernels_do_what_they_mean(first: int) -> None:
    """Shorter ones, too: the same words, nothing found, and every value kept until it is read."""
    shorter = longer = 0
    for seed in range(first, first + 20):
        chip = CHIPS[seed % 2]
        kernel = RandomKernel(seed, 40)
        code = improved(kernel.code)
        shorter, longer = shorter + len(code.items), longer + len(kernel.code.items)
        inputs = inputs_of(seed)
        want = expected(kernel, 2, inputs)
        out = np.zeros_like(want)
        finished = finish(code, chip=chip)
        assert verify(code, finished.allocation) == [], seed
        text = module(finished, chip, lds=2 * LDS_BYTES)
        report = launch(text, chip, [inputs, out], waves=2, seed=seed)
        assert not report.findings, (seed, report.findings[0])
        assert (out == want).all(), seed
    assert shorter < 0.9 * longer


@pytest.mark.parametrize("chip", CHIPS)
def test_finished_kernels_assemble(chip: str) -> None:
    """The assembler takes every line, and allocates what the counts say."""
    for seed in range(8):
        finished = finish(RandomKernel(seed, 60).code, chip=chip)
        built = assemble(module(finished, chip, lds=LDS_BYTES), chip, kernel_name="k")
        resources = built.resources
        granule = -(-finished.counts.next_free_vgpr // 8) * 8
        assert resources.registers == granule
        assert resources.waves_per_simd == finished.counts.waves_per_simd


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("seed", range(20))
def test_no_way_uses_what_is_outstanding(seed: int) -> None:
    """On ways drawn at random, whether a launch could take them or not, nothing outstanding is touched."""
    finished = finish(RandomKernel(seed, 60, nesting=0.3).code, chip="gfx950")
    lines = [text for text, _ in finished.lines]
    for way in range(60):
        assert too_early(lines, coin(way), finished.counts.accum_offset) is None


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("seed", range(20, 32))
def test_no_wait_is_superfluous_or_too_strict(seed: int) -> None:
    """Without any of the waits, or with a count one larger, some way uses what is outstanding."""
    finished = finish(RandomKernel(seed, 40).code, chip="gfx950")
    lines = [text for text, _ in finished.lines]
    for number, line in enumerate(lines):
        if not line.startswith("s_waitcnt"):
            continue
        for weaker in weakened(line):
            changed = [*lines[:number], *weaker, *lines[number + 1 :]]
            assert any(too_early(changed, coin(way), finished.counts.accum_offset) for way in range(300)), (
                number,
                line,
            )


@pytest.mark.parametrize("seed", range(40, 52))
def test_the_emulator_reports_every_wait_that_is_dropped(seed: int) -> None:
    """Each wait that the launch needed, as a second look at its way says, is reported when it is missing."""
    kernel = RandomKernel(seed, 40)
    inputs = inputs_of(seed)
    want = expected(kernel, 1, inputs)
    finished = finish(kernel.code, chip="gfx950")
    lines = [text for text, _ in finished.lines]
    needed = 0
    for number, line in enumerate(lines):
        if line.startswith("s_waitcnt"):
            changed = [*lines[:number], *lines[number + 1 :]]
            if too_early(changed, kernel.branches, finished.counts.accum_offset):
                needed += 1
                assert reported(finished, changed, inputs, np.zeros_like(want)), (number, line)
    assert needed


def reported(finished: Finished, lines: list[str], inputs: np.ndarray, out: np.ndarray) -> bool:
    """Whether the emulator finds a missing wait, or a register that nothing has written since."""
    try:
        return bool(launch(module(finished, "gfx950", lds=LDS_BYTES, lines=lines), "gfx950", [inputs, out]).findings)
    except MissingWait:
        return True
    except EmulatorError:
        return False


def weakened(line: str) -> Iterator[list[str]]:
    """The line dropped, and with each of its counts one larger where the field has room."""
    yield []
    counts = line.split()[1:]
    for place, count in enumerate(counts):
        name, number = count.rstrip(")").split("(")
        if int(number) < {"vmcnt": 62, "lgkmcnt": 14}[name]:
            yield ["s_waitcnt " + " ".join([*counts[:place], f"{name}({int(number) + 1})", *counts[place + 1 :]])]


def coin(seed: int) -> Iterator[bool]:
    """Which way each branch goes."""
    draw = random.Random(seed)
    while True:
        yield draw.random() < 0.5
