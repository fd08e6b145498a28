"""A launch that stops: where it stands, what it shows, and that going on changes nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from product_kernels import DOUBLE, HANG, TICKETS, doubling, line_of

from tilekit.emulator import Deadlock, Device, LaunchError, Stop

COPY = line_of(DOUBLE, "cp.async.bulk.shared")


def end(launch: Any) -> Any:
    """What must not change: the report without its time, and the state of the random numbers."""
    return replace(launch.report, seconds=0.0), launch.launch.machine.rng.getstate(), launch.launch.machine.steps


@pytest.mark.parametrize("schedule", ["adversarial", "random", "fair"])
@pytest.mark.parametrize("stop", [COPY, "wait_full", "wait=full", "steps=17", "role=double,steps=100"])
def test_going_on_ends_as_if_nothing_had_been(schedule: Any, stop: int | str):
    """Stopping everywhere leaves report, results and every random choice of the schedule as they were."""
    plain = doubling(seed=5, schedule=schedule)
    report = replace(plain.kernel.launch(**plain.options), seconds=0.0)
    through = doubling(seed=5, schedule=schedule)
    with through.kernel.debug(**through.options, stop=Stop(steps=10**9)) as session:
        states = end(session)
    launch = doubling(seed=5, schedule=schedule)
    stops = 0
    with launch.kernel.debug(**launch.options, stop=stop) as session:
        while session.stopped:
            stops += 1
            session.step(3)
            if session.stopped:
                session.step(2, warp=1)
            if session.stopped:
                session.resume(stop)
    assert stops
    assert launch.right
    assert session.finish() == session.report
    assert end(session)[0] == report == states[0]
    assert end(session)[1:] == states[1:]


def test_stops_at_a_line():
    """The launch stands before the line, which has not been executed; the next stop is its next execution."""
    launch = doubling()
    with launch.kernel.debug(**launch.options, stop=COPY) as session:
        assert session.instruction.line == COPY
        assert (session.where.role, session.where.warp, session.where.waits_for) == ("copy", 0, "")
        assert session.in_flight() == []
        assert session.register("chunk")[0] == 0
        session.resume(COPY)
        assert session.register("chunk")[0] == 1
        (load,) = session.in_flight()
        assert (load.unit, load.name, load.bytes) == ("load to", "stage[0]", 128)


def test_stops_at_a_label_and_a_role():
    """A label stands for the instruction behind it; a role alone for its first instruction."""
    launch = doubling()
    with launch.kernel.debug(**launch.options, stop=Stop(label="next")) as session:
        assert session.instruction.line == line_of(DOUBLE, "next:") + 1
        assert session.where.role == "double"
    launch = doubling()
    with launch.kernel.debug(**launch.options, stop="role=double") as session:
        assert session.instruction.line == line_of(DOUBLE, "ld.param.u64 in")
        assert session.where.warp == 1


def test_stops_when_a_warp_waits():
    """A wait on an mbarrier is found by name and phase, with the barrier's state and who waits."""
    launch = doubling()
    with launch.kernel.debug(**launch.options, stop=Stop(wait="empty[0] phase 0")) as session:
        assert session.where.waits_for == "empty[0] phase 0"
        states = {state.name: state for state in session.barriers()}
        empty = states["empty[0]"]
        assert (empty.phase, empty.pending, empty.expected, empty.waiting) == (0, 32, 32, ("role copy (warp 0)",))
        assert (states["full[0]"].pending, states["full[0]"].tx) == (0, 128)
        assert {operation.name for operation in session.in_flight()} == {"stage[0]", "stage[1]"}
        assert "waits for empty[0] phase 0" in str(session)


def test_counts_steps():
    """Steps are warp instructions of the whole launch; of one warp, only its own count."""
    launch = doubling()
    with launch.kernel.debug(**launch.options) as session:
        assert session.steps == 0
        session.step(7)
        assert session.steps == 7
        session.resume("steps=40")
        assert session.steps == 40
    launch = doubling()
    with launch.kernel.debug(**launch.options, stop="role=double") as session:
        first = session.instruction.line
        session.step(2, warp=1)
        assert session.where.warp == 1
        assert session.instruction.line == first + 2


def test_registers_and_memory():
    """Registers have their declared types and a value a lane; shared memory is found by its names."""
    launch = doubling()
    with launch.kernel.debug(**launch.options, stop=line_of(DOUBLE, "st.global.f32 [out], x")) as session:
        assert session.register("x").tolist() == [2.0 * lane for lane in range(32)]
        assert session.register("x").dtype == np.float32
        assert session.register("lane").tolist() == list(range(32))
        assert session.shared("stage[0]", dtype=np.float32).tolist() == list(range(32))
        assert session.shared("stage").nbytes == 256
        assert session.shared(0, 8, dtype=np.float32).tolist() == [0.0, 1.0]
        assert "x" not in session.registers(warp=0)
        assert np.isnan(launch.result.read()).all()
        session.step(1, warp=1)
        assert launch.result.read()[:32].tolist() == [2.0 * lane for lane in range(32)]


def test_arrays_among_the_arguments():
    """Uploaded arrays can be read on the device at a stop, and are updated at the end."""
    counter, out = np.zeros(1, np.uint32), np.full(4, 9, np.uint32)
    kernel = Device("sm_90a", schedule="fair").load(TICKETS)["tickets"]
    with kernel.debug(1, 128, [counter, out], stop=line_of(TICKETS, "mul.wide")) as session:
        assert session.arrays["counter_param"].tolist() == [1]
        assert counter.tolist() == [0]
        session.finish()
    assert counter.tolist() == [4]
    assert sorted(out.tolist()) == [0, 1, 2, 3]


def test_fault_arrives_where_the_launch_was_continued():
    """A hang is raised by the call that went on into it, and the launch has ended."""
    launch = doubling(HANG)
    with launch.kernel.debug(**launch.options) as session:
        with pytest.raises(Deadlock, match="2 warps"):
            session.finish()
        assert not session.stopped
        with pytest.raises(LaunchError, match="has ended"):
            session.step()
        with pytest.raises(LaunchError, match="has ended"):
            session.registers()


def test_leaving_ends_the_launch():
    """No thread stays behind when a launch is left where it stands."""
    launch = doubling()
    with launch.kernel.debug(**launch.options, stop=COPY) as session:
        assert session.stopped
    assert not session.stopped
    assert not [thread for thread in threading.enumerate() if thread.name == "launch of double_it"]
    assert not launch.right


def test_a_place_that_is_never_reached():
    """The launch simply ends."""
    launch = doubling()
    with launch.kernel.debug(**launch.options, stop="wait=full[0] phase 99") as session:
        assert not session.stopped
        assert session.report is not None
        assert session.report.steps == session.steps
    assert launch.right


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        (1, "line=1 is not allowed"),
        (COPY - 20000, "line=-"),
        ("wait_ful", "use label='wait_full'"),
        ("rol=double", "use stop='role'"),
        ("role=doble", "use role='double'"),
        ("steps=many", "a whole number for steps"),
    ],
)
def test_bad_places_are_refused(stop: int | str, message: str):
    """A line without an instruction, a label, role or name that is not there: refused with the nearest."""
    launch = doubling()
    with pytest.raises(LaunchError, match=message):
        launch.kernel.debug(**launch.options, stop=stop)


def test_bad_questions_are_refused():
    """A register, a piece of memory or a warp that is not there: refused with the nearest."""
    launch = doubling()
    with launch.kernel.debug(**launch.options, stop=COPY) as session:
        with pytest.raises(LaunchError, match="use name='chunk'"):
            session.register("chnk")
        with pytest.raises(LaunchError, match=r"use name='stage\[1\]'"):
            session.shared("stage[2]")
        with pytest.raises(LaunchError, match="use warp=1"):
            session.step(1, warp=7)
        with pytest.raises(LaunchError, match="size"):
            session.shared(0)
        with pytest.raises(LaunchError, match="count=0"):
            session.step(0)


def test_launch_stops_too():
    """``launch(stop=...)`` is the same session; what needs a whole run is refused beside it."""
    launch = doubling()
    with launch.kernel.launch(**launch.options, stop=COPY) as session:
        assert session.instruction.line == COPY
    with pytest.raises(LaunchError, match="leave stop out"):
        launch.kernel.launch(**launch.options, stop=COPY, statistics=True)
