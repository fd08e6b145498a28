"""A launch on an AMD chip that stops: where it stands, what it shows, and that going on changes nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import program
from typer.testing import CliRunner

from tilekit.cli.app import app
from tilekit.emulator import Device, LaunchError, Livelock, StepBudgetExceeded, Stop

EXCHANGE = """
    v_lshlrev_b32_e32 v1, 2, v0
    global_load_dword v2, v1, s[2:3]
    s_waitcnt vmcnt(0)
    ds_write_b32 v1, v2 //@ store Exchange.put exchange.py:7
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_xor_b32_e32 v3, 0x100, v1
    ds_read_b32 v4, v3
    s_waitcnt lgkmcnt(0)
    v_cmp_gt_u32_e32 vcc, 96, v0
    s_and_saveexec_b64 s[6:7], vcc
    v_add_u32_e32 v4, v4, v2
    s_mov_b64 exec, s[6:7]
.Lstore:
    global_store_dword v1, v4, s[2:3]
"""
"""128 threads swap with the other wave through LDS; 96 of them add their own."""
NAMES = "//@role front warps=0-0\n//@role back warps=1-1\n//@shared swap offset=0 size=512 stride=256 count=2\n"


def text_of(body: str = EXCHANGE) -> str:
    """The kernel's text, with names."""
    return NAMES + program(body, "gfx950", lds=512)


def line_of(part: str, body: str = EXCHANGE) -> int:
    """The line of an instruction."""
    return next(number for number, line in enumerate(text_of(body).splitlines(), 1) if part in line)


class Launch:
    """A launch, and what it ought to leave."""

    def __init__(self, body: str = EXCHANGE, seed: int = 0, schedule: Any = "adversarial") -> None:
        self.array = np.arange(256, dtype=np.uint32)
        self.kernel = Device("gfx950", seed=seed, schedule=schedule).load(text_of(body))["k"]
        self.options: dict[str, Any] = {"grid": 1, "block": 128, "args": [self.array]}
        own = np.arange(128)
        self.wanted = (own ^ 64) + np.where(own < 96, own, 0)

    @property
    def right(self) -> bool:
        """Whether the results are there."""
        return bool((self.array[:128] == self.wanted).all())


@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
@pytest.mark.parametrize("stop", ["ds_read_b32", ".Lstore", "wait=s_barrier", "steps=17", "role=back,steps=9"])
def test_going_on_ends_as_if_nothing_had_been(schedule: Any, stop: str) -> None:
    """Stopping everywhere leaves report, results and every random choice of the schedule as they were."""
    plain = Launch(seed=5, schedule=schedule)
    report = replace(plain.kernel.launch(**plain.options), seconds=0.0)
    launch = Launch(seed=5, schedule=schedule)
    where = line_of(stop) if stop.startswith("ds_") else stop
    with launch.kernel.debug(**launch.options, stop=Stop(steps=10**9)) as session:
        state = session.launch.machine.rng.getstate()
    launch = Launch(seed=5, schedule=schedule)
    stops = 0
    with launch.kernel.debug(**launch.options, stop=where) as session:
        while session.stopped:
            stops += 1
            assert str(session)
            session.step(3)
            if session.stopped:
                session.step(2, warp=1)
            if session.stopped:
                session.resume(where)
        assert session.launch.machine.rng.getstate() == state
    assert stops or stop == "wait=s_barrier"  # waves in step do not wait for each other
    assert launch.right
    assert replace(session.finish(), seconds=0.0) == report
    assert session.steps == report.steps


def test_stops_at_a_line_and_steps() -> None:
    """The launch stands before the line; a step of a wave is its next instruction."""
    launch = Launch()
    at = line_of("ds_read_b32")
    with launch.kernel.debug(**launch.options, stop=at) as session:
        assert session.instruction.line == at
        assert (session.where.role, session.where.warp, session.where.waits_for) == ("front", 0, "")
        assert "v4" not in session.registers()
        session.step(1, warp=1)
        assert (session.where.warp, session.instruction.line) == (1, at + 1)
        (load, other) = session.in_flight()
        assert (load.unit, load.name, load.bytes) == ("lgkmcnt ds_read_b32", "v4", 256)
        assert other.issuer == "role back (wave 1)"
        session.resume(".Lstore")
        assert session.instruction.line == line_of("global_store")
        assert session.launch.machine.resident
    assert not launch.right


def test_registers_exec_and_lds() -> None:
    """Vector registers have a value a lane, EXEC and VCC a truth a lane; LDS is found by name and offset."""
    launch = Launch()
    with launch.kernel.debug(**launch.options, stop=f"warp=1,line={line_of('v_add_u32')}") as session:
        assert session.register("v2").tolist() == list(range(64, 128))
        assert session.register("v[1:2]").shape == (2, 64)
        assert session.register("v2", warp=0).tolist() == list(range(64))
        assert session.register("exec").tolist() == [True] * 32 + [False] * 32
        assert session.register("vcc").tolist() == [True] * 32 + [False] * 32
        assert int(session.register("s6")) == 0xFFFFFFFF
        assert session.shared("swap[1]", dtype=np.uint32).tolist() == list(range(64, 128))
        assert session.shared(4, 8, dtype=np.uint32).tolist() == [1, 2]
        assert "32 active lanes" in str(session)
        for question, message in (
            (lambda: session.register("v9"), "use name='v"),
            (lambda: session.shared("swop"), r"use name='swap\["),
            (lambda: session.shared(500, 16), "512 bytes of LDS"),
            (lambda: session.step(1, warp=2), "use warp=1"),
            (lambda: session.step(1, warp=1, cta=1), "use cta=0"),
        ):
            with pytest.raises(LaunchError, match=message):
                question()
        session.finish()
    assert launch.right


PARTED = """
    v_readfirstlane_b32 s8, v0
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 .Lback
    s_barrier
    s_branch .Ldone
.Lback:
    s_nop 7
    s_barrier
.Ldone:
    s_nop 0
"""


def test_stops_when_a_wave_waits() -> None:
    """A wait at a barrier is found, with who is there and who is not."""
    launch = Launch(PARTED)
    with launch.kernel.debug(**launch.options, stop="wait=s_barrier") as session:
        assert session.where.waits_for == "s_barrier"
        (state,) = session.barriers()
        assert (state.phase, state.pending, state.expected) == (0, 1, 2)
        assert len(state.waiting) == 1
        assert "waits for s_barrier" in str(session)
        assert sum(warp.waits_for == "s_barrier" for warp in session.warps()) == 1
        session.resume(line_of("s_nop 0", PARTED))
        assert session.barriers()[0].phase == 1


HANG = """
    v_readfirstlane_b32 s8, v0
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 .Lback
    s_barrier //@ front Meeting.wait meeting.py:3
    s_endpgm
.Lback:
.Lspin:
    s_branch .Lagain
.Lagain:
    s_sleep 1 //@ back Poll.spin poll.py:9
    s_branch .Lspin
"""


@pytest.mark.parametrize("budget", [10**6, 300])
def test_a_hang_names_roles_and_components(budget: int) -> None:
    """Who waits at which barrier and who goes round in which loop: role, line, and the component of its comment."""
    launch = Launch(HANG)
    with launch.kernel.debug(**launch.options, step_budget=budget) as session:
        kind, words = (Livelock, "go round in a loop") if budget > 300 else (StepBudgetExceeded, "have been executed")
        with pytest.raises(kind, match=words) as found:
            session.finish()
        text = str(found.value)
        back = line_of("s_sleep", HANG)
        assert f"before line {back}: s_sleep 1  [back Poll.spin poll.py:9]" in text
        front = line_of("s_barrier", HANG)
        assert f"role front (wave 0): waits at line {front}: s_barrier  [front Meeting.wait meeting.py:3]" in text
        assert "workgroup 0, role back (wave 1): runs at" in text
        with pytest.raises(LaunchError, match="has ended"):
            session.registers()


def test_statistics() -> None:
    """Instructions by role, bytes, matrix passes, bank conflicts and lines are counted as by hand."""
    body = """
        v_lshlrev_b32_e32 v1, 8, v0
        ds_write_b32 v1, v0
        v_lshlrev_b32_e32 v2, 2, v0
        ds_write_b32 v2, v0
        v_mov_b32_e32 v4, 0
        v_mov_b32_e32 v5, 0
        global_load_dword v3, v1, s[2:3]
        s_nop 1
        v_mfma_f32_16x16x16_f16 a[0:3], v[4:5], v[4:5], 0
        v_mfma_f32_16x16x16_f16 a[4:7], v[4:5], v[4:5], 0
        s_cmp_eq_u32 s2, s2
        s_cbranch_scc1 .Lpast
        s_nop 3
    .Lpast:
        s_waitcnt vmcnt(0) lgkmcnt(0)
        global_store_dword v2, v3, s[2:3]
    """
    text = program(body, "gfx942", lds=16384)
    memory = np.zeros(4096, np.uint32)
    report = Device("gfx942", check="protocol").load(text)["k"].launch(1, 64, [memory], statistics=True)
    found = report.statistics
    assert found.opcodes["wave 0"]["ds_write_b32"] == 2
    assert [text for _, text in found.never_run] == ["s_nop 3"]
    strided, dense = found.bank_sites
    assert (strided.accesses, strided.wavefronts, strided.extra) == (1, 64, 62)
    assert (dense.wavefronts, dense.extra) == (2, 0)
    assert found.traffic["LDS stores"].bytes == 512
    assert found.traffic["global loads"].bytes == 256
    scattered, together = found.line_sites
    assert (scattered.lines, scattered.ideal) == (64, 2)
    assert (together.lines, together.ideal) == (2, 2)
    assert (found.matrix["v_mfma_f32_16x16x16_f16"].count, found.matrix["v_mfma_f32_16x16x16_f16"].passes) == (2, 8)
    assert found.traffic["scalar loads"].bytes == 8
    shown = str(report)
    for part in ("62 of them bank conflicts", "8 passes", "global memory: 66 lines of 128 bytes"):
        assert part in shown


def test_timeline(tmp_path: Path) -> None:
    """The file has a process a workgroup, a track a wave with its role, waits, and memory operations that end."""
    launch = Launch(PARTED.replace("s_nop 0", EXCHANGE))
    path = tmp_path / "trace.json"
    launch.kernel.launch(**launch.options, timeline=path)
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M" and "name" in event["args"]}
    assert {"workgroup (0, 0, 0)", "front (wave 0)", "back (wave 1)"} <= names
    assert any(event["name"] == "s_barrier" and event["dur"] > 0 for event in events if event["ph"] == "X")
    begun = {(event["id"], event["name"]) for event in events if event["ph"] == "b"}
    assert begun == {(event["id"], event["name"]) for event in events if event["ph"] == "e"}
    assert {name for _, name in begun} >= {"global_load_dword", "ds_write_b32", "ds_read_b32", "global_store_dword"}
    runs = sum(event["dur"] for event in events if event["ph"] == "X" and event["name"] == "run" and event["tid"] == 0)
    assert runs > 0


def test_a_timeline_is_written_when_the_launch_fails(tmp_path: Path) -> None:
    """A hang leaves the file, with the wait that never ended."""
    launch = Launch(PARTED.replace(".Ldone:", ".Ldone:\n s_barrier\n").replace("s_branch .Ldone", "s_endpgm"))
    path = tmp_path / "trace.json"
    broken = PARTED.replace("s_branch .Ldone", ".Lspin:\n s_branch .Lspin").replace("s_nop 0", "s_barrier")
    launch = Launch(broken)
    with pytest.raises(Exception, match="loop"):
        launch.kernel.launch(**launch.options, timeline=path)
    assert "never ended" in path.read_text()


def test_observed_launches_run_as_others() -> None:
    """Steps, findings and results are the same with every observer as with none."""
    for seed in range(4):
        plain, watched = Launch(seed=seed, schedule="random"), Launch(seed=seed, schedule="random")
        report = plain.kernel.launch(**plain.options)
        other = watched.kernel.launch(**watched.options, statistics=True)
        assert replace(report, seconds=0) == replace(other, seconds=0, statistics=None)
        assert watched.right


def test_what_does_not_go_together() -> None:
    """`stop` goes without statistics or a timeline, and names what is not there."""
    launch = Launch()
    with pytest.raises(LaunchError, match="leave"):
        launch.kernel.launch(**launch.options, stop=3, statistics=True)
    with pytest.raises(LaunchError, match=re.escape("use label='.Lstore'")):
        launch.kernel.debug(**launch.options, stop=".Lstor")
    with pytest.raises(LaunchError, match="line=1 is not allowed"):
        launch.kernel.launch(**launch.options, stop=1)


def test_explore_finds_the_seed() -> None:
    """Many orders of a kernel that races for a word without atomics: the first that fails, and it fails again."""
    body = """
        v_mov_b32_e32 v1, 0
        global_load_dword v2, v1, s[2:3]
        s_waitcnt vmcnt(0)
        v_add_u32_e32 v2, 1, v2
        global_store_dword v1, v2, s[2:3]
    """
    kernel = Device("gfx942").load(program(body, "gfx942"))["k"]
    memory = np.zeros(16, np.uint32)
    found = kernel.explore(6, 3, 64, [memory])
    assert found.failure is not None
    assert memory[0] == 0
    again = Device("gfx942").load(program(body, "gfx942"))["k"]
    with pytest.raises(type(found.failure.error)):
        again.launch(3, 64, [np.zeros(16, np.uint32)], seed=found.failure.seed, schedule=found.failure.schedule)


def test_command_line(tmp_path: Path) -> None:
    """`tilekit emulate` stops, counts and draws for AMD texts as for PTX."""
    file = tmp_path / "k.s"
    file.write_text(text_of())
    command = ["emulate", str(file), "--grid", "1", "--block", "128", "--arg", "u32[256]=range"]
    runner = CliRunner()
    stopped = runner.invoke(app, [*command, "--stop", f"warp=1,line={line_of('v_add_u32')}", "--json"])
    facts = json.loads(stopped.stdout)
    assert facts["registers"]["exec"] == [True] * 32 + [False] * 32
    assert facts["where"]["role"] == "back"
    shown = runner.invoke(app, [*command, "--stop", "wait=nothing"])
    assert "without coming there" in shown.stdout
    counted = runner.invoke(app, [*command, "--statistics", "--timeline", str(tmp_path / "t.json")])
    assert "LDS stores: 128 accesses, 512 bytes" in counted.stdout
    assert (tmp_path / "t.json").exists()
    refused = runner.invoke(app, [*command, "--cluster", "2"])
    assert "--cluster: for PTX only" in refused.output
