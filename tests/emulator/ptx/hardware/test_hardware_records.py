"""The emulator gives, bit for bit, what an H200 gave for the same text and inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.ptx.hardware.bounds import BOUNDS, PAGE, complaint, with_table
from tests.emulator.ptx.hardware.cases import Case, all_cases
from tests.emulator.ptx.hardware.running import Runner, recorded_cases, records


@pytest.fixture(scope="session")
def runner() -> Runner:
    """Every family's text, loaded once a worker."""
    return Runner()


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(
    "case", [case for cases in recorded_cases().values() for case in cases], ids=lambda case: case.name
)
def test_same_as_hardware(case: Case, runner: Runner) -> None:
    """Every bit agrees, or an approximation is as near as its bound says."""
    got, recorded = runner.run(case), runner.recorded(case)
    problem = complaint(case.tolerance, got, recorded) if case.tolerance else _difference(case, got, recorded)
    assert not problem, f"{case.name}: {problem}"


def test_names_and_symbols_are_unique() -> None:
    """No case hides another in the records or in a module."""
    cases = [case for cases in all_cases().values() for case in cases]
    assert len({case.name for case in cases}) == len({case.symbol for case in cases}) == len(cases)


def test_every_record_is_compared() -> None:
    """No recorded result is left over by a case that was renamed or dropped, and the suite is as large as promised."""
    compared = {case.name for cases in recorded_cases().values() for case in cases}
    assert set(records()) == compared
    assert len(compared) >= 1900


def test_bounds_are_those_of_approximations() -> None:
    """Nothing but the instructions of the table is compared with a bound."""
    loose = [case for cases in all_cases().values() for case in cases if case.tolerance is not None]
    assert {case.name.split()[1] for case in loose} == set(BOUNDS)
    assert {case.family for case in loose} == {"float"}


def test_table_of_approximations_is_current() -> None:
    """`python -m tests.emulator.ptx.hardware.bounds` would change nothing."""
    page = PAGE.read_text("utf-8")
    assert with_table(page) == page


def _difference(case: Case, got: np.ndarray[Any, Any], recorded: np.ndarray[Any, Any]) -> str:
    """The first thread whose part of the output differs, with its part of each input; empty when none does."""
    wrong = np.flatnonzero(got != recorded)
    if not wrong.size:
        return ""
    threads = case.block * case.cluster
    width = max(1, case.output // threads)
    thread = int(wrong[0]) // width
    operands = [_part(array.view(np.uint8).ravel(), thread, array.nbytes // threads) for array in case.inputs]
    return (
        f"{np.unique(wrong // width).size} of {threads} threads differ, the first is {thread}, operands "
        f"{', '.join(operands) or 'none'}: emulator {_part(got, thread, width)}, H200 {_part(recorded, thread, width)}"
    )


def _part(array: np.ndarray[Any, Any], thread: int, width: int) -> str:
    """A thread's bytes as one hexadecimal number, shortened."""
    text = array[thread * width : (thread + 1) * width][::-1].tobytes().hex()
    return f"0x{text}" if len(text) <= 64 else f"0x…{text[-64:]}"
