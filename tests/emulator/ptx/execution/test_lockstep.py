"""Many warps at once: bit for bit, count for count and fault for fault what single warps do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.ptx.hardware.running import Runner, recorded_cases
from tilekit.emulator import Device, EmulatorError, Kernel, LaunchReport, MemoryFault, RaceError, StepBudgetExceeded
from tilekit.emulator.ptx import launch as launches
from tilekit.emulator.ptx.execution import lockstep

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
WIDTHS = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64}


class Watch:
    """Which launches were offered to lockstep groups, and whether a lockstep group ran them to the end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[bool] = []
        original = launches.run_in_lockstep

        def run(launch: Any, program: Any) -> bool:
            self.ran.append(original(launch, program))
            return self.ran[-1]

        monkeypatch.setattr(launches, "run_in_lockstep", run)
        self._monkeypatch = monkeypatch

    def both(self, run: Callable[[], Any]) -> tuple[Any, Any, bool]:
        """What ``run`` returns with single warps and in lockstep, and whether lockstep came to the end."""
        self._monkeypatch.setattr(lockstep, "FEWEST_WARPS", 1 << 40)
        alone = run()
        self._monkeypatch.setattr(lockstep, "FEWEST_WARPS", 1)
        self.ran.clear()
        together = run()
        return alone, together, self.ran == [True]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Launches run by single warps and by lockstep groups."""
    return Watch(monkeypatch)


def kernel(parameters: str, body: str, check: str = "full") -> Kernel:
    """The kernel ``k`` on a fresh device."""
    text = f"{HEADER}.visible .entry k({parameters})\n{{\n{body}\n}}\n"
    return Device(check=check).load(text)["k"]  # type: ignore[arg-type]


def numbers(report: LaunchReport) -> tuple[int, dict[str, int]]:
    """What a report counts."""
    return report.steps, dict(sorted(report.instructions.items()))


SPECIAL = """
  .reg .b32 %x, %y, %z, %n, %v<14>; .reg .b64 %a, %o;
  mov.u32 %v0, %tid.x; mov.u32 %v1, %tid.y; mov.u32 %v2, %tid.z; mov.u32 %v3, %ctaid.x; mov.u32 %v4, %ctaid.y;
  mov.u32 %v5, %ctaid.z; mov.u32 %v6, %laneid; mov.u32 %v7, %warpid; mov.u32 %v8, %lanemask_lt; mov.u32 %v9, %ntid.y;
  mov.u32 %v10, %nctaid.z; mov.u32 %v11, %lanemask_ge; mov.u32 %v12, %nwarpid; mov.u32 %v13, %total_smem_size;
  mov.u32 %x, %nctaid.x; mov.u32 %y, %nctaid.y;
  mad.lo.u32 %n, %v5, %y, %v4; mad.lo.u32 %n, %n, %x, %v3;
  mov.u32 %x, %ntid.x; mov.u32 %y, %ntid.y; mov.u32 %z, %ntid.z;
  mad.lo.u32 %n, %n, %z, %v2; mad.lo.u32 %n, %n, %y, %v1; mad.lo.u32 %n, %n, %x, %v0;
  ld.param.u64 %a, [out]; mul.wide.u32 %o, %n, 56; add.s64 %a, %a, %o;
""" + "\n".join(f"  st.global.u32 [%a+{4 * i}], %v{i};" for i in range(14))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("grid", [(7, 3, 2), (150, 1, 1), (1, 1, 1)])
@pytest.mark.parametrize("block", [(5, 3, 3), (64, 1, 1), (1, 1, 40), (33, 1, 1), (1024, 1, 1)])
def test_special_registers(watch: Watch, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    """Every lane of every lockstep group, whole or not, sees its own indices and its CTA's."""
    threads = int(np.prod(grid) * np.prod(block))

    def run() -> tuple[bytes, Any]:
        out = np.zeros((threads, 14), np.uint32)
        return numbers(kernel(".param .u64 out", SPECIAL + "  ret;").launch(grid, block, [out])), out.tobytes()

    alone, together, in_lockstep = watch.both(run)
    assert in_lockstep
    assert alone == together


LOOP = """
  .reg .pred %p; .reg .b32 %i, %t, %n, %s, %k; .reg .b64 %a, %o;
  mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %i, %i, %n, %t;
  ld.param.u64 %a, [out]; mul.wide.u32 %o, %i, 4; add.s64 %a, %a, %o;
  mov.u32 %s, 1; and.b32 %k, %i, 7; mul.lo.u32 %k, %k, %k;
AGAIN:
  setp.eq.u32 %p, %k, 0; @%p bra DONE;
  and.b32 %t, %s, 1; setp.ne.u32 %p, %t, 0; @%p bra ODD;
  shr.u32 %s, %s, 1; bra NEXT;
ODD:
  mad.lo.u32 %s, %s, 3, %i;
  and.b32 %t, %s, 63; setp.eq.u32 %p, %t, 5; @%p exit;
NEXT:
  sub.u32 %k, %k, 1; bra AGAIN;
DONE:
  st.global.u32 [%a], %s;
  ret;
"""


def test_divergence(watch: Watch) -> None:
    """Lanes that part in loops, exit early and meet again compute the same in as many warp instructions."""

    def run() -> tuple[bytes, Any]:
        out = np.zeros(96 * 20, np.uint32)
        return numbers(kernel(".param .u64 out", LOOP).launch(20, 96, [out])), out.tobytes()

    alone, together, in_lockstep = watch.both(run)
    assert in_lockstep
    assert alone == together


def accesses(kind: str) -> str:
    """Stores and then loads at indices from tables; an index of all ones is left out."""
    return f"""
  .reg .pred %p; .reg .b32 %t, %c, %i, %n; .reg .b64 %w, %r, %x, %o, %a; .reg .b{max(16, 8 * int(kind[1:]) // 8)} %v;
  ld.param.u64 %w, [writes]; ld.param.u64 %r, [reads]; ld.param.u64 %x, [data]; ld.param.u64 %o, [out];
  mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %i, %c, %n, %t;
  mul.wide.u32 %a, %i, 4; add.s64 %w, %w, %a; add.s64 %r, %r, %a;
  mul.wide.u32 %a, %i, {int(kind[1:]) // 8}; add.s64 %o, %o, %a;
  ld.global.u32 %n, [%w]; setp.ne.u32 %p, %n, -1; mul.wide.u32 %a, %n, {int(kind[1:]) // 8}; add.s64 %a, %a, %x;
  cvt.{"u16" if kind == "u8" else kind}.u32 %v, %i;
  @%p st.global.{kind} [%a], %v;
  ld.global.u32 %n, [%r]; setp.ne.u32 %p, %n, -1; mul.wide.u32 %a, %n, {int(kind[1:]) // 8}; add.s64 %a, %a, %x;
  @%p ld.global.{kind} %v, [%a];
  st.global.{kind} [%o], %v;
  ret;
"""


def outcome(check: str, kind: str, writes: Any, reads: Any) -> tuple[Any, ...]:
    """Results of the accesses, or the fault or races they end in."""
    parameters = ", ".join(f".param .u64 {name}" for name in ("writes", "reads", "data", "out"))
    data, out = np.zeros(256, WIDTHS[kind]), np.zeros(128, WIDTHS[kind])
    try:
        report = kernel(parameters, accesses(kind), check).launch(2, 64, [writes, reads, data, out])
    except EmulatorError as error:
        return type(error), str(error), data.tobytes(), out.tobytes()
    return None, numbers(report), data.tobytes(), out.tobytes()


_INDEX = st.one_of(st.just(0xFFFFFFFF), st.integers(0, 255))
_OWN = st.integers(1, 4).map(lambda step: [i * step // 2 for i in range(128)])
_TABLE = st.one_of(_OWN, st.lists(_INDEX, min_size=128, max_size=128), st.just([0xFFFFFFFF] * 128),
                   _INDEX.map(lambda index: [index] * 128))  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(kind=st.sampled_from(sorted(WIDTHS)), writes=_TABLE, reads=_TABLE, changed=st.lists(st.tuples(
    st.booleans(), st.integers(0, 127), _INDEX), max_size=2))  # fmt: skip
def test_any_accesses(kind: str, writes: list[int], reads: list[int], changed: list[tuple[bool, int, int]]) -> None:
    """Whatever four warps store and load: the same results, or the same report of the same race."""
    for write, at, index in changed:
        table = (writes if write else reads).copy()
        table[at] = index
        writes, reads = (table, reads) if write else (writes, table)
    with pytest.MonkeyPatch.context() as monkeypatch:
        watch = Watch(monkeypatch)
        tables = np.array(writes, np.uint32), np.array(reads, np.uint32)
        alone, together, in_lockstep = watch.both(lambda: outcome("full", kind, *tables))
        assert alone == together
        assert alone[0] in (None, RaceError)
        if alone[0] is RaceError:
            assert not in_lockstep


def test_neighbours_do_not_race(watch: Watch) -> None:
    """Warps that write neighbouring bytes of one word are told apart, and each reads its own bytes again."""
    table = np.arange(128, dtype=np.uint32)
    for kind in WIDTHS:
        alone, together, in_lockstep = watch.both(lambda kind=kind: outcome("full", kind, table + 1, table + 1))  # type: ignore[misc]
        assert in_lockstep
        assert alone == together


def test_races_are_not_looked_for(watch: Watch) -> None:
    """Without checks a lockstep group runs a racing kernel too; every element holds what one of the writers wrote."""
    table = np.arange(128, dtype=np.uint32) % 64
    alone, together, in_lockstep = watch.both(lambda: outcome("off", "u32", table, table))
    assert in_lockstep
    assert alone[:2] == together[:2]
    held = np.frombuffer(together[2], np.uint32)[:64]
    assert set(np.unique(held - np.arange(64))) <= {0, 64}


FAULTS = {
    "out of bounds": ("mul.wide.u32 %o, %i, 4; add.s64 %a, %a, %o; st.global.u32 [%a], %i;", MemoryFault),
    "misaligned": (
        "mul.wide.u32 %o, %t, 4; add.s64 %a, %a, %o; add.s64 %a, %a, 2; st.global.u32 [%a], %i;",
        MemoryFault,
    ),
    "null": ("st.global.u32 [%a], %i; mov.u64 %a, 0; ld.global.u32 %i, [%a];", MemoryFault),
    "trap": ("mul.wide.u32 %o, %t, 4; add.s64 %a, %a, %o; setp.eq.u32 %p, %i, 77; @%p trap;", EmulatorError),
    "no end": ("mul.wide.u32 %o, %t, 4; FOREVER: add.s64 %a, %a, %o; bra FOREVER;", StepBudgetExceeded),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(watch: Watch, name: str) -> None:
    """A fault is the one that single warps come to, with memory as they leave it."""
    body, error = FAULTS[name]
    start = """.reg .pred %p; .reg .b32 %t, %i, %n; .reg .b64 %a, %o; ld.param.u64 %a, [x]; mov.u32 %t, %tid.x;
        mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %i, %i, %n, %t;"""

    def run() -> tuple[str, bytes]:
        x = np.full(100, 7, np.uint32)
        with pytest.raises(error) as caught:
            kernel(".param .u64 x", f"{start} {body} ret;").launch(3, 64, [x], step_budget=2000)
        return str(caught.value), x.tobytes()

    alone, together, in_lockstep = watch.both(run)
    assert not in_lockstep
    assert alone == together


def phases(tables: int, barriers: list[bool], shared: bool) -> str:
    """A kernel of phases; in each, threads store to and load from places of a table, a barrier before the next or not.

    An index of all ones is left out. Values are the thread's number, or 7 where the index is above 1000.
    """
    text = f"""
  .shared .b32 words[64]; .reg .pred %p, %q; .reg .b32 %t, %c, %i, %n, %s, %v, %k; .reg .b64 %x, %o, %a, %d;
  ld.param.u64 %x, [tables]; ld.param.u64 %o, [out]; ld.param.u64 %d, [data];
  mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %i, %c, %n, %t;
  mul.wide.u32 %a, %i, {8 * tables}; add.s64 %x, %x, %a; mul.wide.u32 %a, %i, 4; add.s64 %o, %o, %a;
  mul.wide.u32 %a, %c, 256; add.s64 %d, %d, %a;
  mov.u32 %s, words; setp.lt.u32 %p, %t, 64; shl.b32 %k, %t, 2; add.u32 %k, %k, %s; @%p st.shared.b32 [%k], 0;
  bar.sync 0; mov.u32 %v, 0;
"""
    for index, barrier in enumerate(barriers):
        for offset, store in ((8 * index, True), (8 * index + 4, False)):
            text += f"""
  ld.global.u32 %n, [%x+{offset}]; setp.ne.u32 %p, %n, -1; setp.gt.u32 %q, %n, 1000; selp.b32 %k, 7, %i, %q;
  and.b32 %n, %n, 63; shl.b32 %n, %n, 2;"""
            place = "%n" if shared else "%a"
            text += " add.u32 %n, %n, %s;" if shared else " cvt.u64.u32 %a, %n; add.s64 %a, %a, %d;"
            space = "shared" if shared else "global"
            text += (
                f"@%p st.{space}.b32 [{place}], %k;"
                if store
                else f"@%p ld.{space}.b32 %k, [{place}]; @%p add.u32 %v, %v, %k;"
            )
        text += " bar.sync 0;" if barrier else ""
    return text + "\n  st.global.u32 [%o], %v; ret;"


_PLACE = st.one_of(st.just(0xFFFFFFFF), st.integers(0, 63), st.integers(1024, 1087))
_OWN_PLACES = st.integers(0, 63).map(lambda shift: [(i + shift) % 64 for i in range(64)])
_PHASE = st.one_of(_OWN_PLACES, _OWN_PLACES, st.just([0xFFFFFFFF] * 64), _PLACE.map(lambda place: [place] * 64),
                   st.lists(_PLACE, min_size=64, max_size=64))  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(data=st.data(), count=st.integers(1, 3), shared=st.booleans())
def test_any_phases(data: st.DataObject, count: int, shared: bool) -> None:
    """Whatever threads do between barriers, in shared and in global memory: the same results, or the same races."""
    barriers = data.draw(st.lists(st.sampled_from([True, True, False]), min_size=count, max_size=count))
    drawn = [data.draw(_PHASE) for _ in range(2 * count)]
    tables = np.array([drawn, drawn], np.uint32).transpose(0, 2, 1).copy()
    text = phases(count, barriers, shared)

    def run() -> tuple[Any, ...]:
        out, memory = np.zeros(128, np.uint32), np.zeros(128, np.uint32)
        made = kernel(".param .u64 tables, .param .u64 out, .param .u64 data", text)
        try:
            report = made.launch(2, 64, [tables, out, memory])
        except EmulatorError as error:
            return type(error), str(error), out.tobytes(), memory.tobytes()
        return report.findings, numbers(report), out.tobytes(), memory.tobytes()

    with pytest.MonkeyPatch.context() as monkeypatch:
        alone, together, in_lockstep = Watch(monkeypatch).both(run)
    assert alone == together
    assert alone[0] == () or not in_lockstep


def test_exchange_through_shared_memory(watch: Watch) -> None:
    """Threads that read what others stored before a barrier, again and again, are run by a lockstep group."""
    turned = [[(i + shift) % 64 for i in range(64)] for shift in (0, 5, 9, 33, 64, 12)]
    tables = np.array([turned, turned], np.uint32).transpose(0, 2, 1).copy()
    for shared in (True, False):
        text = phases(3, [True] * 3, shared).replace("ld.global.u32 %n", "bar.sync 0; ld.global.u32 %n")

        def run(text: str = text) -> tuple[Any, ...]:
            out, memory = np.zeros(128, np.uint32), np.zeros(128, np.uint32)
            made = kernel(".param .u64 tables, .param .u64 out, .param .u64 data", text)
            return numbers(made.launch(2, 64, [tables, out, memory])), out.tobytes(), memory.tobytes()

        alone, together, in_lockstep = watch.both(run)
        assert in_lockstep
        assert alone == together


@pytest.mark.parametrize(
    "body",
    [
        ".reg .pred %p; .reg .b32 %t; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 32; @%p bra HALF; bar.sync 0; HALF:",
        "bar.sync 1;",
        "bar.sync 0, 32;",
        ".reg .pred %p; .reg .b32 %t; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 40; @!%p bra PAST; "
        "shfl.sync.idx.b32 %t, %t, 0, 31, 255; PAST:",
        ".shared .b32 word; .reg .b32 %t; ld.shared.b32 %t, [word]; .reg .b64 %a; ld.param.u64 %a, [x]; "
        "cvta.to.global.u64 %a, %a;",
    ],
)
def test_left_to_single_warps(watch: Watch, body: str) -> None:
    """Barriers that a part of a CTA comes to, other barriers, parts of warps, memory that no thread has written."""

    def run() -> tuple[Any, ...]:
        try:
            report = kernel(".param .u64 x", f"{body} ret;").launch(70, 64, [np.zeros(4, np.uint32)])
        except EmulatorError as error:
            return type(error), str(error)
        return numbers(report), [str(finding) for finding in report.findings]

    alone, together, in_lockstep = watch.both(run)
    assert watch.ran == [False]
    assert not in_lockstep
    assert alone == together


@pytest.mark.parametrize(
    "body",
    [
        "bar.arrive 1, 128;",
        ".reg .b32 %a; mov.u32 %a, %clock;",
        ".reg .b64 %a; ld.param.u64 %a, [x]; red.global.add.u32 [%a], 1;",
        ".reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [x]; ld.relaxed.gpu.global.u32 %v, [%a];",
        ".reg .b32 %v; .reg .pred %p; setp.eq.u32 %p, 0, 0; vote.sync.ballot.b32 %v, %p, -1;",
    ],
)
def test_warps_that_communicate(watch: Watch, body: str) -> None:
    """Barriers without waiting, clocks, atomics, strong accesses and votes are not for lockstep groups."""
    x = np.zeros(4, np.uint32)
    watch.both(lambda: kernel(".param .u64 x", f"{body} ret;").launch(70, 64, [x]))
    assert watch.ran == []


_SAMPLE = [case for cases in recorded_cases().values() for case in cases][::14]


def test_hardware_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of what was recorded on an H200: lockstep groups, where they may, give the same bits as single warps."""
    watch, alone, together = Watch(monkeypatch), Runner(), Runner()
    for case in _SAMPLE:
        monkeypatch.setattr(lockstep, "FEWEST_WARPS", 1 << 40)
        expected = alone.run(case)
        monkeypatch.setattr(lockstep, "FEWEST_WARPS", 1)
        assert np.array_equal(together.run(case), expected), case.name
    assert watch.ran.count(True) > len(_SAMPLE) // 2


def test_elementwise_in_a_blink() -> None:
    """A million elements, races looked for, in less than a second of processor time."""
    import time
    from pathlib import Path

    count = 1 << 20
    text = Path(__file__).parents[1].joinpath("corpus/ptx/triton/add.sm_90a.ptx").read_text()
    device = Device()
    x, y = np.arange(count, dtype=np.float32), np.ones(count, np.float32)
    z = device.buffer(np.zeros(count, np.float32))
    start = time.process_time()
    report = device.load(text)["add"].launch(
        count // 256, 128, [device.buffer(x), device.buffer(y), z, np.int32(count), None, None]
    )
    assert time.process_time() - start < 1
    assert report.clean
    assert (z.read() == x + 1).all()
