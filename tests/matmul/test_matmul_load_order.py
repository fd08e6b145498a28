"""The warp that loads a residual waits until the operands of its CTA's first tile are on their way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.matmul.launches_sm_90a import consumers
from tests.matmul.launches_sm_100a import pairs, single
from tests.matmul.matmul_launch import LaunchCase, Problem, computes
from tilekit import MatmulConfig
from tilekit.dtypes import BF16
from tilekit.emulator.core.schedules import Pending
from tilekit.emulator.ptx.copies.bulk import Load
from tilekit.emulator.ptx.execution.scheduler import Machine

CASES = (
    LaunchCase(single(128, 64, stages=2, load_order=True), computes(residual=BF16), tiles=(2, 2), k_blocks=5),
    LaunchCase(pairs(128, 64, stages=6, load_order=True), computes(residual=BF16), tiles=(2, 2), k_blocks=3),
)
"""A ring that holds less than the first tile, and one that holds all of it."""

HOPPER = (
    LaunchCase(consumers(64, 64, stages=2), computes(residual=BF16), tiles=(2, 2), k_blocks=5),
    LaunchCase(consumers(128, 64, (2, 1), stages=6), computes(residual=BF16), tiles=(2, 2), k_blocks=3),
    LaunchCase(
        consumers(64, 64, schedule="pingpong", consumers=2, stages=6), computes(residual=BF16), tiles=(2, 2), k_blocks=3
    ),
)
"""The same where a residual always waits."""

Loads = dict[tuple[int, int], list[str]]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    """By cluster and CTA, the roles that issue loads, in the order in which they do."""
    found: Loads = {}
    submit = Machine.submit

    def noted(machine: Machine, operation: Pending) -> None:
        if isinstance(operation, Load) and operation.where.actor is not None:
            actor = operation.where.actor
            if actor.role in ("load", "epilogue_load"):
                found.setdefault((actor.cluster, actor.cta), []).append(actor.role)
        submit(machine, operation)

    monkeypatch.setattr(Machine, "submit", noted)
    return found


def first_operands(case: LaunchCase, loads: Loads, seed: int) -> Counter[int]:
    """How many operands each CTA has loaded when it loads its first subtile of the residual."""
    loads.clear()
    inputs = case.inputs(case.problem, "integers", seed)
    outcome = case.run(inputs, schedule="random", seed=seed)
    assert not outcome.wrong
    assert outcome.report.clean
    return Counter(roles.index("epilogue_load") for roles in loads.values())


@pytest.mark.parametrize("case", [*CASES, *HOPPER], ids=str)
def test_operands_come_first(case: LaunchCase, loads: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    """No CTA loads of its residual before it has filled the ring or loaded its first tile; without it some do."""
    wanted = 2 * min(case.config.stages or 0, case.k_blocks)
    for seed in range(4):
        assert min(first_operands(case, loads, seed)) >= wanted
    if case in CASES:
        plain = replace(case, config=case.config.changed(load_order=False))
    else:
        monkeypatch.setattr(MatmulConfig, "orders_loads", lambda config, spec: False)
        plain = replace(case)
    assert min(min(first_operands(plain, loads, seed)) for seed in range(4)) < wanted


@pytest.mark.parametrize("case", [*CASES, *HOPPER], ids=str)
def test_an_empty_sum_has_no_operands(case: LaunchCase, loads: Loads) -> None:
    """With K = 0 the residual alone is stored, and no role waits for operands."""
    inputs = case.inputs(Problem(200, 96, 0), "integers", 1)
    outcome = case.run(inputs)
    assert not outcome.wrong
    assert outcome.report.clean
    assert {role for roles in loads.values() for role in roles} == {"epilogue_load"}
    assert np.any(inputs.expected)
