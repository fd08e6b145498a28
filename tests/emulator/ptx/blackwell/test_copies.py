"""Copies that came with sm_100: rows gathered and scattered by tensor maps, stores that complete on an mbarrier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device, MemoryFault, ProtocolError, RaceError


def kernel(body: str, *, before: str = "") -> str:
    """One warp a CTA; lane 0 executes the body, after a cluster barrier before which it does something else."""
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
{before}
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


CLUSTER = """  xor.b32 %r0, %rank, 1;
  mapa.shared::cluster.u32 %r1, %s, %r0;
  mapa.shared::cluster.u32 %r2, %bar, %r0;"""


def run_pair(body: str, before: str, assemble: Any, **options: Any) -> Any:
    """Two CTAs of a cluster run a body; what each writes to its four words of the result."""
    device = Device("sm_100a", **options)
    plain = device.tensor_map_tiled(device.buffer(np.zeros((8, 64), np.uint16)), box=(64, 1))
    out = np.zeros((2, 4), np.uint32)
    text = kernel(body, before=before).replace(".version 8.8", ".version 9.2")
    assemble(text)
    report = device.load(text)["probe"].launch(2, 32, [plain, plain, out], shared_bytes=8448, cluster=2)
    assert report.clean, str(report)
    return out


def test_asynchronous_reductions(assemble: Any) -> None:
    """red.async combines with a peer's shared memory and completes on its mbarrier, all of them in any order."""
    before = """  mov.u32 %r8, 5; mov.u32 %r9, 0xf0; mov.u64 %wide, 3;
  st.shared.v4.u32 [%s], {%r8, %r9, %r8, %r8}; st.shared.u64 [%s + 16], %wide;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 28;"""
    body = f"""{CLUSTER}
  add.u32 %r3, %rank, 10; cvt.u64.u32 %wide, %r3;
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %r3, [%r2];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s32 [%r1], %r3, [%r2];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.xor.b32 [%r1 + 4], %r3, [%r2];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.s32 [%r1 + 8], %r3, [%r2];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [%r1 + 12], %r8, [%r2];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [%r1 + 16], %wide, [%r2];
{WAIT}
  ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%s]; ld.shared.u64 %wide, [%s + 16];
  cvt.u32.u64 %r8, %wide; shl.b32 %r8, %r8, 16; or.b32 %r7, %r7, %r8;
  mul.wide.u32 %wide, %rank, 16; add.s64 %out, %out, %wide; st.global.v4.b32 [%out], {{%r4, %r5, %r6, %r7}};"""
    for schedule in ("adversarial", "random", "fair"):
        out = run_pair(body, before, assemble, schedule=schedule)
        for rank in range(2):
            peer = 10 + (rank ^ 1)
            assert out[rank].tolist() == [5 + 2 * peer, 0xF0 ^ peer, peer, (3 + peer) << 16]


def test_a_reduction_that_was_not_waited_for(assemble: Any) -> None:
    """Reading what red.async changes without waiting on its mbarrier is a race."""
    before = "  mov.u32 %r8, 5; st.shared.u32 [%s], %r8; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 4;"
    body = f"""{CLUSTER}
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %rank, [%r2];
  ld.shared.u32 %r4, [%s]; st.global.u32 [%out], %r4;
{WAIT}"""
    with pytest.raises(RaceError, match=r"red\.async"):
        run_pair(body.replace("[%out], %r4", "[%out + 4], %r4"), before, assemble)


def test_bulk_reduction_into_a_peer(assemble: Any) -> None:
    """cp.reduce.async.bulk adds a CTA's shared memory to its peer's."""
    before = """  add.u32 %r3, %rank, 10; st.shared.v4.u32 [%s], {%r3, %r3, %rank, %rank};
  st.shared.v4.u32 [%s + 64], {%r3, %rank, %r3, %rank};
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16; fence.proxy.async.shared::cta;"""
    body = f"""{CLUSTER}
  add.u32 %r4, %r1, 64;
  cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r4], [%s], 16, [%r2];
{WAIT}
  ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%s + 64];
  mul.wide.u32 %wide, %rank, 16; add.s64 %out, %out, %wide; st.global.v4.b32 [%out], {{%r4, %r5, %r6, %r7}};"""
    assert run_pair(body, before, assemble).tolist() == [[21, 11, 11, 1], [21, 11, 11, 1]]


def test_stores_of_some_bytes_and_loads_beyond(assemble: Any) -> None:
    """cp_mask copies chosen bytes of every sixteen; ignore_oob does not read the bytes at either end."""
    device = Device("sm_100a")
    data = device.buffer(np.arange(32, dtype=np.uint8), "x")
    out = np.full(64, 0xEE, np.uint8)
    text = f""".version 9.2
.target sm_100a
.address_size 64
.visible .entry probe(.param .u64 x, .param .u64 out)
{{
  .shared .align 16 .b8 buffer[64]; .shared .align 8 .b64 full;
  .reg .b32 %t, %s, %bar, %l; .reg .b64 %x, %out; .reg .b16 %m; .reg .pred %p0, %p1;
  mov.u32 %t, %tid.x; setp.ne.u32 %p0, %t, 0; @%p0 exit;
  mov.u32 %s, buffer; mov.u32 %bar, full; ld.param.u64 %x, [x]; ld.param.u64 %out, [out]; mov.u32 %l, 4;
  mbarrier.init.shared.b64 [%bar], 1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 32; sub.u64 %x, %x, 16;
  cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%s], [%x], 32, 15, %l, [%bar];
{WAIT}
  mov.b16 %m, 0x0ff1;
  cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%out], [%s], 32, %m;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;
}}
"""
    assemble(text)
    with pytest.raises(MemoryFault, match=r"bulk copy of 13 bytes at 0x[0-9a-f]*f: "):
        device.load(text)["probe"].launch(1, 32, [data, out])
    inside = text.replace("sub.u64 %x, %x, 16", "sub.u64 %x, %x, 0")
    report = device.load(inside)["probe"].launch(1, 32, [data, out])
    assert report.clean, str(report)
    image = np.full(32, 0xFF)
    image[15:28] = np.arange(15, 28)
    kept = np.tile([bool(0x0FF1 >> n & 1) for n in range(16)], 2)
    assert out[:32].tolist() == np.where(kept, image, 0xEE).tolist()
    assert (out[32:] == 0xEE).all()
    for byte, copied in ((0, True), (1, False), (20, True), (28, False)):
        touched = inside.replace(
            "cp.async.bulk.commit_group;", f"st.global.u8 [%out + {byte}], 1; cp.async.bulk.commit_group;"
        )
        if copied:
            with pytest.raises(RaceError, match="bulk"):
                device.load(touched)["probe"].launch(1, 32, [data, out])
        else:
            assert device.load(touched)["probe"].launch(1, 32, [data, out]).clean


def test_stores_with_release(assemble: Any) -> None:
    """st.async.release and red.async.release order what came before them for a thread that acquires."""
    text = """.version 9.2
.target sm_100a
.address_size 64
.visible .entry probe(.param .u64 flag, .param .u64 data, .param .u64 out)
{
  .reg .b32 %t, %c, %v, %w; .reg .b64 %f, %d, %o; .reg .pred %p;
  mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; ld.param.u64 %f, [flag]; ld.param.u64 %d, [data]; ld.param.u64 %o, [out];
  setp.ne.u32 %p, %t, 0; @%p exit; setp.eq.u32 %p, %c, 0; @%p bra consumer;
  st.global.u32 [%d], 42; st.async.release.gpu.global.u32 [%f], 1;
  red.async.mmio.release.sys.global.add.u32 [%f], 1; exit;
consumer:
  ld.acquire.gpu.global.u32 %v, [%f]; setp.ne.u32 %p, %v, 2; @%p bra consumer;
  ld.global.u32 %w, [%d]; st.global.u32 [%o], %w; ret;
}
"""
    assemble(text)
    for seed in range(4):
        flag, data, out = (np.zeros(1, np.uint32) for _ in range(3))
        report = Device("sm_100a", seed=seed, schedule="random").load(text)["probe"].launch(2, 32, [flag, data, out])
        assert report.clean, str(report)
        assert out.tolist() == [42]
