"""Gluon kernels for AMD chips: loads to LDS, matrix layouts, scales, padded LDS, stages that waves take in turn."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton_kernels.variants import variant

BOTH, NEW = ("gfx942", "gfx950"), ("gfx950",)
cdna3, cdna4 = gl.amd.cdna3, gl.amd.cdna4


@variant("gluon_buffer_copy", "*fp32 *fp32 i32", BOTH, constants={"BLOCK": 512}, num_warps=2)
@gluon.jit
def buffer_copy(x, y, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [64], [2], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    value = cdna3.buffer_load(x, i, mask=i < n, other=-1.0, cache=".cg")
    cdna3.buffer_store(value * 2 + 1, y, i, mask=i < n)


@variant("gluon_buffer_atomics", "*i32 *i32 *fp32 *fp32 i32", BOTH, constants={"BLOCK": 256})
@gluon.jit
def buffer_atomics(x, out, z, out2, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    v = cdna3.buffer_load(x, i, mask=i < n, other=0)
    cdna3.buffer_atomic_max(out, i % 16, v, mask=i < n)
    cdna3.buffer_atomic_min(out, 16 + i % 16, v, mask=i < n, sem="relaxed", scope="cta")
    cdna3.buffer_atomic_xor(out, 32 + i % 16, v, mask=i < n)
    cdna3.buffer_atomic_and(out, 48 + i % 16, v, mask=i < n)
    cdna3.buffer_atomic_or(out, 64 + i % 16, v, mask=i < n)
    cdna3.buffer_atomic_xchg(out, 80 + i, v, mask=i < n)
    cdna3.buffer_atomic_add(out2, i % 8, cdna3.buffer_load(z, i, mask=i < n, other=0.0), mask=i < n)


@gluon.jit
def _product(a, b, c, m, n, k, LAYOUT: gl.constexpr, WIDTH: gl.constexpr, M: gl.constexpr, N: gl.constexpr,
             K: gl.constexpr, REGISTERS: gl.constexpr):  # fmt: skip
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [4, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    i, d = gl.arange(0, M, gl.SliceLayout(1, rows)), gl.arange(0, K, gl.SliceLayout(0, rows))
    e, j = gl.arange(0, K, gl.SliceLayout(1, rows)), gl.arange(0, N, gl.SliceLayout(0, rows))
    x = gl.allocate_shared_memory(a.dtype.element_ty, [M, K], shared)
    y = gl.allocate_shared_memory(b.dtype.element_ty, [K, N], shared)
    left: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, WIDTH)
    right: gl.constexpr = gl.DotOperandLayout(1, LAYOUT, WIDTH)
    total = gl.zeros([M, N], gl.float32, LAYOUT)
    ii, jj = gl.program_id(0) * M, gl.program_id(1) * N
    for start in range(0, k, K):
        x.store(cdna3.buffer_load(a, (ii + i)[:, None] * k + (start + d)[None, :]))
        y.store(cdna3.buffer_load(b, (start + e)[:, None] * n + (jj + j)[None, :]))
        total = cdna3.mfma(x.load(left), y.load(right), total, cd_regclass=REGISTERS)
    p, q = gl.arange(0, M, gl.SliceLayout(1, LAYOUT)), gl.arange(0, N, gl.SliceLayout(0, LAYOUT))
    cdna3.buffer_store(total, c, (ii + p)[:, None] * n + (jj + q)[None, :])


@variant(
    "gluon_mfma_16",
    "*fp16 *fp16 *fp32 i32 i32 i32",
    BOTH,
    constants={"V": 3, "SHAPE": [16, 16, 16], "T": False, "REGISTERS": "a"},
)
@variant(
    "gluon_mfma_32",
    "*bf16 *bf16 *fp32 i32 i32 i32",
    BOTH,
    constants={"V": 3, "SHAPE": [32, 32, 8], "T": True, "REGISTERS": "v"},
)
@variant(
    "gluon_mfma_16_wide",
    "*bf16 *bf16 *fp32 i32 i32 i32",
    NEW,
    constants={"V": 4, "SHAPE": [16, 16, 32], "T": True, "REGISTERS": "a"},
)
@variant(
    "gluon_mfma_32_wide",
    "*fp16 *fp16 *fp32 i32 i32 i32",
    NEW,
    constants={"V": 4, "SHAPE": [32, 32, 16], "T": False, "REGISTERS": "a"},
)
@gluon.jit
def mfma_layouts(a, b, c, m, n, k, V: gl.constexpr, SHAPE: gl.constexpr, T: gl.constexpr, REGISTERS: gl.constexpr):
    layout: gl.constexpr = gl.amd.AMDMFMALayout(V, SHAPE, T, [2, 2])
    _product(a, b, c, m, n, k, layout, 4, 64, 128, 64, REGISTERS)


@variant(
    "gluon_lds_ring", "*fp16 *fp16 *fp32 i32:16 i32:16 i32:16", NEW, constants={"M": 64, "N": 64, "K": 64, "STAGES": 2}
)
@variant(
    "gluon_lds_ring_3",
    "*fp16 *fp16 *fp32 i32:16 i32:16 i32:16",
    NEW,
    constants={"M": 64, "N": 64, "K": 64, "STAGES": 3},
)
@gluon.jit
def lds_ring(a, b, c, m, n, k, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, STAGES: gl.constexpr):
    """Loads to LDS under way while earlier stages are multiplied; B's rows lie along K."""
    layout: gl.constexpr = gl.amd.AMDMFMALayout(4, [16, 16, 32], True, [2, 2])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 8)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 8)
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [4, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    i, d = gl.arange(0, M, gl.SliceLayout(1, rows)), gl.arange(0, K, gl.SliceLayout(0, rows))
    x = gl.allocate_shared_memory(a.dtype.element_ty, [STAGES, M, K], shared)
    y = gl.allocate_shared_memory(b.dtype.element_ty, [STAGES, N, K], shared)
    at_x = (gl.program_id(0) * M + i)[:, None] * k + d[None, :]
    at_y = (gl.program_id(1) * N + i)[:, None] * k + d[None, :]
    for s in gl.static_range(STAGES - 1):
        cdna4.async_copy.buffer_load_to_shared(x.index(s), a, at_x + s * K)
        cdna4.async_copy.buffer_load_to_shared(y.index(s), b, at_y + s * K)
        cdna4.async_copy.commit_group()
    total = gl.zeros([M, N], gl.float32, layout)
    for step in range(k // K):
        ahead = step + STAGES - 1
        inside = (at_x >= 0) & (ahead * K < k)
        cdna4.async_copy.buffer_load_to_shared(x.index(ahead % STAGES), a, at_x + ahead * K, mask=inside)
        cdna4.async_copy.buffer_load_to_shared(y.index(ahead % STAGES), b, at_y + ahead * K, mask=inside)
        cdna4.async_copy.commit_group()
        cdna4.async_copy.wait_group(STAGES - 1)
        p = cdna4.async_copy.load_shared_relaxed(x.index(step % STAGES), left)
        q = cdna4.async_copy.load_shared_relaxed(y.index(step % STAGES).permute([1, 0]), right)
        total = cdna4.mfma(p, q, total)
    r, s = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    place = (gl.program_id(0) * M + r)[:, None] * n + (gl.program_id(1) * N + s)[None, :]
    cdna4.buffer_store(total, c, place)


@variant("gluon_global_to_lds", "*fp32 *fp32 i32", NEW, constants={"BLOCK": 1024})
@gluon.jit
def global_to_lds(x, y, n, BLOCK: gl.constexpr):
    """Loads to LDS by 64-bit addresses, read back in another order."""
    layout: gl.constexpr = gl.BlockedLayout([4], [64], [4], [0])
    other: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    ring = gl.allocate_shared_memory(gl.float32, [2, BLOCK], shared)
    i, o = gl.arange(0, BLOCK, layout=layout), gl.arange(0, BLOCK, layout=other)
    cdna4.async_copy.global_load_to_shared(ring.index(0), x + i)
    cdna4.async_copy.commit_group()
    for step in range(n // BLOCK):
        ahead = (step + 1) % (n // BLOCK) * BLOCK
        cdna4.async_copy.global_load_to_shared(ring.index((step + 1) % 2), x + ahead + i)
        cdna4.async_copy.commit_group()
        cdna4.async_copy.wait_group(1)
        value = ring.index(step % 2).load(other)
        gl.store(y + step * BLOCK + o, value * 3)


@variant("gluon_padded", "*fp16 *fp16", BOTH, constants={"ROWS": 64, "BLOCK": 64})
@gluon.jit
def padded(x, y, ROWS: gl.constexpr, BLOCK: gl.constexpr):
    """A transpose through LDS with padding."""
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [4, 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([8, 1], [8, 8], [1, 4], [0, 1])
    shared: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[64, 8]], [ROWS, BLOCK], [1, 0])
    r, c = gl.arange(0, ROWS, gl.SliceLayout(1, rows)), gl.arange(0, BLOCK, gl.SliceLayout(0, rows))
    tile = gl.allocate_shared_memory(gl.float16, [ROWS, BLOCK], shared)
    tile.store(gl.load(x + r[:, None] * BLOCK + c[None, :]))
    p, q = gl.arange(0, ROWS, gl.SliceLayout(1, columns)), gl.arange(0, BLOCK, gl.SliceLayout(0, columns))
    gl.store(y + q[None, :] * ROWS + p[:, None], tile.load(columns))


@variant("gluon_scaled", "*u8 *u8 *u8 *u8 *fp32", NEW, constants={"AF": "e2m1", "BF": "e4m3", "SHAPE": [16, 16, 128]})
@variant("gluon_scaled_32", "*u8 *u8 *u8 *u8 *fp32", NEW, constants={"AF": "e5m2", "BF": "e2m1", "SHAPE": [32, 32, 64]})
@gluon.jit
def scaled(a, b, sa, sb, c, AF: gl.constexpr, BF: gl.constexpr, SHAPE: gl.constexpr):
    """A scaled product of 64 x 64 x 128 with scales in the layout of the instruction."""
    layout: gl.constexpr = gl.amd.AMDMFMALayout(4, SHAPE, True, [2, 2])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 16)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 16)
    KA: gl.constexpr = 64 if AF == "e2m1" else 128
    KB: gl.constexpr = 64 if BF == "e2m1" else 128
    rows: gl.constexpr = gl.BlockedLayout([1, 16], [16, 4], [4, 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([16, 1], [4, 16], [1, 4], [0, 1])
    i, d = gl.arange(0, 64, gl.SliceLayout(1, rows)), gl.arange(0, KA, gl.SliceLayout(0, rows))
    e, j = gl.arange(0, KB, gl.SliceLayout(1, columns)), gl.arange(0, 64, gl.SliceLayout(0, columns))
    x = gl.convert_layout(gl.load(a + i[:, None] * KA + d[None, :]), left)
    y = gl.convert_layout(gl.load(b + j[None, :] * KB + e[:, None]), right)
    ls: gl.constexpr = cdna4.get_mfma_scale_layout(left, [64, 4])
    rs: gl.constexpr = cdna4.get_mfma_scale_layout(right, [64, 4])
    p, q = gl.arange(0, 64, gl.SliceLayout(1, ls)), gl.arange(0, 4, gl.SliceLayout(0, ls))
    u, v = gl.arange(0, 64, gl.SliceLayout(1, rs)), gl.arange(0, 4, gl.SliceLayout(0, rs))
    m, n = gl.load(sa + p[:, None] * 4 + q[None, :]), gl.load(sb + u[:, None] * 4 + v[None, :])
    total = cdna4.mfma_scaled(x, m, AF, y, n, BF, gl.zeros([64, 64], gl.float32, layout))
    r, s = gl.arange(0, 64, gl.SliceLayout(1, layout)), gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(c + r[:, None] * 64 + s[None, :], total)


@variant("gluon_pipelined", "*bf16 *bf16 *fp32 i32 i32 i32", NEW, constants={"M": 128, "N": 128, "K": 64}, num_warps=8)
@variant(
    "gluon_pipelined_942",
    "*bf16 *bf16 *fp32 i32 i32 i32",
    ("gfx942",),
    constants={"M": 128, "N": 128, "K": 32},
    num_warps=8,
)
@gluon.jit
def pipelined(a, b, c, m, n, k, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """Two groups of waves half a turn apart: one loads while the other multiplies; stores lie two steps ahead."""
    layout: gl.constexpr = gl.amd.AMDMFMALayout(3, [16, 16, 16], True, [2, 4])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 4)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 4)
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [64 * 8 // K, K // 8], [8, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 16, [1, 0])
    i, d = gl.arange(0, M, gl.SliceLayout(1, rows)), gl.arange(0, K, gl.SliceLayout(0, rows))
    x = gl.allocate_shared_memory(a.dtype.element_ty, [3, M, K], shared)
    y = gl.allocate_shared_memory(b.dtype.element_ty, [3, N, K], shared)
    at_x = (gl.program_id(0) * M + i)[:, None] * k + d[None, :]
    at_y = (gl.program_id(1) * N + i)[:, None] * k + d[None, :]
    x.index(0).store(cdna3.buffer_load(a, at_x))
    y.index(0).store(cdna3.buffer_load(b, at_y))
    x.index(1).store(cdna3.buffer_load(a, at_x + K))
    y.index(1).store(cdna3.buffer_load(b, at_y + K))
    total = gl.zeros([M, N], gl.float32, layout)
    for step in range(k // K - 1):
        with gl.amd.warp_pipeline_stage("load", priority=1):
            p = x.index(step % 3).load(left)
            q = y.index(step % 3).permute([1, 0]).load(right)
            ahead = (step + 2) % (k // K) * K
            u = cdna3.buffer_load(a, at_x + ahead)
            v = cdna3.buffer_load(b, at_y + ahead)
        with gl.amd.warp_pipeline_stage("multiply", priority=0):
            total = cdna3.mfma(p, q, total)
            x.index((step + 2) % 3).store(u)
            y.index((step + 2) % 3).store(v)
    last = (k // K - 1) % 3
    total = cdna3.mfma(x.index(last).load(left), y.index(last).permute([1, 0]).load(right), total)
    r, s = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    cdna3.buffer_store(total, c, (gl.program_id(0) * M + r)[:, None] * n + (gl.program_id(1) * N + s)[None, :])
