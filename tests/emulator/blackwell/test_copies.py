"""Copies that came with sm_100: rows gathered and scattered by tensor maps, stores that complete on an mbarrier."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device, MemoryFault, ProtocolError


def kernel(body: str, *, barriers: int = 1) -> str:
    """One warp; lane 0 executes the body, then everybody waits for phase 0 of the barrier if there is one."""
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry probe(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 out)
{{
  .reg .pred %p<4>; .reg .b32 %r<24>, %s, %bar, %thread, %rank; .reg .b64 %ma, %mb, %out, %wide;
  mov.u32 %s, dynamic;
  add.u32 %bar, %s, 8192;
  mov.u32 %thread, %tid.x;
  mov.u32 %rank, %cluster_ctarank;
  cvta.param.u64 %ma, map_a;
  cvta.param.u64 %mb, map_b;
  ld.param.u64 %out, [out];
  setp.ne.u32 %p0, %thread, 0;
  @%p0 bra MEET;
  mbarrier.init.shared::cta.b64 [%bar], 1;
  fence.mbarrier_init.release.cluster;
MEET:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  @%p0 bra WAIT;
{body}
WAIT:
  bar.warp.sync 0xffffffff;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ret;
}}
"""


WAIT = """POLL:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0;
  @!%p1 bra POLL;"""


@pytest.mark.parametrize("swizzle", [None, "32B", "64B", "128B"])
def test_gather_and_scatter(swizzle: str | None) -> None:
    """Four rows, in any order and out of bounds too, go to shared memory and to four other rows."""
    columns = {None: 32, "32B": 16, "64B": 32, "128B": 64}[swizzle]
    device = Device("sm_100a")
    a = np.arange(20 * 128, dtype=np.uint16).reshape(20, 128)
    source, target = device.buffer(a), device.buffer(np.zeros((16, 128), np.uint16))
    maps = [device.tensor_map_tiled(x, box=(columns, 1), swizzle=swizzle) for x in (source, target)]  # type: ignore[arg-type]
    body = f"""  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {8 * columns};
  cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
    [%s], [%ma, {{16, 7, 19, 3, 25}}], [%bar];
{WAIT}
  cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%mb, {{32, 2, 1, 15, 8}}], [%s];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;"""
    report = device.load(kernel(body))["probe"].launch(1, 32, [*maps, None], shared_bytes=8448)
    expected = np.zeros((16, 128), np.uint16)
    for to, of in ((2, 7), (1, 19), (15, 3)):
        expected[to, 32 : 32 + columns] = a[of, 16 : 16 + columns]
    np.testing.assert_array_equal(target.read(), expected)
    assert report.clean, str(report)


def test_gather_needs_boxes_of_one_row() -> None:
    """A map with a taller box is refused, with the right box."""
    device = Device("sm_100a")
    map_a = device.tensor_map_tiled(device.buffer(np.zeros((20, 128), np.uint16)), box=(64, 4))
    body = """  cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
    [%s], [%ma, {0, 7, 19, 3, 5}], [%bar];"""
    with pytest.raises(ProtocolError, match="whose box has one row"):
        device.load(kernel(body))["probe"].launch(1, 32, [map_a, map_a, None], shared_bytes=8448)


def test_asynchronous_stores() -> None:
    """st.async writes into another CTA's shared memory and completes on its mbarrier."""
    device = Device("sm_100a")
    plain = device.tensor_map_tiled(device.buffer(np.zeros((8, 64), np.uint16)), box=(64, 1))
    out = np.zeros(8, np.uint32)
    body = f"""  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 20;
  xor.b32 %r0, %rank, 1;
  mapa.shared::cluster.u32 %r1, %s, %r0;
  mapa.shared::cluster.u32 %r2, %bar, %r0;
  add.u32 %r3, %rank, 100;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r3, [%r2];
  st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1+16], {{%r3, %r3, %r3, %r0}}, [%r2];
{WAIT}
  ld.shared.b32 %r4, [%s];
  ld.shared.b32 %r5, [%s+24];
  ld.shared.b32 %r6, [%s+28];
  mul.wide.u32 %wide, %rank, 16;
  add.s64 %out, %out, %wide;
  st.global.v4.b32 [%out], {{%r4, %r5, %r6, %r6}};"""
    report = device.load(kernel(body))["probe"].launch(2, 32, [plain, plain, out], shared_bytes=8448, cluster=2)
    assert out.tolist() == [101, 101, 0, 0, 100, 100, 1, 1]
    assert report.clean, str(report)


def test_bulk_clearing() -> None:
    """st.bulk sets shared memory to zero, in multiples of eight bytes."""
    device = Device("sm_100a")
    plain = device.tensor_map_tiled(device.buffer(np.zeros((8, 64), np.uint16)), box=(64, 1))
    out = np.full(4, 7, np.uint32)
    body = """  st.bulk.weak.shared::cta [%s+64], {size}, 0;
  ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%s+64];
  st.global.v4.b32 [%out], {{%r0, %r1, %r2, %r3}};"""
    launch = {"shared_bytes": 8448}
    device.load(kernel(body.format(size=1024)))["probe"].launch(1, 32, [plain, plain, out], **launch)  # type: ignore[arg-type]
    assert not out.any()
    with pytest.raises(MemoryFault, match="multiples of 8"):
        device.load(kernel(body.format(size=12)))["probe"].launch(1, 32, [plain, plain, out], **launch)  # type: ignore[arg-type]
