"""Random kernels, traced once a chip: PTX on one emulator, AMDGCN on the other, and NumPy agree bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from random_traces import THREADS, Oracle, RandomKernel, arguments

from tilekit.assembly.trace import OPERATIONS, Operation
from tilekit.emulator import Device
from tilekit.runtime.assembler import assemble

CHIPS = ("gfx942", "gfx950", "sm_90a")


def launch(kernel: RandomKernel, target: str, *, assembled: bool = False) -> npt.NDArray[Any]:
    """Trace it for a chip, run the text or what LLVM made of it, and return what it stored."""
    text = kernel.trace(target).text()
    module = assemble(text, target, kernel_name="random_kernel").image if assembled else text
    device = Device(target, seed=kernel.seed)
    data, scalars = arguments(kernel.seed)
    out = device.buffer(np.zeros(len(kernel.outputs) * THREADS, np.uint32), "out")
    report = device.load(module)["random_kernel"].launch(
        grid=1, block=THREADS, args=[out, device.buffer(data, "data"), *scalars]
    )
    assert report.clean, report
    return out.read()


def differences(kernel: RandomKernel, found: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> list[tuple[str, int, int]]:
    """Type, number and thread of each value that differs; NaN is NaN, and beside 16 bits a word says nothing."""
    wrong = []
    for kind, row in kernel.outputs:
        x, y = (values[row * THREADS : (row + 1) * THREADS] for values in (found, wanted))
        if kind == "b16":
            x, y = x & 0xFFFF, y & 0xFFFF
        unequal = x != y
        if kind == "f32":
            unequal &= ~(np.isnan(x.view(np.float32)) & np.isnan(y.view(np.float32)))
        wrong += [(kind, row, int(thread)) for thread in np.flatnonzero(unequal)]
    return wrong


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("seed", range(10))
def test_two_instruction_sets_and_numpy_agree(seed: int) -> None:
    """Operations of every type, uniform and per lane; branches and loops that lanes take together or apart."""
    kernel = RandomKernel(seed, 50)
    for target in CHIPS:
        found = launch(kernel, target)
        data, scalars = arguments(seed)
        assert differences(kernel, found, Oracle(kernel, data, scalars).out) == [], target


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_code_objects_agree(chip: str) -> None:
    """LLVM assembles what is written, and its code object does what the text does."""
    for seed in (100, 101, 102):
        kernel = RandomKernel(seed, 50)
        found = launch(kernel, chip, assembled=True)
        data, scalars = arguments(seed)
        assert differences(kernel, found, Oracle(kernel, data, scalars).out) == []


def test_every_operation_is_among_them() -> None:
    """The kernels have every operation of the trace, and in AMDGCN on scalars and on vectors."""
    operations, mnemonics = set(), set()
    for seed in range(60):
        w = RandomKernel(seed, 50).trace("gfx950")
        operations |= {
            (line.statement.name, line.statement.type.name)
            for line in w._root.lines()
            if isinstance(line.statement, Operation)
        }
        mnemonics |= {line.split()[0] for line in w.text().splitlines() if line.startswith((" s_", " v_", "    "))}
    assert {name for name, _ in operations} == OPERATIONS.keys()
    assert {"s_mul_hi_u32", "s_min_i32", "s_cselect_b32", "s_lshr_b64", "v_mul_hi_u32", "v_min_f32", "v_mad_u64_u32",
            "v_cmp_gt_i64", "s_and_saveexec_b64", "s_andn1_saveexec_b64", "s_cbranch_execnz", "s_cbranch_scc1",
            "v_readfirstlane_b32", "v_subb_co_u32"} <= mnemonics  # fmt: skip
