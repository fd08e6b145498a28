"""Sums that several CTAs share: each number of shares, added by twos or one by one, and bugs in the waiting."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.emulator import EmulatorError
from tilekit.epilogue.split_k_reduction import PAIRED_ACCUMULATORS
from tilekit.epilogue.workspace import BoundWorkspace, Slot
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A

SPEC = MatmulSpec(out_dtype="f32")
NARROW = MatmulConfig(tile=(64, 40), cluster=(1, 1), consumers=1, swap_ab=True)
WIDE = MatmulConfig(tile=(64, 256), cluster=(1, 1), consumers=1)
SHAPES = (NARROW, WIDE, MatmulConfig(tile=(128, 64), cluster=(2, 1)), MatmulConfig(tile=(64, 64), schedule="pingpong"))


def integers(*shape: int, seed: int = 0) -> Any:
    """Small ones, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(ml_dtypes.bfloat16)


def test_some_add_by_twos_and_some_one_by_one() -> None:
    """By the accumulators of a thread."""
    assert NARROW.accumulators <= PAIRED_ACCUMULATORS < WIDE.accumulators


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(
    ("config", "shares"), [*((NARROW, n) for n in (2, 3, 4, 5, 8)), *((c, n) for c in SHAPES[1:] for n in (3, 4))]
)
def test_each_number_of_shares(config: MatmulConfig, shares: int) -> None:
    """Exact and clean, with an odd or even number to add, and one share fewer than there are ranges of K."""
    kernel = tilekit.compile(SPEC, config=config.changed(split_k=shares))
    for blocks in (shares, 2 * shares - 1) if config == NARROW else (shares,):
        a, b = integers(72, 64 * blocks - 8), integers(136, 64 * blocks - 8, seed=1).T
        plan: Any = kernel.bind(a, b, schedule="adversarial", seed=blocks)
        np.testing.assert_array_equal(plan(), a.astype(np.float32) @ b.astype(np.float32))
        assert plan.report.clean, str(plan.report)


@pytest.mark.parametrize("shares", [4, 5])
def test_each_number_of_shares_on_blackwell(shares: int) -> None:
    """Where the accumulators are in tensor memory."""
    config: KernelConfig = BlackwellConfig(tile=(128, 64), cluster=(1, 1), cta_group=1, split_k=shares)
    kernel = tilekit.compile(SPEC, target="sm_100a", config=config)
    a, b = integers(136, 64 * shares), integers(72, 64 * shares, seed=1).T
    plan: Any = kernel.bind(a, b, schedule="adversarial")
    np.testing.assert_array_equal(plan(), a.astype(np.float32) @ b.astype(np.float32))
    assert plan.report.clean, str(plan.report)


def no_meeting(patch: pytest.MonkeyPatch) -> None:
    """Threads read before those that wait have seen the counters."""
    patch.setattr(BoundWorkspace, "meet", lambda self, w: None)


def the_same_share_twice(patch: pytest.MonkeyPatch) -> None:
    """Every pair is the first one: a wrong sum."""
    slot = BoundWorkspace.slot

    def first(self: BoundWorkspace, w: Writer, place: Value) -> Slot:
        return slot(self, w, place & 1)

    patch.setattr(BoundWorkspace, "slot", first)


@pytest.mark.parametrize("plant", [no_meeting, the_same_share_twice], ids=lambda plant: plant.__name__)
def test_planted_bugs_are_reported(plant: Any) -> None:
    """As a race of the workspace, under one of four seeds."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        kernel = MatmulKernel(SPEC, NARROW.changed(split_k=5), SM_90A)
    a, b = integers(72, 320), integers(136, 320, seed=1).T
    said = ""
    for seed in range(4):
        try:
            plan: Any = kernel.bind(a, b, seed=seed, schedule="adversarial")
            report = plan.emulate()
            said = "" if report.clean else str(report)
        except EmulatorError as error:
            said = str(error)
        if said:
            break
    assert re.search(r"race: .*workspace", said, re.DOTALL), said or "nothing was found"
