"""``st.async`` of a warp: neighbouring lanes' stores land as one copy, yet each is ordered after its own lane only."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, RaceError

SCHEDULES = [("adversarial", 0), ("fair", 0), *(("random", seed) for seed in range(4))]


def text(store: str, instruction: str, operation: str) -> str:
    """Every lane has an ``st.async`` or ``red.async`` to a place of its own, behind an ordinary store."""
    return f"""
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry k(.param .u64 out_param) .maxntid 32 {{
    .reg .b64 out, at; .reg .b32 s, t, mine, bar, x, next; .reg .pred p, zero;
    mov.u32 s, smem;
    mov.u32 t, %tid.x;
    ld.param.u64 out, [out_param];
    mad.lo.u32 mine, t, 4, s;
    st.shared.b32 [mine], 0;
    add.u32 bar, s, 256;
    setp.ne.u32 p, t, 0;
    setp.eq.u32 zero, t, 0;
    @p bra GO;
    mbarrier.init.shared::cta.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
GO:
    bar.sync 0;
    {store}
    {instruction}.shared::cluster.mbarrier::complete_tx::bytes{operation} [mine], t, [bar];
W:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra W;
    ld.shared.b32 x, [mine];
    mad.wide.u32 at, t, 4, out;
    st.global.b32 [at], x;
    ret;
}}
"""


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_behind_the_same_lanes_store(schedule: str, seed: int) -> None:
    """A lane's ``st.async`` over what it has stored itself is ordered, however many lanes' land together."""
    out = np.zeros(32, np.uint32)
    kernel = Device("sm_90a", schedule=schedule, seed=seed).load(text("st.shared.b32 [mine], 7;", "st.async", ".b32"))
    assert kernel["k"].launch(1, 32, [out], shared_bytes=512).clean
    np.testing.assert_array_equal(out, np.arange(32))


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(
    "store",
    [
        "xor.b32 next, t, 1; mad.lo.u32 next, next, 4, s; st.shared.b32 [next], 7;",
        "@zero st.shared.b32 [s+28], 7;",
        "@zero st.shared.b32 [s+4], 7;",
    ],
    ids=["neighbour", "lane 0 to lane 7's", "lane 0 to lane 1's"],
)
def test_behind_another_lanes_store(store: str, schedule: str, seed: int) -> None:
    """Over what another lane has stored it is not, also where that is the lane with which the copy begins."""
    kernel = Device("sm_90a", schedule=schedule, seed=seed).load(text(store, "st.async", ".b32"))
    with pytest.raises(RaceError, match=r"bytes 0x4\w\w\.\.0x4\w\w"):
        kernel["k"].launch(1, 32, [np.zeros(32, np.uint32)], shared_bytes=512)


def test_reductions_behind_the_same_lanes_store() -> None:
    """``red.async`` counts as each lane's own as well."""
    out = np.zeros(32, np.uint32)
    kernel = Device("sm_90a").load(text("st.shared.b32 [mine], 7;", "red.async.relaxed.cluster", ".add.u32"))
    kernel["k"].launch(1, 32, [out], shared_bytes=512)
    np.testing.assert_array_equal(out, 7 + np.arange(32))
