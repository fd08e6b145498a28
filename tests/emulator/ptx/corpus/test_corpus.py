"""Kernels by other compilers run unchanged on the emulator and compute what NumPy computes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from corpus_case import CASES, PTX, Case, compare, emulate
from seeds import differing

for _source in sorted(Path(__file__).parent.glob("cases_*.py")):
    importlib.import_module(_source.stem)

_TIMED = {
    *("nvcc/warp_roles", "nvcc/cluster_ring", "nvcc/last_block", "triton/spin_lock"),
    *("nvcc/look_back_scan", "nvcc/grid_sync", "nvcc/atomic_orders", "nvcc/pipeline", "nvcc/bulk_barrier"),
    *("triton/gluon_warp_specialized", "triton/gluon_tcgen05_roles", "triton/matmul_stream_k"),
    *("nvcc/thread_locks", "nvcc/breadth_first"),
}
"""Kernels whose warps or CTAs wait on each other in ways that depend on who is first."""


@pytest.mark.sampled(one_in=10)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_result(case: Case) -> None:
    """The kernel runs under full checking, nothing is found, and its results match the reference."""
    report, launch = emulate(case)
    compare(launch, report.printed)
    assert report.clean, str(report)


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("case", list({case.name: case for case in CASES}.values()), ids=str)
def test_result_without_checks(case: Case) -> None:
    """Without checks, where accesses are made together, the results are the same: for one target of each kernel."""
    report, launch = emulate(case, check="off")
    compare(launch, report.printed)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("schedule", ["random", "fair"])
@pytest.mark.parametrize("case", [case for case in CASES if case.name in _TIMED], ids=str)
def test_other_schedules(case: Case, schedule: str) -> None:
    """Kernels that synchronise by hand give the same results in other orders, from other seeds."""
    for seed in (1, 2):
        report, launch = emulate(case, seed=seed, schedule=schedule)
        compare(launch, report.printed)
        assert report.clean, str(report)


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("case", [case for case in CASES if "mbarrier" in case.path.read_text()], ids=str)
def test_same_verdict(case: Case) -> None:
    """What is said of a kernel's program order does not depend on the seed: three of the orders that `seeds` tries."""
    assert len(differing(case, [("adversarial", 1), ("random", 0), ("random", 1)])) == 1


def test_every_file_is_a_case() -> None:
    """No PTX text lies around unused, and none is used twice."""
    files = sorted(PTX.glob("*/*.ptx"))
    assert sorted(case.path for case in CASES) == files
