"""Another role is a body and a line: a sixth one beside the driver's five, and plans that cannot be."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilekit import BlackwellConfig, MatmulConfig, MatmulSpec
from tilekit.arrays import view_of
from tilekit.arrays.staging import EmulatedStaging
from tilekit.assembly.errors import TraceError
from tilekit.assembly.types import F32, GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.roles import elected, match_bodies, trace_roles
from tilekit.drivers.warp_plan import EPILOGUE_LOAD, RoleEntry, WarpPlan
from tilekit.drivers.warp_specialized import WarpSpecialized
from tilekit.dtypes import BF16
from tilekit.emulator import Device
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.launch import bind_parameters
from tilekit.kernels.matmul.compose import compose
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.runtime.emulated import EmulatedModule
from tilekit.runtime.prepared import LaunchConfig
from tilekit.targets import SM_90A, SM_100A, Target
from tilekit.tiles.call import Call, Matrix

COUNT = RoleEntry("count", 1, frozenset({"memory", "store", "sync", "wait"}), one_thread=True)
SPEC = MatmulSpec(functions=ElementwiseSpec(residual=BF16))


@dataclass(frozen=True)
class CountingBlackwell(BlackwellConfig):
    """A config with a warp more."""

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The shipped plan and a line."""
        return super().warps(target, spec).with_role(COUNT)


@dataclass(frozen=True)
class CountingHopper(MatmulConfig):
    """A config in which a warp that idled works."""

    def warps(self, target: Target, spec: MatmulSpec) -> WarpPlan:
        """The shipped plan and a line."""
        return super().warps(target, spec).with_role(COUNT, beside="load")


def counting(kernel: WarpSpecialized, w: Writer) -> WarpSpecialized:
    """The kernel with a body that notes in global memory how many tiles its CTA has."""
    notes = w.parameter("notes", GMEM, lambda call: call.allocate("notes", 4 * call.ctas))

    def count(w: Writer, warp: Value, role: Role) -> None:
        with elected(w):
            tiles = w.variable(U32, 0, "tiles")
            for _ in kernel.scheduler.tiles(w, role):
                tiles.assign(tiles + 1)
            address = (notes + w.widen_multiply(w.cta(), 4)).retyped(GMEM)
            w.isa.memory.store_global_f32(address=address, value=tiles.retyped(F32), valid=tiles >= 0)

    return replace(kernel, bodies={"count": count})


@pytest.mark.parametrize(
    ("chip", "config"),
    [(SM_100A, CountingBlackwell()), (SM_90A, CountingHopper(tile=(128, 128)))],
    ids=["blackwell", "hopper"],
)
def test_a_sixth_role(chip: Target, config: KernelConfig) -> None:
    """It loops over the same tiles as the shipped roles; the product stays exact, and no race or hang comes of it."""
    w = Writer("counted", target=chip, threads=config.warps(chip, SPEC).threads, cluster=config.cluster_size)
    kernel = counting(compose(w, SPEC, config, chip), w)
    kernel.trace(w)
    names = ["load", "mma", *(["epilogue", "scheduler"] if chip is SM_100A else []), "epilogue_load", "count"]
    assert [role.name for role in w.roles] == names

    random = np.random.default_rng(11)
    m, n, k = 300, 520, 136
    a, b, residual = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k), (m, n)))
    d = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    arrays = {"a": a, "b": b, "d": d, "c": residual}
    memory = EmulatedStaging(Device(chip.name, seed=4))
    call = Call(
        m=m,
        n=n,
        k=k,
        matrices={name: Matrix(name, BF16, array.shape[::-1], array.strides[0]) for name, array in arrays.items()},
        addresses={name: memory.upload(view_of(array)) for name, array in arrays.items()},
        resident=chip.multiprocessors // config.cluster_size,
        cluster_size=config.cluster_size,
        numbers={"beta": 1.0},
        scratch=memory.scratch,
    )
    launch = bind_parameters(w.parameters, kernel.scheduler.schedule, call)
    shape = LaunchConfig(
        grid=(launch.grid, 1, 1),
        block=(w.threads, 1, 1),
        cluster=(config.cluster_size, 1, 1),
        shared_bytes=max(w.shared.size, chip.shared_bytes // 2),
    )
    prepared = EmulatedModule(memory.device, w.text()).kernel(w.name).prepare(shape, launch.parameters)
    prepared()
    assert "nothing found" in str(prepared.report)
    memory.download(view_of(d))
    exact = a.astype(np.float32) @ b.T.astype(np.float32) + residual.astype(np.float32)
    assert np.array_equal(d.astype(np.float32), exact.astype(ml_dtypes.bfloat16).astype(np.float32))
    noted = np.frombuffer(memory.read_scratch("notes"), np.uint32)
    assert noted.sum() == launch.tiles * config.cluster_size


def test_a_role_without_a_body() -> None:
    """Roles and bodies are matched by name: what is left over on either side is named."""
    w = Writer("k", target=SM_100A, threads=32 * 8)
    plan = WarpPlan.tensor_memory(SM_100A, scheduler=False).with_role(COUNT)

    def nothing(w: Writer, warp: Value, role: Role) -> None:
        """A body."""

    own = dict.fromkeys(("load", "mma", "epilogue"), nothing)
    with pytest.raises(TraceError, match=r"'count' \(warps 6-6\) has no body; .*load, mma, epilogue: .*TK-ROLE-003"):
        match_bodies(plan.roles, own, {})
    with pytest.raises(TraceError, match=r"given for role 'counts', but the plan's roles are load, .*TK-ROLE-003"):
        match_bodies(plan.roles, own, {"counts": nothing})
    with pytest.raises(TraceError, match=r"given for role 'mma', but the driver has one of its own.*TK-ROLE-003"):
        match_bodies(plan.roles, own, {"mma": nothing})
    trace_roles(w, w.warp(), match_bodies(plan.roles, own, {"count": nothing}))
    assert [role.name for role in w.roles] == ["load", "mma", "epilogue", "count"]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (lambda plan: plan["epilog"], "TK-ROLE-003", "no role 'epilog'; it has 'load', 'mma'"),
        (lambda plan: plan.with_role(EPILOGUE_LOAD, beside="mma"), "TK-ROLE-003", "all of its threads work; nearest"),
        (lambda plan: plan.with_role(replace(COUNT, warps=4), beside="load"), "TK-ROLE-003", "4 of its 4 warps"),
        (
            lambda plan: plan.with_role(replace(COUNT, name="mma")),
            "TK-ROLE-002",
            "two roles of a plan are called",
        ),
        (
            lambda plan: WarpPlan(SM_90A, (*plan.roles, COUNT.on(7))),
            "TK-ROLE-002",
            "roles 'mma' and 'count' share warps",
        ),
    ],
)
def test_plans_that_cannot_be(change: Any, code: str, message: str) -> None:
    """A name or warp that two roles claim, and warps that a role cannot give up, are refused with both names."""
    plan = WarpPlan.register_accumulators(SM_90A, consumers=2, accumulators=128)
    with pytest.raises(TraceError, match=re.escape(message)) as caught:
        change(plan)
    assert caught.value.code == code


def test_a_plan_counts_in_the_chip_s_waves() -> None:
    """Of a chip with 64 lanes and one wave a matrix instruction, a consumer is one wave of 64 threads."""
    chip = replace(SM_90A, name="wide", lanes=64, matrix_waves=1, thread_registers=512, registers=4 * 64 * 512)
    plan = WarpPlan.register_accumulators(chip, consumers=3, accumulators=256)
    assert plan.threads == 256
    assert [len(role.warps) for role in plan.roles] == [1, 3]
    assert plan.launch_registers == 512
    assert plan["mma"].registers is None, "every thread has all it can have"


def test_a_warp_more_leaves_fewer_registers() -> None:
    """Two consumers are raised to 232 of 168; with a warp more a thread has 128 at launch, and they get 168."""
    plan = WarpPlan.register_accumulators(SM_90A, consumers=2, accumulators=128)
    assert [(p["mma"].registers, p.launch_registers) for p in (plan, plan.with_role(COUNT))] == [(232, 168), (168, 128)]
    assert plan.with_role(COUNT, beside="load").launch_registers == 168
    with pytest.raises(TraceError, match=r"'mma' cannot be raised to 232 .*leave it 168; nearest: registers=168 .*005"):
        WarpPlan(SM_90A, (*plan.roles, COUNT.on(12)))


def test_a_lone_consumer_is_raised() -> None:
    """So that ptxas keeps its loop in uniform registers; with a warp more no role has any to give up."""
    plan = WarpPlan.register_accumulators(SM_90A, consumers=1, accumulators=64)
    assert (plan["load"].registers, plan["mma"].registers, plan.launch_registers) == (168, 248, 208)
    more = plan.with_role(COUNT)
    assert (more["load"].registers, more["mma"].registers, more.launch_registers) == (None, None, 168)
