"""A hand-written warp-specialised GEMM in PTX: TMA producer warp, wgmma consumer warpgroup, a ring of stages."""

from __future__ import annotations


def gemm_text(n: int = 64, stages: int = 2, cluster: int = 1) -> str:
    """C[M, N] (f32) = A[M, K] @ B[N, K]^T in bf16; tile 64 x n, K in steps of 64; B multicast over ``cluster`` CTAs.

    Each CTA of a cluster (along M) loads its own A tile and 1/cluster of the B tile for all of them.
    """
    a_bytes, b_bytes = 64 * 128, n * 128
    stage = a_bytes + b_bytes
    tile_base = 1024
    accumulators = n // 2
    d = ", ".join(f"%d{i}" for i in range(accumulators))
    mask = (1 << cluster) - 1
    part = n // cluster
    if cluster == 1:
        load_b = (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%b], [%mb, {%kc, %nc}], [%full];"
        )
        release = "@%leader mbarrier.arrive.shared::cta.b64 _, [%empty];"
        meet = "bar.sync 0;"
        leave = ""
    else:
        load_b = f"""
        mad.lo.u32 %b, %rank, {part * 128}, %b;
        mad.lo.u32 %nn, %rank, {part}, %nc;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [%b], [%mb, {{%kc, %nn}}], [%full], {mask};"""
        release = "\n".join(
            f"mapa.shared::cluster.u32 %peer, %empty, {rank};\n"
            "@%leader mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peer];"
            for rank in range(cluster)
        )
        meet = "barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;"
        leave = meet
    wgmmas = "\n".join(
        f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{d}}}, %da{k}, %db{k}, "
        f"{'%more' if k == 0 else '1'}, 1, 1, 0, 0;"
        for k in range(4)
    )
    descriptors = "\n".join(f"add.s64 %da{k}, %da0, {2 * k};\n add.s64 %db{k}, %db0, {2 * k};" for k in range(1, 4))
    stores = "\n".join(
        f"st.global.v2.f32 [%out+{32 * i}], {{%d{4 * i}, %d{4 * i + 1}}};\n"
        f"st.global.v2.f32 [%out8+{32 * i}], {{%d{4 * i + 2}, %d{4 * i + 3}}};"
        for i in range(n // 8)
    )
    init = "\n".join(
        f"add.u32 %t, %smem, {8 * s};\n mbarrier.init.shared::cta.b64 [%t], 1;\n"
        f"add.u32 %t, %smem, {64 + 8 * s};\n mbarrier.init.shared::cta.b64 [%t], {4 * cluster};"
        for s in range(stages)
    )
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry gemm(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 c,
                     .param .u32 k_steps, .param .u32 ldc)
.maxntid 160
.minnctapersm 1
{{
  .reg .pred %p, %leader, %more;
  .reg .b32 %smem, %t, %warp, %thread, %stage, %phase, %k, %steps, %full, %empty, %a, %b, %kc, %mc, %nc, %nn, %rank;
  .reg .b32 %peer, %row, %col, %lane, %ld;
  .reg .b64 %da<4>, %db<4>, %out, %out8, %c, %w, %ma, %mb;
  .reg .f32 %d<{accumulators}>;
  //@role mma warps=0-3
  //@role load warps=4-4
  //@shared ring.full offset=0 size={8 * stages} stride=8 count={stages} kind=mbarrier arrive=load wait=mma
  //@shared ring.empty offset=64 size={8 * stages} stride=8 count={stages} kind=mbarrier arrive=mma wait=load
  //@shared ring.tiles offset={tile_base} size={stage * stages} stride={stage} count={stages} kind=tile
  mov.u32 %smem, dynamic;
  mov.u32 %thread, %tid.x;
  shr.u32 %warp, %thread, 5;
  mov.u32 %rank, %cluster_ctarank;
  ld.param.u32 %steps, [k_steps];
  setp.ne.u32 %p, %thread, 0;
  @%p bra READY;
  {init}
  fence.mbarrier_init.release.cluster;
READY:
  {meet}
  mov.u32 %t, %ctaid.x;
  shl.b32 %mc, %t, 6;
  mov.u32 %t, %ctaid.y;
  mul.lo.u32 %nc, %t, {n};
  mov.u32 %stage, 0;
  mov.u32 %k, 0;
  setp.eq.u32 %p, %warp, 4;
  @%p bra PRODUCER;

  mov.u32 %phase, 0;
  elect.sync _|%leader, -1;
CONSUME:
  shl.b32 %t, %stage, 3;
  add.u32 %full, %smem, %t;
  add.u32 %empty, %full, 64;
  mad.lo.u32 %a, %stage, {stage}, %smem;
  add.u32 %a, %a, {tile_base};
WAIT_FULL:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%full], %phase;  //@ mma Ring.wait ring.py:10
  @!%p bra WAIT_FULL;
  and.b32 %a, %a, 0x3ffff;
  shr.u32 %a, %a, 4;
  mov.b64 %da0, {{%a, 0x40000040}};
  add.u32 %a, %a, {a_bytes // 16};
  mov.b64 %db0, {{%a, 0x40000040}};
  {descriptors}
  setp.ne.u32 %more, %k, 0;
  wgmma.fence.sync.aligned;
  {wgmmas}
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  {release}
  add.u32 %k, %k, 1;
  add.u32 %stage, %stage, 1;
  setp.eq.u32 %p, %stage, {stages};
  selp.u32 %stage, 0, %stage, %p;
  @%p xor.b32 %phase, %phase, 1;
  setp.lt.u32 %p, %k, %steps;
  @%p bra CONSUME;

  ld.param.u64 %c, [c];
  ld.param.u32 %ld, [ldc];
  cvta.to.global.u64 %c, %c;
  and.b32 %lane, %thread, 31;
  shr.u32 %row, %lane, 2;
  mad.lo.u32 %row, %warp, 16, %row;
  add.u32 %row, %row, %mc;
  and.b32 %col, %lane, 3;
  shl.b32 %col, %col, 1;
  add.u32 %col, %col, %nc;
  mad.lo.u32 %t, %row, %ld, %col;
  mul.wide.u32 %w, %t, 4;
  add.s64 %out, %c, %w;
  mul.wide.u32 %w, %ld, 32;
  add.s64 %out8, %out, %w;
  {stores}
  bra DONE;

PRODUCER:
  mov.u32 %phase, 1;
  elect.sync _|%leader, -1;
  @!%leader bra DONE;
  mov.b64 %ma, map_a;
  cvta.param.u64 %ma, %ma;
  mov.b64 %mb, map_b;
  cvta.param.u64 %mb, %mb;
LOAD:
  shl.b32 %t, %stage, 3;
  add.u32 %full, %smem, %t;
  add.u32 %empty, %full, 64;
WAIT_EMPTY:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%empty], %phase;  //@ load Ring.acquire ring.py:20
  @!%p bra WAIT_EMPTY;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], {stage};
  mad.lo.u32 %a, %stage, {stage}, %smem;
  add.u32 %a, %a, {tile_base};
  add.u32 %b, %a, {a_bytes};
  shl.b32 %kc, %k, 6;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
      [%a], [%ma, {{%kc, %mc}}], [%full];  //@ load TmaLoader.load tma.py:30
  {load_b}
  add.u32 %k, %k, 1;
  add.u32 %stage, %stage, 1;
  setp.eq.u32 %p, %stage, {stages};
  selp.u32 %stage, 0, %stage, %p;
  @%p xor.b32 %phase, %phase, 1;
  setp.lt.u32 %p, %k, %steps;
  @%p bra LOAD;
DONE:
  {leave}
  ret;
}}
"""


def shared_bytes(n: int = 64, stages: int = 2) -> int:
    """Dynamic shared memory of :func:`gemm_text`."""
    return 1024 + stages * (64 + n) * 128
