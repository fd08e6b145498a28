"""Every generated matmul gives the right numbers, writes every element of its output, and touches nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.matmul import matmul_streamed as streamed
from tests.matmul.cases_cdna import cdna_cases, more_cdna_cases
from tests.matmul.cases_sm_100a import blackwell_cases
from tests.matmul.matmul_case import Case
from tests.matmul.matmul_check import check, over
from tests.matmul.matmul_generator import (
    corner_cases,
    emulated,
    emulated_corner_cases,
    generated,
    largest_cases,
    width_cases,
)
from tests.matmul.matmul_layered import layered_cases, layered_cases_on_gpu
from tests.matmul.matmul_machine import Machine
from tests.matmul.matmul_pingpong import MULTIPROCESSORS, pingpong_cases, pingpong_cases_on_gpu
from tests.matmul.matmul_scaled import promoted_cases, promoted_cases_on_gpu, scaled_cases
from tests.matmul.matmul_short import short_cases, short_cases_on_gpu
from tests.matmul.matmul_swapped import swapped_cases, swapped_cases_on_gpu
from tilekit.emulator.ptx.chips import CHIPS


@pytest.mark.sampled(one_in=32)
@over(emulator=(*emulated(), *blackwell_cases()), cuda=generated())
def test_generated(machine: Machine, case: Case) -> None:
    """A case drawn for either chip is right to the last bit, or within its bound, on poisoned and guarded memory."""
    check(machine, case)


@pytest.mark.sampled(one_in=16)
@over(emulator=cdna_cases())
def test_on_amd_chips(machine: Machine, case: Case) -> None:
    """A case drawn for an AMD chip is as right, whatever the tile, the waves, the ring, the layouts and the shares."""
    check(machine, case)


@pytest.mark.breadth
@over(emulator=more_cdna_cases())
def test_more_on_amd_chips(machine: Machine, case: Case) -> None:
    """So are many more of them."""
    check(machine, case)


@pytest.mark.sampled(one_in=9)
@over(emulator=emulated_corner_cases(), cuda=corner_cases())
def test_corner(machine: Machine, case: Case) -> None:
    """Empty, one-element, ragged and many-matrix problems are as right as others."""
    check(machine, case)


@pytest.mark.sampled(one_in=9)
@over(emulator=width_cases(), cuda=width_cases())
def test_width(machine: Machine, case: Case) -> None:
    """A tile may have any multiple of 8 columns up to 256: the last subtile is as narrow as what is left."""
    check(machine, case)


@over(cuda=largest_cases())
def test_largest(machine: Machine, case: Case) -> None:
    """Problems with several large dimensions are right, tile for tile."""
    check(machine, case)


@pytest.mark.sampled(one_in=32)
@over(emulator=swapped_cases(), cuda=swapped_cases_on_gpu())
def test_swapped(machine: Machine, case: Case) -> None:
    """Kernels that compute the transpose of the output, 8-bit outputs and f32 operands are as right on both chips."""
    check(machine, case)


@pytest.fixture
def few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated Hopper so small that every CTA has many tiles."""
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], sms=MULTIPROCESSORS))


@pytest.mark.sampled(one_in=9)
@pytest.mark.usefixtures("few_multiprocessors")
@over(emulator=pingpong_cases(), cuda=pingpong_cases_on_gpu())
def test_pingpong(machine: Machine, case: Case) -> None:
    """Kernels whose consumers take turns, with shares, batches, clusters and swapped operands, are as right."""
    check(machine, case)


@pytest.mark.sampled(one_in=16)
@over(emulator=scaled_cases(), cuda=scaled_cases("sm_90a"))
def test_scaled(machine: Machine, case: Case) -> None:
    """Scales of rows and columns, beside every other function, reach the rows and columns that they are for."""
    check(machine, case)


@pytest.mark.sampled(one_in=9)
@over(emulator=promoted_cases(), cuda=promoted_cases_on_gpu())
def test_promoted(machine: Machine, case: Case) -> None:
    """Sums of 8-bit products that are promoted to f32 are right, upright and transposed, whole and in shares."""
    check(machine, case)


@pytest.fixture
def one_large_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated Hopper that holds one cluster of eight."""
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], sms=8))


@pytest.mark.sampled(one_in=9)
@pytest.mark.usefixtures("one_large_cluster")
@over(emulator=short_cases(), cuda=short_cases_on_gpu())
def test_short(machine: Machine, case: Case) -> None:
    """Tiles of fewer rows than an instruction are as right; of what the instruction reads more, nothing is stored."""
    check(machine, case)


@pytest.mark.sampled(one_in=9)
@over(emulator=layered_cases(), cuda=layered_cases_on_gpu())
def test_layered(machine: Machine, case: Case) -> None:
    """Kernels whose clusters share sums are as right, whatever the tile, the operands' order and the number of CTAs."""
    check(machine, case)


@pytest.fixture
def seven_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated Hopper on which tiles seldom make whole waves."""
    monkeypatch.setitem(CHIPS, "sm_90a", replace(CHIPS["sm_90a"], sms=streamed.MULTIPROCESSORS))


@pytest.mark.sampled(one_in=9)
@pytest.mark.usefixtures("seven_multiprocessors")
@over(emulator=streamed.streamed_cases(), cuda=streamed.streamed_cases_on_gpu())
def test_streamed(machine: Machine, case: Case) -> None:
    """Kernels whose CTAs share the last tiles' k-blocks are as right, whatever there is of tiles and k-blocks."""
    check(machine, case)
