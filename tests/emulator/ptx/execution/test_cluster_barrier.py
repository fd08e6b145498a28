"""What may stand between a cluster barrier's two halves."""

from __future__ import annotations

import numpy as np

from tilekit.emulator import Device

TEXT = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry meet(.param .u64 out)
.maxntid 64, 1, 1
{
    .reg .b32 t, x, s, other;
    .reg .b64 o, at;
    .shared .align 4 .b8 words[256];
    mov.u32 t, %tid.x;
    mov.u32 s, words;
    mad.lo.u32 x, t, 4, s;
    barrier.cluster.arrive.relaxed.aligned;
    st.shared.b32 [x], t;
    bar.sync 0;
    xor.b32 other, t, 32;
    mad.lo.u32 x, other, 4, s;
    ld.shared.b32 x, [x];
    barrier.cluster.wait.aligned;
    ld.param.u64 o, [out];
    mad.wide.u32 at, t, 4, o;
    st.global.b32 [at], x;
    ret;
}
"""


def test_a_cta_barrier_between_arrive_and_wait() -> None:
    """bar.sync still synchronises the CTA's warps there, and the cluster's wait still has its arrival."""
    for seed in range(3):
        device = Device("sm_90a", seed=seed)
        out = device.buffer(np.zeros(64, np.uint32))
        report = device.load(TEXT)["meet"].launch(grid=(2, 1, 1), block=(64, 1, 1), cluster=(2, 1, 1), args=[out])
        assert not [f for f in report.findings if "shared" in str(f) or "words" in str(f)]
        assert (out.read() == np.arange(64) ^ 32).all()
