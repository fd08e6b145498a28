"""A kernel that writes to an input: a fault on the emulator, for a GPU would change the caller's array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit.emulator import MemoryFault


class OneCta:
    """A schedule of one CTA."""

    def schedule(self, call: tk.Call) -> tk.Schedule:
        """One cluster."""
        return tk.Schedule(clusters=1, tiles=1)


def storing(target: str, *written: str) -> Any:
    """A kernel that writes 2 to every element of the arrays named."""

    @tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target=target, threads=64)
    def kernel(w: tk.Writer) -> OneCta:
        n = w.parameter("n", tk.registers.U32, lambda call: call.n)
        starts = {o: w.parameter(o, tk.registers.GMEM, lambda call, o=o: call.address(o)) for o in ("x", "y")}
        index = w.thread()
        for name in written:
            address = (starts[name] + w.widen_multiply(index, 4)).retyped(tk.registers.GMEM)
            w.isa.memory.store_global_f32(address=address, value=2.0, valid=index < n)
        return OneCta()

    return kernel


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_a_store_to_an_input_is_a_fault(target: str) -> None:
    """It names the operand, the instruction and what placed it; an output may be written."""
    x = np.zeros(5, np.float32)
    assert storing(target, "y")(x).tolist() == [2] * 5
    kernel = storing(target, "y", "x")
    with pytest.raises(MemoryFault, match=r"store to x, which is read.only(.|\n)*test_stores_to_inputs\.py:\d+"):
        kernel(x)
    with pytest.raises(MemoryFault, match=r"store to x, which is read.only"):
        kernel.check(n=5)
    assert x.tolist() == [0] * 5


def test_an_array_that_is_read_and_written() -> None:
    """A family's kernel that adds onto its output, which is then an input too, writes it."""
    a, b = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16)
    out = np.full((64, 64), 3, np.float16)
    assert (tilekit.matmul(a, b, out=out, residual=out) == 67).all()
