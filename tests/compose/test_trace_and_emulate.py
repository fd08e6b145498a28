"""What shipped kernels offer beside a launch, composed ones do too: traces, watched runs, other orders, a debugger."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_blackwell
import upright

import tilekit.compose as tk
from tilekit.errors import ArgumentError, FindingWarning, TilekitError
from tilekit.kernels.plan import EmulatedPlan

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def stranger(target: str) -> tk.ComposedKernel:
    """A matmul of one's own for a chip."""
    if target == "sm_90a":
        return runpy.run_path(str(EXAMPLES / "gated_row_sums.py"))["gated_matmul"]
    if target == "sm_100a":
        return test_blackwell.matmul(group=1, asks=True)
    made = runpy.run_path(str(EXAMPLES / "compose_amd_matmul.py"))["composed"]
    return made(target, tk.SplitCounterSync, tk.BufferLoader)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "gfx950"])
def test_everything_that_shipped_kernels_have(target: str) -> None:
    """Text, machine code, resources, words, a picture, a check, a trace and a watched run: on each vendor's chips."""
    kernel = stranger(target)
    assert kernel.target.name == target
    assert kernel.name in kernel.assembly
    assert len(kernel.isa.splitlines()) > 100
    assert getattr(kernel.resources, "registers", 0) or kernel.resources.vgprs
    assert "mma" in kernel.explain()
    assert "<svg" in kernel.explain(html=True)
    assert "svg" in kernel._repr_html_()
    assert kernel.check(m=72, n=40).clean
    inputs = kernel.example(m=200, n=136, k=96)
    trace = kernel.trace(**inputs)
    assert trace.unit == "steps"
    assert {"load", "mma"} <= set(trace.lanes)
    assert all((trace.records[:, lane]["turn"] > 0).any() for lane in range(len(trace.lanes)))
    report = kernel.emulate(**inputs, statistics=True)
    assert report.clean
    assert report.statistics is not None
    assert "profile" not in kernel.assembly


def test_a_trace_has_the_tiles_that_there_are() -> None:
    """Each activity notes each tile once; records beyond the number asked for are left out."""
    kernel = stranger("sm_90a")
    inputs = kernel.example(m=300, n=200)
    rows = kernel.trace(**inputs).records
    assert np.count_nonzero(rows["turn"]) == 2 * 3 * (3 + 2 + 1)  # tiles; load, mma and epilogue of two groups, gate
    assert kernel.trace(**inputs, tiles=1).records.shape[2] == 1
    for tiles in (0, -1, 1 << 20, "q"):
        with pytest.raises(TilekitError, match=r"trace.tiles="):
            kernel.trace(**inputs, tiles=tiles)


def test_roles_of_ones_own_note_where_they_are_told_to() -> None:
    """A kernel without the driver's roles notes nothing, which is said; with clocks of its own it does."""
    kernel = runpy.run_path(str(EXAMPLES / "compose_matmul.py"))["composed_matmul"]
    with pytest.raises(ArgumentError, match=r"TileProfiler\.of.*TK-COMP-007"):
        kernel.trace(**kernel.example())

    class OneTile:
        def schedule(self, call: tk.Call) -> tk.Schedule:
            return tk.Schedule(clusters=2, tiles=2)

    @tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=32)
    def copied(w: tk.Writer) -> OneTile:
        x, y = (w.parameter(name, tk.registers.GMEM, lambda call, name=name: call.address(name)) for name in "xy")
        n = w.parameter("n", tk.registers.U32, lambda call: call.n)
        profiler = tk.TileProfiler.of(w, {"copy": 1})
        clock = profiler and profiler.clock(w, "copy", thread=w.thread())
        place = w.thread() + w.cta() * 32
        with tk.timed(clock, tk.Tile(place, w.constant(tk.registers.U32, 0), 0, 0, n)):
            address = [(start + w.widen_multiply(place, 4)).retyped(tk.registers.GMEM) for start in (x, y)]
            with w.when(place < n):
                value = w.isa.memory.load_global_scalar(address=address[0])
                w.isa.memory.store_global_f32(address=address[1], value=value, valid=place < n)
        return OneTile()

    x = np.arange(40, dtype=np.float32)
    np.testing.assert_array_equal(copied(x), x)
    assert "profile" not in copied.ptx
    trace = copied.trace(x, tiles=4)
    assert trace.lanes == ("copy",)
    assert trace.count == 2


def test_other_orders_and_a_stop() -> None:
    """A bound launch on the emulator is tried in many orders, and stopped where one says; arrays stay as they are."""
    kernel = upright.matmul(epilogue=lambda w, made: (upright.staged(w, made, tk.Fused(lambda w, x: x)), None))
    plan = kernel.bind(**kernel.example())
    assert isinstance(plan, EmulatedPlan)
    before = plan.out.tobytes()
    found = plan.explore(4)
    assert found.clean
    assert found.tries == 4
    with plan.debug("wait=inputs.full[0],role=mma") as session:
        assert session.stopped
        assert session.where.role == "mma"
    assert plan.out.tobytes() == before


def test_a_timeline_is_written(tmp_path: Path) -> None:
    """`emulate` writes who did what when."""
    kernel = stranger("sm_90a")
    kernel.emulate(**kernel.example(m=64, n=64), timeline=tmp_path / "timeline.json")
    assert json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]


@pytest.mark.parametrize("name", ["tiles", "timeline", "statistics", "seed"])
def test_words_of_a_launch_name_no_operand(name: Any) -> None:
    """An operand of that name could not be told from the option."""
    with pytest.raises(ArgumentError, match="TK-COMP-001"):
        tk.Input(name, tk.F32, "m")


UNWRITTEN = """//! fragment  plus
//! about     x, and what no instruction has written
//! in        x  f32
//! out       y  f32
//! kind      scalar
//! target    sm_80  ptx 7.0
{
    .reg .f32 t;
    add.f32   ${y}, t, ${x};
}
"""


def test_what_is_found_in_a_call_that_ends(tmp_path: Path) -> None:
    """A call warns of it; a check returns it, and is neither clean nor true; a report has it."""
    file = tmp_path / "own.ptx"
    file.write_text(UNWRITTEN)

    class OneCta:
        def schedule(self, call: tk.Call) -> tk.Schedule:
            return tk.Schedule(clusters=1, tiles=1)

    @tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=32)
    def early(w: tk.Writer) -> OneCta:
        own = w.fragments(file)
        places = [w.parameter(o, tk.registers.GMEM, lambda call, o=o: call.address(o)) for o in ("x", "y")]
        x, y = ((place + w.widen_multiply(w.thread(), 4)).retyped(tk.registers.GMEM) for place in places)
        value = own.plus(x=w.isa.memory.load_global_scalar(address=x))
        w.isa.memory.store_global_f32(address=y, value=value, valid=w.thread() < 32)
        return OneCta()

    checked = early.check(n=32)
    assert isinstance(checked, tuple)
    assert not checked.clean
    assert not checked
    assert repr(checked).count("uninitialised: t") == 1
    x = np.zeros(32, np.float32)
    assert not early.emulate(x).clean
    with pytest.warns(FindingWarning, match=r"early, on the emulator: uninitialised: t\w* is read on line"):
        early(x)
