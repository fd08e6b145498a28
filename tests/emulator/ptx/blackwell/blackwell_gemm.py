"""A hand-written GEMM for sm_100a: TMA, mbarriers, tcgen05.mma into tensor memory, commit, tcgen05.ld."""

from __future__ import annotations


def gemm_text(n: int = 64, stages: int = 2, group: int = 1) -> str:
    """C[M, N] (f32) = A[M, K] @ B[N, K]^T in bf16, one tile of 128 * group by n a group of CTAs, K in steps of 64.

    Warp 4 loads, warp 5 issues the mmas (in the first CTA of the group), warps 0 to 3 store the rows of their own CTA.
    With ``group`` 2 each CTA loads its 128 rows of A and its half of B, and announces both on the first CTA's barrier.
    """
    b_rows = n // group
    a_bytes, b_bytes = 128 * 128, b_rows * 128
    stage = a_bytes + b_bytes
    idesc = 1 << 4 | 1 << 7 | 1 << 10 | n // 8 << 17 | 128 * group // 16 << 24
    cg = f"cta_group::{group}"
    if group == 1:
        meet = "bar.sync 0;"
        leave = "bar.sync 0;"
        lead = ""
        commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [{0}];"
    else:
        meet = leave = "barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;"
        lead = "setp.ne.u32 %p1, %rank, 0;\n  @%p1 bra DONE;"
        commit = (
            "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [{0}], %both;"
        )
    load = f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.{cg}"
    free = commit.format("%empty")
    finish = commit.format("%acc")
    mmas = "\n".join(
        f"  tcgen05.mma.{cg}.kind::f16 [%tmem], %da, %db, {idesc:#x}, {'%more' if k == 0 else '1'};"
        + ("\n  add.s64 %da, %da, 2;\n  add.s64 %db, %db, 2;" if k < 3 else "")
        for k in range(4)
    )
    init = "\n".join(
        f"  add.u32 %t, %smem, {8 * s};\n  mbarrier.init.shared::cta.b64 [%t], {group};\n"
        f"  add.u32 %t, %smem, {64 + 8 * s};\n  mbarrier.init.shared::cta.b64 [%t], 1;"
        for s in range(stages)
    )
    loads = "\n".join(
        f"  tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{', '.join(f'%d{c + j}' for j in range(16))}}}, [%tlane+{c}];"
        for c in range(0, n, 16)
    )
    stores = "\n".join(
        f"  st.global.v4.b32 [%out+{4 * c}], {{%d{c}, %d{c + 1}, %d{c + 2}, %d{c + 3}}};" for c in range(0, n, 4)
    )
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry gemm(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 c,
                     .param .u32 width, .param .u32 steps)
.reqntid 192, 1, 1
{{
  .reg .pred %p<8>, %more, %leader; .reg .b16 %both;
  .reg .b32 %t, %smem, %full, %empty, %acc, %slot, %warp, %thread, %rank, %i, %phase, %stage, %steps, %a, %b, %kc;
  .reg .b32 %row, %col, %tmem, %tlane, %width, %lead, %tile, %d<{n}>, %fill;
  .reg .b64 %ma, %mb, %da, %db, %out, %wide, %high;
  //@role epilogue warps=0-3
  //@role load warps=4-4
  //@role mma warps=5-5
  //@shared full offset=0 size={8 * stages} stride=8 count={stages} kind=mbarrier arrive=load wait=mma
  //@shared empty offset=64 size={8 * stages} stride=8 count={stages} kind=mbarrier arrive=mma wait=load
  //@shared accumulator offset=128 size=8 kind=mbarrier arrive=mma wait=epilogue
  //@shared tiles offset=1024 size={stages * stage} stride={stage} count={stages} kind=tile
  mov.u32 %smem, dynamic;
  mov.u32 %thread, %tid.x;
  shr.u32 %warp, %thread, 5;
  mov.u32 %rank, %cluster_ctarank;
  mov.u32 %tile, %ctaid.x;
  cvta.param.u64 %ma, map_a;
  cvta.param.u64 %mb, map_b;
  ld.param.u32 %steps, [steps];
  mov.b16 %both, 3;
  add.u32 %acc, %smem, 128;
  add.u32 %slot, %smem, 136;
  setp.ne.u32 %p0, %thread, 0;
  @%p0 bra READY;
{init}
  mbarrier.init.shared::cta.b64 [%acc], 1;
  fence.mbarrier_init.release.cluster;
READY:
  {meet}
  setp.ne.u32 %p0, %warp, 5;
  @%p0 bra ALLOCATED;
  tcgen05.alloc.{cg}.sync.aligned.shared::cta.b32 [%slot], {max(32, n)};
  tcgen05.relinquish_alloc_permit.{cg}.sync.aligned;
  tcgen05.fence::before_thread_sync;
ALLOCATED:
  {meet}
  tcgen05.fence::after_thread_sync;
  ld.shared.b32 %tmem, [%slot];
  mov.u32 %i, 0;
  mov.u32 %stage, 0;
  mov.u32 %phase, 0;
  setp.eq.u32 %p0, %warp, 4;
  @%p0 bra LOAD;
  setp.eq.u32 %p0, %warp, 5;
  @%p0 bra MMA;

  // epilogue
WAIT_ACC:
  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%acc], 0;
  @!%p0 bra WAIT_ACC;
  tcgen05.fence::after_thread_sync;
  shl.b32 %t, %warp, 21;
  add.u32 %tlane, %tmem, %t;
{loads}
  tcgen05.wait::ld.sync.aligned;
  tcgen05.fence::before_thread_sync;
  ld.param.u32 %width, [width];
  ld.param.u64 %out, [c];
  mad.lo.u32 %row, %tile, 128, %thread;
  mov.u32 %col, %ctaid.y;
  mul.lo.u32 %col, %col, {n};
  mad.lo.u32 %t, %row, %width, %col;
  mul.wide.u32 %wide, %t, 4;
  add.s64 %out, %out, %wide;
{stores}
  bra DONE;

LOAD:
  elect.sync _|%leader, 0xffffffff;
  @!%leader bra DONE;
LOAD_NEXT:
  mad.lo.u32 %full, %stage, 8, %smem;
  add.u32 %empty, %full, 64;
  xor.b32 %fill, %phase, 1;
WAIT_EMPTY:
  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%empty], %fill;
  @!%p0 bra WAIT_EMPTY;
  and.b32 %lead, %full, 0xFEFFFFFF;
  mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%lead], {stage};
  mad.lo.u32 %a, %stage, {stage}, %smem;
  add.u32 %a, %a, 1024;
  add.u32 %b, %a, {a_bytes};
  shl.b32 %kc, %i, 6;
  shl.b32 %row, %tile, 7;
  mov.u32 %col, %ctaid.y;
  mul.lo.u32 %col, %col, {n};
  {"mad.lo.u32 %col, %rank, " + str(b_rows) + ", %col;" if group == 2 else ""}
  {load} [%a], [%ma, {{%kc, %row}}], [%lead];
  {load} [%b], [%mb, {{%kc, %col}}], [%lead];
  add.u32 %i, %i, 1;
  add.u32 %stage, %stage, 1;
  setp.eq.u32 %p0, %stage, {stages};
  @%p0 mov.u32 %stage, 0;
  @%p0 xor.b32 %phase, %phase, 1;
  setp.lt.u32 %p0, %i, %steps;
  @%p0 bra LOAD_NEXT;
  mov.u32 %i, 0;
DRAIN:
  mad.lo.u32 %empty, %stage, 8, %smem;
  add.u32 %empty, %empty, 64;
  xor.b32 %fill, %phase, 1;
WAIT_LAST:
  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%empty], %fill;
  @!%p0 bra WAIT_LAST;
  add.u32 %stage, %stage, 1;
  setp.eq.u32 %p0, %stage, {stages};
  @%p0 mov.u32 %stage, 0;
  @%p0 xor.b32 %phase, %phase, 1;
  add.u32 %i, %i, 1;
  setp.lt.u32 %p0, %i, {stages};
  @%p0 bra DRAIN;
  bra DONE;

MMA:
  {lead}
  elect.sync _|%leader, 0xffffffff;
  @!%leader bra DONE;
MMA_NEXT:
  mad.lo.u32 %full, %stage, 8, %smem;
  add.u32 %empty, %full, 64;
WAIT_FULL:
  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%full], %phase;
  @!%p0 bra WAIT_FULL;
  tcgen05.fence::after_thread_sync;
  mad.lo.u32 %a, %stage, {stage}, %smem;
  add.u32 %a, %a, 1024;
  and.b32 %a, %a, 0x3FFFF;
  shr.u32 %a, %a, 4;
  add.u32 %b, %a, {a_bytes // 16};
  mov.u64 %high, {1 << 46 | 2 << 61 | 64 << 32 | 1 << 16:#x};
  cvt.u64.u32 %da, %a;
  cvt.u64.u32 %db, %b;
  or.b64 %da, %da, %high;
  or.b64 %db, %db, %high;
  setp.ne.u32 %more, %i, 0;
{mmas}
  {free}
  add.u32 %i, %i, 1;
  add.u32 %stage, %stage, 1;
  setp.eq.u32 %p0, %stage, {stages};
  @%p0 mov.u32 %stage, 0;
  @%p0 xor.b32 %phase, %phase, 1;
  setp.lt.u32 %p0, %i, %steps;
  @%p0 bra MMA_NEXT;
  {finish}

DONE:
  bar.warp.sync 0xffffffff;
  {leave}
  setp.ne.u32 %p0, %warp, 5;
  @%p0 bra END;
  tcgen05.dealloc.{cg}.sync.aligned.b32 %tmem, {max(32, n)};
END:
  ret;
}}
"""
