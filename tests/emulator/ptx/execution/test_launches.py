"""Launch arguments, memory faults, budgets: an error at the call, or at the instruction, that says what to change."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tilekit.emulator import (
    Deadlock,
    Device,
    EmulatorError,
    Kernel,
    LaunchError,
    MemoryFault,
    PtxSyntaxError,
    StepBudgetExceeded,
    TrapError,
)

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
COPY = (
    HEADER
    + """.visible .entry copy(.param .u64 from, .param .u64 to, .param .u32 offset)
{
  .reg .b64 %a, %b, %o; .reg .b32 %t, %v, %k;
  ld.param.u64 %a, [from]; ld.param.u64 %b, [to]; ld.param.u32 %k, [offset];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %o, %t, 4;
  add.s64 %b, %b, %o;
  cvt.u64.u32 %o, %k;
  add.s64 %b, %b, %o;
  ld.global.u32 %v, [%a];
  st.global.u32 [%b], %v;
  ret;
}
"""
)


def kernel(
    body: str, *, parameters: str = "", directives: str = "", module: str = "", device: Device | None = None
) -> Kernel:
    """The kernel ``k`` with a body."""
    text = f"{HEADER}{module}\n.visible .entry k({parameters}) {directives}\n{{\n{body}\n}}\n"
    return (device or Device()).load(text)["k"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "0 arguments for the 3 parameters"),
        ([None, None, np.int64(1)], r"args\[2\] \(offset\)='8 bytes \(int64\)' is not allowed; legal: 4 bytes of .u32"),
        ([None, None, 1 << 40], r"args\[2\] \(offset\)=1099511627776 is not allowed; legal: an integer of 32 bits"),
        ([None, "x", 1], r"args\[1\] \(to\)='str'"),
        ([bytes(4), None, 1], r"args\[0\] \(from\)='4 bytes"),
    ],
)
def test_bad_arguments(args: list[Any], message: str) -> None:
    """Count, size and type of arguments, each named."""
    with pytest.raises(LaunchError, match=message):
        Device().load(COPY)["copy"].launch(1, 1, args)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": 1025}, "block=.* at most 1024 threads"),
        ({"grid": (1, 70000)}, "grid=.*y and z at most 65535"),
        ({"grid": 3, "cluster": 2}, r"a multiple of the cluster .*\n.*use grid=\(4, 1, 1\)"),
        ({"cluster": 16, "grid": 16}, "cluster=.* at most 8 CTAs"),
        ({"shared_bytes": 300000}, "shared_bytes=300000 is not allowed; legal: 0 to 232448"),
        ({"block": (0, 1)}, "one to three positive integers"),
    ],
)
def test_limits_of_the_chip(options: dict[str, Any], message: str) -> None:
    """Grid, block, cluster and shared memory against the chip."""
    arguments = {"grid": 1, "block": 32, **options}
    with pytest.raises(LaunchError, match=f"(?s){message}"):
        kernel("ret;").launch(**arguments)


def test_directives_bind_the_launch() -> None:
    """.reqntid, .maxntid and .reqnctapercluster are enforced."""
    with pytest.raises(LaunchError, match=r"\.reqntid"):
        kernel("ret;", directives=".reqntid 64, 1, 1").launch(1, 32)
    with pytest.raises(LaunchError, match=r"\.maxntid"):
        kernel("ret;", directives=".maxntid 64, 1, 1").launch(1, 128)
    with pytest.raises(LaunchError, match=r"\.reqnctapercluster"):
        kernel("ret;", directives=".reqnctapercluster 2, 1, 1").launch(2, 32, cluster=1)


def test_names_are_suggested() -> None:
    """An unknown kernel or chip names the nearest one."""
    with pytest.raises(LaunchError, match="did you mean 'copy'"):
        Device().load(COPY)["coppy"]
    with pytest.raises(LaunchError, match="sm_90a"):
        Device("sm_9oa")


def test_arguments_of_every_kind() -> None:
    """Buffers, arrays, scalars, plain numbers and a ready parameter block mean the same."""
    device = Device()
    copy = device.load(COPY)["copy"]
    source, target = np.array([7], np.uint32), np.zeros(32, np.uint32)
    copy.launch(1, 32, [source, target, 0])
    assert (target == 7).all()
    with device.buffer(np.array([9], np.uint32)) as a, device.buffer(target) as b:
        copy.launch(1, 32, [a, b, np.uint32(0)])
        assert (b.read() == 9).all()
        a.write(np.array([5], np.uint32))
        block = a.address.to_bytes(8, "little") + b.address.to_bytes(8, "little") + bytes(4)
        copy.launch(1, 32, params=block)
        assert (b.read() == 5).all()
    with pytest.raises(LaunchError, match="20 bytes"):
        copy.launch(1, 32, params=b"")


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (4, "out of bounds of to .*4 bytes past its end"),
        (2, "the address must be a multiple of 4"),
        (1 << 31, "out of bounds"),
    ],
)
def test_stores_outside_a_buffer(offset: int, message: str) -> None:
    """One element too far, misaligned, far away: named with buffer, offset, warp and line."""
    with pytest.raises(MemoryFault, match=message) as caught:
        Device().load(COPY)["copy"].launch(1, 32, [np.zeros(1, np.uint32), np.zeros(32, np.uint32), offset])
    assert caught.value.warp == 0
    assert caught.value.line == 14


def test_null_and_foreign_addresses() -> None:
    """A null pointer, and a shared address used as a global one."""
    with pytest.raises(MemoryFault, match="null pointer"):
        Device().load(COPY)["copy"].launch(1, 1, [None, None, 0])
    body = "mov.u64 %a, s; cvta.shared.u64 %a, %a; ld.global.u32 %v, [%a]; ret;"
    body = ".shared .align 4 .b8 s[64]; .reg .b64 %a; .reg .b32 %v; " + body
    with pytest.raises(MemoryFault, match="the shared window"):
        kernel(body).launch(1, 1)


def test_shared_memory_bounds() -> None:
    """Past the end of dynamic shared memory, and another CTA's memory without .shared::cluster."""
    module = ".extern .shared .align 16 .b8 d[];"
    body = ".reg .b32 %a; mov.u32 %a, d; st.shared.u32 [%a+%o], %a; ret;"
    kernel(body.replace("%o", "60"), module=module).launch(1, 1, shared_bytes=64)
    with pytest.raises(MemoryFault, match="out of bounds of shared memory of CTA 0"):
        kernel(body.replace("%o", "64"), module=module).launch(1, 1, shared_bytes=64)
    peer = "mov.u32 %a, s; mapa.shared::cluster.u32 %a, %a, 1; st.shared.u32 [%a], 1; ret;"
    peer = ".shared .align 4 .b8 s[64]; .reg .b32 %a; " + peer
    with pytest.raises(MemoryFault, match=r"reach another CTA's shared memory with \.shared::cluster"):
        kernel(peer).launch(2, 1, cluster=2)


def test_freed_buffers_fault() -> None:
    """An address that was given back is no address any more."""
    device = Device()
    a, b = device.buffer(np.zeros(1, np.uint32)), device.buffer(np.zeros(32, np.uint32))
    b.free()
    with pytest.raises(MemoryFault):
        device.load(COPY)["copy"].launch(1, 32, [a, b, 0])


def test_endless_loop_ends_with_a_report() -> None:
    """The step budget stops a loop that changes nothing and says where every warp is."""
    with pytest.raises(StepBudgetExceeded, match="bra AGAIN"):
        kernel("AGAIN: bra AGAIN;").launch(1, 64, step_budget=2000)


def test_a_grid_too_large_for_the_budget_is_refused_before_it_starts() -> None:
    """Every warp runs a basic block at least: more warps than the budget are refused, with what the launch takes."""
    with pytest.raises(LaunchError, match=r"grid=\(2147483647, 1, 1\) .*at most 100,000,000 CTAs") as found:
        kernel("ret;").launch(2**31 - 1, 64)
    assert found.value.hint == "give step_budget=4294967294 or more if the launch is really that long"
    assert kernel("ret;").launch(1000, 64, step_budget=2000).steps == 2000


def test_trap_is_an_error() -> None:
    """``trap`` in any lane ends the launch."""
    body = ".reg .b32 %t; .reg .pred %p; mov.u32 %t, %tid.x; setp.eq.u32 %p, %t, 7; @%p trap; ret;"
    with pytest.raises(TrapError):
        kernel(body).launch(1, 32)
    kernel(body).launch(1, 7)


def test_progress_and_report() -> None:
    """The progress hook sees every CTA; the report counts instructions by role."""
    seen: list[tuple[int, int]] = []
    text = "//@role left warps=0-0\n.reg .b32 %r; mov.u32 %r, 1; ret;"
    report = kernel(text).launch(5, 64, progress=lambda done, total, seconds: seen.append((done, total)))
    assert [done for done, _ in seen] == [1, 2, 3, 4, 5]
    assert report.instructions == {"left": 10, "warp 1": 10}
    assert "left" in str(report)


def test_named_barrier_deadlock_and_mismatch() -> None:
    """A barrier that no other warp reaches; a warp that expects another count."""
    body = (
        ".reg .b32 %t; .reg .pred %p; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 32; @!%p bra E; bar.sync 1, 64; E: ret;"
    )
    with pytest.raises(Deadlock, match="bar 1: 32 of 64 threads arrived"):
        kernel(body).launch(1, 64)
    first_warp = ".reg .b32 %t; .reg .pred %p; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 32; "
    body = first_warp + "@!%p bra E; bar.sync 1, 64; bra F; E: bar.sync 1, 96; F: ret;"
    with pytest.raises(EmulatorError, match="barrier 1 is used with"):
        kernel(body).launch(1, 96)


def test_divergent_aligned_barrier_faults() -> None:
    """bar.sync by half a warp is undefined; here it is named."""
    body = ".reg .b32 %t; .reg .pred %p; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 16; @%p bra E; bar.sync 0; E: ret;"
    with pytest.raises(EmulatorError, match=r"bar, which is \.aligned, is executed by lanes 16-31 alone"):
        kernel(body).launch(1, 32)


def test_module_needs_a_target() -> None:
    """Text without .target is refused."""
    with pytest.raises(PtxSyntaxError, match=r"\.target"):
        Device().load(".version 8.0\n.visible .entry k() { ret; }")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"grid": "a"}, "grid='a'"),
        ({"grid": 1.5}, "grid=1.5"),
        ({"grid": (2, 0.5)}, "grid="),
        ({"block": None}, "block=None"),
        ({"cluster": "a"}, "cluster='a'"),
        ({"shared_bytes": 1.5}, "shared_bytes=1.5"),
        ({"shared_bytes": None}, "shared_bytes=None"),
        ({"step_budget": 0}, "step_budget=0"),
        ({"step_budget": "a"}, "step_budget='a'"),
        ({"args": None}, "args=None"),
        ({"args": "ab"}, "args='ab'"),
        ({"seed": "a"}, "seed='a'"),
        ({"seed": 1.6}, "use seed=2"),
        ({"seed": 0.5, "stop": 1}, "seed=0.5"),
    ],
)
def test_arguments_of_another_type(change: dict[str, Any], named: str) -> None:
    """What is no number of CTAs, threads, bytes or blocks is refused by its name."""
    loaded = kernel("ret;")
    with pytest.raises(LaunchError, match=re.escape(named)):
        loaded.launch(**({"grid": 1, "block": 32} | change))
    assert loaded.launch(np.int64(2), np.array([32, 1]), []).clean
    assert loaded.launch(1, 32, seed=np.int64(7)).seed == 7  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match=re.escape("seed=None is not allowed; legal: an integer")):
        Device(seed=None)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match=re.escape("seed=1.0")):
        loaded.explore(2, 1, 32, seed=1.0)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="text=b''"):
        Device().load(b"")  # type: ignore[arg-type]


@pytest.mark.parametrize("align", [16, 128, 1024])
def test_dynamic_shared_memory_begins_where_it_asks_to(align: int) -> None:
    """Behind static variables of any size, dynamic memory begins at the next multiple of its own alignment."""
    text = f"""{HEADER}.extern .shared .align {align} .b8 dynamic[];
.visible .entry k(.param .u64 out)
{{
  .shared .align 4 .b8 small[20]; .reg .b32 %s, %d; .reg .b64 %o;
  ld.param.u64 %o, [out]; mov.u32 %s, small; mov.u32 %d, dynamic; st.global.v2.u32 [%o], {{%s, %d}}; ret;
}}
"""
    out = np.zeros(2, np.uint32)
    Device().load(text)["k"].launch(1, 1, [out], shared_bytes=64)
    assert out[1] % align == 0
    assert 20 <= out[1] - out[0] < 20 + align
