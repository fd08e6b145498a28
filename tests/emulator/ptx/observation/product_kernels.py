"""Kernels that the tests of this folder run, and launches of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilekit.emulator import Buffer, Device, Kernel

DOUBLE = (Path(__file__).parents[4] / "examples" / "double.ptx").read_text()
CHUNKS = 6
READ = "ld.shared.f32 x, [buffer];"
RELEASE = "mbarrier.arrive.shared::cta.b64 _, [full + 272];"
RACE = DOUBLE.replace(RELEASE, "(read)").replace(READ, RELEASE).replace("(read)", READ)
HANG = DOUBLE.replace(RELEASE, "")

TICKETS = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry tickets(.param .u64 counter_param, .param .u64 out_param) {
    .reg .b64 counter, out, offset;
    .reg .b32 thread, lane, warp, ticket;
    .reg .pred p;
    ld.param.u64 counter, [counter_param];
    ld.param.u64 out, [out_param];
    mov.u32 thread, %tid.x;
    and.b32 lane, thread, 31;
    shr.u32 warp, thread, 5;
    setp.ne.u32 p, lane, 0;
    @p bra finish;
    atom.global.add.u32 ticket, [counter], 1;
    mul.wide.u32 offset, warp, 4;
    add.u64 out, out, offset;
    st.global.u32 [out], ticket;
finish:
    ret;
}
"""
"""Every warp draws a ticket: who gets which depends on the order."""

STARTED = (
    TICKETS.replace("tickets(", "started(")
    .replace("mul.wide.u32 offset, warp, 4;", "mul.wide.u32 offset, ticket, 4;")
    .replace("st.global.u32 [out], ticket;", "mov.u32 warp, %ctaid.x;\n    st.global.u32 [out], warp;")
)
"""Every CTA writes its number where its ticket says."""

STRIDED = """
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry strided(.param .u64 out_param, .param .u32 stride_param) {
    .reg .b64 out, offset;
    .reg .b32 thread, stride, at, base;
    .reg .f32 value;
    .reg .pred p;
    ld.param.u64 out, [out_param];
    ld.param.u32 stride, [stride_param];
    mov.u32 thread, %tid.x;
    mov.u32 base, smem;
    mul.lo.u32 at, thread, stride;
    add.u32 at, at, base;
    cvt.rn.f32.u32 value, thread;
    st.shared.f32 [at], value;
    bar.warp.sync 0xffffffff;
    ld.shared.f32 value, [at];
    mul.wide.u32 offset, thread, 4;
    add.u64 out, out, offset;
    st.global.f32 [out], value;
    setp.ne.u32 p, stride, 0;
    @p bra finish;
    st.global.f32 [out], 0f00000000;
finish:
    ret;
}
"""
"""Each lane stores and loads a word of shared memory, ``stride`` bytes from its neighbour's."""


@dataclass
class Doubling:
    """A launch of ``double_it``, ready to be made."""

    kernel: Kernel
    result: Buffer
    options: dict[str, Any]

    @property
    def right(self) -> bool:
        """Whether the output is that of a launch that went well."""
        return bool((self.result.read() == 2 * np.arange(32 * CHUNKS)).all())


def doubling(text: str = DOUBLE, *, seed: int = 0, schedule: Any = "adversarial") -> Doubling:
    """The example on a fresh device."""
    device = Device("sm_90a", seed=seed, schedule=schedule)
    x = np.arange(32 * CHUNKS, dtype=np.float32)
    source, result = device.buffer(x, "x"), device.buffer(np.full_like(x, np.nan), "result")
    options = {"grid": 1, "block": 64, "shared_bytes": 288, "args": [source, result, np.uint32(CHUNKS)]}
    return Doubling(device.load(text)["double_it"], result, options)


def line_of(text: str, words: str) -> int:
    """Number of the first line that contains some words."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if words in line)
