"""Lanes that run apart: what they may not execute alone, and how they meet at `bar.warp.sync`."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Deadlock, Device, ProtocolError

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry part(.param .u64 out_param) .maxntid 128 {
    .reg .b64 out, at;
    .reg .b32 s, t, lane, x, y, mine, a, b, c<4>;
    .reg .pred p, q;
    mov.u32 s, smem;
    mov.u32 t, %tid.x;
    mov.u32 lane, %laneid;
    mov.u32 x, 0;
    mad.lo.u32 mine, lane, 4, s;
    setp.lt.u32 p, lane, 16;
"""
TAIL = """
    ld.param.u64 out, [out_param];
    mad.wide.u32 at, t, 4, out;
    st.global.b32 [at], x;
    ret;
}
"""


def launch(*lines: str, threads: int = 32, seed: int = 0) -> list[int]:
    """What each thread has in x at the end."""
    device = Device("sm_90a", seed=seed)
    out = device.buffer(np.zeros(threads, np.uint32))
    text = HEAD + "\n".join(f"    {line}" for line in lines) + TAIL
    report = device.load(text)["part"].launch(1, threads, [out], shared_bytes=1024)
    assert report.clean, str(report)
    return [int(value) for value in out.read()]


ALIGNED = {
    "bar.sync 0": "bar",
    "barrier.sync.aligned 0": "barrier",
    "barrier.cluster.arrive.aligned": "barrier",
    "wgmma.fence.sync.aligned": "wgmma",
    "wgmma.wait_group.sync.aligned 0": "wgmma",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {a}, [s]": "ldmatrix",
    "movmatrix.sync.aligned.m8n8.trans.b16 a, t": "movmatrix",
}


@pytest.mark.parametrize("instruction", ALIGNED)
@pytest.mark.parametrize("branch", [True, False], ids=["in a branch", "under a predicate"])
def test_aligned_by_half_a_warp(instruction: str, branch: bool) -> None:
    """An .aligned instruction that some lanes execute alone is a fault that says which, whatever kind it is."""
    lines = ("@!p bra past;", f"{instruction};", "past:") if branch else (f"@p {instruction};",)
    with pytest.raises(ProtocolError) as caught:
        launch(*lines, threads=128)
    assert caught.value.message == (
        f"{ALIGNED[instruction]}, which is .aligned, is executed by lanes 0-15 alone: lanes 16-31 are elsewhere"
    )
    assert instruction in caught.value.text


def test_aligned_by_whole_warps_only() -> None:
    """A predicate that whole warps share, or no lane, is no divergence; nor are lanes that have exited."""
    launch("setp.lt.u32 q, t, 64;", "@q bar.sync 1, 64;", threads=128)
    launch("setp.lt.u32 q, t, 0;", "@q bar.sync 1, 64;")
    launch("@!p ret;", "bar.sync 0;")


SYNC = {
    "vote.sync.any.pred q, p, 0xffffffff": "vote",
    "shfl.sync.idx.b32 y, t, 0, 31, 0xffffffff": "shfl",
    "redux.sync.add.u32 y, t, 0xffffffff": "redux",
    "elect.sync y|q, 0xffffffff": "elect",
    "match.any.sync.b32 y, t, 0xffffffff": "match",
}


@pytest.mark.parametrize("instruction", SYNC)
def test_lanes_that_do_not_come(instruction: str) -> None:
    """A membership mask that names lanes which are elsewhere is a fault; one of exactly those that come is not."""
    with pytest.raises(ProtocolError) as caught:
        launch("@!p bra past;", f"{instruction};", "past:")
    assert caught.value.message == (
        f"{SYNC[instruction]}.sync with the mask 0xffffffff is executed by lanes 0-15: lanes 16-31, which it names, "
        "are elsewhere"
    )
    launch("@!p bra past;", f"{instruction.replace('0xffffffff', '0xffff')};", "past:")
    launch(f"{instruction};")


def test_many_warps_at_once() -> None:
    """A shuffle that lanes of one warp of many miss is found in launches whose warps run together, too."""
    device = Device("sm_90a")
    out = device.buffer(np.zeros(12800, np.uint32))
    lines = "setp.ne.u32 q, t, 70;\n@!q bra past;\nshfl.sync.idx.b32 x, t, 0, 31, 0xffffffff;\npast:"
    kernel = device.load(HEAD + lines + TAIL)["part"]
    with pytest.raises(ProtocolError, match=r"executed by lanes 0-5, 7-31: lane 6, which it names, is elsewhere"):
        kernel.launch(100, 128, [out])


def test_lanes_that_are_not_named() -> None:
    """A lane that executes a vote must be in its mask."""
    with pytest.raises(ProtocolError, match=r"executed by lanes 0-31: lanes 16-31 are not in the mask"):
        launch("vote.sync.any.pred q, p, 0xffff;")


def test_groups_with_masks_of_their_own() -> None:
    """Lanes of one instruction may have different masks, each of its own group."""
    assert launch("selp.b32 y, 0xffff, 0xffff0000, p;", "redux.sync.add.u32 x, 1, y;") == [16] * 32
    with pytest.raises(
        ProtocolError, match=r"mask 0xffff0000 is executed by lanes 0-31: lanes 0-15 are not in the mask"
    ):
        launch("mov.b32 y, 0xffff0000;", "redux.sync.add.u32 x, 1, y;")


BOTH_SIDES = (
    "@!p bra other;",
    "bar.warp.sync 0xffffffff;",
    "ld.shared.b32 x, [mine + 64];",
    "bra both;",
    "other:",
    "st.shared.b32 [mine], lane;",
    "bar.warp.sync 0xffffffff;",
    "both:",
)


def test_sides_of_a_branch_meet() -> None:
    """Lanes wait at bar.warp.sync for those of the other side, which write what they read."""
    for seed in range(3):
        assert launch(*BOTH_SIDES, seed=seed)[:16] == list(range(16, 32))


def test_one_side_alone_waits_for_ever() -> None:
    """Lanes that are named and never come are in the report."""
    with pytest.raises(Deadlock, match=r"lanes 16-31 of its warp at bar\.warp\.sync"):
        launch("@!p bra past;", "bar.warp.sync 0xffffffff;", "past:")


def test_exited_lanes_are_not_waited_for() -> None:
    """Lanes that exit on their side release those that wait for them."""
    lines = ("@!p bra other;", "bar.warp.sync 0xffffffff;", "mov.u32 x, 5;", "bra both;", "other:", "ret;", "both:")
    assert launch(*lines) == [5] * 16 + [0] * 16
    assert launch("@!p ret;", "bar.warp.sync 0xffffffff;", "mov.u32 x, 5;") == [5] * 16 + [0] * 16


def test_lanes_meet_again_and_again() -> None:
    """A loop with a meeting on either side: each round sees what the other side wrote in it."""
    lines = (
        "mov.u32 y, 0;",
        "@!p bra other;",
        "first:",
        "bar.warp.sync 0xffffffff;",
        "ld.shared.b32 a, [mine + 64];",
        "add.u32 x, x, a;",
        "bar.warp.sync 0xffffffff;",
        "add.u32 y, y, 1;",
        "setp.lt.u32 q, y, 4;",
        "@q bra first;",
        "bra both;",
        "other:",
        "add.u32 b, y, lane;",
        "st.shared.b32 [mine], b;",
        "bar.warp.sync 0xffffffff;",
        "bar.warp.sync 0xffffffff;",
        "add.u32 y, y, 1;",
        "setp.lt.u32 q, y, 4;",
        "@q bra other;",
        "both:",
    )
    for seed in range(3):
        assert launch(*lines, seed=seed)[:16] == [4 * (lane + 16) + 6 for lane in range(16)]
