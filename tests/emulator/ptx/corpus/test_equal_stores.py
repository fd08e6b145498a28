"""Several warps that store one value to one place, as compilers have them do."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, RaceError

KERNEL = """
.version 8.7
.target sm_90a
.address_size 64
.shared .align 16 .b8 slot[512];
.visible .entry k(.param .u64 .ptr .global out)
{{
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    and.b32 %r3, %r1, 31;
    {value}
    mov.u32 %r6, slot;
    shl.b32 %r7, %r3, {shift};
    add.u32 %r6, %r6, %r7;
    {store}
    {meet}
    ld.shared.b32 %r5, [%r6];
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.b32 [%rd1], %r5;
    ret;
}}
"""
ONE, PAIR, UNIFORM = "st.shared.b32 [%r6], %r4;", "st.shared.v2.b32 [%r6], {%r4, %r3};", "st.shared.b32 [slot], %r4;"

MATRIX = """{ .reg .b32 %row, %base; mov.u32 %base, slot; and.b32 %row, %r3, 7; shl.b32 %row, %row, 4;
      add.u32 %row, %row, %base;
      stmatrix.sync.aligned.m8n8.x1.shared.b16 [%row], {%r4}; }"""


def run(value: str, store: str = ONE, meet: str = "bar.sync 0;", shift: int = 2) -> np.ndarray:
    """What 64 threads read back."""
    out = np.zeros(64, np.int32)
    text = KERNEL.format(value=value, store=store, meet=meet, shift=shift)
    report = Device("sm_90a").load(text)["k"].launch(1, 64, [out])
    assert report.clean
    return out


@pytest.mark.parametrize(("store", "shift"), [(ONE, 2), (ONE, 4), (PAIR, 3), (UNIFORM, 2), (MATRIX, 2)])
def test_equal_stores_do_not_race(store: str, shift: int) -> None:
    """Both warps store the same values, contiguous, scattered, as vectors, to one address or as a matrix."""
    value = "mov.u32 %r4, 7;" if store == UNIFORM else "add.u32 %r4, %r3, 5;"
    meet = "bar.sync 0;" if store != UNIFORM else "bar.sync 0; mov.u32 %r6, slot;"
    want = np.full(64, 7) if store == UNIFORM else np.tile(np.arange(32) + 5, 2)
    np.testing.assert_array_equal(run(value, store, meet, shift), want)


@pytest.mark.parametrize(("store", "shift"), [(ONE, 2), (ONE, 4), (PAIR, 3), (UNIFORM, 2), (MATRIX, 2)])
def test_unequal_stores_race(store: str, shift: int) -> None:
    """The same stores, where one warp's values differ."""
    with pytest.raises(RaceError, match="write by warp"):
        run("add.u32 %r4, %r2, 5;", store, shift=shift)


def test_one_unequal_lane_is_enough() -> None:
    """A single word that differs is a race."""
    with pytest.raises(RaceError, match="write by warp"):
        run("setp.eq.u32 %p1, %r1, 40; selp.u32 %r4, 1, 5, %p1;".join(("{ .reg .pred %p1; ", " }")))


def test_readers_are_still_checked() -> None:
    """Equal stores excuse no reader that did not wait for the other warp's."""
    with pytest.raises(RaceError, match="read by warp"):
        run("add.u32 %r4, %r3, 5;", meet="")
