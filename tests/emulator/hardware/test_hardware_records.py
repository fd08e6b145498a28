"""The emulator gives, bit for bit, what an H200 gave for the same text and inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator.hardware.cases import Case, all_cases, module_text
from tilekit.emulator import Device, Module

_RECORDS = np.load(Path(__file__).parent / "h200.npz")
_CASES = {family: [case for case in cases if case.name in _RECORDS] for family, cases in all_cases().items()}
_VIEWS = {"f32": np.float32, "f16": np.float16}


@pytest.fixture(scope="module")
def modules() -> dict[str, tuple[Device, Module]]:
    """Every family's text, loaded once."""
    return {}


def _module(modules: dict[str, tuple[Device, Module]], family: str) -> tuple[Device, Module]:
    if family not in modules:
        device = Device("sm_90a")
        modules[family] = device, device.load(module_text(_CASES[family]))
    return modules[family]


@pytest.mark.parametrize("case", [case for cases in _CASES.values() for case in cases], ids=lambda case: case.name)
def test_same_as_hardware(case: Case, modules: dict[str, tuple[Device, Module]]) -> None:
    """Every bit agrees, or the documented bound of an approximation holds."""
    device, module = _module(modules, case.family)
    inputs = [device.buffer(array) for array in case.inputs]
    out = device.buffer(np.zeros(case.output, np.uint8))
    module[case.symbol].launch(
        grid=(1, 1, 1), block=(case.block, 1, 1), shared_bytes=case.shared_bytes, args=[*inputs, out]
    )
    got, recorded = out.read(), _RECORDS[case.name]
    if case.tolerance is None:
        wrong = np.flatnonzero(got != recorded)
        assert wrong.size == 0, _first_difference(case, got, recorded)
    else:
        _within(case, got, recorded)


def test_at_least_six_hundred_cases() -> None:
    """The suite covers what it promises to cover."""
    assert sum(map(len, _CASES.values())) >= 600


def _within(case: Case, got: np.ndarray[Any, Any], recorded: np.ndarray[Any, Any]) -> None:
    assert case.tolerance is not None
    kind, relative, absolute = case.tolerance
    if kind == "bf16":
        mine, theirs = ((a.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for a in (got, recorded))
    else:
        mine, theirs = (a.view(_VIEWS[kind]).astype(np.float64) for a in (got, recorded))
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
    finite = np.isfinite(theirs) & np.isfinite(mine)
    same = np.isnan(theirs) | finite | (mine == theirs)
    assert same.all(), f"{case.name}: infinities differ at {np.flatnonzero(~same)[:5]}"
    excess = np.abs(mine - theirs)[finite] - (absolute + relative * np.abs(theirs[finite]))
    assert excess.size == 0 or excess.max() <= 0, f"{case.name}: {excess.max()} beyond its bound"


def _first_difference(case: Case, got: np.ndarray[Any, Any], recorded: np.ndarray[Any, Any]) -> str:
    width = max(1, case.output // case.block)
    wrong = np.flatnonzero(got != recorded)
    lane = int(wrong[0]) // width
    here = slice(lane * width, (lane + 1) * width)
    operands = [
        a.view(np.uint8)[lane * a.nbytes // case.block :][: a.nbytes // case.block][::-1].tobytes().hex()
        for a in case.inputs
    ]
    lanes = len(set((wrong // width).tolist()))
    return (
        f"{case.name}: {lanes} lanes differ, first lane {lane}, operands {operands}: emulator {got[here][::-1].tobytes().hex()}, "
        f"H200 {recorded[here][::-1].tobytes().hex()}"
    )
