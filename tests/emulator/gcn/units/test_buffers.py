"""Buffer descriptors: bounds, records, strides and swizzle, against their rules written out word by word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import program

from tilekit.emulator import Device, ProtocolError

DESCRIPTOR = """
    s_mov_b32 s12, s2
    s_and_b32 s13, s3, 0xffff
    s_or_b32 s13, s13, {high}
    s_mov_b32 s14, {records}
    s_mov_b32 s15, {flags}
    v_lshlrev_b32_e32 v1, {shift}, v0
    s_mov_b32 s16, {scalar}
    v_lshlrev_b32_e32 v20, 4, v0
    s_add_u32 s4, s2, 0x2000
    s_addc_u32 s5, s3, 0
"""


def launch(access: str, **fields: Any) -> Any:
    """Run an access on 4096 words, and give the 256 words behind 0x2000 that it leaves; and all of them."""
    values = {"high": 0, "records": 4096, "flags": 0x20000, "shift": 4, "scalar": 0, **fields}
    memory = np.arange(1, 4097, dtype=np.uint32)
    body = DESCRIPTOR.format(**values) + access
    report = Device("gfx942").load(program(body, "gfx942"))["k"].launch(1, 64, [memory])
    assert report.clean, str(report)
    return memory[2048 : 2048 + 256].reshape(64, 4), memory


LOAD = """
    buffer_load_dwordx4 v[8:11], v1, s[12:15], s16 offen offset:{}
    s_waitcnt vmcnt(0)
    global_store_dwordx4 v20, v[8:11], s[4:5]
"""


@pytest.mark.parametrize("records", [0, 4, 100, 520, 1016, 1028, 4096])
@pytest.mark.parametrize("offset", [0, 4, 8])
@pytest.mark.parametrize("scalar", [0, 16])
def test_loads_are_cut_word_by_word(records: int, offset: int, scalar: int) -> None:
    """A word is loaded where its offset is below num_records less the scalar offset; else it is 0."""
    found, _ = launch(LOAD.format(offset), records=records, scalar=scalar)
    for lane in range(64):
        for word in range(4):
            at = 16 * lane + offset + 4 * word
            wanted = (at + scalar) // 4 + 1 if at + 4 <= records - scalar else 0
            assert found[lane, word] == wanted, (lane, word)


@pytest.mark.parametrize("records", [100, 520, 1016])
def test_stores_are_cut_word_by_word(records: int) -> None:
    """Words outside are not stored, those before them are."""
    _, memory = launch(
        """
        v_mov_b32_e32 v8, 7
        v_mov_b32_e32 v9, 8
        v_mov_b32_e32 v10, 9
        v_mov_b32_e32 v11, 10
        buffer_store_dwordx4 v[8:11], v1, s[12:15], 0 offen
    """,
        records=records,
    )
    wanted = np.arange(1, 4097, dtype=np.uint32)
    wanted[: records // 4] = np.resize([7, 8, 9, 10], records // 4)
    assert (memory == wanted).all()


def test_offsets_past_32_bits_do_not_come_round() -> None:
    """An offset and the instruction's beyond 2**32 are outside, and 2**31 is what masks a lane."""
    access = """
        v_mov_b32_e32 v1, {}
        v_mov_b32_e32 v8, 5
        buffer_load_dword v8, v1, s[12:15], 0 offen offset:8
        s_waitcnt vmcnt(0)
        v_mov_b32_e32 v9, v8
        v_mov_b32_e32 v10, v8
        v_mov_b32_e32 v11, v8
        global_store_dwordx4 v20, v[8:11], s[4:5]
    """
    for offset in ("-4", "0x80000000"):
        found, _ = launch(access.format(offset), records="0x7ffffffe")
        assert (found == 0).all()


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("index_stride", [0, 1, 3])
def test_records_and_swizzle(swizzled: bool, index_stride: int) -> None:
    """With an index num_records counts records; swizzled, words of neighbouring records lie together."""
    stride = 24
    access = """
        v_mov_b32_e32 v2, v0
        v_mov_b32_e32 v3, 8
        buffer_load_dwordx2 v[8:9], v[2:3], s[12:15], 0 idxen offen offset:4
        s_waitcnt vmcnt(0)
        v_mov_b32_e32 v10, 0
        v_mov_b32_e32 v11, 0
        global_store_dwordx4 v20, v[8:11], s[4:5]
    """
    high, flags = stride << 16 | swizzled << 31, 0x20000 | index_stride << 21
    found, _ = launch(access, records=50, high=high, flags=flags)
    together = 8 << index_stride
    for lane in range(64):
        for word in range(2):
            offset = 12 + 4 * word
            at = stride * lane + offset
            if swizzled:
                at = (lane // together * stride + offset // 4 * 4) * together + lane % together * 4 + offset % 4
            assert found[lane, word] == (at // 4 + 1 if lane < 50 else 0), (lane, word)


def test_a_stride_without_an_index_changes_nothing() -> None:
    """What AITER's descriptors have: a stride of 4, swizzle off, no index: bytes are counted."""
    found, _ = launch(LOAD.format(0), records=512, high=4 << 16)
    assert (found.ravel() == np.where(np.arange(256) < 128, np.arange(1, 257), 0)).all()


@pytest.mark.parametrize(
    ("flags", "message"),
    [(0, "word 3 has data format 0"), (0x27000 & 0x7FFF, "word 3 has data format 0"),
     (0x20000 | 1 << 30, "bits 31:30"), (0x20000 | 1 << 23, "bit 23")],
)  # fmt: skip
def test_invalid_descriptors(flags: int, message: str) -> None:
    """Word 3 must have a data format and type 0, and may not add the lane's number."""
    with pytest.raises(ProtocolError, match=message):
        launch(LOAD.format(0), flags=flags)
