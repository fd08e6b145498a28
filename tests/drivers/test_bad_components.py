"""Components that cannot be composed: an error when the kernel is traced, which names both sides."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from tilekit import BlackwellConfig, MatmulConfig, MatmulSpec
from tilekit.assembly.errors import FragmentError, TraceError
from tilekit.assembly.types import U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.consumer_schedule import PingPong
from tilekit.drivers.warp_plan import RoleEntry, WarpPlan
from tilekit.drivers.warp_specialized import WarpSpecialized
from tilekit.dtypes import BF16
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.matmul.compose import compose
from tilekit.targets import SM_90A, SM_100A, target

SPEC = MatmulSpec(functions=ElementwiseSpec(residual=BF16))


def composed(config: Any = None) -> tuple[Writer, WarpSpecialized]:
    """A kernel of either chip before it is traced."""
    config = config or MatmulConfig(tile=(128, 128))
    chip = SM_90A if isinstance(config, MatmulConfig) else SM_100A
    threads = config.warps(chip, SPEC).threads
    w = Writer("k", target=chip, threads=threads, cluster=config.cluster_size)
    return w, compose(w, SPEC, config, chip)


# -- where a protocol does not fit -------------------------------------------------------------------------------------

COMPONENTS = [field.name for field in fields(WarpSpecialized) if field.name not in ("in_flight", "bodies")]


@pytest.mark.parametrize("field", COMPONENTS)
def test_something_that_is_no_component(field: str) -> None:
    """Whatever stands in the place of a component, the error names the place and what was given."""
    _, kernel = composed(BlackwellConfig())
    for wrong in (object(), 3, "tma"):
        with pytest.raises(TraceError, match="TK-FIT-001") as caught:
            replace(kernel, **{field: wrong})
        assert f"WarpSpecialized({field}=)" in str(caught.value)
        assert (repr(wrong) if isinstance(wrong, (int, str)) else "an object") in str(caught.value)


def refusal(kernel: WarpSpecialized, place: str, component: object) -> TraceError | None:
    """Why a component cannot stand in a place."""
    try:
        replace(kernel, **{place: component})
    except TraceError as error:
        return error
    return None


@pytest.mark.parametrize("config", [MatmulConfig(tile=(128, 128)), BlackwellConfig()], ids=["hopper", "blackwell"])
def test_every_component_in_every_place(config: Any) -> None:
    """A component in another's place either offers what is asked for there, or is refused by name."""
    _, kernel = composed(config)
    components = {name: getattr(kernel, name) for name in COMPONENTS if getattr(kernel, name) is not None}
    refused = 0
    for place in components:
        for name, component in components.items():
            error = refusal(kernel, place, component)
            if error is None:
                continue
            assert error.code == "TK-FIT-001"
            assert f"({place}=) is given a {type(component).__name__}" in str(error)
            assert place != name
            refused += 1
    assert refused >= len(components) * (len(components) - 2), "hardly any two are alike"


def test_a_member_that_is_missing_or_called_otherwise() -> None:
    """The first member that does not fit is named, with how the protocol calls it."""
    _, kernel = composed()

    class Nothing:
        """A loader without a body."""

        def prefetch(self, w: Writer) -> None:
            """Nothing."""

    class Narrow(Nothing):
        """A loader whose `bind` takes nothing."""

        def bind(self) -> None:
            """Nothing."""

    class Odd(Nothing):
        """A loader whose `bind` is a number."""

        bind = 3

    for loader, message in (
        (Nothing(), "is given a Nothing: it has no bind(w), which StageLoader asks for"),
        (Narrow(), "is given a Narrow: its bind() is not called as StageLoader.bind(w) is"),
        (Odd(), "is given an Odd: its bind is no method, which StageLoader asks for"),
    ):
        with pytest.raises(TraceError, match=re.escape(message)):
            replace(kernel, loader=loader)


# -- where two claim one resource --------------------------------------------------------------------------------------


def twice_the_same_name(w: Writer) -> None:
    """Two parameters."""
    w.parameter("count", U32)
    w.parameter("count", U32)


def twice_the_same_array(w: Writer) -> None:
    """Two arrays."""
    w.shared.allocate("inputs", size=16)
    w.shared.allocate("inputs", size=32)


def twice_the_same_barrier(w: Writer) -> None:
    """Two meetings."""
    w.barriers.claim(1, 2, meeting="each warpgroup of the epilogue", threads=128)
    w.barriers.claim(2, meeting="pingpong", threads=256)


@pytest.mark.parametrize(
    ("claims", "code", "what"),
    [
        (twice_the_same_name, "TK-TRACE-009", "kernel parameter 'count'"),
        (twice_the_same_array, "TK-SHARED-001", "shared array 'inputs'"),
        (twice_the_same_barrier, "TK-BARRIER-001", "named barrier 2"),
    ],
)
def test_one_resource_for_two(claims: Callable[[Writer], None], code: str, what: str) -> None:
    """The message names the resource and the lines of both that claim it."""
    w = Writer("k", target=SM_90A, threads=256)
    with pytest.raises(TraceError, match=what) as caught:
        claims(w)
    assert caught.value.code == code
    first = claims.__code__.co_firstlineno
    lines = [int(line) for line in re.findall(r"test_bad_components\.py:(\d+)", str(caught.value))]
    assert lines == [first + 2, first + 3]


def test_barriers_are_shared_by_those_who_meet_there() -> None:
    """The same meeting of as many threads may be claimed again, and a barrier that the chip lacks may not."""
    w = Writer("k", target=SM_90A, threads=256)
    for _ in range(2):
        w.barriers.claim(1, 2, meeting="each warpgroup of the epilogue", threads=128)
    with pytest.raises(TraceError, match=r"named barrier 0 .* the whole CTA \(256 threads\) .*nearest free: 3"):
        w.barriers.claim(0, meeting="mine", threads=64)
    with pytest.raises(TraceError, match=r"barriers 15 to 16 for mine, and sm_90a has 0 to 15; nearest: 14"):
        w.barriers.claim(15, 2, meeting="mine", threads=64)


def test_turns_at_the_epilogue_s_barriers() -> None:
    """Two components of a real kernel, put together wrongly: both are named, and where each claims its barrier."""
    w, kernel = composed(MatmulConfig(tile=(64, 128), consumers=2, schedule="pingpong", cluster=(1, 1)))
    wrong = replace(kernel, consumers=PingPong(kernel.warps["mma"], first_barrier=1))
    with pytest.raises(TraceError, match="TK-BARRIER-001") as caught:
        wrong.trace(w)
    message = str(caught.value)
    for word in ("named barrier 1", "StagedEpilogue", "each warpgroup of the epilogue (128 threads)", "BoundPingPong"):
        assert word in message
    assert "pingpong (256 threads); nearest free: 3" in message


# -- where a role uses what it did not declare -------------------------------------------------------------------------


def test_a_role_that_uses_a_ring_of_others() -> None:
    """A further role that fills the ring was not counted as a producer: refused, with the role, barrier and line."""

    class Greedy(MatmulConfig):
        """A plan with a role that loads too."""

        def warps(self, target: Any, spec: Any) -> Any:
            """The plan and a line."""
            more = RoleEntry("more", 1, frozenset({"load", "sync", "wait"}), one_thread=True)
            return super().warps(target, spec).with_role(more, beside="load")

    w, kernel = composed(Greedy(tile=(128, 128)))

    def fill(w: Writer, warp: Value, role: Role) -> None:
        """Take a stage, as the load role does."""
        with kernel.inputs.producer(w).acquire():
            pass

    with pytest.raises(TraceError, match="TK-ROLE-004") as caught:
        replace(kernel, bodies={"more": fill}).trace(w)
    for word in ("role 'more'", "side of 'inputs.full'", "declared for load", ".py:"):
        assert word in str(caught.value)


def test_a_role_that_copies_without_having_said_so() -> None:
    """The kind of a fragment that a role did not declare, with fragment, role, component and line."""
    w = Writer("k", target=SM_90A, threads=64)
    waits = Role("wait", range(1), frozenset({"wait"}))
    with w.role(waits, w.warp()), pytest.raises(FragmentError, match="TK-ROLE-001") as caught:
        w.ptx.tma.prefetch_map(map=w.tensor_map("m"))
    for word in ("prefetch_map", "'load'", "role 'wait'", "test_bad_components.py"):
        assert word in str(caught.value)


def test_a_role_on_warps_that_the_kernel_lacks() -> None:
    """Warps beyond the CTA's would never run: whatever waits for them would hang."""
    w = Writer("k", target=SM_90A, threads=128)
    warp, late = w.warp(), Role("late", range(3, 5), frozenset())
    message = r"'late' has warps 3 to 4, .* 128 threads are 4 warps; nearest: threads=160"
    with pytest.raises(TraceError, match=message), w.role(late, warp):
        pass


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: WarpPlan.waves(target("gfx942"), load=4, mma=[]),
            r"WarpPlan.waves\(mma=\[\]\); legal: an int",
        ),
        (lambda: WarpPlan.waves(target("gfx942"), load=np.float32(2.6), mma=4), "from 1 on; nearest: 3"),
        (
            lambda: WarpPlan.together(target("gfx942"), waves=float("nan")),
            r"waves=nan\); legal: an integer from 1 on ",
        ),
        (
            lambda: WarpPlan.register_accumulators(target("sm_90a"), consumers=0, accumulators=64),
            r"WarpPlan.register_accumulators\(consumers=0\).*nearest: 1",
        ),
    ],
)
def test_plans_of_odd_numbers(make: Callable[[], WarpPlan], says: str) -> None:
    """What cannot be hashed, or is no count, is refused as any other argument is."""
    with pytest.raises(TraceError, match=says):
        make()
    with pytest.raises(TypeError, match=r"WarpPlan\.waves"):
        WarpPlan.waves(target("gfx942"))  # type: ignore[call-arg]
