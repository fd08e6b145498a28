"""What composed kernels have of the plan that shipped ones are bound by: batches, launches that overlap, `explain`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import upright
from composed import BF16, integers, padded

import tilekit.compose as tk
from tilekit.emulator import RaceError
from tilekit.errors import ArgumentError
from tilekit.kernels.plan import EmulatedPlan

BATCH = 3
SHAPES = ("bmk bnk", "bmk nk", "mk bnk")
"""Both operands with a batch, or one matrix for all of it."""


def batched(shapes: str) -> tk.ComposedKernel:
    """A product of each matrix of a batch."""
    a, b = (tk.Input(name, tk.BF16, shape) for name, shape in zip("ab", shapes.split(), strict=True))

    def epilogue(w: tk.Writer, made: upright.Made) -> Any:
        return upright.staged(w, made, tk.Fused(lambda w, x: x), batched=True), None

    return upright.matmul(inputs=(a, b), outputs=(tk.Output("d", tk.BF16, "bmn"),), epilogue=epilogue)


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("spaced", [False, True], ids=["dense", "apart"])
def test_a_batch(shapes: str, spaced: bool) -> None:
    """Each matrix is multiplied with its own, or with the one that all share, wherever the matrices lie."""
    rng = np.random.default_rng(len(shapes))
    extents = {"b": BATCH, "m": 70, "n": 72, "k": 96}
    a, b = (integers(rng, 3, *(extents[letter] for letter in shape)) for shape in shapes.split())
    if spaced:
        a, b = padded(a), padded(b)
    plan = batched(shapes).bind(a, b, emulator={"multiprocessors": 2})
    out = plan()
    assert isinstance(plan, EmulatedPlan)
    assert plan.report.clean, str(plan.report)
    np.testing.assert_array_equal(out, (a.astype("f4") @ np.swapaxes(b, -1, -2).astype("f4")).astype(BF16))


def test_a_batch_of_one_matrix_repeated() -> None:
    """An operand that NumPy broadcasts over the batch is one matrix, which has no pitch that TMA would take."""
    rng = np.random.default_rng(1)
    a, b = integers(rng, 3, 40, 64), integers(rng, 3, BATCH, 64, 64)
    out = batched("bmk bnk")(np.broadcast_to(a, (BATCH, 40, 64)), b)
    np.testing.assert_array_equal(out, (a.astype("f4") @ np.swapaxes(b, -1, -2).astype("f4")).astype(BF16))


def test_batches_must_agree() -> None:
    """As many matrices of A as of B."""
    a, b = np.zeros((2, 8, 64), BF16), np.zeros((3, 8, 64), BF16)
    with pytest.raises(ArgumentError, match=r"b is 3 in b and 2 in a; nearest: 2"):
        batched("bmk bnk").bind(a, b)


def plain(**options: Any) -> tk.ComposedKernel:
    """A product."""
    return upright.matmul(epilogue=lambda w, made: (upright.staged(w, made, tk.Fused(lambda w, x: x)), None), **options)


ADD = (tk.Input("x", tk.F32, "m"), tk.Output("out", tk.F32, "m"))


class OneCta:
    """A schedule of one CTA."""

    def schedule(self, call: tk.Call) -> tk.Schedule:
        """One cluster."""
        return tk.Schedule(clusters=1, tiles=1)


def doubled(*, waits: bool) -> tk.ComposedKernel:
    """A kernel of one CTA that waits for the kernels ahead of it before it reads, or not."""

    @tk.kernel(*ADD, target="sm_90a", threads=64)
    def double(w: tk.Writer) -> OneCta:
        x, out = (w.parameter(o.name, tk.registers.GMEM, lambda call, o=o: call.address(o.name)) for o in ADD)
        if waits:
            w.wait_for_prerequisites()
        places = [(start + w.widen_multiply(w.thread(), 4)).retyped(tk.registers.GMEM) for start in (x, out)]
        value = w.isa.memory.load_global_scalar(address=places[0])
        w.isa.memory.store_global_f32(address=places[1], value=value + value, valid=w.thread() < 64)
        if not waits:
            w.launch_dependents()
        return OneCta()

    return double


def test_a_kernel_that_waits_overlaps_the_one_ahead() -> None:
    """It is launched to overlap if it waits itself; else it begins when the kernel ahead is complete."""
    x = np.arange(64, dtype=np.float32)
    for waits in (True, False):
        kernel = doubled(waits=waits)
        assert kernel.launch_config(1).pdl is waits
        np.testing.assert_array_equal(kernel(x), 2 * x)
    assert plain().launch_config(1).pdl


def test_a_read_before_the_wait_is_found() -> None:
    """A kernel that is launched to overlap and reads too early races with the kernel ahead, and that is an error."""

    @tk.kernel(*ADD, target="sm_90a", threads=64)
    def early(w: tk.Writer) -> Any:
        x, out = (w.parameter(o.name, tk.registers.GMEM, lambda call, o=o: call.address(o.name)) for o in ADD)
        places = [(start + w.widen_multiply(w.thread(), 4)).retyped(tk.registers.GMEM) for start in (x, out)]
        value = w.isa.memory.load_global_scalar(address=places[0])
        w.wait_for_prerequisites()
        w.isa.memory.store_global_f32(address=places[1], value=value + value, valid=w.thread() < 64)
        return OneCta()

    with pytest.raises(RaceError, match=r"use by the grid ahead, which is not over before griddepcontrol\.wait"):
        early(np.arange(64, dtype=np.float32))


def test_explain() -> None:
    """Operands, roles, memory, barriers with who arrives, parameters, and whether launches overlap."""
    text = plain(cluster=(2, 1)).explain()
    assert text.startswith("upright: a (m, k) bf16, b (n, k) bf16 -> d (m, n) bf16, 256 threads, cluster 2, sm_90a")
    for words in ("role", "load", "mma", "shared memory", "inputs.full[3]", "parameters", "d_map (map)"):
        assert words in text, text
    assert "may start while the kernel ahead runs" in text
    bare = doubled(waits=False).explain()
    assert bare.splitlines()[0] == "double: x (m) f32 -> out (m) f32, 64 threads, cluster 1, sm_90a"
    assert "barrier" not in bare
    assert "after the kernel ahead" in bare
