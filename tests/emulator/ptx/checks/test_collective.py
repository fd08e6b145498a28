"""A wgmma takes all four warps: a thread that has waited for it comes after what each did before its part."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, LaunchReport, RaceError

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry multiply(.param .u64 out_param) .maxntid 128 {
    .reg .b32 d<4>, s, t, mine, x, y;
    .reg .b64 a, b, out;
    .reg .pred no, p;
    mov.b32 d0, 0; mov.b32 d1, 0; mov.b32 d2, 0; mov.b32 d3, 0;
    mov.u32 s, smem;
    mov.u32 t, %tid.x;
    ld.param.u64 out, [out_param];
    mov.b32 y, 0;
    mad.lo.u32 mine, t, 4, s;
    st.shared.b32 [mine], y; st.shared.b32 [mine + 512], y;
    st.shared.b32 [mine + 1024], y; st.shared.b32 [mine + 1536], y;
    st.shared.b32 [mine + 8192], t;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    ld.shared.b32 x, [mine + 8192];
    shr.u32 s, s, 4;
    cvt.u64.u32 b, s;
    or.b64 b, b, 0x4000004000010000;
    setp.ne.u32 no, 0, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {d0, d1, d2, d3}, {y, y, y, y}, b, no, 1, 1, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    setp.lt.u32 p, t, 32;
    @p st.shared.b32 [mine + 8192], x;
    mov.u32 s, smem;
    @p st.shared.v4.b32 [s + 8320], {x, x, x, x};
    st.global.b32 [out], d0;
    ret;
}
"""
WAIT = "    wgmma.wait_group.sync.aligned 0;\n"


def launch(text: str, seed: int) -> LaunchReport:
    """One CTA."""
    device = Device("sm_90a", seed=seed)
    return device.load(text)["multiply"].launch(1, 128, [device.buffer(np.zeros(1, np.uint32))], shared_bytes=16384)


def test_after_the_wait_the_other_warps_reads_are_over() -> None:
    """Warp 0 may overwrite what warp 1 read before the wgmma that both took part in."""
    for seed in range(4):
        assert launch(TEXT, seed).clean


def test_before_the_wait_they_are_not() -> None:
    """Without the wait in between it is a race."""
    moved = TEXT.replace(WAIT, "").replace("    st.global.b32 [out], d0;\n", WAIT + "    st.global.b32 [out], d0;\n")
    with pytest.raises(RaceError, match=r"read by warp 1"):
        launch(moved, 0)
