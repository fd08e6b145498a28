"""Matmuls of AMD chips under many orders of waves: every driver, shapes and configs drawn, results to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tilekit
from tests.matmul.cases_cdna import CONFIGS, DRIVERS, cdna_cases, more_cdna_cases
from tests.matmul.matmul_case import DATA, Case
from tests.matmul.matmul_check import check
from tests.matmul.matmul_machine import Emulator
from tilekit.kernels.matmul.cdna.config import CdnaConfig
from tilekit.kernels.plan import EmulatedPlan

SEEDS = 20
OF_EACH = 11
"""Cases of a driver on a chip."""


def driven(chip: str, driver: str) -> list[Case]:
    """Cases whose configs name a driver, with other data than they have."""
    found = []
    for case in (*cdna_cases(), *more_cdna_cases()):
        config = case.kernel.config
        if isinstance(config, CdnaConfig) and (config.TARGET, config.driver) == (chip, driver) and case.k > 1:
            exact = replace(case.kernel, activation="relu" if case.kernel.activation else None)
            found.append(replace(case, kernel=exact))
    return found


CASES = [case for kind in CONFIGS for driver in DRIVERS for case in driven(kind.TARGET, driver)[:OF_EACH]]


def test_there_are_enough() -> None:
    """Each driver has as many cases on each chip, more than 60 in all, no two alike."""
    assert len(CASES) == len({str(case) for case in CASES}) == OF_EACH * len(DRIVERS) * len(CONFIGS) > 60


def run_under(seed: int) -> Any:
    """What runs a call with the emulator's waves in an order of their own, and finds nothing wrong with it."""

    def run(a: Any, b: Any, **how: Any) -> Any:
        arrays = ("out", "bias", "scale", "scale_a", "scale_b")
        kernel = tilekit.kernel_for(a, b, **how)
        plan = kernel.bind(a, b, **{name: how[name] for name in arrays}, seed=seed)
        result = plan()
        assert isinstance(plan, EmulatedPlan)
        assert plan.report.clean, str(plan.report)
        return result

    return run


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("case", CASES[::OF_EACH], ids=str)
def test_a_sample_of_seeds(case: Case) -> None:
    """One case of each driver on each chip, under three seeds."""
    for seed in range(3):
        check(Emulator(), replace(case, data=DATA[seed % 3], seed=seed), run_under(seed))


@pytest.mark.breadth
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_seed(case: Case) -> None:
    """All of them under twenty, with integers, or with values that tell their places."""
    for seed in range(SEEDS):
        check(Emulator(), replace(case, data=DATA[seed % 3], seed=seed), run_under(seed))
