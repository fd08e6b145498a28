"""Gluon kernels for sm_100a: tensor memory, tcgen05, pairs of CTAs, cluster launch control, packed arithmetic."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    clc,
    fence_async_shared,
    fma2,
    max2,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)

from .variants import variant

ONLY = ("sm_100a",)


@variant("gluon_packed", "*fp32 *fp32 *bf16 *bf16", ONLY, constants={"BLOCK": 512})
@gluon.jit
def packed(x, out, y, out2, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    i = gl.arange(0, BLOCK, layout)
    v = gl.load(x + i)
    gl.store(out + i, fma2(v, v, v + 1))
    h = gl.load(y + i)
    gl.store(out2 + i, max2(h, h * 0.5))


@variant("gluon_tmem_copy", "*fp32 *fp32", ONLY, constants={"M": 128, "N": 64})
@gluon.jit
def tmem_copy(x, out, M: gl.constexpr, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    r, i = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    at = r[:, None] * N + i[None, :]
    tmem = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    tmem.store(gl.convert_layout(gl.load(x + at), tmem.get_reg_layout()))
    gl.store(out + at, gl.convert_layout(tmem.load(), layout) * 2)


@variant("gluon_tcgen05", "desc desc desc i32", ONLY,
         descriptors={"a": ("fp16", [128, 64]), "b": ("fp16", [64, 64]), "c": ("fp16", [128, 64])})  # fmt: skip
@variant("gluon_tcgen05_m64", "desc desc desc i32", ONLY,
         descriptors={"a": ("bf16", [64, 64]), "b": ("bf16", [64, 128]), "c": ("bf16", [64, 128])})  # fmt: skip
@gluon.jit
def tcgen05(a, b, c, k):
    M: gl.constexpr = a.block_shape[0]
    K: gl.constexpr = a.block_shape[1]
    N: gl.constexpr = b.block_shape[1]
    tile_a = gl.allocate_shared_memory(a.dtype, [M, K], a.layout)
    tile_b = gl.allocate_shared_memory(b.dtype, [K, N], b.layout)
    tmem = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    loaded, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(loaded, count=1)
    mbarrier.init(done, count=1)
    row, column = gl.program_id(0) * M, gl.program_id(1) * N
    phase = 0
    use = False
    for start in range(0, k, K):
        mbarrier.expect(loaded, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, start], loaded, tile_a)
        tma.async_load(b, [start, column], loaded, tile_b)
        mbarrier.wait(loaded, phase)
        tcgen05_mma(tile_a, tile_b, tmem, use_acc=use)
        tcgen05_commit(done)
        mbarrier.wait(done, phase)
        use = True
        phase ^= 1
    tile_c = gl.allocate_shared_memory(c.dtype, [M, N], c.layout)
    tile_c.store(tmem.load().to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], tile_c)
    tma.store_wait(0)


@variant("gluon_clc", "*i32 *i32", ONLY)
@gluon.jit
def cluster_launch_control(out, counter):
    # Running CTAs take over the work of those that have not started.
    result = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    tile = gl.program_id(0)
    phase = 0
    go = True
    while go:
        gl.atomic_add(out + tile, tile + 1)
        gl.atomic_add(counter, 1)
        mbarrier.expect(bar, 16)
        clc.try_cancel(result, bar)
        mbarrier.wait(bar, phase)
        response = clc.load_result(result)
        go = response.is_canceled()
        tile = response.program_id(0)
        phase ^= 1


@variant("gluon_scaled", "desc desc *u8 *u8 *fp32", ONLY,
         descriptors={"a": ("fp8e4nv", [128, 128]), "b": ("fp8e4nv", [64, 128])})  # fmt: skip
@gluon.jit
def scaled(a, b, scale_a, scale_b, c):
    tile_a = gl.allocate_shared_memory(gl.float8e4nv, a.block_shape, a.layout)
    tile_b = gl.allocate_shared_memory(gl.float8e4nv, b.block_shape, b.layout)
    loaded, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(loaded, count=1)
    mbarrier.init(done, count=1)
    mbarrier.expect(loaded, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [0, 0], loaded, tile_a)
    tma.async_load(b, [0, 0], loaded, tile_b)
    mbarrier.wait(loaded, 0)
    accumulator = allocate_tensor_memory(gl.float32, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    scales: gl.constexpr = TensorMemoryScalesLayout()
    sa = allocate_tensor_memory(gl.uint8, [128, 4], scales)
    sb = allocate_tensor_memory(gl.uint8, [64, 4], scales)
    la: gl.constexpr = sa.get_reg_layout()
    lb: gl.constexpr = sb.get_reg_layout()
    ra, ca = gl.arange(0, 128, gl.SliceLayout(1, la)), gl.arange(0, 4, gl.SliceLayout(0, la))
    rb, cb = gl.arange(0, 64, gl.SliceLayout(1, lb)), gl.arange(0, 4, gl.SliceLayout(0, lb))
    sa.store(gl.load(scale_a + ra[:, None] * 4 + ca[None, :]))
    sb.store(gl.load(scale_b + rb[:, None] * 4 + cb[None, :]))
    tcgen05_mma_scaled(tile_a, tile_b.permute((1, 0)), accumulator, sa, sb, "e4m3", "e4m3", use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    out: gl.constexpr = accumulator.get_reg_layout()
    r, i = gl.arange(0, 128, gl.SliceLayout(1, out)), gl.arange(0, 64, gl.SliceLayout(0, out))
    gl.store(c + r[:, None] * 64 + i[None, :], accumulator.load())


@variant("gluon_two_ctas", "desc desc *fp32", ONLY, num_ctas=2,
         descriptors={"a": ("fp16", [256, 64], [[1, 0]]), "b": ("fp16", [64, 64], [[0, 1]])})  # fmt: skip
@gluon.jit
def two_ctas(a, b, c):
    # One instruction of a pair of CTAs: each holds half of A's rows, half of B's columns and half of the result's rows.
    tile_a = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    tile_b = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    loaded = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(loaded, count=1)
    mbarrier.init(done, count=1)
    layout: gl.constexpr = TensorMemoryLayout([128, 64], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    tmem = allocate_tensor_memory(gl.float32, [256, 64], layout)
    mbarrier.expect(loaded, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [0, 0], loaded, tile_a)
    tma.async_load(b, [0, 0], loaded, tile_b)
    mbarrier.wait(loaded, 0)
    tcgen05_mma(tile_a, tile_b, tmem, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    out: gl.constexpr = tmem.get_reg_layout()
    r, i = gl.arange(0, 256, gl.SliceLayout(1, out)), gl.arange(0, 64, gl.SliceLayout(0, out))
    gl.store(c + r[:, None] * 64 + i[None, :], tmem.load())


@gluon.jit
def load_role(a, b, c, ring_a, ring_b, tmem, full, empty, done, row, column, steps, STAGES: gl.constexpr):
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(empty.index(s), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(s), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, step * a.block_shape[1]], full.index(s), ring_a.index(s))
        tma.async_load(b, [step * b.block_shape[0], column], full.index(s), ring_b.index(s))


@gluon.jit
def multiply_role(a, b, c, ring_a, ring_b, tmem, full, empty, done, row, column, steps, STAGES: gl.constexpr):
    use = False
    for step in range(steps):
        s = step % STAGES
        mbarrier.wait(full.index(s), step // STAGES & 1)
        tcgen05_mma(ring_a.index(s), ring_b.index(s), tmem, use_acc=use)
        tcgen05_commit(empty.index(s))
        use = True
    tcgen05_commit(done)


@gluon.jit
def store_role(a, b, c, ring_a, ring_b, tmem, full, empty, done, row, column, steps, STAGES: gl.constexpr):
    mbarrier.wait(done, 0)
    tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    tile.store(tmem.load().to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], tile)
    tma.store_wait(0)


@variant(
    "gluon_tcgen05_roles",
    "desc desc desc i32",
    ONLY,
    constants={"STAGES": 3},
    descriptors={"a": ("fp16", [128, 64]), "b": ("fp16", [64, 128]), "c": ("fp16", [128, 128])},
)
@gluon.jit
def tcgen05_roles(a, b, c, k, STAGES: gl.constexpr):
    M: gl.constexpr = a.block_shape[0]
    K: gl.constexpr = a.block_shape[1]
    N: gl.constexpr = b.block_shape[1]
    ring_a = gl.allocate_shared_memory(a.dtype, [STAGES, M, K], a.layout)
    ring_b = gl.allocate_shared_memory(b.dtype, [STAGES, K, N], b.layout)
    tmem = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    mbarrier.init(done, count=1)
    row, column = gl.program_id(0) * M, gl.program_id(1) * N
    steps = gl.cdiv(k, K)
    arguments = (a, b, c, ring_a, ring_b, tmem, full, empty, done, row, column, steps, STAGES)
    gl.warp_specialize([(store_role, arguments), (load_role, arguments), (multiply_role, arguments)], [1, 1], [24, 24])
