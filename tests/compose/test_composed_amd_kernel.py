"""A kernel composed for AMD chips: the same function as for NVIDIA's, and what is different on the object."""

from __future__ import annotations

import numpy as np
import pytest

import tilekit.compose as tk
from tilekit.assembly.errors import FragmentError
from tilekit.emulator import Device
from tilekit.errors import ArgumentError
from tilekit.runtime.resources import GcnResources

OPERANDS = (tk.Input("x", tk.F32, "m"), tk.Input("y", tk.F32, "m"), tk.Output("out", tk.F32, "m"))


class OneCta:
    """A schedule of one CTA."""

    def schedule(self, call: tk.Call) -> tk.Schedule:
        """One cluster."""
        return tk.Schedule(clusters=1, tiles=1)


def mirrored_sum(w: tk.Writer) -> OneCta:
    """out = x + y read backwards within each 256, through shared memory."""
    length = w.parameter("length", tk.registers.U32, lambda call: call.m)
    x, y, out = (w.parameter(o.name, tk.registers.GMEM, lambda call, o=o: call.address(o.name)) for o in OPERANDS)
    block = w.shared.allocate("block", size=4, count=w.threads, alignment=4)
    thread = w.thread()
    for first in w.range(length, step=w.threads, name="first"):
        places = [(p + w.widen_multiply(first + thread, 4)).retyped(tk.registers.GMEM) for p in (x, y, out)]
        inside = first + thread < length
        one, other = (w.isa.memory.load_global_f32(address=place, valid=inside) for place in places[:2])
        w.isa.memory.store_shared_f32(address=block.at(w, thread), value=other)
        w.barrier(id=0, threads=w.threads)
        mirrored = w.isa.memory.load_shared_f32(address=block.at(w, (w.threads - 1) - thread))
        w.isa.memory.store_global_f32(address=places[2], value=one + mirrored, valid=inside)
        w.barrier(id=0, threads=w.threads)
    return OneCta()


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_90a"])
def test_one_function_for_every_chip(target: str) -> None:
    """Its text runs on the chip's emulator, and gives the same."""
    kernel = tk.kernel(*OPERANDS, target=target, threads=256)(mirrored_sum)
    x, y = (np.arange(512, dtype=np.float32) * step for step in (1, 3))
    device = Device(target)
    buffers = [device.buffer(array) for array in (x, y, np.zeros(512, np.float32))]
    shared = kernel.launch_config(1).shared_bytes
    launched = device.load(kernel.assembly)["mirrored_sum"]
    report = launched.launch(grid=1, block=256, shared_bytes=shared, args=[np.uint32(512), *buffers])
    assert report.clean, report
    np.testing.assert_array_equal(buffers[2].read(), x + y.reshape(2, 256)[:, ::-1].ravel())


def test_what_the_object_shows() -> None:
    """Machine code and resources are the chip's; LDS is in the code object, not in the launch."""
    kernel = tk.kernel(*OPERANDS, target="gfx950", threads=256)(mirrored_sum)
    assert isinstance(kernel.resources, GcnResources)
    assert kernel.resources.static_shared_bytes == 1024
    assert kernel.launch_config(1).shared_bytes == 0
    assert "ds_write_b32" in kernel.isa
    assert "test_composed_amd_kernel.py" in kernel.assembly
    with pytest.raises(ArgumentError, match=r"has no PTX.*gfx950 is gcn; nearest: \.assembly.*TK-TARGET-003"):
        _ = kernel.ptx


def test_a_component_of_nvidia_s() -> None:
    """TMA is refused with the component that places it, when the kernel is traced."""

    def loads(w: tk.Writer) -> OneCta:
        tile = tk.OperandTile("a", tk.BF16, 128, "k")
        tk.TmaLoader(w, tile, participants=1).prefetch(w)
        return OneCta()

    kernel = tk.kernel(tk.Input("a", tk.BF16, "mk"), *OPERANDS, target="gfx950", threads=256)(loads)
    with pytest.raises(FragmentError, match=r"tma\.py.*places fragments of PTX; this kernel is for gfx950"):
        _ = kernel.assembly
