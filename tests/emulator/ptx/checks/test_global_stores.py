"""Stores of equal bytes to global memory by the copy engine and by threads, and what a tensor store writes besides."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, LaunchReport, MemoryFault, RaceError

TEXT = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 .ptr .global out, .param .u32 delta, .param .u32 at) {
    .reg .b32 r, tile, warp, lane, value, step;
    .reg .b64 where, map_address, to;
    .reg .pred one, first;
    .shared .align 128 .b8 tiles[512];
    mov.u32 r, %tid.x;
    shr.u32 warp, r, 5;
    and.b32 lane, r, 31;
    setp.eq.u32 one, lane, 0;
    setp.eq.u32 first, warp, 0;
    ld.param.u32 step, [delta];
    mad.lo.u32 value, warp, step, 7;
    mov.u32 tile, tiles;
    mad.lo.u32 tile, warp, 256, tile;
    mad.lo.u32 r, lane, 8, tile;
    st.shared.v2.b32 [r], {value, lane};
    fence.proxy.async.shared::cta;
    bar.warp.sync 0xffffffff;
    ld.param.u64 to, [out];
    mov.u64 map_address, map;
    // BODY
    ret;
}
"""
BULK = """@one cp.async.bulk.global.shared::cta.bulk_group [to], [tile], 256;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
TENSOR = """@one cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [map_address, {0, 0}], [tile];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
THREADS = """mul.wide.u32 where, lane, 8; add.u64 where, to, where;
    st.global.v2.b32 [where], {value, lane};"""
LAST_WORD = """{ .reg .b32 a; ld.param.u32 a, [at]; cvt.u64.u32 where, a; }
    add.u64 where, to, where; @one st.global.b32 [where], value;"""
READ = "ld.global.b32 value, [to];"


def launch(one: str, other: str, *, step: int, dims: tuple[int, int] = (64, 2), at: int = 0) -> LaunchReport:
    """Warp 0 does the one and warp 1 the other, with values that differ by `step`; 32-bit words of two rows."""
    body = f"@!first bra other;\n{one}\nret;\nother:\n{other}"
    device = Device("sm_90a", seed=3)
    out = device.buffer(np.zeros(64, np.uint32))
    columns, rows = dims
    described = device.tensor_map_tiled(out, (32, 2), dims=(columns, rows), strides=(128,) if rows > 1 else ())
    kernel = device.load(TEXT.replace("// BODY", body))["k"]
    return kernel.launch(1, 64, [described, out, np.uint32(step), np.uint32(at)])


BY = {"bulk": BULK, "tensor": TENSOR, "threads": THREADS}
PAIRS = [(one, other) for one in BY for other in BY if {one, other} != {"threads"}]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_equal_stores_to_global_memory_do_not_race(one: str, other: str) -> None:
    """One rule for all: a store that changes nothing races with no other store, whichever proxy made them."""
    assert launch(BY[one], BY[other], step=0, dims=(32, 2)).clean


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_unequal_stores_to_global_memory_race(one: str, other: str) -> None:
    """The same stores where one warp's values differ."""
    with pytest.raises(RaceError, match="write by"):
        launch(BY[one], BY[other], step=1, dims=(32, 2))


@pytest.mark.parametrize("store", ["bulk", "tensor"])
def test_a_reader_of_equal_stores_must_wait(store: str) -> None:
    """Equal stores excuse no reader."""
    with pytest.raises(RaceError, match="read by"):
        launch(BY[store], READ, step=0, dims=(32, 2))


def test_what_a_tensor_store_writes_behind_a_row() -> None:
    """A race about bytes between a row's end and the next 16-byte unit names the rule; one about elements does not."""
    with pytest.raises(RaceError) as caught:
        launch(TENSOR, LAST_WORD, step=1, dims=(29, 2), at=31 * 4)
    assert "whole 16-byte units: those of 29 x" in caught.value.hint
    assert "116 bytes, as 128" in caught.value.hint
    with pytest.raises(RaceError) as caught:
        launch(TENSOR, LAST_WORD, step=1, dims=(29, 2), at=28 * 4)
    assert "16-byte" not in caught.value.hint


def test_a_tensor_store_past_the_end_of_a_buffer() -> None:
    """The last row's unit reaches beyond the allocation: the fault names the rule."""
    device = Device("sm_90a")
    out = device.buffer(np.zeros(61, np.uint32))
    described = device.tensor_map_tiled(out, (32, 2), dims=(29, 2), strides=(128,))
    kernel = device.load(TEXT.replace("// BODY", f"@!first ret;\n{TENSOR}"))["k"]
    with pytest.raises(MemoryFault, match="past its end") as caught:
        kernel.launch(1, 64, [described, out, np.uint32(0), np.uint32(0)])
    assert "whole 16-byte units" in caught.value.hint
