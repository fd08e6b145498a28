"""The two machines of the gemv's tests; data, memory and references are those of the matmul's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.matmul.matmul_machine import Cuda, Emulator, Machine
from tilekit.kernels.plan import EmulatedPlan

MACHINES = ("emulator", pytest.param("cuda", marks=pytest.mark.gpu))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what takes a machine on both."""
    if "machine" in metafunc.fixturenames:
        metafunc.parametrize("machine", MACHINES, indirect=True)


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine; on the emulator no launch may end with a finding."""
    if request.param == "cuda":
        yield Cuda(_torch())
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


@pytest.fixture
def torch() -> Any:
    """torch with a GPU of compute capability 9.0."""
    return _torch()


def _torch() -> Any:
    torch = pytest.importorskip("torch", reason="the CUDA machine of these tests is torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip(f"needs compute capability 9.0, this is {torch.cuda.get_device_name()}")
    return torch
