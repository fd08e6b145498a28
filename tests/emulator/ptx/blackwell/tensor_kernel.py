"""A frame for tests of single tcgen05 instructions: an image to shared memory, some instructions, tensor memory out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator import Device, LaunchReport

IMAGE_BASE = 1024 + 1024
"""Offset of the image in a CTA's shared memory: behind the reserved kilobyte and the frame's own variables."""


def text(body: str, *, group: int = 1, columns: int = 64, filled: int = 0, allocated: int = 512) -> str:
    """A kernel of 128 threads a CTA.

    Parameters
    ----------
    body
        Instructions that one lane of warp 0 (of the even CTA) executes: ``%tm`` is tensor memory's address, ``%im`` the
        image's offset in shared memory, ``%image`` its shared address.
    group
        CTAs that work together.
    columns
        Columns of tensor memory to return.
    filled
        Columns that are first filled from the second buffer.
    """
    fill = "\n".join(
        f"  ld.global.b32 %r0, [%fill+{4 * c}];\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%lane+{c}], {{%r0}};"
        for c in range(filled)
    )
    dump = "\n".join(
        f"  tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{', '.join(f'%r{j}' for j in range(8))}}}, [%lane+{c}];\n"
        "  tcgen05.wait::ld.sync.aligned;\n"
        + "\n".join(f"  st.global.b32 [%out+{4 * (c + j)}], %r{j};" for j in range(8))
        for c in range(0, columns, 8)
    )
    cg = f"cta_group::{group}"
    meet = "barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;"
    commit = (
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];"
        if group == 1
        else "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%bar], %both;"
    )
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry probe(.param .u64 image, .param .u64 fill, .param .u64 out, .param .u32 size)
.reqntid 128, 1, 1
{{
  .reg .pred %p<8>; .reg .b16 %both; .reg .b64 %image_at, %fill, %out, %wide, %da, %db, %dc; .reg .b128 %q<4>;
  .reg .b32 %r<64>, %s, %bar, %slot, %image, %im, %tm, %lane, %thread, %warp, %rank, %size, %at;
  mov.u32 %s, dynamic;
  mov.u32 %thread, %tid.x;
  shr.u32 %warp, %thread, 5;
  mov.u32 %rank, %cluster_ctarank;
  mov.b16 %both, 3;
  mov.u32 %bar, %s;
  add.u32 %slot, %s, 64;
  add.u32 %image, %s, 1024;
  and.b32 %im, %image, 0x3FFFF;
  ld.param.u32 %size, [size];
  ld.param.u64 %image_at, [image];
  mul.wide.u32 %wide, %rank, %size;
  add.s64 %image_at, %image_at, %wide;
  setp.ne.u32 %p0, %thread, 0;
  @%p0 bra COPY;
  mbarrier.init.shared::cta.b64 [%bar], 1;
  fence.mbarrier_init.release.cluster;
COPY:
  shl.b32 %at, %thread, 4;
NEXT:
  setp.ge.u32 %p0, %at, %size;
  @%p0 bra COPIED;
  cvt.u64.u32 %wide, %at;
  add.s64 %wide, %image_at, %wide;
  ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%wide];
  add.u32 %r4, %image, %at;
  st.shared.v4.b32 [%r4], {{%r0, %r1, %r2, %r3}};
  add.u32 %at, %at, 2048;
  bra NEXT;
COPIED:
  fence.proxy.async.shared::cta;
  setp.ne.u32 %p0, %warp, 0;
  @%p0 bra ALLOCATED;
  tcgen05.alloc.{cg}.sync.aligned.shared::cta.b32 [%slot], {allocated};
ALLOCATED:
  tcgen05.fence::before_thread_sync;
  {meet}
  tcgen05.fence::after_thread_sync;
  ld.shared.b32 %tm, [%slot];
  shl.b32 %r0, %warp, 21;
  add.u32 %lane, %tm, %r0;
  mad.lo.u32 %r1, %rank, 128, %thread;
  mul.lo.u32 %r1, %r1, {4 * max(columns, filled)};
  ld.param.u64 %fill, [fill];
  ld.param.u64 %out, [out];
  cvt.u64.u32 %wide, %r1;
  add.s64 %fill, %fill, %wide;
  add.s64 %out, %out, %wide;
{fill}
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  {meet}
  tcgen05.fence::after_thread_sync;
  setp.ne.u32 %p0, %warp, 0;
  @%p0 bra WAIT;
  setp.ne.u32 %p0, %rank, 0;
  @%p0 bra WAIT;
  elect.sync _|%p1, 0xffffffff;
  @!%p1 bra WAIT;
{body}
  {commit}
WAIT:
  bar.warp.sync 0xffffffff;
POLL:
  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%bar], 0;
  @!%p0 bra POLL;
  tcgen05.fence::after_thread_sync;
{dump}
  tcgen05.fence::before_thread_sync;
  {meet}
  tcgen05.fence::after_thread_sync;
  setp.ne.u32 %p0, %warp, 0;
  @%p0 bra END;
  tcgen05.dealloc.{cg}.sync.aligned.b32 %tm, {allocated};
END:
  ret;
}}
"""


def run(
    body: str,
    images: list[npt.NDArray[np.uint8]],
    *,
    columns: int = 64,
    fill: npt.NDArray[np.uint32] | None = None,
    seed: int = 0,
) -> tuple[npt.NDArray[np.uint32], LaunchReport]:
    """Run the frame, one CTA for each image.

    Parameters
    ----------
    fill : uint32[CTAs, 128, columns]
        What tensor memory holds before.

    Returns
    -------
    cells : uint32[CTAs, 128, columns]
        Tensor memory afterwards.
    """
    group = len(images)
    size = -(-max(len(image) for image in images) // 16) * 16
    packed = np.stack([np.pad(image, (0, size - len(image))) for image in images])
    width = max(columns, 0 if fill is None else fill.shape[2])
    before = np.zeros((group, 128, width), np.uint32)
    if fill is not None:
        before[:, :, : fill.shape[2]] = fill
    out = np.zeros((group, 128, width), np.uint32)
    device = Device("sm_100a", seed=seed)
    kernel = device.load(text(body, group=group, columns=columns, filled=0 if fill is None else fill.shape[2]))["probe"]
    arguments: list[Any] = [packed, before, out, np.uint32(size)]
    report = kernel.launch(
        grid=(group, 1, 1), block=128, cluster=(group, 1, 1), shared_bytes=1024 + size, args=arguments
    )
    return out[:, :, :columns], report
