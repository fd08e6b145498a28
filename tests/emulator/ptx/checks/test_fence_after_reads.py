"""A fence behind several relaxed reads orders after all that they saw, whichever was read last."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, RaceError

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry pass(.param .u64 data_param, .param .u64 flags_param, .param .u64 out_param) .maxntid 64 {
    .reg .b64 data, flags, out;
    .reg .b32 t, x, one, other;
    .reg .pred writer, reader, again;
    mov.u32 t, %%tid.x;
    ld.param.u64 data, [data_param];
    ld.param.u64 flags, [flags_param];
    ld.param.u64 out, [out_param];
    setp.eq.u32 writer, t, 0;
    setp.eq.u32 reader, t, 32;
    @!writer bra reads;
    st.release.gpu.global.u32 [flags], 1;
    st.global.u32 [data], 7;
    st.release.gpu.global.u32 [flags + 4], 1;
    ret;
reads:
    @!reader bra done;
wait:
    ld.relaxed.gpu.global.u32 other, [flags + 4];
    setp.eq.u32 again, other, 0;
    @again bra wait;
    %s
    fence.acq_rel.gpu;
    ld.global.u32 x, [data];
    st.global.u32 [out], x;
done:
    ret;
}
"""
EARLIER = "ld.relaxed.gpu.global.u32 one, [flags];"


def launch(between: str, seed: int) -> int:
    """What the reader finds in the word that is published by the second flag."""
    device = Device("sm_90a", seed=seed)
    data, flags, out = (device.buffer(np.zeros(size, np.uint32)) for size in (1, 2, 1))
    device.load(TEXT % between)["pass"].launch(1, 64, [data, flags, out])
    return int(out.read()[0])


@pytest.mark.parametrize("between", ["", EARLIER], ids=["one flag", "then an earlier one"])
@pytest.mark.parametrize("seed", range(3))
def test_the_latest_of_a_writer_counts(between: str, seed: int) -> None:
    """The first flag was set before the second: to read it too takes nothing back of what the second said."""
    assert launch(between, seed) == 7


def test_without_the_fence_it_is_a_race() -> None:
    """Relaxed reads alone order nothing."""
    text = TEXT.replace("fence.acq_rel.gpu;", "")
    device = Device("sm_90a", seed=0)
    data, flags, out = (device.buffer(np.zeros(size, np.uint32)) for size in (1, 2, 1))
    with pytest.raises(RaceError, match=r"race: "):
        device.load(text % EARLIER)["pass"].launch(1, 64, [data, flags, out])
