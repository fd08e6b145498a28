"""The two machines, and which case runs on which."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.matmul import matmul_generator
from tests.matmul.matmul_case import Case
from tests.matmul.matmul_machine import Cuda, Emulator, Machine
from tilekit.kernels.plan import EmulatedPlan

MACHINES = ("emulator", pytest.param("cuda", marks=pytest.mark.gpu))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pair machines with cases: a test that takes `case` names its list with the marker-like attribute ``cases``."""
    if "machine" not in metafunc.fixturenames:
        return
    if "case" not in metafunc.fixturenames:
        metafunc.parametrize("machine", MACHINES, indirect=True)
        return
    lists: dict[str, tuple[Case, ...]] = metafunc.function.cases
    pairs = [
        pytest.param(name, case, id=f"{name}-{case}", marks=[pytest.mark.gpu] if name == "cuda" else [])
        for name, cases in lists.items()
        for case in cases
    ]
    metafunc.parametrize(("machine", "case"), pairs, indirect=["machine"])


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine; on the emulator no launch may end with a finding."""
    if request.param == "cuda":
        yield Cuda(torch_with_gpu())
        return
    reports: list[Any] = []
    run = EmulatedPlan._run

    def run_and_keep(plan: EmulatedPlan) -> None:
        run(plan)
        reports.append(plan.report)

    monkeypatch.setattr(EmulatedPlan, "_run", run_and_keep)
    yield Emulator()
    for report in reports:
        assert report.clean, str(report)


@cache
def torch_with_gpu() -> Any:
    """torch, or a skip that says what is missing."""
    torch = pytest.importorskip("torch", reason="the CUDA machine of these tests is torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip(f"needs compute capability 9.0, this is {torch.cuda.get_device_name()}")
    return torch


@pytest.fixture
def torch() -> Any:
    """torch with a GPU of compute capability 9.0."""
    return torch_with_gpu()


@pytest.fixture
def cupy(torch: Any) -> Any:
    """CuPy, on the GPU that torch sees."""
    return pytest.importorskip("cupy", reason="needs CuPy")


__all__ = ["MACHINES", "matmul_generator"]
