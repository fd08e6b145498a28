"""Matmul cases: operands, checks, failures, tables."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.bench.simulated import peer
from tilekit.bench.entrants import Entrant, library_entrants
from tilekit.bench.matmul import run
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import BF16, DTYPES, E4M3, E5M2, F16, F32
from tilekit.errors import ArgumentError


def ours(machine: Any, microseconds: float = 1.0) -> Entrant:
    """An entrant of tilekit's that computes right and takes this long."""
    return peer("tilekit", machine, microseconds)


def library_entrant(machine: Any) -> Entrant:
    """The simulated library's product, which takes 2 us."""
    return library_entrants(machine)[0]


def test_a_case_has_times_ratios_and_errors(machine: Any) -> None:
    """Against a library that takes 2 us, 1 us of ours is a ratio of 2, with the FLOPs turned into TFLOP/s."""
    (case,) = run([MatmulWorkload(64, 48, 32)], [ours(machine), library_entrant(machine)], machine, seconds=0)
    mine, theirs = case.results
    assert (mine.us, theirs.us) == (pytest.approx(1), pytest.approx(2))
    assert (mine.ratio, theirs.ratio, theirs.burst_ratio) == (None, pytest.approx(2), pytest.approx(2))
    assert mine.tflops == pytest.approx(2 * 64 * 48 * 32 / 1e-6 / 1e12)
    assert mine.error is not None
    assert 0 < mine.error < BF16.epsilon


def test_buffers_rotate_through_three_times_the_l2_cache(machine: Any) -> None:
    """There are as many operand sets as exceed three times L2, and two where one set alone does."""
    small, large = MatmulWorkload(128, 128, 128), MatmulWorkload(1024, 1024, 512)
    cases = run([small, large], [ours(machine)], machine, seconds=0)
    sets = {case.label: case.sets for case in cases}
    assert sets[small.label] == math.ceil(3 * machine.l2_bytes / small.bytes)
    assert sets[large.label] == 2


def test_an_unwritten_element_is_wrong(machine: Any) -> None:
    """Outputs are poisoned first, so one element that is left out is an error and no time."""

    def lazy(a: Any, b: Any, out: Any) -> None:
        keep = out[-1, -1].copy()
        out[...] = (a.astype(np.float32) @ b.astype(np.float32)).astype(out.dtype)
        out[-1, -1] = keep

    (case,) = run([MatmulWorkload(64, 64, 64)], [Entrant("tilekit", lazy)], machine, seconds=0)
    assert case.results[0].failure is not None
    assert case.results[0].failure.startswith("wrong: relative error nan")
    assert case.results[0].us is None
    assert case.worst_ratio == 0


def test_a_wrong_result_is_not_timed(machine: Any) -> None:
    """An entrant that swaps two rows has an error far above the limit, and the peer is timed without it."""

    def swapped(a: Any, b: Any, out: Any) -> None:
        machine.matmul(a, b, out)
        out[[0, 1]] = out[[1, 0]]

    entrants = [Entrant("tilekit", swapped), library_entrant(machine)]
    (case,) = run([MatmulWorkload(64, 64, 64)], entrants, machine, seconds=0)
    assert "wrong" in str(case.results[0].failure)
    assert (case.results[1].us, case.results[1].ratio) == (pytest.approx(2), None)


def test_a_peer_that_cannot_run_is_a_note(machine: Any) -> None:
    """A peer's exception becomes its line of the table; the others are measured."""

    def refuse(a: Any, b: Any, out: Any) -> None:
        raise ValueError("two dimensions only\nand more")

    (case,) = run([MatmulWorkload(64, 64, 64)], [ours(machine), Entrant("peer", refuse)], machine, seconds=0)
    assert case.results[1].failure == "ValueError: two dimensions only"
    assert case.results[0].us == pytest.approx(1)


def test_the_worst_case_comes_first(machine: Any) -> None:
    """Cases are sorted by the smallest ratio."""

    def fast_if_small(a: Any, b: Any, out: Any) -> None:
        machine.spend(1e-6 if a.shape[0] == 64 else 4e-6)
        out[...] = (a.astype(np.float32) @ b.astype(np.float32)).astype(out.dtype)

    workloads = [MatmulWorkload(64, 64, 64), MatmulWorkload(128, 64, 64)]
    cases = run(workloads, [Entrant("tilekit", fast_if_small), library_entrant(machine)], machine)
    assert [(case.label, case.worst_ratio) for case in cases] == [
        ("128x64x64", pytest.approx(0.5)),
        ("64x64x64", pytest.approx(2)),
    ]


def test_the_reference_is_computed_once_and_only_for_some_rows(machine: Any) -> None:
    """Two float32 products a case, for any peers; of 5000 rows a thousand, the last among them."""
    entrants = [ours(machine), library_entrant(machine), peer("another", machine, 3)]
    run([MatmulWorkload(5000, 8, 16)], entrants, machine)
    assert machine.products == [((1000, 16), (16, 8))] * 2

    def wrong_in_the_end(a: Any, b: Any, out: Any) -> None:
        machine.matmul(a, b, out)
        out[-1] = 100

    (case,) = run([MatmulWorkload(5000, 8, 16)], [Entrant("tilekit", wrong_in_the_end)], machine)
    assert "wrong" in str(case.results[0].failure)


def test_some_rows_reach_every_row_of_a_tile(machine: Any) -> None:
    """A kernel that is wrong in one row of each tile of 16 is found out, although most rows are not compared."""

    def wrong_in_row(bad: int) -> Entrant:
        def launch(a: Any, b: Any, out: Any) -> None:
            machine.matmul(a, b, out)
            out[bad::16] *= -1

        return Entrant("tilekit", launch)

    for bad in range(16):
        (case,) = run([MatmulWorkload(4096, 8, 16)], [wrong_in_row(bad)], machine)
        assert "wrong" in str(case.results[0].failure), bad


def test_a_peer_prepares_once_a_case(machine: Any) -> None:
    """`prepare` gets the machine and all operand sets, before the launches; its failure is the peer's line."""
    calls: list[int] = []

    def prepare(given: Any, sets: Any) -> None:
        assert given is machine
        calls.append(len(sets))
        if len(calls) > 1:
            raise RuntimeError("no config fits")

    entrants = [ours(machine), Entrant("peer", machine.matmul, prepare=prepare)]
    workloads = [MatmulWorkload(64, 64, 64), MatmulWorkload(32, 64, 64)]
    cases = {case.label: case for case in run(workloads, entrants, machine)}
    assert calls == [cases["64x64x64"].sets, cases["32x64x64"].sets]
    assert cases["64x64x64"].results[1].ratio == pytest.approx(2)
    assert cases["32x64x64"].results[1].failure == "RuntimeError: no config fits"


def test_the_time_box_ends_the_run_between_cases(machine: Any) -> None:
    """No case is begun after the box, and those done are returned."""
    workloads = [MatmulWorkload(64, 64, 64), MatmulWorkload(32, 64, 64)]
    assert len(run(workloads, [ours(machine)], machine, box_seconds=1e-9)) == 0
    assert len(run(workloads, [ours(machine)], machine, box_seconds=60)) == 2


def test_progress_is_reported_case_by_case(machine: Any) -> None:
    """The callback sees every case in the order in which they are measured."""
    seen: list[str] = []
    workloads = [MatmulWorkload(64, 64, 64), MatmulWorkload(32, 64, 64)]
    run(workloads, [ours(machine)], machine, seconds=0, progress=lambda case: seen.append(case.label))
    assert seen == ["64x64x64", "32x64x64"]


@pytest.mark.parametrize(("a_major", "b_major"), [("k", "k"), ("k", "mn"), ("mn", "k"), ("mn", "mn")])
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("padded", [True, False])
def test_operands_are_laid_out_as_the_majors_say(a_major: Any, b_major: Any, batch: int | None, padded: bool) -> None:
    """Shapes are (M, K) and (K, N) whatever the majors; the contiguous axis follows them, and padded rows 16 bytes."""
    workload = MatmulWorkload(21, 13, 7, batch=batch, a_major=a_major, b_major=b_major, padded=padded)
    operands = workload.operands(seed=0)
    lead = () if batch is None else (batch,)
    assert (operands.a.shape, operands.b.shape) == ((*lead, 21, 7), (*lead, 7, 13))
    for array, major, k_axis in ((operands.a, a_major, -1), (operands.b, b_major, -2)):
        contiguous = k_axis if major == "k" else -3 - k_axis
        assert array.strides[contiguous] == 2
        pitch = array.strides[-3 - contiguous]
        assert pitch % 16 == 0 if padded else pitch == 2 * array.shape[contiguous]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("shape", [(64, 64, 64), (20, 12, 36), (21, 13, 7)])
def test_the_kernel_of_a_workload_takes_its_arrays(shape: Any, padded: bool, batch: int | None) -> None:
    """A kernel of `spec` binds them, however they are loaded and stored."""
    workload = MatmulWorkload(*shape, batch=batch, b_major="mn", padded=padded, bias=True)
    operands = workload.operands(seed=0)
    launch = tilekit.compile(workload.spec, "sm_90a").bind(operands.a, operands.b, bias=operands.bias)
    assert workload.accuracy(operands, launch()).right
    assert (
        workload.spec.copies == any(load != "tma" for load in workload.spec.loads) == (not padded and 64 not in shape)
    )


def test_shapes_are_read_with_and_without_a_batch() -> None:
    """MxNxK and BxMxNxK are shapes, with everything else from the model; anything else is refused with an example."""
    like = MatmulWorkload(1, 1, 1, a_dtype=F16, out_dtype=F32)
    workload = MatmulWorkload.parse("8x64x32x16", like)
    assert (workload.batch, workload.m, workload.n, workload.k, workload.a_dtype) == (8, 64, 32, 16, F16)
    assert (workload.label, MatmulWorkload.parse("4x5x6").label) == ("8x64x32x16", "4x5x6")
    for text in ("", "4x5", "4x5x6x7x8", "4*5*6", "-4x5x6"):
        with pytest.raises(ArgumentError, match="MxNxK or BxMxNxK"):
            MatmulWorkload.parse(text)
    with pytest.raises(ArgumentError, match="m: given 0"):
        MatmulWorkload.parse("0x5x6")


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("dtype", [BF16, F16, E4M3, E5M2], ids=repr)
@pytest.mark.parametrize("out_dtype", [BF16, F16, F32], ids=repr)
def test_a_right_answer_is_right_and_a_swapped_element_is_not(dtype: Any, out_dtype: Any, activation: Any) -> None:
    """A float32 evaluation passes for every type and activation; two swapped elements, a missing bias or a NaN fail."""
    workload = MatmulWorkload(
        48, 40, 96, a_dtype=dtype, b_dtype=dtype, out_dtype=out_dtype, bias=True, activation=activation
    )
    operands = workload.operands(seed=1)
    value = operands.a.astype(np.float32) @ operands.b.astype(np.float32) + operands.bias
    if activation == "relu":
        value = np.maximum(value, 0)
    elif activation == "gelu":
        value = 0.5 * value * (1 + np.tanh(np.float32(0.7978845608) * (value + np.float32(0.044715) * value**3)))
    elif activation == "silu":
        value = value / (1 + np.exp(-value))
    out = value.astype(out_dtype.numpy)
    accuracy = workload.accuracy(operands, out)
    assert accuracy.right
    assert accuracy.relative <= workload.error_limit
    row, column = np.unravel_index(np.argmax(value), value.shape)
    for spoil in (lambda x: np.roll(x, 1, axis=1), lambda x: x - operands.bias.astype(x.dtype)):
        assert not workload.accuracy(operands, spoil(out)).right
    out[row, column] = np.nan
    assert not workload.accuracy(operands, out).right


def test_small_elements_of_8bit_floats() -> None:
    """What is rounded below the normal numbers is right by half a step there, and wrong by a whole one."""
    workload = MatmulWorkload(100, 64, 128, out_dtype=E4M3)
    operands = workload.operands(0)
    exact = operands.a.astype(np.float64) @ operands.b.astype(np.float64)
    small = np.abs(exact) < 2.0**-6
    assert small.any()
    rounded = exact.astype(ml_dtypes.float8_e4m3fn)
    assert workload.accuracy(operands, rounded).right
    rounded[small] = (rounded[small].astype(np.float64) + 2.0**-9).astype(rounded.dtype)
    assert not workload.accuracy(operands, rounded).right


@pytest.mark.parametrize("result", [E4M3, E5M2], ids=repr)
def test_large_elements_of_8bit_floats(result: Any) -> None:
    """What is too large has to be the largest number, of its sign: half of it is wrong, and so is an infinity."""
    workload = MatmulWorkload(8, 8, 64, out_dtype=result)
    operands = workload.operands(0)
    largest = float(np.array(0x7E if result is E4M3 else 0x7B, np.uint8).view(result.numpy))
    operands.a[...] *= np.array(largest, operands.a.dtype)
    exact = operands.a.astype(np.float64) @ operands.b.astype(np.float64)
    rounded = np.clip(exact, -largest, largest).astype(result.numpy)
    assert (np.abs(rounded.astype(np.float64)) == largest).mean() > 0.5
    assert workload.accuracy(operands, rounded).right
    for spoilt in (0.5 * largest, -largest, np.inf):
        wrong = np.where(exact > 2 * largest, spoilt, rounded.astype(np.float64))
        assert not workload.accuracy(operands, wrong).right, spoilt


def test_every_types_limit_is_above_its_rounding() -> None:
    """Rounding to the output type alone stays within the whole-array limit for every input and output type."""
    values = np.random.default_rng(0).standard_normal(10000)
    for dtype in DTYPES:
        for out_dtype in (BF16, F16):
            rounded = values.astype(out_dtype.numpy).astype(np.float64)
            relative = np.linalg.norm(rounded - values) / np.linalg.norm(values)
            workload = MatmulWorkload(1, 1, 1, a_dtype=dtype, b_dtype=dtype, out_dtype=out_dtype)
            assert relative < workload.error_limit / 2


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_an_activation_has_a_limit_of_its_own(activation: Any) -> None:
    """Two thousandths of the argument are allowed for it, and a hundredth is wrong."""
    workload = MatmulWorkload(16, 32, 64, out_dtype=F32, activation=activation)
    operands = workload.operands(3)
    sums = operands.a.astype(np.float64) @ operands.b.astype(np.float64)
    exact = {
        "relu": np.maximum(sums, 0),
        "gelu": sums / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (sums + 0.044715 * sums**3))),
        "silu": sums / (1 + np.exp(-sums)),
    }[activation]
    assert workload.accuracy(operands, exact).worst < 0.01
    allowed = workload.accuracy(operands, exact + 0.9 * 2.0**-10 * np.abs(sums)).worst
    assert 0.5 < allowed < 1
    assert workload.accuracy(operands, exact + 2.0**-7 * np.abs(sums)).worst > 4
    plain = MatmulWorkload(16, 32, 64, out_dtype=F32)
    assert plain.accuracy(operands, sums + 0.9 * 2.0**-10 * np.abs(sums)).worst > 10
