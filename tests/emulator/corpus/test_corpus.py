"""Kernels by other compilers run unchanged on the emulator and compute what NumPy computes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from corpus_case import CASES, PTX, Case, compare, emulate

from tilekit.emulator import coverage

for _source in sorted(Path(__file__).parent.glob("cases_*.py")):
    importlib.import_module(_source.stem)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_result(case: Case) -> None:
    """The kernel runs under full checking, nothing is found, and its results match the reference."""
    if "tcgen05." in case.path.read_text() and "tcgen05" not in coverage():
        pytest.skip("the emulator has no tcgen05 yet")
    report, launch = emulate(case)
    compare(launch)
    assert report.clean, str(report)


def test_every_file_is_a_case() -> None:
    """No PTX text lies around unused, and none is used twice."""
    files = sorted(PTX.glob("*/*.ptx"))
    assert sorted(case.path for case in CASES) == files
