"""Attention as cases of benchmarks: shapes in words, references, the suites and the peers."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.attention.cases import expected
from tests.bench.simulated import SimulatedMachine
from tilekit.bench.attention import AttentionWorkload, Masked
from tilekit.bench.classes import class_of
from tilekit.bench.entrants import PEERS, Entrant, _load, tilekit_entrants
from tilekit.bench.matmul import ResultCheck, run
from tilekit.bench.suites import SUITES
from tilekit.dtypes import F16
from tilekit.errors import ArgumentError

SHAPES = (
    "2x40 h2 d64",
    "1x33x70 h4/2 d32 causal",
    "1x1x90 h4/1 d64",
    "1x50x30 h2 d64 causal c20",
    "1x20x60 h2 d40/64 w9,",
    "1x20x60 h2 d40 w-3,8",
    "1x20x9 h2 d16 w,2 c2.5",
)
PUBLISHED = [case.label for name in ("attention", "attention-decode") for case in SUITES[name].cases]


def ours(machine: Any) -> Entrant:
    """tilekit's own entrant."""
    return next(entrant for entrant in tilekit_entrants(machine) if entrant.family == "attention")


@pytest.mark.parametrize("shape", [*SHAPES, *PUBLISHED])
def test_a_shape_is_read_as_it_is_written(shape: str) -> None:
    """The label of what a shape in words describes is the shape, and the type that of another workload."""
    case = AttentionWorkload.parse(shape, AttentionWorkload(dtype=F16))
    assert (case.label, case.kind) == (shape, "f16")


@pytest.mark.parametrize(
    "shape",
    ["", "4096x4096x4096", "2x40", "2x40 h2", "2x40 d64 h2", "2x40 h2 d64 w3", "2x40 h2 d64  causal", "0x4 h2 d64"],
)
def test_what_is_no_shape(shape: str) -> None:
    """Products, other orders, and extents of 0."""
    with pytest.raises(ArgumentError, match="legal"):
        AttentionWorkload.parse(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_are_those_that_are_seen(shape: str) -> None:
    """Multiplications are counted for what a mask shows alone."""
    case = AttentionWorkload.parse(shape)
    seen = int(case._seen(np.arange(case.queries)).sum())
    elements = case.shapes[0][3] + case.shapes[2][3]
    assert case.flops == 2 * case.batch * case.heads * seen * elements


@pytest.mark.parametrize("shape", [*SHAPES[1:3], *(pytest.param(one, marks=pytest.mark.breadth) for one in SHAPES)])
def test_a_case_is_checked_as_by_definition(shape: str) -> None:
    """Scores that become weights of values are attention; tilekit's are right, and one that is wrong is found."""
    case, machine = AttentionWorkload.parse(shape, AttentionWorkload(dtype=F16)), SimulatedMachine()
    sets = [case.operand_set(machine, itertools.count(turn)) for turn in (0, 9)]
    check = ResultCheck(case, machine, sets)
    for (q, k, v, masked, _), (_, found) in zip(sets, check._expected, strict=True):
        right, _ = expected(q, k, v, **masked.keywords)
        group = case.heads // case.kv_heads
        by_groups = right.reshape(case.batch, case.queries, case.kv_heads, group, -1).transpose(0, 2, 3, 1, 4)
        np.testing.assert_allclose(found, by_groups, rtol=2e-4, atol=2e-4)

    def work(spoil: float) -> None:
        for q, k, v, masked, out in sets:
            ours(machine).launch(q, k, v, masked, out)
            out[0, -1, 0] += spoil

    assert check(lambda: work(0)) <= case.error_limit
    assert check(lambda: work(4)) > case.error_limit


def test_a_run_measures_attention() -> None:
    """From a workload to a case; a peer that is refused is a line in the table."""
    machine = SimulatedMachine()
    machine.l2_bytes = 1

    def costing(*operands: Any) -> None:
        machine.spend(1e-6)
        ours(machine).launch(*operands)

    def refused(*operands: Any) -> None:
        raise ArgumentError("no such mask", code="TK-BENCH-001")

    entrants = [Entrant("tilekit", costing, "attention"), Entrant("peer", refused, "attention")]
    (case,) = run([AttentionWorkload.parse("1x20 h2 d16")], entrants, machine)
    first, second = case.results
    assert (first.failure, first.us is not None, case.flops) == (None, True, 4 * 2 * 20 * 20 * 16)
    assert second.failure is not None
    assert "no such mask" in second.failure


def test_the_suites_are_the_published_cases() -> None:
    """Fourteen of as many keys as queries, with and without a mask, and decoding; classes are head dims and masks."""
    first, second = SUITES["attention"], SUITES["attention-decode"]
    assert [len(suite.cases) for suite in (first, second)] == [14, 8]
    assert sum(case.label.endswith("causal") for case in first.cases) == 7
    assert all("x1x" in case.label for case in second.cases)
    assert class_of("4x4096 h16 d128 causal", "bf16") == ("heads of 128", "causal", "bf16")
    assert class_of("4x4096x3 h16 d64", "bf16") == ("heads of 64", "full", "bf16")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the peers need of torch, with what they call noted."""
    calls: list[tuple[Any, ...]] = []

    def noted(*arguments: Any, **keywords: Any) -> Any:
        calls.append((arguments, keywords))
        return "found"

    made, attention = ModuleType("torch"), ModuleType("torch.nn.attention")
    library = SimpleNamespace(flash_attn_3=SimpleNamespace(fwd=SimpleNamespace(default=noted)), load_library=noted)
    functional = SimpleNamespace(scaled_dot_product_attention=noted)
    backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 0))
    vars(made).update(__version__="0", ops=library, nn=SimpleNamespace(functional=functional), backends=backends)
    made.Tensor = object  # type: ignore[attr-defined]
    vars(attention).update(SDPBackend=SimpleNamespace(CUDNN_ATTENTION=1), sdpa_kernel=lambda _: Context())
    for name, module in (("torch", made), ("torch.nn", ModuleType("torch.nn")), ("torch.nn.attention", attention)):
        monkeypatch.setitem(sys.modules, name, module)
    return SimpleNamespace(calls=calls)


class Context:
    """Enters and leaves."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Tensor:
    """What peers read of a tensor."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def transpose(self, *axes: int) -> Any:
        """The shape in another order."""
        return self.shape, axes

    def data_ptr(self) -> int:
        """Its address."""
        return id(self)


def test_flash_attention_takes_the_same_masks(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are not there are -1; of one query it chooses the shares."""
    monkeypatch.setenv("FLASH_ATTENTION_3", "library.so")
    peer = _load("flash_attention", PEERS / "flash_attention.py")
    assert torch.calls.pop() == (("library.so",), {})
    long, short = Tensor(1, 64, 2, 64), Tensor(1, 1, 2, 64)
    peer.launch(long, long, long, Masked(window=(9, None), softcap=3.0), long)
    window = {"window_size_left": 9, "window_size_right": -1}
    assert torch.calls[0][1] == {"out": long, "softcap": 3.0, "is_causal": False, "num_splits": 1, **window}
    peer.launch(short, long, long, Masked(causal=True), short)
    assert torch.calls[1][1] == {"out": short, "softcap": 0.0, "is_causal": True, "num_splits": 0}


def test_cudnn_refuses_masks_that_torch_has_no_words_for(torch: Any) -> None:
    """Windows, caps, and a causal mask of other lengths; else its result is kept for the check."""
    peer = _load("cudnn", PEERS / "cudnn.py")
    q, k = Tensor(1, 64, 4, 64), Tensor(1, 80, 2, 64)
    for masked in (Masked(window=(3, 3)), Masked(softcap=3.0), Masked(causal=True)):
        with pytest.raises(ArgumentError):
            peer.attend(q, k, k, masked, q)
    peer.attend(q, k, k, Masked(), q)
    assert torch.calls[0][1] == {"is_causal": False, "enable_gqa": True}
    assert peer._results[id(q)] == "found"


def test_the_spec_is_the_calls() -> None:
    """What tuning asks for by a workload is what a call of its arrays selects."""
    case = AttentionWorkload.parse("1x1x90 h4/1 d64")
    operands = case.operands(0)
    q, k, keywords = case.call(operands)
    assert case.spec == case.spec_on("sm_100a") == tilekit.attention_kernel_for(q, k, **keywords).spec
