"""Every generated matmul gives the right numbers, writes every element of its output, and touches nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import matmul_streamed as streamed
import pytest
from matmul_blackwell import blackwell_cases
from matmul_case import Case
from matmul_data import inputs_of
from matmul_generator import (
    corner_cases,
    emulated,
    emulated_corner_cases,
    generated,
    largest_cases,
    width_cases,
)
from matmul_layered import layered_cases, layered_cases_on_gpu
from matmul_machine import Machine
from matmul_pingpong import MULTIPROCESSORS, pingpong_cases, pingpong_cases_on_gpu
from matmul_reference import compare, expected_of
from matmul_scaled import promoted_cases, promoted_cases_on_gpu, scaled_cases
from matmul_short import short_cases, short_cases_on_gpu
from matmul_swapped import swapped_cases, swapped_cases_on_gpu

import tilekit
from tilekit.emulator.ptx.chips import CHIPS

Test = TypeVar("Test", bound=Callable[..., None])


def over(**cases: tuple[Case, ...]) -> Callable[[Test], Test]:
    """Say which cases a test runs on which machine."""

    def attach(test: Test) -> Test:
        test.cases = cases  # type: ignore[attr-defined]
        return test

    return attach


def check(machine: Machine, case: Case) -> None:
    """Run a case on a poisoned output and compare it; operands and all that lies around must stay as they were."""
    inputs = inputs_of(case)
    a = machine.place(inputs.a, case.a_layout)
    b = machine.place(inputs.b, case.b_layout)
    out = machine.place_output(case.out_dtype, case.out_layout)
    extras = {}
    if inputs.bias is not None:
        extras["bias"] = machine.place(inputs.bias)
    for name, factors in (("scale_a", inputs.scale_a), ("scale_b", inputs.scale_b)):
        if factors is not None:  # with the product's other dimension, or without
            flat = factors.reshape(*factors.shape[:-2], -1)
            extras[name] = machine.place(factors if case.seed % 2 else flat)
    scale: Any = inputs.scale
    if case.kernel.scale == "array":
        extras["scale"] = machine.place(one_f32(inputs.scale))
        scale = extras["scale"].array
    result = tilekit.matmul(
        a.array,
        b.array,
        out=out.array,
        bias=extras["bias"].array if "bias" in extras else None,
        scale_a=extras["scale_a"].array if "scale_a" in extras else None,
        scale_b=extras["scale_b"].array if "scale_b" in extras else None,
        scale=scale,
        activation=case.kernel.activation,  # type: ignore[arg-type]
        precision=case.kernel.precision,
        accumulation=case.kernel.accumulation,
        config=case.kernel.config,
        target=case.kernel.target if machine.name == "emulator" else None,
    )
    assert result is out.array
    compare(out.read(), expected_of(case, inputs, machine))
    out.check_surroundings()
    for operand in (a, b, *extras.values()):
        operand.check_unchanged()


def one_f32(value: float | None) -> Any:
    """An array of one f32."""
    import numpy as np

    return np.array([value], np.float32)


@over(emulator=emulated(), cuda=generated())
def test_generated(machine: Machine, case: Case) -> None:
    """A generated case is right to the last bit, or within its bound, on poisoned and guarded memory."""
    check(machine, case)


@over(emulator=emulated_corner_cases(), cuda=corner_cases())
def test_corner(machine: Machine, case: Case) -> None:
    """Empty, one-element, ragged and many-matrix problems are as right as others."""
    check(machine, case)


@over(emulator=width_cases(), cuda=width_cases())
def test_width(machine: Machine, case: Case) -> None:
    """A tile may have any multiple of 8 columns up to 256: the last subtile is as narrow as what is left."""
    check(machine, case)


@over(cuda=largest_cases())
def test_largest(machine: Machine, case: Case) -> None:
    """Problems with several large dimensions are right, tile for tile."""
    check(machine, case)


@over(emulator=blackwell_cases())
def test_blackwell(machine: Machine, case: Case) -> None:
    """Blackwell's kernels, over layouts of tensor memory, pairs, schedules, types and majors, are as right."""
    check(machine, case)


@over(emulator=swapped_cases(), cuda=swapped_cases_on_gpu())
def test_swapped(machine: Machine, case: Case) -> None:
    """Kernels that compute the transpose of the output, 8-bit outputs and f32 operands are as right on both chips."""
    check(machine, case)


@pytest.fixture
def few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated Hopper so small that every CTA has many tiles."""
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], sms=MULTIPROCESSORS))


@pytest.mark.usefixtures("few_multiprocessors")
@over(emulator=pingpong_cases(), cuda=pingpong_cases_on_gpu())
def test_pingpong(machine: Machine, case: Case) -> None:
    """Kernels whose consumers take turns, with shares, batches, clusters and swapped operands, are as right."""
    check(machine, case)


@over(emulator=scaled_cases(), cuda=scaled_cases("sm_90a"))
def test_scaled(machine: Machine, case: Case) -> None:
    """Scales of rows and columns, beside every other function, reach the rows and columns that they are for."""
    check(machine, case)


@over(emulator=promoted_cases(), cuda=promoted_cases_on_gpu())
def test_promoted(machine: Machine, case: Case) -> None:
    """Sums of 8-bit products that are promoted to f32 are right, upright and transposed, whole and in shares."""
    check(machine, case)


@pytest.fixture
def one_large_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated Hopper that holds one cluster of eight."""
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], sms=8))


@pytest.mark.usefixtures("one_large_cluster")
@over(emulator=short_cases(), cuda=short_cases_on_gpu())
def test_short(machine: Machine, case: Case) -> None:
    """Tiles of fewer rows than an instruction are as right; of what the instruction reads more, nothing is stored."""
    check(machine, case)


@over(emulator=layered_cases(), cuda=layered_cases_on_gpu())
def test_layered(machine: Machine, case: Case) -> None:
    """Kernels whose clusters share sums are as right, whatever the tile, the operands' order and the number of CTAs."""
    check(machine, case)


@pytest.fixture
def seven_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated Hopper on which tiles seldom make whole waves."""
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], sms=streamed.MULTIPROCESSORS))


@pytest.mark.usefixtures("seven_multiprocessors")
@over(emulator=streamed.streamed_cases(), cuda=streamed.streamed_cases_on_gpu())
def test_streamed(machine: Machine, case: Case) -> None:
    """Kernels whose CTAs share the last tiles' k-blocks are as right, whatever there is of tiles and k-blocks."""
    check(machine, case)
