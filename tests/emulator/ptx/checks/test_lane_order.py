"""Lanes of one warp race unless they meet: at `bar.warp.sync`, a barrier, or an mbarrier of the whole warp."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, LaunchReport, RaceError

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry lanes(.param .u64 in_param, .param .u64 out_param) .maxntid 64 {
    .reg .b64 in, out, at;
    .reg .b32 s, t, lane, x, y, mine, next;
    .reg .pred p, q, done;
    mov.u32 s, smem;
    mov.u32 t, %tid.x;
    mov.u32 lane, %laneid;
    ld.param.u64 in, [in_param];
    ld.param.u64 out, [out_param];
    mad.lo.u32 mine, t, 4, s;
    xor.b32 next, lane, 1;
    mad.lo.u32 next, next, 4, s;
    setp.eq.u32 p, lane, 0;
    setp.eq.u32 q, lane, 7;
"""
TAIL = """
    mad.wide.u32 at, t, 4, out;
    st.global.b32 [at], x;
    ret;
}
"""
WRITE, READ = "st.shared.b32 [mine], t;", "ld.shared.b32 x, [next];"
MEET = "bar.warp.sync 0xffffffff;"


def launch(*lines: str, threads: int = 32, seed: int = 0) -> LaunchReport:
    """Run the lines between the kernel's beginning and its end, which stores x."""
    device = Device("sm_90a", seed=seed)
    text = HEAD + "\n".join(f"    {line}" for line in lines) + TAIL
    arrays = [device.buffer(np.arange(64, dtype=np.uint32)), device.buffer(np.zeros(64, np.uint32))]
    return device.load(text)["lanes"].launch(1, threads, arrays, shared_bytes=1024)


def race(*lines: str, threads: int = 32) -> str:
    """The report on lines that race."""
    with pytest.raises(RaceError) as caught:
        launch(*lines, threads=threads)
    return str(caught.value)


RACES = {
    "a neighbour's word": (WRITE, READ),
    "after a shuffle": (WRITE, "shfl.sync.bfly.b32 y, t, 1, 31, 0xffffffff;", READ),
    "after a vote": (WRITE, "vote.sync.any.pred q, p, 0xffffffff;", READ),
    "after the end of a branch": ("mov.u32 x, 7;", "@!p bra past;", "st.shared.b32 [s], t;", "past:",
                                  "ld.shared.b32 x, [s];"),
    "under a guard": ("@p st.shared.b32 [s], t;", "ld.shared.b32 x, [s];"),
    "a write after a read": (WRITE, MEET, READ, "add.u32 y, x, 1;", "st.shared.b32 [mine], y;"),
    "two writes": ("@p st.shared.b32 [s], 1;", "@q st.shared.b32 [s], 2;", "mov.u32 x, 0;"),
    "a matrix of what lanes wrote": (WRITE, "shl.b32 mine, lane, 4;", "and.b32 mine, mine, 127;",
                                     "add.u32 mine, mine, s;", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {x}, [mine];"),
    "what a matrix instruction wrote": ("shl.b32 y, lane, 4;", "and.b32 y, y, 127;", "add.u32 y, y, s;",
                                        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [y], {t};",
                                        "ld.shared.b32 x, [mine];"),
    "an atomic on what one lane set": ("@p st.shared.b32 [s], 0;", "atom.shared.add.u32 x, [s], 1;"),
    "half a warp met": (WRITE, "setp.lt.u32 p, lane, 16;", "@!p bra past;", "bar.warp.sync 0xffff;", "past:",
                        "xor.b32 next, lane, 16;", "mad.lo.u32 next, next, 4, s;", READ),
    "a neighbour's copy": ("mad.wide.u32 at, t, 4, in;", "cp.async.ca.shared.global [mine], [at], 4;",
                           "cp.async.commit_group;", "cp.async.wait_group 0;", READ),
    "a copy over what a neighbour reads": (WRITE, MEET, READ, "mad.wide.u32 at, t, 4, in;",
                                           "cp.async.ca.shared.global [mine], [at], 4;", "cp.async.wait_all;"),
    "meeting before the wait": ("mad.wide.u32 at, t, 4, in;", "cp.async.ca.shared.global [mine], [at], 4;",
                                "cp.async.commit_group;", MEET, "cp.async.wait_group 0;", READ),
}  # fmt: skip


@pytest.mark.parametrize("case", RACES)
def test_lanes_that_have_not_met(case: str) -> None:
    """Two lanes touch the same bytes, one writes, and nothing orders them: both are named, and what is missing."""
    report = race(*RACES[case])
    assert "missing edge: no bar.warp.sync by warp 0" in report, report
    assert "__syncwarp" in report


def test_both_lanes_are_named() -> None:
    """The report has the lanes, the bytes and both instructions."""
    report = race("mov.u32 x, 0;", "@p st.shared.b32 [s], t;", "@q ld.shared.b32 x, [s];")
    assert "write by lane 0 of warp 0 of CTA 0, cluster 0, at line 21: @p st.shared.b32 [s], t" in report
    assert "read by lane 7 of warp 0 of CTA 0, cluster 0, at line 22: @q ld.shared.b32 x, [s]" in report
    assert "nothing orders lane 7 after lane 0" in report


CLEAN = {
    "bar.warp.sync": (WRITE, MEET, READ),
    "bar.sync": (WRITE, "bar.sync 0;", READ),
    "a named barrier": (WRITE, "barrier.sync 1, 32;", READ),
    "the own word": (WRITE, "ld.shared.b32 x, [mine];", "add.u32 x, x, 1;", "st.shared.b32 [mine], x;"),
    "all store the same": ("st.shared.b32 [s], 5;", "ld.shared.b32 x, [s];"),
    "equal stores": ("@p st.shared.b32 [s], 5;", "@q st.shared.b32 [s], 5;", "mov.u32 x, 0;"),
    "atomics": ("atom.shared.add.u32 x, [s], 1;", "atom.shared.add.u32 x, [s], 1;"),
    "pairs of lanes that met": (WRITE, "setp.lt.u32 p, lane, 16;", "@!p bra past;", "bar.warp.sync 0xffff;", "past:",
                                "@p ld.shared.b32 x, [next];", "@!p mov.u32 x, 0;"),
    "an mbarrier of all lanes": ("@p mbarrier.init.shared::cta.b64 [s + 512], 32;", MEET, WRITE,
                                 "mbarrier.arrive.shared::cta.b64 _, [s + 512];", "again:",
                                 "mbarrier.try_wait.parity.shared::cta.b64 done, [s + 512], 0;", "@!done bra again;",
                                 READ),
    "a copy over what the neighbours have read": (WRITE, MEET, READ, "mad.wide.u32 at, t, 4, in;", MEET,
                                                  "cp.async.ca.shared.global [mine], [at], 4;", "cp.async.wait_all;"),
    "copies that were met after the wait": ("mad.wide.u32 at, t, 4, in;", "cp.async.ca.shared.global [mine], [at], 4;",
                                            "cp.async.commit_group;", "cp.async.wait_group 0;", MEET, READ),
}  # fmt: skip


@pytest.mark.parametrize("case", CLEAN)
def test_lanes_that_are_ordered(case: str) -> None:
    """What orders lanes, and what needs no order, is not reported, whatever the order of events."""
    for seed in range(3):
        assert launch(*CLEAN[case], seed=seed).clean


RING = (
    "setp.eq.u32 p, t, 0;",
    "@p mbarrier.init.shared::cta.b64 [s + 512], 1;",
    "bar.sync 0;",
    "setp.ge.u32 q, t, 32;",
    "setp.eq.u32 p, lane, 0;",
    "@q bra second;",
    WRITE,
    MEET,
    "@p mbarrier.arrive.shared::cta.b64 _, [s + 512];",
    "mov.u32 x, 0;",
    "bra both;",
    "second:",
    "mbarrier.try_wait.parity.shared::cta.b64 done, [s + 512], 0;",
    "@!done bra second;",
    READ,
    "both:",
)
"""Warp 0 writes a word a lane and its lane 0 arrives for all; warp 1 waits and reads."""


def test_one_lane_arrives_for_its_warp() -> None:
    """After the lanes have met, one of them may speak for all."""
    for seed in range(3):
        assert launch(*RING, threads=64, seed=seed).clean


def test_one_lane_arrives_before_the_others_have_come() -> None:
    """Without bar.warp.sync the arrival of one lane says nothing of the others' writes."""
    report = race(*[line for line in RING if line != MEET], threads=64)
    assert (
        "lane 0 of warp 0 arrived on the mbarrier at 0x600 phase 0 without having met the lanes whose write" in report
    )
    assert "put bar.warp.sync 0xffffffff" in report


def test_a_matrix_instruction_brings_lanes_together() -> None:
    """A one-lane arrival after an instruction that takes all lanes' registers is as good as after bar.warp.sync."""
    lines = ["movmatrix.sync.aligned.m8n8.trans.b16 y, t;" if line == MEET else line for line in RING]
    for seed in range(3):
        assert launch(*lines, threads=64, seed=seed).clean
    voted = ["vote.sync.any.pred q, p, 0xffffffff;" if line == MEET else line for line in RING]
    assert "without having met" in race(*voted, threads=64)


def test_what_the_warp_did_as_one() -> None:
    """Any lane may speak for what a matrix instruction of its warp wrote."""
    lines = [line for line in RING if line != MEET]
    lines[lines.index(WRITE)] = (
        "and.b32 y, lane, 7; shl.b32 y, y, 4; add.u32 y, y, s; stmatrix.sync.aligned.m8n8.x1.shared.b16 [y], {t};"
    )
    for seed in range(3):
        assert launch(*lines, threads=64, seed=seed).clean


def test_what_the_arriving_lane_did_itself() -> None:
    """The arrival of a lane publishes its own accesses, though its warp has not met."""
    own = [line for line in RING if line != MEET]
    own[own.index(WRITE)] = "ld.shared.b32 x, [s + 256]; @p st.shared.b32 [s], t;"
    own[own.index(READ)] = "ld.shared.b32 x, [s];"
    for seed in range(3):
        report = launch(*own, threads=64, seed=seed)
        assert not [finding for finding in report.findings if finding.kind == "race"]


STORE = (
    WRITE,
    "fence.proxy.async.shared::cta;",
    MEET,
    "@p cp.async.bulk.global.shared::cta.bulk_group [out], [s], 128;",
    "cp.async.bulk.commit_group;",
    "cp.async.bulk.wait_group 0;",
    "add.u64 out, out, 128;",
    "mov.u32 x, 0;",
)


def test_one_lane_stores_what_the_warp_wrote() -> None:
    """A bulk store by one lane needs the lanes to have met; with it, nothing is reported."""
    assert launch(*STORE).clean
    report = race(*[line for line in STORE if line != MEET])
    assert "lane 0 of warp 0 issued the TMA store without having met the lanes whose write this is" in report


def test_protocol_level_does_not_compare_lanes() -> None:
    """Lanes are part of the full check only."""
    device = Device("sm_90a", check="protocol")
    out = device.buffer(np.zeros(64, np.uint32))
    assert device.load(HEAD + WRITE + READ + TAIL)["lanes"].launch(1, 32, [None, out], shared_bytes=1024).clean


@pytest.mark.parametrize("fence", ["fence.proxy.async.shared::cta;", ""])
def test_each_lane_copies_its_own(fence: str) -> None:
    """Lanes that have not met may each store, fence and have copied what is their own; without the fence none may."""
    lines = (
        *("mad.lo.u32 mine, t, 16, s;", "mov.u32 x, t;"),
        *("st.shared.v4.b32 [mine], {t, t, t, t};", fence, "setp.lt.u32 p, t, 16;", "mad.wide.u32 at, t, 16, in;"),
        *("@p cp.async.bulk.global.shared::cta.bulk_group [at], [mine], 16;", "cp.async.bulk.commit_group;"),
        "cp.async.bulk.wait_group 0;",
    )
    if fence:
        assert launch(*lines).clean
    else:
        assert "missing edge: no fence.proxy.async by warp 0" in race(*lines)
