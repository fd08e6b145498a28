"""Scalar stores and atomics against a count wave by wave; and the waits that they need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import program, run

from tilekit.emulator import Device, MissingWait

WAVE = """
    v_readfirstlane_b32 s6, v0
    s_lshr_b32 s6, s6, 6
"""
"""s6: the number of the wave."""


@pytest.mark.parametrize("buffer", [False, True])
def test_stores(buffer: bool) -> None:
    """Each wave stores its registers at its offset; a buffer's end is kept to."""
    base = "s[12:15]" if buffer else "s[2:3]"
    kind = "buffer_" if buffer else ""
    body = f"""{WAVE}
        s_mov_b64 s[12:13], s[2:3]
        s_movk_i32 s14, 0x30
        s_mov_b32 s15, 0x20000
        s_lshl_b32 s7, s6, 4
        s_add_u32 s8, s6, 100
        s_mov_b32 s9, 200
        s_mov_b32 s10, 300
        s_mov_b32 s11, 400
        s_{kind}store_dwordx4 s[8:11], {base}, s7
        s_{kind}store_dword s8, {base}, 0xc
        s_waitcnt lgkmcnt(0)
        s_dcache_wb"""
    memory = np.zeros(32, np.uint32)
    report = run(body, memory, "gfx942", block=256)
    waves = 3 if buffer else 4
    wanted = np.zeros((8, 4), np.uint32)
    wanted[:waves] = [[100 + wave, 200, 300, 400] for wave in range(waves)]
    assert memory[[0, *range(4, 32)]].tolist() == wanted.ravel()[[0, *range(4, 32)]].tolist()
    assert memory[3] in (100, 101, 102, 103)
    assert report.remarks or report.findings  # four waves store different values to one word


OPERATIONS: dict[str, Any] = {
    "add": lambda old, value: old + value, "sub": lambda old, value: old - value, "swap": lambda old, value: value,
    "umax": max, "umin": min, "and": lambda old, value: old & value, "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value, "inc": lambda old, value: 0 if old >= value else old + 1,
    "dec": lambda old, value: value if old == 0 or old > value else old - 1,
    "smax": max, "smin": min,
}  # fmt: skip


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_atomics(name: str, wide: bool) -> None:
    """Waves change one word one after the other; the values before come back, each once."""
    suffix, data = ("_x2", "s[8:9]") if wide else ("", "s8")
    body = f"""{WAVE}
        s_lshl_b32 s7, s6, 3
        s_add_u32 s8, s6, 5
        s_mov_b32 s9, 0
        s_atomic_{name}{suffix} {data}, s[2:3], 0x0 glc
        s_waitcnt lgkmcnt(0)
        s_add_u32 s7, s7, 64
        s_store_dword s8, s[2:3], s7
        s_waitcnt lgkmcnt(0)"""
    kind = np.uint64 if wide else np.uint32
    memory = np.zeros(64, kind)
    memory[0] = 9
    assert run(body, memory, "gfx950", block=256).clean
    olds = memory.view(np.uint32)[16:].reshape(-1, 2)[:4, 0].tolist()
    value, order = 9, []
    for _ in range(4):  # the order in which the waves came, from what they got
        wave = next(w for w in range(4) if olds[w] == value & 0xFFFFFFFF and w not in order)
        order.append(wave)
        value = OPERATIONS[name](value, wave + 5) & ((1 << (64 if wide else 32)) - 1)
    assert int(memory[0]) == value


def test_compare_and_swap() -> None:
    """Of four waves that expect 9 one succeeds."""
    body = f"""{WAVE}
        s_add_u32 s8, s6, 5
        s_mov_b32 s9, 9
        s_atomic_cmpswap s[8:9], s[2:3], 0x0 glc
        s_waitcnt lgkmcnt(0)"""
    memory = np.array([9, 0], np.uint32)
    assert run(body, memory, "gfx950", block=256).clean
    assert memory[0] in (5, 6, 7, 8)


def test_what_comes_back_must_be_waited_for() -> None:
    """A result that is used before the wait is missing it: scalar operations complete in any order."""
    body = "s_mov_b32 s8, 1\ns_atomic_add s8, s[2:3], 0x0 glc\ns_load_dword s9, s[2:3], 0x4\n{}s_add_u32 s9, s8, 1"
    for wait, fails in (("", True), ("s_waitcnt lgkmcnt(1)\n", True), ("s_waitcnt lgkmcnt(0)\n", False)):
        kernel = Device("gfx942").load(program(body.format(wait), "gfx942"))["k"]
        if fails:
            with pytest.raises(MissingWait, match=r"lgkmcnt\(0\)"):
                kernel.launch(1, 64, [np.zeros(8, np.uint32)])
        else:
            kernel.launch(1, 64, [np.zeros(8, np.uint32)])
