"""Every pair of accesses to LDS, in one wave and in two, ordered in every way: a race exactly where nothing orders."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from programs import program

from tilekit.emulator import Device, RaceError

ACCESSES = {
    "ds_write": "ds_write_b32 v1, v{value}",
    "ds_read": "ds_read_b32 v9, v1",
    "ds_atomic": "ds_add_u32 v1, v{value}",
    "buffer_lds": "buffer_load_dword v{source}, s[12:15], 0 offen lds",
    "global_lds": "global_load_lds_dword v{source}, s[2:3]",
}
ORDERS = {
    "nothing": ("", ""),
    "the wait": ("{wait}", ""),
    "the wait of the other counter": ("{other}", ""),
    "a barrier": ("", "s_barrier"),
    "a barrier before the wait": ("", "s_barrier\n{wait}"),
    "the wait before a barrier": ("{wait}", "s_barrier"),
    "the other wait before a barrier": ("{other}", "s_barrier"),
}
SETUP = """
    v_and_b32_e32 v1, 63, v0
    v_lshlrev_b32_e32 v1, 2, v1
    v_add_u32_e32 v2, 0x100, v1
    v_add_u32_e32 v3, 7, v0
    v_add_u32_e32 v4, 9, v0
    s_mov_b32 s12, s2
    s_and_b32 s13, s3, 0xffff
    s_movk_i32 s14, 0x400
    s_mov_b32 s15, 0x20000
    s_mov_b32 m0, 0
    ds_write_b32 v1, v0
    s_waitcnt lgkmcnt(0)
    s_barrier
"""
"""Both waves write the same words, and meet."""
WAITS = {"ds": "s_waitcnt lgkmcnt(0)", "lds": "s_waitcnt vmcnt(0)"}


def queue_of(access: str) -> str:
    """The counter that an access counts on."""
    return "lds" if access.endswith("lds") else "ds"


def races(first: str, second: str, order: str, *, apart: bool) -> bool:
    """Whether a pair races, by the rules' words."""
    writes = [access != "ds_read" for access in (first, second)]
    if not any(writes) or (first == second == "ds_atomic"):
        return False
    if apart:
        return order != "the wait before a barrier"
    # Operations on one counter take place in order; others only behind the first one's wait.
    waited = order in ("the wait", "the wait before a barrier", "a barrier before the wait")
    return queue_of(first) != queue_of(second) and not waited


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("apart", [False, True], ids=["one wave", "two waves"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pair", list(product(ACCESSES, ACCESSES)), ids="-".join)
def test_pair(pair: tuple[str, str], order: str, apart: bool) -> None:
    """A pair is reported where nothing orders it, whatever the schedule; and never where something does."""
    first, second = pair
    texts = [ACCESSES[name].format(value=3 + n, source=1 + n) for n, name in enumerate(pair)]
    own, other = WAITS[queue_of(first)], WAITS["ds" if queue_of(first) == "lds" else "lds"]
    before, meeting = (part.format(wait=own, other=other) for part in ORDERS[order])
    if apart:
        body = f"""{SETUP}
            v_readfirstlane_b32 s8, v0
            s_cmp_lg_u32 s8, 0
            s_cbranch_scc1 .Lsecond
            {texts[0]}
            {before}
            {meeting}
            s_waitcnt vmcnt(0) lgkmcnt(0)
            s_endpgm
        .Lsecond:
            {meeting}
            {texts[1]}
            s_waitcnt vmcnt(0) lgkmcnt(0)"""
    else:
        body = f"{SETUP}\n{texts[0]}\n{before}\n{meeting}\n{texts[1]}\ns_waitcnt vmcnt(0) lgkmcnt(0)"
    text = program(body, "gfx950", lds=256)
    for seed, schedule in enumerate(("adversarial", "random", "fair")):
        kernel = Device("gfx950", seed=seed, schedule=schedule).load(text)["k"]
        memory = np.arange(256, dtype=np.uint32) * 1000
        found = False
        try:
            report = kernel.launch(1, 128 if apart else 64, [memory])
            assert report.clean or all(finding.kind == "race" for finding in report.findings)
        except RaceError:
            found = True
        assert found == races(first, second, order, apart=apart), schedule


@pytest.mark.parametrize("read", ["ds_read_b32 v9, v1", "ds_read_b64 v[8:9], v1", "ds_read_b128 v[8:11], v5",
                                  "ds_read2_b32 v[8:9], v1 offset1:64", "ds_add_rtn_u32 v9, v1, v0",
                                  "ds_add_u32 v1, v0"])  # fmt: skip
def test_lds_that_nothing_has_written(read: str) -> None:
    """A read of fresh LDS is a finding that names the byte, the lane, and the array; after a write there is none."""
    body = "v_lshlrev_b32_e32 v1, 2, v0\n    v_lshlrev_b32_e32 v5, 4, v0\n    {}\n    {}\n    s_waitcnt lgkmcnt(0)"
    names = "//@shared sums offset=0 size=2048 stride=1024 count=2\n"
    text = names + program(body.format("s_nop 0", read), "gfx950", lds=2048)
    report = Device("gfx950").load(text)["k"].launch(1, 64, [np.zeros(64, np.uint32)])
    (finding,) = report.findings
    assert finding.kind == "uninitialised"
    assert "LDS sums[0], byte 0x0 is read, and nothing has written it" in str(finding)
    assert "wave 0" in str(finding)
    fill = "\n".join(f"ds_write_b32 v1, v0 offset:{256 * n}" for n in range(8))
    text = program(body.format(fill, read), "gfx950", lds=2048)
    assert Device("gfx950").load(text)["k"].launch(1, 64, [np.zeros(64, np.uint32)]).clean


def test_only_lanes_that_read() -> None:
    """Lanes that EXEC leaves out read nothing, and a word that only some lanes wrote is told from its neighbours."""
    body = """
        v_lshlrev_b32_e32 v1, 2, v0
        s_mov_b64 exec, 0xff
        ds_write_b32 v1, v0
        s_mov_b64 exec, {}
        ds_read_b32 v2, v1
        s_waitcnt lgkmcnt(0)"""
    for mask, clean in (("0xff", True), ("0x1ff", False)):
        text = program(body.format(mask), "gfx942", lds=256)
        report = Device("gfx942").load(text)["k"].launch(1, 64, [np.zeros(64, np.uint32)])
        assert report.clean == clean
        if not clean:
            assert "byte 0x20 is read" in str(report)
            assert "lane 8" in str(report)
