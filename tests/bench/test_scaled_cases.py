"""Block-scaled products as cases of benchmarks: references, the suite, what the library is given, machines without."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.bench.simulated import SimulatedMachine, peer
from tilekit.bench import machine as machines
from tilekit.bench.contest import QUICK
from tilekit.bench.entrants import library_entrants, tilekit_entrants
from tilekit.bench.matmul import ResultCheck
from tilekit.bench.record import Record
from tilekit.bench.scaled import LaidOut, ScaledWorkload
from tilekit.bench.session import measure_suite, require_kernels, why_not
from tilekit.bench.suites import SUITES, SuiteCase, select
from tilekit.bench.workload import MatmulWorkload
from tilekit.errors import ArgumentError, DriverError
from tilekit.tile_op.block_scaled import FORMATS
from tilekit.tuning import suite


@pytest.mark.parametrize("kind", FORMATS)
def test_a_case_is_checked(kind: str) -> None:
    """tilekit and the library compute what the reference says; another scale is seen."""
    machine, case = SimulatedMachine(), ScaledWorkload(20, 32, 64, scaled=kind)
    sets = [case.operand_set(machine, itertools.count(turn)) for turn in (0, 9)]
    check = ResultCheck(case, machine, sets)
    for entrant in (*tilekit_entrants(machine), *library_entrants(machine)):
        if entrant.family == case.family:

            def work(launch: Any = entrant.launch) -> None:
                for operands in sets:
                    launch(*operands)

            assert check(work) <= case.error_limit

    def spoiled() -> None:
        for a, b, scaled, out in sets:
            wrong = scaled.a.copy()
            wrong.view(np.uint8)[...] += 1
            tilekit.scaled_matmul(a, b, wrong, scaled.b, out=out)

    assert check(spoiled) > case.error_limit


@pytest.mark.parametrize("kind", FORMATS)
def test_what_the_library_is_given(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is called with the types that its scaled product tells formats by, and with flat scales of all blocks."""
    torch = pytest.importorskip("torch", reason="the library is torch")
    case = ScaledWorkload(40, 72, 64, scaled=kind)
    a, b, scaled, _ = case.operand_set(SimulatedMachine(), itertools.count())

    def tensor(values: Any) -> Any:
        found = torch.from_numpy(np.ascontiguousarray(values).view(np.uint8))
        return found if values.dtype == np.uint8 else found.view(getattr(torch, values.dtype.name))

    given: list[Any] = []
    monkeypatch.setattr(torch, "_scaled_mm", lambda *args, **how: given.extend((args, how)))
    ours = machines.TorchMachine.__new__(machines.TorchMachine)
    ours.torch = torch
    out = torch.empty(40, 72, dtype=torch.bfloat16)
    scales = LaidOut(tensor(scaled.a), tensor(scaled.b), scaled.host, ours.upload)
    ours.block_scaled(tensor(a), tensor(b.T).T, scales, out)
    (left, right, *factors), how = given
    found = FORMATS[kind]
    element = torch.float8_e4m3fn if found.packed == 1 else torch.float4_e2m1fn_x2
    scale = torch.float8_e4m3fn if kind == "nvfp4" else torch.float8_e8m0fnu
    assert (left.dtype, right.dtype) == (element, element)
    assert right.stride(0) == 1
    assert [(one.dtype, tuple(one.shape)) for one in factors] == [(scale, (512 * -(-64 // found.block // 4),))] * 2
    assert how == {"out_dtype": torch.bfloat16, "out": out}


def test_the_suite() -> None:
    """The published products in two formats, and all of them may be tuned."""
    cases = SUITES["block-scaled"].cases
    labels = [*(case.label for case in SUITES["fp8"].cases), "16384x6144x4096"]
    assert [case.label for case in cases] == labels * 2
    assert [case.bits for case in cases] == [8] * 8 + [4] * 8
    assert len(suite.tunable(select(["block-scaled"]))) == len(cases)


def test_bytes_are_those_that_are_touched() -> None:
    """Pairs of e2m1 are a byte, and scales count."""
    assert ScaledWorkload(32, 64, 128).bytes == 96 * (128 + 4) + 32 * 64 * 2
    assert ScaledWorkload(32, 64, 128, scaled="nvfp4").bytes == 96 * (64 + 8) + 32 * 64 * 2


def test_what_is_no_case() -> None:
    """Functions behind a product that is timed, and batches."""
    with pytest.raises(ArgumentError, match="timed without"):
        ScaledWorkload(8, 8, 64, bias=True).operand_set(SimulatedMachine(), itertools.count())
    with pytest.raises(ArgumentError, match="no batches"):
        ScaledWorkload(8, 8, 64, batch=2)


def test_a_machine_without_such_instructions() -> None:
    """What it needs is said in a line: alone as an error, among other cases as a note that they are left out."""
    machine = SimulatedMachine()
    with pytest.raises(DriverError, match=r"block_scaled needs a GPU that is sm_100a \(.*compute capability 9.0"):
        require_kernels(machine, "block_scaled")
    assert why_not(machine, "fused_matmul") is None
    assert why_not(machine, "conv2d_gradient") is None
    machine.capability = (10, 0)
    assert why_not(machine, "block_scaled") is None
    machine.capability = (9, 0)
    cases = [SuiteCase("s", MatmulWorkload(8, 8, 8)), SuiteCase("block-scaled", ScaledWorkload(8, 8, 64))]
    record = Record({})
    measure_suite(cases, [peer("tilekit", machine, 5)], machine, record, pace=QUICK)
    assert [case.suite for case in record.cases] == ["s"]
    assert [note for note in record.notes if note.startswith("1 of 2 case(s) left out: block_scaled needs")]
    with pytest.raises(DriverError, match="block_scaled needs"):
        measure_suite(cases[1:], tilekit_entrants(machine), machine, Record({}))
