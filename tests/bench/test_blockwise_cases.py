"""Products with scales of blocks as cases of benchmarks: references, groups, the suite, tuning, peers from a file."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.bench.simulated import SimulatedMachine
from tilekit.bench.blockwise import BlockwiseWorkload, GroupedBlockwiseWorkload
from tilekit.bench.entrants import library_entrants, load_peers, tilekit_entrants
from tilekit.bench.matmul import ResultCheck
from tilekit.bench.suites import SUITES, select
from tilekit.errors import ArgumentError
from tilekit.targets import SM_90A
from tilekit.tuning import suite, tuner, workloads

CASES = (
    BlockwiseWorkload(40, 136, 304),
    GroupedBlockwiseWorkload((9, 0, 30), 72, 272),
    GroupedBlockwiseWorkload((9, 0, 30), 72, 272, rows=36),
    GroupedBlockwiseWorkload((9, 0, 30), 72, 200),
    GroupedBlockwiseWorkload((9, 0, 30), 72, 200, rows=33),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.label} {case.kind}")
def test_a_case_is_checked(case: Any) -> None:
    """tilekit's entrant computes what the reference says, rows of no group apart; a wrong scale is seen."""
    machine = SimulatedMachine()
    machine.l2_bytes = 1
    ours = next(entrant for entrant in tilekit_entrants(machine) if entrant.family == case.family)
    sets = [case.operand_set(machine, itertools.count(turn)) for turn in (0, 9)]
    check = ResultCheck(case, machine, sets)

    def work(spoil: bool) -> None:
        for operands in sets:
            scales = getattr(operands[2], "scales", operands[2])
            scales.a[..., 2, 1] *= 3 if spoil else 1
            ours.launch(*operands)

    assert check(lambda: work(False)) <= case.error_limit
    assert check(lambda: work(True)) > case.error_limit


def test_the_library_is_asked_for_the_same() -> None:
    """Its entrant gets the same operands and is held to the same reference."""
    machine, case = SimulatedMachine(), CASES[0]
    theirs = next(entrant for entrant in library_entrants(machine) if entrant.family == "blockwise")
    sets = [case.operand_set(machine, itertools.count())] * 2
    assert ResultCheck(case, machine, sets)(lambda: theirs.launch(*sets[0])) <= case.error_limit


def test_the_suite() -> None:
    """The published products, and groups that lie behind each other or apart."""
    cases = SUITES["blockwise"].cases
    assert [case.label for case in cases[:7]] == [case.label for case in SUITES["fp8"].cases]
    assert [case.label for case in cases[7:9]] == ["G4 34304x4096x7168", "G8 34560x7168x2048"]
    assert all("masked" in case.kind for case in cases[9:])
    assert [work for _, work in suite.tunable(select(["blockwise"]))] == [c.workload for c in select(["blockwise"])]


def test_a_case_is_tuned() -> None:
    """What a worker is asked for, as JSON, builds and binds its kernel."""
    case, machine = CASES[0], SimulatedMachine()
    asked = json.loads(json.dumps(tuner.request(case, SM_90A, [])))
    assert workloads.from_values(asked["family"], asked["workload"]) == case
    operands = case.operand_set(machine, itertools.count())
    case.bind(case.kernel("sm_90a", None), operands)()
    ((a, b, out),) = case.pieces(operands)
    assert np.linalg.norm(out - a[:] @ b) / np.linalg.norm(a[:] @ b) <= case.error_limit


def test_what_is_no_case() -> None:
    """Groups of more rows than they lie apart, and functions behind a product that is timed."""
    with pytest.raises(ArgumentError, match="TK-BENCH-001"):
        GroupedBlockwiseWorkload((9, 40), 72, 272, rows=36)
    with pytest.raises(ArgumentError, match="timed without"):
        BlockwiseWorkload(8, 8, 128, bias=True).operand_set(SimulatedMachine(), itertools.count())


PEER = """
def fp8_gemm_nt(a, b, out):
    CALLS.append(("dense", a[0].shape, a[1].shape, b[0].shape, b[1].shape, out.shape))

def m_grouped_fp8_gemm_nt_masked(a, b, out, rows, mean):
    CALLS.append(("masked", a[1].shape, b[1].shape, rows.tolist(), mean))

CALLS = []
"""


def test_a_peer_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepGEMM's functions are found in the file that the variable names, and called as they are declared."""
    pytest.importorskip("torch", reason="the peer is torch's")
    (tmp_path / "peer.py").write_text(PEER)
    monkeypatch.setenv("DEEP_GEMM_PEER", str(tmp_path / "peer.py"))
    peers = load_peers(["deepgemm_blockwise"])
    assert peers.skipped == {}
    assert [entrant.family for entrant in peers.entrants] == ["blockwise", "grouped_blockwise"]
    import sys

    machine = SimulatedMachine()
    for case in (CASES[0], CASES[2]):
        a, b, scales, out = case.operand_set(machine, itertools.count())
        turned = SimpleNamespace(mT=b.swapaxes(-1, -2))
        next(e for e in peers.entrants if e.family == case.family).launch(a, turned, scales, out)
    dense, masked = sys.modules["deep_gemm_peer"].CALLS
    assert dense == ("dense", (40, 304), (40, 3), (136, 304), (2, 3), (40, 136))
    assert masked == ("masked", (3, 36, 3), (3, 1, 3), [9, 0, 30], 13)


def test_the_command(tmp_path: Path) -> None:
    """The kernel of a workload is the one that the call takes."""
    case = CASES[0]
    operands = case.operands(3)
    a, b, keywords = case.call(operands)
    out = tilekit.scaled_matmul(a, b, **keywords)
    assert case.accuracy(operands, out).right
    out[3, 5] += 9
    assert not case.accuracy(operands, out).right
