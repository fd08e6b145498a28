"""The products that are drawn at random, and classes of cases."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tilekit
from tests.bench.simulated import SimulatedMachine, measured, peer
from tilekit.bench.classes import class_of
from tilekit.bench.entrants import library_entrants, tilekit_entrants
from tilekit.bench.grouped import GroupedWorkload
from tilekit.bench.matmul import run
from tilekit.bench.random_products import SUITE, WEIGHTS
from tilekit.bench.record import Record
from tilekit.bench.report import to_markdown
from tilekit.bench.suites import SUITES, select
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import BF16, E4M3, F16
from tilekit.errors import ArgumentError


def test_a_seed_has_its_cases() -> None:
    """The same seed draws the same cases, fewer are the beginning of more, and another seed draws others."""
    assert SUITE.draw(7, 60) == SUITE.draw(7, 60)
    assert SUITE.draw(7, 60)[:20] == SUITE.draw(7, 20)
    assert not set(SUITE.draw(7, 60)) & set(SUITE.draw(8, 60))
    assert [case.workload for case in select(["random"], 20, seed=7)] == SUITE.draw(7, 20)
    assert len(select(["random"])) == SUITE.count
    assert len(select(["random"], 21, (1, 4))) == 6


def test_the_distribution_is_the_documented_one() -> None:
    """Of two thousand cases, each kind has about its part; 8-bit operands are K-major."""
    cases = SUITE.draw(1, 2000)
    dense = [case for case in cases if isinstance(case, MatmulWorkload)]
    single = [case for case in dense if case.batch is None]
    parts = {
        "groups": (sum(isinstance(case, GroupedWorkload) for case in cases) / 2000, 1 / 16),
        "batches": ((len(dense) - len(single)) / 2000, 1 / 16),
        "bf16": (sum(case.a_dtype is BF16 for case in single) / len(single), 0.5),
        "f16": (sum(case.a_dtype is F16 for case in single) / len(single), 0.3),
        "models": (sum((case.n, case.k) in WEIGHTS for case in single) / len(single), 0.6),
    }
    assert {name: got for name, (got, wanted) in parts.items() if abs(got - wanted) > 0.05} == {}
    logs = sorted(math.log(case.m) for case in single)
    assert logs[len(logs) // 2] == pytest.approx(math.log(8192) / 2, abs=0.5)
    assert {(case.a_major, case.b_major) for case in single} == {(a, b) for a in ("k", "mn") for b in ("k", "mn")}
    assert all((case.a_major, case.b_major) == ("k", "k") for case in single if case.a_dtype is E4M3)
    assert all(case.m % 8 == 0 for case in dense if case.a_major == "mn")
    assert all(case.n % 8 == case.k % 8 == 0 and case.bytes <= 1.5e9 for case in dense)
    fused = [case for case in single if case.fused]
    assert 0.07 < len(fused) / len(single) < 0.13
    assert {(case.bias, case.activation, case.family) for case in fused} == {(True, "gelu", "fused_matmul")}


def test_a_class_is_rows_layout_and_type() -> None:
    """Groups and batches are classes of their own."""
    assert class_of("17x4096x4096", "bf16→bf16 k/mn +bias +gelu") == ("9 to 64", "k/mn", "bf16")
    assert class_of("8192x4096x4096", "e4m3→bf16 k/k") == ("769 to 8192", "k/k", "e4m3")
    assert class_of("9000x4096x4096", "f16→f16 k/k") == ("over 8192", "k/k", "f16")
    assert class_of("4x17x4096x4096", "bf16→bf16 mn/k") == ("batches", "mn/k", "bf16")
    assert class_of("G4 900x4096x4096", "bf16→bf16 k/k skewed") == ("groups", "k/k skewed", "bf16")


def test_a_report_has_the_classes() -> None:
    """Each class's geometric mean, tenth percentile and worst, the worst class first, and all beside the aims."""
    cases = [measured(f"{m}x4096x4096", {"cuBLAS": [ratio] * 3}, suite="random") for m, ratio in ((2, 1.1), (3, 0.9))]
    cases.append(measured("4000x4096x4096", {"cuBLAS": [0.5] * 3}, suite="random"))
    text = to_markdown(Record({"device": "x"}, cases))
    rows = [line for line in text.splitlines() if line.startswith(("| 1 to 8 |", "| 769 to 8192 |", "| all |"))]
    assert rows == [
        "| 769 to 8192 | k/k | bf16 | 1 | **0.500** | 0.500 | 0.500 | 4000x4096x4096 |",
        "| 1 to 8 | k/k | bf16 | 2 | **0.995** | 0.900 | 0.900 | 3x4096x4096 |",
        "| all |  | aim: 1.06, 0.98, 0.92 | 3 | **0.791** | 0.500 | 0.500 | 4000x4096x4096 |",
    ]
    assert "tenth percentile" not in to_markdown(Record({"device": "x"}, [measured("2x2x2", {"cuBLAS": [1.0]})]))


def test_every_suite_has_its_classes() -> None:
    """A list of more than one class too, worst first; convolutions by filters."""
    cases = [measured(f"{m}x4096x4096", {"cuBLAS": [ratio] * 3}) for m, ratio in ((2, 1.1), (16, 0.9), (20, 1.0))]
    cases.append(measured("32x56x56x64 64x3x3 s2 p1", {"cuDNN": [0.8]}, suite="conv2d"))
    text = to_markdown(Record({"device": "x"}, cases))
    assert "conv2d, by class" not in text
    at = text.splitlines().index("decode, by class:")
    rows = text.splitlines()[at + 4 : at + 7]
    assert [row.split(" | ")[0] for row in rows] == ["| 9 to 64", "| 1 to 8", "| all"]
    assert "aim: 1.15, 1.00" in rows[2]
    assert rows[0].endswith("| 2 | **0.949** | 0.900 | 0.900 | 16x4096x4096 |")
    for suite, own in SUITES.items():
        assert all(len(class_of(case.label, case.kind)) == 3 for case in own.cases), suite
    assert class_of("32x56x56x64 64x3x3 s2 p1", "bf16→bf16 +bias") == ("3x3 filters", "s2 p1", "bf16")


def test_random_stands_alone() -> None:
    """Beside other suites it is refused, by the name of the option."""
    with pytest.raises(ArgumentError, match=r"--suite: given 'random'.*random alone"):
        select(["random", "odd"])
    with pytest.raises(ArgumentError, match="--sample: given 0"):
        select(["random"], 0)


def test_a_product_with_functions_is_measured(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, the library's and a float32 product with bias and gelu agree; a peer that leaves them out is wrong."""
    computed = tilekit.matmul

    def timed(*operands: Any, **rest: Any) -> Any:
        machine.spend(1e-6)
        return computed(*operands, **rest)

    monkeypatch.setattr(tilekit, "matmul", timed)
    workload = MatmulWorkload(24, 48, 64, bias=True, activation="gelu")
    plain = peer("plain", machine, 1.0, "fused_matmul")
    (case,) = run([workload], [*tilekit_entrants(machine), *library_entrants(machine), plain], machine)
    ours, library, wrong = case.results
    assert ours.failure is None
    assert library.failure is None
    assert wrong.failure is not None
    assert "wrong" in wrong.failure
