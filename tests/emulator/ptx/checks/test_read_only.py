"""Memory that a launch may only read: a store to it is a fault, and nothing else about it differs."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, MemoryFault, RaceError

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry touch(.param .u64 x_param, .param .u64 out_param) {{
    .reg .b64 x, out;
    .reg .b32 t, v;
    .reg .pred constant;
    ld.param.u64 x, [x_param];
    ld.param.u64 out, [out_param];
    mov.u32 t, %tid.x;
    mad.wide.u32 x, t, 4, x;
    mad.wide.u32 out, t, 4, out;
    isspacep.const constant, x;
    selp.u32 v, 100, 1, constant;
    {touch}
    st.global.u32 [out], v;
    ret;
}}
"""
STORES = {
    "a store": "st.global.u32 [x], v;",
    "an atomic": "atom.global.add.u32 v, [x], 1;",
    "a reduction": "red.global.add.u32 [x], 1;",
    "a generic store": "st.u32 [x], v;",
}


def launch(touch: str, device: Device, *, blocks: int = 1, **options: bool) -> list[int]:
    """Run a kernel that touches a buffer of ones which it may only read; what it writes elsewhere."""
    x = device.buffer(np.ones(32, np.uint32), "x", writable=False)
    out = device.buffer(np.zeros(32, np.uint32), "out")
    device.load(TEXT.format(touch=touch))["touch"].launch(blocks, 32, [x, out], **options)  # type: ignore[call-overload]
    assert x.read().tolist() == [1] * 32
    return list(out.read().tolist())


@pytest.mark.parametrize("check", ["full", "off"])
@pytest.mark.parametrize("how", STORES)
def test_a_store_is_a_fault(how: str, check: str) -> None:
    """It names the buffer and the line, whatever is checked."""
    with pytest.raises(MemoryFault, match=r"x, which is read-only\n.*warp 0\n.*at line 16"):
        launch(STORES[how], Device(check=check))  # type: ignore[arg-type]


def test_many_ctas_together() -> None:
    """A launch whose warps could run together faults as well."""
    with pytest.raises(MemoryFault, match="store to x, which is read-only"):
        launch(STORES["a store"], Device(), blocks=100)


def test_reads_are_as_of_any_memory() -> None:
    """It is no constant memory, and what the grid ahead still writes is not to be read early."""
    assert launch("ld.global.u32 t, [x]; add.u32 v, v, t;", Device()) == [2] * 32
    with pytest.raises(RaceError, match="x"):
        launch("ld.global.u32 v, [x];", Device(), prerequisite=True)
    waited = "griddepcontrol.wait; ld.global.u32 v, [x];"
    assert launch(waited, Device(), prerequisite=True) == [1] * 32


def test_the_host_may_write_and_allow_it() -> None:
    """Only kernels are held off, and as long as the buffer says so."""
    device = Device()
    x = device.buffer(np.ones(32, np.uint32), "x", writable=False)
    x.write(np.zeros(32, np.uint32))
    x.writable = True
    out = device.buffer(np.zeros(32, np.uint32))
    device.load(TEXT.format(touch=STORES["a store"]))["touch"].launch(1, 32, [x, out])
    assert x.read().tolist() == [1] * 32
