"""Bound plans on the emulator: schedules and checks that are asked for, and what a plan reads and writes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tilekit
from tests.matmul.matmul_case import Case, Kernel
from tests.matmul.matmul_data import Inputs, inputs_of
from tests.matmul.matmul_machine import Emulator
from tests.matmul.matmul_reference import compare, expected_of
from tilekit import ElementwiseSpec, MatmulConfig, MatmulSpec
from tilekit.arrays import view_of
from tilekit.arrays.staging import EmulatedStaging
from tilekit.dtypes import as_dtype
from tilekit.emulator import Device
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.plan import EmulatedPlan
from tilekit.kernels.problem import MatmulCall, output_matrix, read_problem
from tilekit.runtime.emulated import EmulatedModule

HOST = Emulator()


def config(rows: int, columns: int, cluster: tuple[int, int] = (1, 1), **fields: int) -> MatmulConfig:
    """A config of one consumer warpgroup for 64 rows, two otherwise."""
    return MatmulConfig((rows, columns), cluster, **{"consumers": 1 if rows == 64 else 2, **fields})  # type: ignore[arg-type]


CASES = (
    Case(Kernel(config=config(64, 64, stages=2)), 130, 200, 300),
    Case(Kernel(config=config(64, 64, stages=1, in_flight=0)), 65, 64, 260),
    Case(Kernel(config=config(128, 128, (2, 1), stages=2)), 257, 136, 320),
    Case(Kernel(majors="mn", config=config(128, 128, (1, 2), stages=3)), 129, 264, 200),
    Case(Kernel(out="f32", bias="f32", config=config(64, 64, (2, 2))), 66, 132, 192),
    Case(Kernel(a="e4m3", b="e5m2", config=config(64, 64, (4, 1))), 200, 72, 520),
    Case(Kernel(direct=True, activation="relu", config=config(192, 64, consumers=3)), 195, 61, 130),
    Case(Kernel(batched=True, config=config(64, 64, (2, 1))), 65, 64, 128, batches=(2, 1)),
    Case(Kernel(out="f32", bias="f32", config=config(128, 24, swap_ab=True, k_group=2)), 33, 200, 330),
    Case(Kernel(out="e4m3", config=config(64, 16, (2, 1), swap_ab=True, split_k=2)), 16, 144, 260),
)


@cache
def prepared(case: Case) -> tuple[MatmulKernel, Inputs]:
    """The kernel and the inputs of a case."""
    kernel = case.kernel
    spec = MatmulSpec(
        *map(as_dtype, (kernel.a, kernel.b, kernel.out)),
        *("k" if major == "k" else "mn" for major in kernel.majors),  # type: ignore[arg-type]
        batched=kernel.batched,
        functions=ElementwiseSpec(bias=as_dtype(kernel.bias) if kernel.bias else None, activation=kernel.activation),  # type: ignore[arg-type]
        store="direct" if kernel.direct else "tma",
    )
    return tilekit.compile(spec, config=kernel.config), inputs_of(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_plan_writes_where_it_was_bound(case: Case) -> None:
    """A bound plan returns the array that it was given, touches nothing else, and reports how it was run."""
    kernel, inputs = prepared(case)
    a, b = HOST.place(inputs.a, case.a_layout), HOST.place(inputs.b, case.b_layout)
    out = HOST.place_output(case.out_dtype, case.out_layout)
    plan = kernel.bind(a.array, b.array, out.array, bias=inputs.bias, seed=1, schedule="adversarial")
    assert isinstance(plan, EmulatedPlan)
    assert plan() is out.array
    compare(out.read(), expected_of(case, inputs, HOST))
    out.check_surroundings()
    assert plan.report.clean, str(plan.report)
    assert (plan.report.schedule, plan.report.seed, plan.report.check) == ("adversarial", 1, "full")


def bind(case: Case, **options: Any) -> EmulatedPlan:
    """The plan of a case on fresh arrays; its ``out`` is new."""
    kernel, inputs = prepared(case)
    a, b = HOST.place(inputs.a, case.a_layout).array, HOST.place(inputs.b, case.b_layout).array
    plan = kernel.bind(a, b, **options)
    assert isinstance(plan, EmulatedPlan)
    return plan


def test_a_schedule_is_reproducible() -> None:
    """The same seed executes the same instructions; the matrix instructions do the FLOP of the whole tiles."""
    case = CASES[2]
    plans = [bind(case, seed=3) for _ in range(2)]
    for plan in plans:
        plan()
    first, second = (plan.report for plan in plans)
    assert (first.steps, first.instructions) == (second.steps, second.instructions)
    assert first.flops == 2 * (4 * 128) * (2 * 128) * 320  # cluster tiles of 256 by 128, K already whole k-blocks


def test_a_plan_follows_its_inputs() -> None:
    """A plan called again computes what its arrays hold by then."""
    kernel, inputs = prepared(CASES[1])
    a = HOST.place(inputs.a, CASES[1].a_layout).array
    plan = kernel.bind(a, HOST.place(inputs.b, CASES[1].b_layout).array)
    first = plan().copy()
    assert first.any()
    a[...] = -a
    assert np.array_equal(plan().astype(np.float32), -first.astype(np.float32))


@pytest.mark.parametrize("check", ["protocol", "off"])
def test_checks_can_be_lessened(check: str) -> None:
    """The emulator's options go through bind, and the result stays right."""
    plan = bind(CASES[0], check=check)
    compare(plan(), expected_of(CASES[0], prepared(CASES[0])[1], HOST))
    assert plan.report.check == check


def test_a_scale_in_device_memory() -> None:
    """The kernel that reads its scale from device memory multiplies by it (arrays in host memory never select it)."""
    kernel = tilekit.compile(MatmulSpec(functions=ElementwiseSpec(scale="pointer")), config=config(64, 64))
    case = Case(Kernel(scale="array"), 70, 72, 96)
    inputs = inputs_of(case)
    out = HOST.place_output(case.out_dtype, case.out_layout)
    arrays = HOST.place(inputs.a, case.a_layout).array, HOST.place(inputs.b, case.b_layout).array, out.array
    a, b, d = map(view_of, arrays)
    staging = EmulatedStaging(Device("sm_90a"))
    scale = staging.upload(view_of(np.array([inputs.scale], np.float32)))
    addresses = Addresses(*map(staging.upload, (a, b, d)), scale=scale)
    launch = kernel.launch_of(MatmulCall(read_problem(a, b), output_matrix(d)), addresses, 132, staging.scratch)
    module = EmulatedModule(staging.device, kernel.ptx)
    module.kernel(kernel.name).prepare(kernel.launch_config(launch.grid), launch.parameters)()
    staging.download(d)
    compare(out.read(), expected_of(case, inputs, HOST))
    out.check_surroundings()
